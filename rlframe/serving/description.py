"""What a client needs to act by itself: policies without a framework, as plain data."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from rlframe.models.recurrent_actor import make_actor
from rlframe.policy.numpy_policy import ActingRecipe
from rlframe.utils.errors import ConfigError, DataError

#: Keys that say something of the server's process only; with its seed all clients would explore alike.
_OWN = (
    "callbacks",
    "env",
    "env_config",
    "input",
    "input_config",
    "output",
    "output_config",
    "logger_config",
    "evaluation_config",
    "seed",
)
_INSTEAD = "; use PolicyClient(..., inference_mode='remote')"


def describe_worker(worker: Any) -> dict[str, Any]:
    """Returns a worker's policies, each as `recipe_of` takes it.

    Raises:
        ConfigError: If one cannot act without its framework or without the server's objects.
    """
    multiagent = worker.policy_config.multiagent
    if len(worker.policy_map) > 1 or multiagent.policies:
        raise ConfigError(f"several policies choose for their agents at the server{_INSTEAD}")
    if any(type(held).__name__ != "NoFilter" for held in worker.filters.values()):
        raise ConfigError(
            f"observation_filter={worker.policy_config.observation_filter!r} counts at the server{_INSTEAD}"
        )
    described = {pid: _describe(pid, policy) for pid, policy in worker.policy_map.items()}
    return {
        "policies": described,
        "spaces": (worker.observation_space, worker.action_space),
        "settings": {
            key: worker.policy_config[key] for key in ("rollout_fragment_length", "batch_mode", "clip_rewards")
        },
    }


def _describe(policy_id: str, policy: Any) -> dict[str, Any]:
    ask = getattr(policy, "acting_recipe", None)
    recipe: ActingRecipe | None = getattr(policy, "recipe", None) if ask is None else ask()
    if recipe is None or recipe.build_actor is not make_actor or recipe.views or recipe.acts_for_group:
        raise ConfigError(f"policy {policy_id!r} acts in its framework (a model or a loss of one's own){_INSTEAD}")
    postprocess: Any = recipe.postprocess
    return {
        "config": {key: value for key, value in dict(policy.config).items() if key not in _OWN},
        "spec": recipe.spec,
        "postprocess": None if postprocess is None else f"{postprocess.__module__}:{postprocess.__qualname__}",
        "state": list(recipe.initial_state),
        "train_columns": None if recipe.train_columns is None else list(recipe.train_columns),
        **{name: getattr(recipe, name) for name in _PLAIN},
    }


_PLAIN = ("wants_values", "noisy", "learns_sequences", "max_seq_len", "dist_type")


def recipe_of(described: Mapping[str, Any]) -> ActingRecipe:
    """Returns how a described policy acts.

    Raises:
        DataError: If it names a function that is none of this package's for trajectories.
    """
    columns = described["train_columns"]
    return ActingRecipe(
        build_actor=make_actor,
        spec=described["spec"],
        train_columns=None if columns is None else tuple(columns),
        postprocess=_postprocess_at(described["postprocess"]),
        initial_state=tuple(described["state"]),
        **{name: described[name] for name in _PLAIN},
    )


def _postprocess_at(path: str | None) -> Any:
    """Returns a function that postprocesses trajectories; a message cannot name any other."""
    if path is None:
        return None
    module, _, name = path.partition(":")
    unknown = f"got {path!r}, wanted a function of rlframe that postprocesses trajectories{_INSTEAD}"
    try:
        found = getattr(importlib.import_module(module), name, None) if module.startswith("rlframe.") else None
    except ModuleNotFoundError as error:  # a server of another version has other modules
        raise DataError(f"{unknown}, or the server's version of rlframe") from error
    if not callable(found) or not getattr(found, "framework_free", None):
        raise DataError(unknown)
    return found


__all__ = ["describe_worker", "recipe_of"]
