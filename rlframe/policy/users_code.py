"""What policies give code of a user's own: all columns, one trajectory at a time, and a first run on zeros."""

from __future__ import annotations

import copy
import functools
import importlib
import logging
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.config.common import CommonConfig
from rlframe.config.view import ConfigDict
from rlframe.data.columns import (
    ACTIONS,
    AGENT_INDEX,
    DONES,
    ENV_ID,
    EPS_ID,
    INFOS,
    NEXT_OBS,
    OBS,
    PREV_ACTIONS,
    PREV_REWARDS,
    REWARDS,
    TERMINATEDS,
    TRUNCATEDS,
    UNROLL_ID,
    T,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.recurrent_context import RecurrentContext, add_later_steps, column_layout
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.numpy import convert_to_numpy

_LOGGER = logging.getLogger("rlframe")
#: By method, what a class declares for its sake, and what holds where the method is the user's.
_DECLARED_FOR: Mapping[str, Mapping[str, Any]] = {
    "loss": {"train_columns": None, "learn_columns": None},
    "extra_grad_info": {"train_columns": None, "learn_columns": None},
    "postprocess_trajectory": {"train_columns": None, "postprocesses_many": False},
}
#: Methods that a first run goes through.
_RUN_FIRST = ("loss", "postprocess_trajectory")
#: Fewest rows of the first run, and how many of the divisor that a policy's batches have.
_FIRST_ROWS, _DIVISORS = 32, 4


def is_users(cls: type[Any]) -> bool:
    """Returns whether a class is a user's own: written outside of rlframe or as users do, or made of hooks."""
    ours = cls.__module__.startswith("rlframe.") and not cls.__module__.startswith("rlframe.examples.")
    return not ours or "_hooks" in cls.__dict__


def place_of(cls: type[Any], name: str) -> int | None:
    """Returns which class in the line of inheritance gives an attribute: 0 the class itself; None for none."""
    return next((place for place, above in enumerate(cls.__mro__) if name in above.__dict__), None)


def overridden_by_user(cls: type[Any], name: str) -> bool:
    """Returns whether a method is a user's own."""
    place = place_of(cls, name)
    return place is not None and is_users(cls.__mro__[place])


def sees_episodes(policy: Any) -> bool:
    """Returns whether code of the user's own, or the policy's way of acting, is given the episodes of rows."""
    own = [(policy, "postprocess_trajectory"), *((policy.exploration, f"on_episode_{at}") for at in ("start", "end"))]
    return bool(policy.inference.shows_episodes or any(overridden_by_user(type(one), name) for one, name in own))


def explores_by_episode(policy: Any) -> bool:
    """Returns whether a user's own exploration postprocesses, and follows episodes, which may change what it does."""
    exploration = policy.exploration
    return bool(exploration.has_episode_hooks) and overridden_by_user(type(exploration), "postprocess_trajectory")


def makes_own_values(policy: Any) -> bool:
    """Returns whether users' code alone reads a model's values: loss, postprocessing and columns beside the actions."""
    return learns_own_way(policy) and bool(policy.has_custom_action_out())


def learns_own_way(policy: Any) -> bool:
    """Returns whether both loss and postprocessing are users' own: values may then be several per row, `[B, N]`."""
    return all(overridden_by_user(type(policy), name) for name in _RUN_FIRST)


def users_way(cls: type[Any]) -> str | None:
    """Returns the user's own method that acts as a whole, or None.

    It is `compute_actions_from_input_dict`, or `compute_actions` where the built-in one of that name leads there: that
    of policies with a framework does not, which is said once for each class.
    """
    if overridden_by_user(cls, "compute_actions_from_input_dict"):
        return "compute_actions_from_input_dict"
    if not overridden_by_user(cls, "compute_actions"):
        return None
    if not cls.samples_by_compute_actions:
        _say_that_workers_do_not_call(f"{cls.__module__}.{cls.__qualname__}")
        return None
    return "compute_actions"


@functools.cache
def _say_that_workers_do_not_call(name: str) -> None:
    _LOGGER.warning(
        "%s.compute_actions is called where a program calls it, and not by workers, as in RLlib 1.9; to change what "
        "these do, override compute_actions_from_input_dict, or, as up to RLlib 1.1, have them call it by "
        "samples_by_compute_actions = True in the class",
        name,
    )


def method(policy: Any, name: str) -> Any:
    """Returns a method of a policy, also where the user keeps something else under its name, such as the last loss."""
    found = getattr(policy, name)
    return found if callable(found) else functools.partial(getattr(type(policy), name), policy)


def widen(cls: type[Any]) -> None:
    """Takes back what built-in classes declare for the sake of methods that a user's class replaces.

    A built-in loss names the columns it reads, and built-in postprocessing takes many trajectories in one call. What
    the class of the user's method itself declares, or one that derives from it, holds.
    """
    for method, declared in _DECLARED_FOR.items():
        if not overridden_by_user(cls, method):
            continue
        place = place_of(cls, method)
        for name, value in declared.items():
            where = place_of(cls, name)
            if place is not None and where is not None and where > place:
                setattr(cls, name, value)


#: Methods that RLlib 1.13 called otherwise, by its name for them.
_NAMES_OF_1_13 = {
    "stats_fn": "extra_grad_info",
    "grad_stats_fn": "grad_stats",
    "compute_gradients_fn": "gradients",
    "apply_gradients_fn": "apply_optimizer",
}


def give_both_names(cls: type[Any]) -> None:
    """Has methods that RLlib 1.13 renamed stand under both names: a subclass overrides one, and calls either above."""
    for newer, older in _NAMES_OF_1_13.items():
        for name, other in ((newer, older), (older, newer)):
            if name in cls.__dict__ and other not in cls.__dict__ and hasattr(cls, older):
                setattr(cls, other, cls.__dict__[name])


def run_first_behind_constructor(cls: type[Any]) -> None:
    """Has the constructor of a built-in policy end with `run_first`, where no other built-in one goes on behind it.

    RLlib's did. So classes of users' own can tell the first run by what they set behind `super().__init__()`.
    """
    construct = cls.__dict__["__init__"]

    @functools.wraps(construct)
    def construct_and_run(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        last = next(above for above in type(self).__mro__ if not is_users(above) and "__init__" in above.__dict__)
        if last is cls:
            self.run_first(again=True)

    cls.__init__ = construct_and_run


def completed(cls: type[Any], config: Any) -> Any:
    """Returns a policy's config with attributes, and with its algorithm's defaults for missing keys, also of `model`.

    Trainers hand on whole configs; programs that make a policy by hand name a few keys.

    Args:
        cls: The policy's class; `defaults_from` says where its defaults are.
        config: What the program gave; anything but a dict is left to the constructor.
    """
    path = getattr(cls, "defaults_from", None)
    if path is None or not isinstance(config, dict):
        return with_attributes(cls, config)
    module, _, name = path.partition(":")
    defaults = getattr(importlib.import_module(module), name)
    missing = [key for key in defaults if key not in config]
    model = config.get("model")
    if not missing and (not isinstance(model, dict) or defaults["model"].keys() <= model.keys()):
        return with_attributes(cls, config)
    made = {**copy.deepcopy({key: defaults[key] for key in missing}), **config}
    if isinstance(model, dict):
        made["model"] = {**copy.deepcopy(defaults["model"]), **model}
    return with_attributes(cls, made)


def with_attributes(cls: type[Any], config: Any) -> Any:
    """Returns a policy's config as a dict with attributes; one that has them, or is no dict, is returned itself."""
    if isinstance(config, ConfigDict) or not isinstance(config, dict):
        return config
    return ConfigDict(config, getattr(cls, "defaults_from", None) or CommonConfig.defaults)


class PolicyType(ABCMeta):
    """The type of policies: `run_first` is called for good when the outermost constructor is through."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Returns a new policy. Its config is completed from its algorithm's defaults, as RLlib's policies do it."""
        if len(args) > 2:  # (observation_space, action_space, config, ...)
            args = (*args[:2], completed(cls, args[2]), *args[3:])
        elif "config" in kwargs:
            kwargs["config"] = completed(cls, kwargs["config"])
        policy = super().__call__(*args, **kwargs)
        policy.notice_own_parts()
        policy.choose_inference()
        for part in getattr(policy, "components", {}).values():  # a constructor of the user's own may set none
            part.ready()
        policy.run_first()
        return policy


def needs_first_run(cls: type[Any]) -> bool:
    """Returns whether a class has a loss or postprocessing of its own on a policy that is ready to learn.

    Classes straight below `Policy`, `TorchPolicy` or `TFPolicy` call `_initialize_loss_from_dummy_batch` themselves.
    """
    made = any("_hooks" in above.__dict__ or above.__module__.startswith("rlframe.agents.") for above in cls.__mro__)
    return made and any(overridden_by_user(cls, method) for method in _RUN_FIRST)


def postprocess(policy: Any, trajectory: SampleBatch, others: Mapping[Any, Any], episode: Any) -> SampleBatch:
    """Returns one trajectory as the policy postprocesses it, with the columns that its learning cannot do without.

    Columns that the policy left as tensors are arrays, as everywhere in batches that are sampled.

    Args:
        policy: The policy that acted.
        trajectory: Its rows.
        others: `{agent id: (policy, rows)}` of those who acted in the same episode.
        episode: The episode.

    Raises:
        TypeError: If a user's postprocessing returns no batch.
    """
    made = policy.postprocess_trajectory(trajectory, others, episode)
    if not isinstance(made, SampleBatch):
        raise TypeError(
            f"{type(policy).__name__}.postprocess_trajectory returned {type(made).__name__}, wanted the SampleBatch"
        )
    for name, column in dict.items(made):
        if hasattr(column, "numpy"):  # a tensor, such as `compute_log_likelihoods` gives
            dict.__setitem__(made, name, convert_to_numpy(column))
    completed: SampleBatch = policy.complete_columns(made)
    return completed


def zeros(policy: Any) -> SampleBatch:
    """Returns rows of zeros in the columns that sampling gives a policy's postprocessing, those of acting included."""
    count = max(_FIRST_ROWS, _DIVISORS * int(policy.batch_divisibility_req))
    columns: dict[str, Any] = {}
    for name, column in ((OBS, OBS), (NEXT_OBS, OBS), (ACTIONS, ACTIONS)):
        shape, dtype = column_layout(policy, column)
        columns[name] = np.zeros((count, *shape), dtype)
    policy.allow_actions(columns[OBS])
    columns.update({name: np.zeros(count, np.float32) for name in (REWARDS, INFOS)})
    columns.update({name: np.zeros(count, np.bool_) for name in (TERMINATEDS, TRUNCATEDS, DONES)})
    columns.update({name: np.zeros(count, np.int64) for name in (EPS_ID, UNROLL_ID, AGENT_INDEX, ENV_ID)})
    columns[T] = np.arange(count)
    inputs = RecurrentContext(policy, count).inputs(columns[OBS]) if policy.needs_memory() else None
    _, extras = policy.act_on_rows(columns[OBS], False, 0, inputs)
    columns.update(inputs or {})
    columns.update({name: np.zeros_like(column) for name, column in extras.items()})
    batch = SampleBatch(columns)
    add_later_steps(policy.view_requirements, batch)
    return batch


def seen_last(policy: Any, rows: Sequence[tuple[Any, Any]], count: int) -> dict[str, NDArray[Any]]:
    """Returns what a user's own way of acting is given beside the observations: labels, and what the step before gave.

    Args:
        policy: The policy that acts.
        rows: Episode and agent id of each row; empty where nobody knows, for zeros.
        count: Number of rows.

    Returns:
        `infos` as objects `[B]`, `prev_actions [B, ...]`, and `prev_rewards [B]` that came with the observations; zeros
        where an episode begins, as in RLlib: programs ask `if info_batch[0] != 0`. `eps_id`, `env_id`, `agent_index`
        and `t` (the environment's step), int `[B]`.
    """
    shape, dtype = column_layout(policy, ACTIONS)
    actions, rewards = np.zeros((count, *shape), dtype), np.zeros(count, np.float32)
    infos = np.zeros(count, object)
    labels = np.zeros((4, count), np.int64)
    for index, (episode, agent_id) in enumerate(rows):
        labels[:, index] = episode.episode_id, episode.env_id, episode._agent_index(agent_id), episode.length
        rewards[index] = episode.last_reward_for(agent_id)
        taken, info = episode._view(agent_id).action, episode.last_info_for(agent_id)
        if taken is not None:
            actions[index] = taken
        if taken is not None or info:
            infos[index] = info
    given = {INFOS: infos, PREV_ACTIONS: actions, PREV_REWARDS: rewards}
    return {**given, **dict(zip((EPS_ID, ENV_ID, AGENT_INDEX, T), labels, strict=True))}


def explored(choose: Any, /, *, action_distribution: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Returns what an exploration gives a user's own way of acting: tensors where the distribution is of tensors.

    Args:
        choose: `get_exploration_action` of its exploration.
        action_distribution: See there.
        **kwargs: The same.
    """
    made: tuple[Any, Any] = choose(action_distribution=action_distribution, **kwargs)
    inputs = getattr(action_distribution, "inputs", None)
    return made if inputs is None or isinstance(inputs, np.ndarray) else _like(inputs, made)


def _like(tensor: Tensor, value: Any) -> Any:
    """Returns arrays, nested or not, as tensors of a tensor's framework and device; integers as int64."""
    if isinstance(value, (tuple, list)):
        return tuple(_like(tensor, part) for part in value)
    if isinstance(value, Mapping):
        return {key: _like(tensor, part) for key, part in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    made = ops.tensor_like(value, tensor)
    return ops.to_int(made) if value.dtype.kind in "iu" else made


class Losses(list[Any]):
    """The losses of a policy as models' `custom_loss` gets them: a list, one for each optimiser.

    Programs for RLlib 0.8, and models in Keras, take it for the loss itself: where there is one alone it adds and
    multiplies like that, and has its attributes.
    """

    def _alone(self) -> Any:
        if len(self) != 1:
            raise TypeError(f"got arithmetic on {len(self)} losses at once; wanted policy_loss[i], one per optimiser")
        return self[0]

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else self._alone() + other

    def __radd__(self, other: Any) -> Any:
        return [*other, *self] if isinstance(other, list) else other + self._alone()

    def __iadd__(self, other: Any) -> Any:
        return self + other  # a list's own would take a tensor for a sequence

    def __sub__(self, other: Any) -> Any:
        return self._alone() - other

    def __mul__(self, other: Any) -> Any:
        return self._alone() * other

    __rmul__ = __imul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._alone() / other

    def __float__(self) -> float:
        return float(self._alone())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or len(self) != 1:  # frameworks ask a list for protocols of arrays
            raise AttributeError(f"a list of {len(self)} losses has no attribute {name!r}")
        return getattr(self[0], name)
