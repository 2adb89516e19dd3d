"""Small functions, classes and texts of RLlib's that nothing here needs."""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import importlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tree
import yaml
from gymnasium import spaces

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.env.base_env import _DUMMY_AGENT_ID
from rlframe.policy.policy import PolicySpec
from rlframe.replay.memory_budget import check_fits, memory_bytes
from rlframe.utils.from_config import from_config
from rlframe.utils.spaces.old_gym import converted

T = TypeVar("T")
NullContextManager = contextlib.nullcontext
#: What RLlib's modules log by, each under a name of its own.
logger = logging.getLogger("rlframe")


class ReplayMode(str, enum.Enum):
    """How rows of several policies are drawn; each is the text that `replay_mode` takes."""

    INDEPENDENT = "independent"
    LOCKSTEP = "lockstep"


class UsageTrackingDict(dict[str, Any]):
    """A dict that notes which keys are read, and converts what is under a key when that is first read.

    Attributes:
        accessed_keys: The keys that were read.
        intercepted_values: What the interceptor made, by key.
        get_interceptor: `fn(value) -> value`, or None.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.accessed_keys: set[str] = set()
        self.intercepted_values: dict[str, Any] = {}
        self.get_interceptor: Callable[[Any], Any] | None = None

    def set_get_interceptor(self, fn: Callable[[Any], Any] | None) -> None:
        """Sets what converts values."""
        self.get_interceptor = fn

    def __getitem__(self, key: str) -> Any:
        """Returns what is under a key, converted."""
        value = super().__getitem__(key)
        self.accessed_keys.add(key)
        if self.get_interceptor is None:
            return value
        if key not in self.intercepted_values:
            self.intercepted_values[key] = self.get_interceptor(value)
        return self.intercepted_values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        """Sets what is under a key; where it was read, it stays as it is given."""
        super().__setitem__(key, value)
        if key in self.intercepted_values:
            self.intercepted_values[key] = value

    def copy(self) -> UsageTrackingDict:
        """Returns a dict of the same values and conversion, of which nothing was read."""
        made = UsageTrackingDict(super().copy())
        made.get_interceptor = self.get_interceptor
        return made


def with_lock(func: Callable[..., T]) -> Callable[..., T]:
    """Decorates a method so that it runs while `self._lock` is held; one lock serves all methods of an object."""

    @functools.wraps(func)
    def locked(self: Any, *args: Any, **kwargs: Any) -> T:
        lock = getattr(self, "_lock", None)
        if lock is None:
            raise AttributeError(
                f"{type(self).__name__} has no _lock: set self._lock = threading.RLock() in its constructor."
            )
        with lock:
            return func(self, *args, **kwargs)

    return locked


def check_multi_agent(config: dict[str, Any]) -> tuple[dict[str, PolicySpec], bool]:
    """Returns the policies of a trainer's config by id, and whether there are others than the default one.

    Where they are a set of ids, or none, the config gets a dict of empty `PolicySpec`s, in place.
    """
    multiagent = config["multiagent"]
    policies = multiagent.get("policies") or {DEFAULT_POLICY_ID}
    if not isinstance(policies, dict):
        policies = multiagent["policies"] = {policy_id: PolicySpec() for policy_id in sorted(policies)}
    return policies, len(policies) > 1 or DEFAULT_POLICY_ID not in policies


def from_file(cls: type[T], filename: str, *args: Any, **kwargs: Any) -> T:
    """Returns the object that a JSON or YAML file describes, as `from_config` takes it.

    Args:
        cls: The base class of the object.
        filename: The file.
        *args: Refused: constructor arguments have names.
        **kwargs: Further constructor arguments; they win over those in the file.

    Raises:
        ValueError: If there are arguments without names.
        FileNotFoundError: If there is no such file.
    """
    if args:
        raise ValueError(f"Got {args} without names; wanted every argument of the constructor by its name.")
    path = Path(filename)
    text = path.read_text(encoding="utf-8")
    config = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else json.loads(text)
    return from_config(cls, config, **kwargs)


def lookup_type(cls: Any, type_: Any) -> Any:
    """Returns what a class's `__type_registry__` has under a name, capitals and punctuation aside; None if nothing."""
    registry = getattr(cls, "__type_registry__", None)
    if not isinstance(registry, dict):
        return None
    plain = re.sub(r"[\W_]", "", type_.lower()) if isinstance(type_, str) else type_
    return registry.get(type_, registry.get(plain))


