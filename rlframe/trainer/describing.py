"""What a trainer says of itself: at a prompt, in a notebook and in the log."""

from __future__ import annotations

import html
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlframe.config.nested_dict import same

_LOGGER = logging.getLogger("rlframe")
#: Steps of an environment without the end of an episode that are worth a word.
ENDLESS_STEPS = 1000


class DescribingMixin:
    """`repr()`, the notebook's picture and the log of a `Trainer`; the first also of one that is half built."""

    plan_report: Callable[[], Any]
    get_default_config: Callable[[], dict[str, Any]]
    _ends: EndsWatch

    def expect_no_episodes(self) -> None:
        """Lets the trainer say nothing of a missing return: who feeds it sees the episodes."""
        self._ends.dismiss()

    def _facts(self) -> dict[str, Any]:
        """Returns what tells this trainer from others, by name."""
        parts: dict[str, Any] = vars(self)
        config = parts.get("config") or {}
        facts = {name: config.get(name) for name in ("framework", "num_workers") if name in config}
        workers = parts.get("workers")
        local = None if workers is None else workers.local_worker()
        if local is not None:
            classes = {pid: spec.policy_class for pid, spec in local.policy_specs.items()}
            facts["policies"] = {pid: getattr(chosen, "__name__", None) for pid, chosen in classes.items()}
        facts["iteration"] = parts.get("_iteration", 0)
        facts["env_steps"] = parts.get("_timesteps_total") or 0
        return {"env": parts.get("_env_id"), **facts}

    def _log_parts(self, given: Mapping[str, Any]) -> None:
        """Logs what was built, with its networks, and what the config says of it."""
        if not _LOGGER.isEnabledFor(logging.INFO):
            return
        _LOGGER.info("built %r", self)
        for pid, policy in vars(self)["workers"].local_worker().policy_map.items():
            _LOGGER.info("%s: observations %s, actions %s", pid, policy.observation_space, policy.action_space)
            shapes = {name: getattr(array, "shape", ()) for name, array in _arrays(policy.get_weights())}
            _LOGGER.info("%s: %s weights: %s", pid, f"{sum(map(math.prod, shapes.values())):,}", shapes)
        asked = _changed(self.get_default_config(), given)
        _LOGGER.info("not by default: %s", {key: value for key, value in asked.items() if key != "env"})

    def _log_iteration(self, result: Mapping[str, Any]) -> None:
        """Logs a result in a line, and from DEBUG on where its time went and what the learner said."""
        if not _LOGGER.isEnabledFor(logging.INFO):
            return
        _LOGGER.info(
            "iteration %s: %s env steps, mean return %.6g over the last episodes, %s new ones, %.3g s",
            result.get("training_iteration"), result.get("timesteps_total"),
            result.get("episode_reward_mean", math.nan), result.get("episodes_this_iter"),
            result.get("time_this_iter_s", math.nan),
        )  # fmt: skip
        if _LOGGER.isEnabledFor(logging.DEBUG):
            _LOGGER.debug("learner: %s", (result.get("info") or {}).get("learner"))
            _LOGGER.debug("plan:\n%s", self.plan_report())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._facts().items())
        return f"{type(self).__name__}({shown})"

    def _repr_html_(self) -> str:
        """Returns the same as a table, for notebooks."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name.replace('_', ' '))}</th>"
            f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{rows}</table>"


def _changed(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what of a config, which may be a whole one, is not its default."""
    asked = {key: value for key, value in given.items() if key not in defaults or not same(value, defaults[key])}
    return {
        key: _changed(defaults[key], value)
        if isinstance(value, dict) and isinstance(defaults.get(key), dict)
        else value
        for key, value in asked.items()
    }


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {item}" for name, item in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def epsilons_of(workers: Any) -> dict[str, dict[str, float]]:
    """Returns `{policy id: {"cur_epsilon": share of random actions}}` of policies whose exploration has an epsilon.

    By the env steps that the driver has counted: with remote workers its own policies do not act.
    """
    from rlframe.exploration.exploration import Exploration

    found = {}
    for pid, policy in workers.local_worker().policy_map.items():
        exploration: Any = getattr(policy, "exploration", None)
        schedule = getattr(exploration, "epsilon_schedule", None)
        if schedule is not None and isinstance(exploration, Exploration):  # others may mean anything by the names
            step = max(exploration.last_timestep, getattr(policy, "global_timestep", 0))
            found[pid] = {"cur_epsilon": float(schedule(step))}
    return found


def _arrays(weights: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the arrays of a policy's weights by dotted name."""
    if isinstance(weights, Mapping):
        for key, value in weights.items():
            yield from _arrays(value, f"{name}.{key}" if name else str(key))
    elif weights is not None:
        yield name, weights


class EndsWatch:
    """Says once that no episode has ended where one should have."""

    def __init__(self) -> None:
        self._done = False

    def dismiss(self) -> None:
        """Says nothing from now on."""
        self._done = True

    def watch(self, trainer: Any, result: Mapping[str, Any]) -> None:
        """Looks at the next result of a trainer."""
        if self._done or result.get("episodes_this_iter"):
            self._done = True
            return
        if trainer.config["input"] != "sampler":
            self._done = True
            if not trainer.config["evaluation_interval"] and trainer.config["env"] is not None:
                _LOGGER.warning(
                    "experience is read from data, so no episodes are run and there is no return: set "
                    "evaluation_interval to run some in the environment"
                )
            return
        slots = max(1, trainer.config["num_workers"]) * trainer.config["num_envs_per_worker"]
        steps = (result.get("timesteps_total") or 0) // slots
        if steps < max(ENDLESS_STEPS, _longest_episode(trainer)):
            return
        self._done = True
        _LOGGER.warning(
            "no episode has ended in %s steps of each of %s environments, so there is no return: if they never end, "
            "set horizon, after which episodes are cut",
            f"{steps:,}",
            slots,
        )


def _longest_episode(trainer: Any) -> int:
    """Returns after how many env steps an episode ends in any case; 0 where nobody knows."""
    spec = getattr(trainer.workers.local_worker().env, "spec", None)
    return int(trainer.config["horizon"] or getattr(spec, "max_episode_steps", None) or 0)
