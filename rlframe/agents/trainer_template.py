"""RLlib's path to trainers made from parts; they are made in `rlframe.trainer.template`."""

from rlframe.trainer.template import build_trainer

__all__ = ["build_trainer"]
