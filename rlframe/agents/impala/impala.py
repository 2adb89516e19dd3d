"""IMPALA: workers sample without waiting, a learner thread corrects for their lag; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.asynchronous import (
    BEHAVIOUR_KL_COEFF,
    BOUND_COEFF,
    AsynchronousConfig,
    asynchronous_plan,
)
from rlframe.execution.iterators import LocalIterator
from rlframe.trainer.setup import import_path
from rlframe.trainer.template import build_trainer
from rlframe.utils.framework import require_framework

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class ImpalaConfig(AsynchronousConfig):
    """Keys of IMPALA (Espeholt et al. 2018)."""

    # RLlib's rate is 5e-4: see "Where it departs" in README.md.
    new_defaults = {"lr": 7e-4}  # noqa: RUF012

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults, and what A3C's policies, which learn without V-trace, do not have."""
        yield from super().faults()
        if not self.vtrace and (self.opt_type != "adam" or self.separate_vf_optimizer):
            yield "vtrace=False takes A3C's policies and their one Adam: leave opt_type and _separate_vf_optimizer out"
        if not self.vtrace and self.scale_advantages:
            yield "scale_advantages=True needs vtrace=True: A3C's policies take advantages as they are"
        for key, default in (("behaviour_kl_coeff", BEHAVIOUR_KL_COEFF), ("action_bound_coeff", BOUND_COEFF)):
            chosen = getattr(self, key)
            if not self.vtrace and chosen not in (0.0, default):
                yield f"{key}={chosen:g} needs vtrace=True: A3C's losses have no such term"


def get_policy_class(config: Mapping[str, Any]) -> Any:
    """Returns A3C's policy where V-trace is switched off."""
    if config["vtrace"]:
        return None
    framework = require_framework(config["framework"], config["log_level"])
    name = {"torch": "Torch", "tf": "TF"}[framework]
    return import_path(f"rlframe.agents.a3c.a3c_{framework}_policy:A3C{name}Policy")


def execution_plan(workers: WorkerSet, config: ImpalaConfig) -> LocalIterator[Any]:
    """Workers fill the learner's queue, while the learner's new weights go to the workers."""
    return asynchronous_plan(workers, config)


DEFAULT_CONFIG: dict[str, Any] = ImpalaConfig.defaults()

ImpalaTrainer = build_trainer(
    name="IMPALA",
    config_class=ImpalaConfig,
    get_policy_class=get_policy_class,
    policies={
        "torch": "rlframe.agents.impala.vtrace_policy:VTraceTorchPolicy",
        "tf": "rlframe.agents.impala.vtrace_policy:VTraceTFPolicy",
    },
    execution_plan=execution_plan,
)
