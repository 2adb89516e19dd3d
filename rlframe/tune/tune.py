"""`ray.tune.tune`, where programs that import `rlframe.tune.tune` look for what runs trials."""

from typing import Any

from rlframe.tune import run, run_experiments
from rlframe.tune.schedulers import create_scheduler

__all__ = ["run", "run_experiments"]


def _make_scheduler(args: Any) -> Any:
    """Returns the scheduler that the flags of `config_parser.make_parser` name."""
    return create_scheduler(args.scheduler, **args.scheduler_config)
