"""DDPG and TD3."""
