"""Schedules as mixins of policies that users make; the built-in ones have `rlframe.policy.policy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlframe.policy.policy import schedule_of


class _Scheduled:
    """Base of the schedules, which stand before the policy or, as in RLlib 1.9's own classes, behind it."""

    _tells_behind = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        order = cls.__mro__[1:]
        own = [place for place, above in enumerate(order) if issubclass(above, _Scheduled)]
        policies = [above for above in order[: min(own)] if "on_global_var_update" in above.__dict__]
        if policies and not cls._tells_behind:
            cls._tells_behind = True
            _tell_behind(cls, policies[-1])

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Tells the policy, if it is behind."""
        behind = getattr(super(), "on_global_var_update", None)
        if behind is not None:
            behind(global_vars)


def _tell_behind(cls: Any, last: type[Any]) -> None:
    """Has `on_global_var_update` go on behind `last`: a policy's own does not."""
    tell = cls.on_global_var_update

    def tell_all(self: Any, global_vars: Mapping[str, Any]) -> None:
        tell(self, global_vars)
        super(last, self).on_global_var_update(global_vars)

    cls.on_global_var_update = tell_all


class LearningRateSchedule(_Scheduled):
    """Makes a policy's learning rate follow `lr_schedule`, a list of `[env step, value]`, linearly.

    Call the constructor in `before_loss_init` (or after the policy exists); with None the rate is constant.
    """

    def __init__(self, lr: float, lr_schedule: Sequence[Sequence[float]] | None) -> None:
        self.lr_schedule = schedule_of(lr, lr_schedule)
        self._lr_schedule = self.lr_schedule if lr_schedule else None  # copies of RLlib's policies ask for it
        self.cur_lr = float(self.lr_schedule.value(0)) if lr_schedule else lr
        if lr_schedule and getattr(self, "_optimizers", None):
            self.set_learning_rate(self.cur_lr)

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Sets every optimiser's rate to the schedule's value at `global_vars["timestep"]`."""
        super().on_global_var_update(global_vars)
        if hasattr(self, "lr_schedule"):  # its constructor was called
            self.cur_lr = float(self.lr_schedule.value(global_vars["timestep"]))
            self.set_learning_rate(self.cur_lr)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the rate of the optimisers of the policy behind the mixin; one that steps its own reads `cur_lr`."""
        behind = getattr(super(), "set_learning_rate", None)
        if behind is not None:
            behind(lr)
            return
        for optimizer in getattr(self, "_optimizers", None) or ():  # of a class straight below `Policy`
            for group in optimizer.param_groups:
                group["lr"] = lr

    def optimizer(self) -> Any:
        """Returns the optimiser(s) of the policy behind the mixin, which `cur_lr` is the rate of from now on."""
        return super().optimizer()  # type: ignore[misc]  # the policy behind the mixin


class EntropyCoeffSchedule(_Scheduled):
    """Makes `entropy_coeff` follow a schedule: a list of `[env step, value]`, or a step at which it reaches 0."""

    def __init__(self, entropy_coeff: float, entropy_coeff_schedule: Any) -> None:
        if isinstance(entropy_coeff_schedule, (int, float)) and entropy_coeff_schedule:
            entropy_coeff_schedule = [[0, entropy_coeff], [entropy_coeff_schedule, 0.0]]
        self.entropy_coeff_schedule = schedule_of(entropy_coeff, entropy_coeff_schedule)
        self._entropy_coeff_schedule = self.entropy_coeff_schedule if entropy_coeff_schedule else None
        self.entropy_coeff = float(self.entropy_coeff_schedule.value(0))

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Sets `entropy_coeff` to the schedule's value at `global_vars["timestep"]`."""
        super().on_global_var_update(global_vars)
        if hasattr(self, "entropy_coeff_schedule"):  # its constructor was called
            self.entropy_coeff = float(self.entropy_coeff_schedule.value(global_vars["timestep"]))
