"""Hooks into sampling and training: `DefaultCallbacks`, its composition, and the old spellings that still work."""

from __future__ import annotations

import difflib
import inspect
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rlframe.config.faults import did_you_mean
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.data.sample_batch import SampleBatch
    from rlframe.evaluation.episode import Episode
    from rlframe.policy.policy import Policy

HOOKS = (
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_postprocess_trajectory",
    "on_sample_end",
    "on_learn_on_batch",
    "on_train_result",
    "on_trainer_init",
    "on_evaluate_start",
    "on_evaluate_end",
    "on_sub_environment_created",
)


class DefaultCallbacks:
    """Subclass this and pass the class as `config["callbacks"]`; every hook is called with keywords only.

    One instance exists per rollout worker, one per policy (for `on_learn_on_batch`) and one in the trainer: state kept
    on `self` is not shared between them. An exception raised in a hook stops sampling or training; nothing is lost
    that was already reported. A hook that a subclass does not override costs nothing.
    """

    def __init__(self, legacy_callbacks_dict: Mapping[str, Callable[[dict[str, Any]], None]] | None = None) -> None:
        self.legacy_callbacks = dict(legacy_callbacks_dict or {})

    def on_trainer_init(self, *, trainer: Any, **kwargs: Any) -> None:
        """Called once in the trainer, when workers and plan are there: the place to put weights in."""

    def on_sub_environment_created(self, *, worker: Any, sub_environment: Any, env_context: Any, **kwargs: Any) -> None:
        """Called in the worker for each environment that it makes, and for one that replaces a broken one.

        `sub_environment` is what the program's class or function returned; `env_context` has its `vector_index`.
        """

    def on_episode_start(
        self,
        *,
        worker: Any,
        base_env: Any,
        policies: dict[str, Policy],
        episode: Episode,
        env_index: int,
        **kwargs: Any,
    ) -> None:
        """Called in the worker after the environment was reset, before the first action."""

    def on_episode_step(
        self,
        *,
        worker: Any,
        base_env: Any,
        policies: dict[str, Policy],
        episode: Episode,
        env_index: int,
        **kwargs: Any,
    ) -> None:
        """Called in the worker after every environment step, the last one included (before `on_episode_end`)."""

    def on_episode_end(
        self,
        *,
        worker: Any,
        base_env: Any,
        policies: dict[str, Policy],
        episode: Episode,
        env_index: int,
        **kwargs: Any,
    ) -> None:
        """Called in the worker when an episode ended or its horizon was hit; set `episode.custom_metrics` here."""

    def on_postprocess_trajectory(
        self,
        *,
        worker: Any,
        episode: Episode,
        agent_id: Any,
        policy_id: str,
        policies: dict[str, Policy],
        postprocessed_batch: SampleBatch,
        original_batches: dict[Any, tuple[Policy, SampleBatch]],
        **kwargs: Any,
    ) -> None:
        """Called in the worker for each trajectory fragment, after the policy's own postprocessing.

        `postprocessed_batch` may be edited in place; `original_batches` holds copies made before postprocessing.
        """

    def on_sample_end(self, *, worker: Any, samples: SampleBatch, **kwargs: Any) -> None:
        """Called in the worker at the end of each `sample()`; `samples` may be edited in place."""

    def on_learn_on_batch(
        self, *, policy: Policy, train_batch: SampleBatch, result: dict[str, Any], **kwargs: Any
    ) -> None:
        """Called where learning happens, before a batch is learned on; `result` becomes `custom_metrics` there."""

    def on_evaluate_start(self, *, trainer: Any, **kwargs: Any) -> None:
        """Called in the driver before evaluation workers get weights and run episodes."""

    def on_evaluate_end(self, *, trainer: Any, evaluation_metrics: dict[str, Any], **kwargs: Any) -> None:
        """Called in the driver behind an evaluation; `evaluation_metrics`, `{"evaluation": ...}`, may be changed."""

    def on_train_result(self, *, trainer: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Called in the driver at the end of `trainer.train()`, before logging; `result` may be changed."""


class MemoryTrackingCallbacks(DefaultCallbacks):
    """Adds the largest allocations (bytes, by line) and the process's resident memory to each episode's metrics."""

    def __init__(self, legacy_callbacks_dict: Mapping[str, Callable[..., None]] | None = None) -> None:
        super().__init__(legacy_callbacks_dict)
        tracemalloc.start(10)

    def on_episode_end(self, *, episode: Episode, **kwargs: Any) -> None:
        """Stores `tracemalloc/<file>:<line>/size` and `tracemalloc/worker/rss` in `episode.custom_metrics`."""
        for stat in tracemalloc.take_snapshot().statistics("lineno")[:10]:
            frame = stat.traceback[0]
            episode.custom_metrics[f"tracemalloc/{frame.filename}:{frame.lineno}/size"] = stat.size
        episode.custom_metrics["tracemalloc/worker/rss"] = resident_bytes()


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes, its peak where the system tells no more."""
    try:
        with open("/proc/self/statm", encoding="ascii") as handle:
            pages = int(handle.read().split()[1])
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    import os

    return pages * os.sysconf("SC_PAGE_SIZE")


def _forwarding(callback_class_list: list[Callable[[], DefaultCallbacks]]) -> type[DefaultCallbacks]:
    classes = list(callback_class_list)

    class _MultiCallbacks(DefaultCallbacks):
        def __init__(self, legacy_callbacks_dict: Mapping[str, Callable[..., None]] | None = None) -> None:
            super().__init__(legacy_callbacks_dict)
            self._members = [make_callbacks(cls) for cls in classes]

    def forwarder(hook: str) -> Callable[..., None]:
        def forward(self: Any, **kwargs: Any) -> None:
            for member in self._members:
                call_hook(member, hook, kwargs)

        return forward

    overridden = {hook for cls in classes for hook in overridden_hooks(make_callbacks(cls))}
    for hook in HOOKS:
        if hook in overridden:
            setattr(_MultiCallbacks, hook, forwarder(hook))
    return _MultiCallbacks


class MultiCallbacks(DefaultCallbacks):
    """`MultiCallbacks([First, Second])` is a callbacks class that forwards every hook to each of them, in order."""

    def __new__(  # type: ignore[misc]  # a class, as the key `callbacks` takes one
        cls, callback_class_list: list[Callable[[], DefaultCallbacks]]
    ) -> type[DefaultCallbacks]:
        """Returns the class."""
        return _forwarding(callback_class_list)


#: The hooks of the oldest form by their names now, where these differ.
_RENAMED_HOOKS = {"on_postprocess_traj": "on_postprocess_trajectory"}


def _from_dict(hooks: Mapping[str, Callable[[dict[str, Any]], None]]) -> DefaultCallbacks:
    """Returns callbacks for the oldest form: a dict of functions that each take one `info` dict.

    None is no hook. Nor is text, with a warning: it is what `params.json` writes for a function.
    """
    functions = {_RENAMED_HOOKS.get(name, name): function for name, function in hooks.items() if function is not None}
    for name in [name for name, function in functions.items() if isinstance(function, str)]:
        text = functions.pop(name)
        warnings.warn(f"callbacks: {name} is {text!r}, text and no function: it is not called", stacklevel=3)
    unknown = sorted(set(functions) - set(HOOKS))
    if unknown:
        raise ConfigError(f"callbacks: unknown hook {unknown[0]!r}; wanted one of {', '.join(HOOKS)}")

    def adapter(function: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
        return lambda self, **kwargs: function(_old_info(kwargs))

    made = {name: adapter(function) for name, function in functions.items()}
    cls = type("LegacyCallbacks", (DefaultCallbacks,), made)
    return cast("DefaultCallbacks", cls(hooks))


def _old_info(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a hook's arguments with those names beside them that the oldest form had."""
    info = {**kwargs, "env": kwargs.get("base_env")}
    if "policies" in kwargs:
        info["policy"] = kwargs["policies"]
    if "postprocessed_batch" in kwargs:
        originals = kwargs["original_batches"]
        info.update(post_batch=kwargs["postprocessed_batch"], all_pre_batches=originals)
        info["pre_batch"] = originals[kwargs["agent_id"]]
    return info


def make_callbacks(spec: Any) -> DefaultCallbacks:
    """Returns a callbacks instance for what stands in `config["callbacks"]`.

    Args:
        spec: None, a class (or factory without arguments), an instance, or a dict of functions of one `info` dict.

    Raises:
        ConfigError: If it is something else, or names a hook that does not exist.
    """
    if spec is None:
        return DefaultCallbacks()
    if isinstance(spec, Mapping):
        return _from_dict(spec)
    if isinstance(spec, DefaultCallbacks):
        return spec
    if not callable(spec):
        raise ConfigError(f"callbacks: got {spec!r}, wanted a subclass of DefaultCallbacks (the class, not a string)")
    made = spec()
    if not any(hasattr(made, hook) for hook in HOOKS):
        raise ConfigError(f"callbacks: {spec!r} made {made!r}, which has none of the hooks {', '.join(HOOKS)}")
    return made  # type: ignore[no-any-return]  # a user's factory


def misnamed_hooks(callbacks: Any) -> list[str]:
    """Returns a sentence for each method that looks like a hook, but that nobody calls.

    Hooks of later releases of RLlib are such methods as well.
    """
    sentences = []
    for name in dir(type(callbacks)):
        if not name.startswith("on_") or name in HOOKS or not callable(getattr(type(callbacks), name)):
            continue
        near = difflib.get_close_matches(name, HOOKS, n=2, cutoff=_ALIKE)
        if near or name in _LATER_HOOKS:
            hooks = did_you_mean(near) if name not in _LATER_HOOKS else f"; hooks here are {', '.join(HOOKS)}"
            sentences.append(f"callbacks: {type(callbacks).__name__}.{name} is no hook, and is never called{hooks}")
    return sentences


#: From which ratio of difflib on a method's name is taken for a hook's, misspelt.
_ALIKE = 0.8
#: Hooks of RLlib 2.x.
_LATER_HOOKS = frozenset({
    "on_algorithm_init", "on_checkpoint_loaded", "on_create_policy", "on_env_runners_recreated",
    "on_environment_created", "on_episode_created", "on_workers_recreated",
})  # fmt: skip


def overridden_hooks(callbacks: Any) -> frozenset[str]:
    """Returns the names of the hooks that `callbacks` really defines, or has as attributes of its own."""
    found = {hook: getattr(callbacks, hook, None) for hook in HOOKS}
    return frozenset(
        hook
        for hook, function in found.items()
        if function is not None and getattr(function, "__func__", function) is not getattr(DefaultCallbacks, hook)
    )


def call_hook(callbacks: Any, hook: str, kwargs: dict[str, Any]) -> None:
    """Calls one hook with the arguments that its signature takes; what it raises says as a note which hook it was.

    Old programs declare fewer keywords than there are now, take them positionally, or take one `info` dict; the
    signature is read, so a genuine `TypeError` inside the hook is never mistaken for another form. Callbacks that do
    not derive from `DefaultCallbacks` have those hooks alone that they define.
    """
    function = getattr(callbacks, hook, None)
    if function is None:
        return
    try:
        _call(function, kwargs)
    except Exception as error:
        by_others = any(note.endswith(_NOTE) for note in getattr(error, "__notes__", ()))  # that were called by it
        if hasattr(error, "add_note") and not by_others:  # Python 3.11
            error.add_note(f"raised in {type(callbacks).__name__}.{hook}{_NOTE}")
        raise


_NOTE = ", a hook of the config's callbacks"


def _call(function: Callable[..., None], kwargs: dict[str, Any]) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        function(**kwargs)
        return
    names = [parameter.name for parameter in parameters]
    if names == ["info"]:
        function(_old_info(kwargs))
        return
    function(**{name: kwargs[name] for name in names if name in kwargs})
