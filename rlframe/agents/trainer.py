"""RLlib's path to the trainer; it lives in `rlframe.trainer.trainer`."""

from rlframe.trainer.trainer import COMMON_CONFIG, MAX_WORKER_FAILURE_RETRIES, Trainer, with_common_config

__all__ = ["COMMON_CONFIG", "MAX_WORKER_FAILURE_RETRIES", "Trainer", "with_common_config"]
