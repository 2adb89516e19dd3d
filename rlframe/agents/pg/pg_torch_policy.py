"""PG in PyTorch; see `pg_policy`."""

from __future__ import annotations

from typing import Any

from rlframe.agents.pg.pg_policy import PGPolicy
from rlframe.agents.pg.pg_policy import pg_loss as pg_torch_loss
from rlframe.evaluation.postprocessing import post_process_advantages
from rlframe.policy.torch_policy import TorchPolicy


class PGTorchPolicy(PGPolicy, TorchPolicy):
    """An actor trained on returns."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        TorchPolicy.__init__(self, obs_space, action_space, config)


__all__ = ["PGTorchPolicy", "pg_torch_loss", "post_process_advantages"]
