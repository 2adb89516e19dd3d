"""`ray.tune.config_parser` of Ray 1.x: the command line that programs of one's own extend."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from rlframe.tune.resources import json_to_resources

#: Flag -> what argparse makes of it.
_FLAGS: dict[str, dict[str, Any]] = {
    "--run": {"help": "name of an algorithm, or of a registered trainable"},
    "--stop": {"default": "{}", "type": json.loads, "help": "when to stop, JSON: '{\"timesteps_total\": 50000}'"},
    "--config": {"default": "{}", "type": json.loads, "help": "config keys, JSON: '{\"lr\": 1e-3}'"},
    "--resources-per-trial": {
        "type": json_to_resources,
        "help": 'resources of a trial, JSON: \'{"cpu": 4, "gpu": 1}\'; by default what its config needs',
    },
    "--num-samples": {"default": 1, "type": int, "help": "trials of each variant"},
    "--checkpoint-freq": {"default": 0, "type": int, "help": "iterations between checkpoints; 0 for none"},
    "--checkpoint-at-end": {"action": "store_true", "help": "a checkpoint at the end"},
    "--sync-on-checkpoint": {"action": "store_true", "help": "without effect: checkpoints are written before a result"},
    "--keep-checkpoints-num": {"type": int, "help": "best checkpoints that stay; all by default"},
    "--checkpoint-score-attr": {
        "default": "training_iteration",
        "help": "what tells the best checkpoints; min-NAME where less is better",
    },
    "--export-formats": {"help": "without effect: use Trainer.export_policy_model()"},
    "--max-failures": {"default": 3, "type": int, "help": "times that a failed trial goes on from its checkpoint"},
    "--scheduler": {"default": "FIFO", "help": "name of a scheduler, for ray.tune.create_scheduler"},
    "--scheduler-config": {"default": "{}", "type": json.loads, "help": "its arguments, JSON"},
    "--restore": {"help": "checkpoint to begin with"},
}


def make_parser(parser_creator: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Returns a parser with the flags of an experiment, which programs add theirs to.

    Args:
        parser_creator: Makes the parser; None takes `argparse.ArgumentParser`.
        **kwargs: Its arguments.
    """
    parser = (parser_creator or argparse.ArgumentParser)(**kwargs)
    for flag, options in _FLAGS.items():
        parser.add_argument(flag, **options)
    return parser
