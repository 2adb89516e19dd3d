"""Checkpoints from one framework to another: weights are named arrays, and so are Adam's moments."""

from __future__ import annotations

import os
from typing import Any

from rlframe.trainer.checkpoint_paths import resolve_path
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.state_files import read_state, write_state

FRAMEWORKS = ("torch", "tf")


def convert_checkpoint(checkpoint: str, framework: str, output: str | None = None) -> str:
    """Writes a copy of a trainer's checkpoint for another framework.

    Weights, target networks, Adam's moments, counters, replay buffer, filters and the random streams of environments
    and exploration are kept. The streams of noisy layers belong to their framework; they start anew from the seed.
    Neither framework is loaded.

    Args:
        checkpoint: What `trainer.save()` returned, or the checkpoint's directory.
        framework: "torch" or "tf".
        output: Directory to write; None is the checkpoint's own with "_torch" or "_tf" behind it.

    Returns:
        The directory written.

    Raises:
        ConfigError: If the framework is unknown.
        CheckpointError: If the checkpoint holds what belongs to its framework: a model or an optimiser of the user's.
    """
    if framework not in FRAMEWORKS:
        raise ConfigError(f"framework: got {framework!r}, wanted one of {', '.join(FRAMEWORKS)}")
    source = resolve_path(checkpoint)
    state, meta = read_state(source)
    if meta.get("kind") != "trainer":
        raise CheckpointError(f"checkpoint {source!r} holds {meta.get('kind')!r}, wanted a trainer's")
    custom = (meta.get("config") or {}).get("model", {}).get("custom_model")
    if custom:
        raise CheckpointError(
            f"checkpoint {source!r} has the custom model {custom!r}, whose weights only its own framework can name; "
            f"write the model for {framework!r} and copy the weights with policy.set_weights()"
        )
    for policy_id, policy in state["local_worker"]["policies"].items():
        _convert_policy(policy, f"policy {policy_id!r} of checkpoint {source!r}")
    meta = {**meta, "framework": framework, "config": {**(meta.get("config") or {}), "framework": framework}}
    target = output or f"{source.rstrip(os.sep)}_{framework}"
    write_state(target, state, {key: value for key, value in meta.items() if not key.startswith("_")})
    return target


def _convert_policy(policy: dict[str, Any], owner: str) -> None:
    """Drops what the other framework cannot take over, in place.

    Raises:
        CheckpointError: If that is more than a stream of noise.
    """
    for number, optimizer in enumerate(policy.get("_optimizer_variables", [])):
        if optimizer.get("kind") != "adam":
            raise CheckpointError(
                f"optimiser {number} of {owner} is no Adam over the model's own parameters; only that one means the "
                "same in both frameworks"
            )
    for stream in ("_torch_rng", "_tf_rng"):
        policy.pop(stream, None)
