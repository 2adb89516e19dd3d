"""`rlframe rollout`: RLlib's command for playing a checkpoint, with the flags that it had."""

from __future__ import annotations

import importlib

import typer

from rlframe.cli.app import app


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def rollout(ctx: typer.Context) -> None:
    """Play a checkpoint with the flags of RLlib's `rollout` and `evaluate`: --run, --steps, --out, --save-info.

    `rlframe evaluate` has this package's own.
    """
    module = importlib.import_module("rlframe.evaluate")  # RLlib's script, which needs Ray
    parser = module.create_parser()
    parser.prog = "rlframe rollout"
    module.run(parser.parse_args(ctx.args), parser)
