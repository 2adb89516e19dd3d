"""Environments that RLlib's example programs import, under the paths they have there."""
