"""RLlib's path of contributed algorithms: thin re-exports of `rlframe.agents`."""
