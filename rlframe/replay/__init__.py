"""Replay buffers: rows by policy, whole episodes, rows of all agents in lockstep; what trainers make of a config."""
