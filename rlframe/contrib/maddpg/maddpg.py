"""`rlframe.agents.maddpg.maddpg` at RLlib's path."""

from rlframe.agents.maddpg.maddpg import DEFAULT_CONFIG, MADDPGTrainer

__all__ = ["DEFAULT_CONFIG", "MADDPGTrainer"]
