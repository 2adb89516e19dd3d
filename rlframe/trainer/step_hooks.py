"""Functions around an iteration, as `build_trainer` of RLlib before 1.0 took them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

#: Arguments of `build_trainer`: (trainer), (trainer, learner infos by policy id), (trainer, result).
STEP_HOOKS = ("before_train_step", "after_optimizer_step", "after_train_result")


class StepHooks:
    """Mixin of trainers that calls functions around `step()`.

    Attributes:
        _step_hooks: By name in `STEP_HOOKS`.
    """

    _step_hooks: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def step(self) -> dict[str, Any]:
        """Runs one iteration; what `after_train_result` writes into the result is reported."""
        self._call("before_train_step")
        result: dict[str, Any] = super().step()  # type: ignore[misc]  # the trainer's behind the mixin
        self._call("after_optimizer_step", result.get("info", {}).get("learner", {}))
        self._call("after_train_result", result)
        return result

    def _call(self, name: str, *arguments: Any) -> None:
        hook = self._step_hooks.get(name)
        if hook is not None:
            hook(self, *arguments)