def flatten_space(space: Any) -> list[Any]:
    """Returns the spaces that a Dict or Tuple consists of, those within them included, in order."""
    space = converted(space)
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in flatten_space(part)]
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in flatten_space(part)]
    return [space]


def convert_element_to_space_type(element: Any, sampled_element: Any) -> Any:
    """Returns an element with the dtypes of another one of its space.

    Args:
        element: Arrays and numbers, nested as the space is.
        sampled_element: What `space.sample()` gives.

    Raises:
        ValueError: If something else stands where the space has an array.
    """
    return tree.map_structure(_like_sample, element, sampled_element, check_types=False)


def _like_sample(element: Any, sample: Any) -> Any:
    if isinstance(sample, np.ndarray):
        if not isinstance(element, np.ndarray):
            raise ValueError(f"Got a {type(element).__name__} in an element of a space; wanted an array.")
        return element.astype(sample.dtype, copy=False)
    return int(element) if isinstance(sample, (int, np.integer)) and isinstance(element, float) else element


def tf_function(tf_module: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Returns a decorator that changes nothing: TensorFlow is always eager here, as RLlib left functions then."""
    del tf_module
    return lambda func: func


# RLlib's texts of errors, which programs fill in by str.format.
ERR_MSG_NO_GPUS = (
    "Found {} GPUs on this machine ({}); without any, set num_gpus and num_gpus_per_worker to 0, their default."
)
ERR_MSG_INVALID_ENV_DESCRIPTOR = (
    "env={!r} is neither the id of an environment of Gymnasium, nor registered by register_env(name, creator), nor the "
    "path of a class (module.Class); Atari games need `pip install 'rlframe[atari]'`."
)
HOWTO_CHANGE_CONFIG = (
    "Config keys are changed by flags of the command line (--num-gpus 0), and in Python in the dict that the trainer "
    "or tune.run() is given."
)


def warn_replay_capacity(*, item: SampleBatch | MultiAgentBatch, num_items: int) -> None:
    """Warns where items like this one will take most of the memory.

    Args:
        item: A batch like those that a replay buffer stores.
        num_items: How many.

    Raises:
        ValueError: If they take more than there is.
    """
    check_fits(num_items, item.size_bytes(), memory_bytes())


def extract_stats(stats: Mapping[str, Any], key: str) -> Any:
    """Returns a learner's number: of one policy itself, of several `{policy id: number}` for those that have it.

    Args:
        stats: A policy's learner stats, or several policies' by id.
        key: The number's name.
    """
    if key in stats:
        return stats[key]
    return {pid: of_policy[key] for pid, of_policy in stats.items() if isinstance(of_policy, dict) and key in of_policy}


def linear_interpolation(left: float, right: float, alpha: float) -> float:
    """Returns what lies the share `alpha` of the way from `left` to `right`."""
    return left + alpha * (right - left)


def with_dummy_agent_id(env_id_to_values: Mapping[int, Any], dummy_id: Any = _DUMMY_AGENT_ID) -> dict[int, Any]:
    """Returns what each environment has as what its one agent has."""
    return {env_id: {dummy_id: value} for env_id, value in env_id_to_values.items()}


class TupleActions(tuple[Any, ...]):
    """Actions of several parts, as RLlib 0.8 had them: a tuple made of a list.

    Attributes:
        batches: The parts, as a list.
    """

    __slots__ = ()

    @property
    def batches(self) -> list[Any]:
        """The parts, as a list."""
        return list(self)


def explained_variance(y: Any, pred: Any, framework: str = "tf") -> Any:
    """Returns the share of the variance of `y` that `pred` explains, as a tensor of a framework; float `[B]` each."""
    if framework == "torch":
        from rlframe.utils.torch_utils import explained_variance as of_framework
    else:
        from rlframe.utils.tf_utils import explained_variance as of_framework
    return of_framework(y, pred)


def concat_samples(samples: Sequence[Any]) -> Any:
    """Returns batches as one; see `SampleBatch.concat_samples`."""
    return SampleBatch.concat_samples(samples)


def convert_ma_batch_to_sample_batch(batch: SampleBatch | MultiAgentBatch) -> SampleBatch:
    """Returns the batch of the default policy, which is the only one.

    Raises:
        ValueError: If there are others.
    """
    if isinstance(batch, SampleBatch):
        return batch
    if set(batch.policy_batches) != {DEFAULT_POLICY_ID}:
        raise ValueError(
            f"Got a batch of the policies {sorted(batch.policy_batches)}; wanted {DEFAULT_POLICY_ID} alone."
        )
    return batch.policy_batches[DEFAULT_POLICY_ID]


def make_divisible_by(a: Any, n: int) -> Any:
    """Returns the largest multiple of `n` that is at most `a`."""
    return a - a % n


def all_tower_reduce(path: tuple[Any, ...], *tower_data: Any) -> Any:
    """Returns one value for those that several devices report.

    Args:
        path: Keys under which it is reported: "td_error" alone keeps a value per row; names in `min_` and `max_` give
            the smallest and largest; all others are averaged.
        *tower_data: The values. NaN is left out.
    """
    if path == ("td_error",):
        return np.concatenate(tower_data)
    name = str(path[-1])
    reduce = np.nanmin if name.startswith("min_") else np.nanmax if name.startswith("max_") else np.nanmean
    return reduce(tower_data)


def pg_loss_stats(policy: Any, train_batch: Any) -> dict[str, Any]:
    """Returns what PG's loss kept: the loss."""
    del train_batch
    return dict(policy._loss_outputs)


def with_base_config(base_config: Mapping[str, Any], extra_config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a config with another one's keys over it, as RLlib's function does: whole sections at once."""
    return {**copy.deepcopy(dict(base_config)), **extra_config}


def warn_if_infinite_kl_divergence(policy: Any, mean_kl: Any) -> None:
    """Does nothing: a loss that is no number stops training here, and is named."""
    del policy, mean_kl


class CentralizedValueMixin:
    """Gives a policy `compute_central_vf`, its model's `central_value_function`; of RLlib's example of that name.

    Call the constructor when the policy's model exists. In PyTorch the function takes and returns tensors, in
    TensorFlow arrays.
    """

    config: Any
    model: Any

    def __init__(self) -> None:
        function = self.model.central_value_function
        if self.config["framework"] != "torch":
            function = importlib.import_module("rlframe.utils.tf_utils").make_tf_callable()(function)
        self.compute_central_vf = function


def _get_or_raise(mapping: Mapping[str, Any], policy_id: str) -> Any:
    """Returns what a table by policy id holds.

    Raises:
        ValueError: If there is no such policy in it.
    """
    if policy_id not in mapping:
        raise ValueError(f"got the policy id {policy_id!r}; wanted one of {list(mapping)}")
    return mapping[policy_id]


class LocalSyncParallelOptimizer:
    """A name that copies of RLlib's `train_ops` import: where a learner step is shared out, `num_gpus` does that.

    Raises:
        NotImplementedError: When one is made.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        raise NotImplementedError(
            "LocalSyncParallelOptimizer: there are no towers to build; use TrainOneStep(workers, num_sgd_iter=..., "
            "sgd_minibatch_size=...), which with num_gpus above 1 shares each learner step out."
        )
