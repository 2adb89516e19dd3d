"""A3C: workers compute gradients, the driver applies them as they come; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlframe.config.common import CommonConfig, Number
from rlframe.config.options import option
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import AsyncGradients
from rlframe.execution.train_ops import ApplyGradients
from rlframe.trainer.template import build_trainer


class ActorCriticConfig(CommonConfig):
    """Keys that A2C and A3C share (Mnih et al. 2016)."""

    use_critic: bool = option(True, "Advantages are measured against values.")
    use_gae: bool = option(True, "Generalised advantage estimates.", source="Schulman et al. 2016")
    lambda_: float = option(1.0, "Decay of the advantages' trace.", low=0, high=1, key="lambda")
    grad_clip: float | None = option(
        40.0, "Largest global norm of the gradient of the mean over rows; None does not clip.", above=0, infinite=True
    )
    lr_schedule: Sequence[Sequence[float]] | None = option(
        None, "Points [env step, learning rate], linear between them; None keeps lr.", wanted="a list of [step, value]"
    )
    vf_loss_coeff: float = option(0.5, "Weight of the value loss.", low=0)
    entropy_coeff: float = option(0.01, "Weight of the entropy bonus.", low=0)
    entropy_coeff_schedule: Sequence[Sequence[float]] | float | None = option(
        None, "Points [env step, weight]; or a step at which the weight reaches 0.", wanted="a list of [step, value]"
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.use_gae and not self.use_critic:
            yield "use_gae=True needs use_critic=True: the estimates are made of values"


class A3CConfig(ActorCriticConfig):
    """Keys of A3C."""

    new_defaults = {"rollout_fragment_length": 10, "sample_async": True}  # noqa: RUF012

    min_iter_time_s: Number | None = option(  # type: ignore[assignment]  # None as well, unlike the base's
        None,
        "Shortest iteration. None: 5 s with remote workers; without, iterations are the same work on every machine: "
        "timesteps_per_iteration, or 4000 env steps.",
        unit="s",
        low=0,
        tunable=False,
    )


def validate_config(config: dict[str, Any]) -> None:
    """Has remote workers carry the framework's policy: they compute gradients."""
    config["sample_in_numpy"] = False


def execution_plan(workers: WorkerSet, config: dict[str, Any]) -> LocalIterator[Any]:
    """Applies each worker's gradients as they come, and gives that worker the new weights."""
    train = AsyncGradients(workers).for_each(ApplyGradients(workers, update_all=False))
    return StandardMetricsReporting(train, workers, config, asynchronous_iter_time_s=5)


DEFAULT_CONFIG: dict[str, Any] = A3CConfig.defaults()

A3CTrainer = build_trainer(
    name="A3C",
    config_class=A3CConfig,
    validate_config=validate_config,
    policies={
        "torch": "rlframe.agents.a3c.a3c_torch_policy:A3CTorchPolicy",
        "tf": "rlframe.agents.a3c.a3c_tf_policy:A3CTFPolicy",
    },
    execution_plan=execution_plan,
)
