"""A3C: workers compute gradients, the driver applies them as they come; config, plan, trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.agents.families.actor_critic import ActorCriticConfig
from rlframe.config.common import Number
from rlframe.config.options import option
from rlframe.execution.gradient_ops import ApplyGradients, AsyncGradients
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class AdvantageActorCriticConfig(ActorCriticConfig):
    """Keys that A2C and A3C share (Mnih et al. 2016)."""

    grad_clip: float | None = option(
        40.0,
        "Largest global norm of the gradient of the mean over rows; None or 0 does not clip.",
        low=0,
        infinite=True,
    )


class A3CConfig(AdvantageActorCriticConfig):
    """Keys of A3C."""

    new_defaults = {"rollout_fragment_length": 10, "sample_async": True}  # noqa: RUF012

    min_iter_time_s: Number | None = option(
        None,
        "Shortest iteration. None: 5 s with remote workers; without, iterations are the same work on every machine: "
        "timesteps_per_iteration, or 4000 env steps.",
        unit="s",
        low=0,
        tunable=False,
    )

    def derived(self) -> dict[str, Any]:
        """Returns that remote workers carry the framework's policy: they compute gradients."""
        return {**super().derived(), "sample_in_numpy": False}


def execution_plan(workers: WorkerSet, config: A3CConfig) -> LocalIterator[Any]:
    """Applies each worker's gradients as they come, and gives that worker the new weights."""
    train = AsyncGradients(workers).for_each(ApplyGradients(workers, update_all=False))
    return StandardMetricsReporting(train, workers, config, asynchronous_iter_time_s=5)


DEFAULT_CONFIG: dict[str, Any] = A3CConfig.defaults()

A3CTrainer = build_trainer(
    name="A3C",
    config_class=A3CConfig,
    policies={
        "torch": "rlframe.agents.a3c.a3c_policy:A3CTorchPolicy",
        "tf": "rlframe.agents.a3c.a3c_policy:A3CTFPolicy",
    },
    execution_plan=execution_plan,
)
