"""APPO: IMPALA's flow of data with PPO's clipped surrogate on V-trace; config, plan, trainer."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.actor_critic import ClippedSurrogateConfig
from rlframe.agents.families.asynchronous import AsynchronousConfig, asynchronous_plan
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.plan.context import (
    LAST_TARGET_UPDATE_TS,
    NUM_TARGET_UPDATES,
    STEPS_TRAINED_COUNTER,
    _get_shared_metrics,
)
from rlframe.trainer.template import build_trainer
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class APPOConfig(AsynchronousConfig, ClippedSurrogateConfig):
    """Keys of APPO."""

    # RLlib's losses were means here, not sums as IMPALA's: its bound of the gradient and its rate hold as they are.
    new_defaults = {  # noqa: RUF012
        "replay_buffer_num_slots": 100, "grad_clip": 40.0, "lr": 5e-4, "clip_param": 0.4, "kl_coeff": 1.0
    }  # fmt: skip

    use_kl_loss: bool = option(False, "Add the KL penalty to the loss.")

    def derived(self) -> dict[str, Any]:
        """Returns what follows from other keys: plans of a program's own, too, find what updates the target policy."""
        return {**super().derived(), "after_train_step": self.after_train_step or UpdateTargetAndKL}


class UpdateTargetAndKL:
    """Copies the policy that learns into the target policy, and adapts the KL penalty, every few learner steps.

    Takes `(env steps, {policy id: learner info})` of each learner step and gives it on; called by whoever learns. In
    plans that are copies of RLlib's it takes `{policy id: learner info}`.
    Counts `num_target_updates`; sets `last_target_update_ts`, in env steps trained.

    Args:
        workers: The WorkerSet.
        config: There are `num_sgd_iter · minibatch_buffer_size` learner steps between two updates: those in which
            every batch of the buffer is learned from as often as it shall be. The penalty is adapted with
            `use_kl_loss`.
    """

    def __init__(self, workers: WorkerSet, config: APPOConfig) -> None:
        config = APPOConfig.view(config)
        # The learner's thread calls this, and must not keep workers alive when a program drops its trainer.
        self._workers, self._local_worker = weakref.ref(workers), workers.local_worker()
        self.adapts = config.use_kl_loss
        self.every = config.num_sgd_iter * config.minibatch_buffer_size
        self._steps = self._env_steps = 0
        self._kls: dict[str, list[float]] = {}

    @property
    def workers(self) -> WorkerSet | None:
        """The WorkerSet; None when it is gone."""
        return self._workers()

    def __call__(self, item: Any) -> Any:
        """Notes divergences, and updates after enough learner steps."""
        if isinstance(item, Mapping):  # the plan has counted the steps
            env_steps, infos = _get_shared_metrics().counters[STEPS_TRAINED_COUNTER] - self._env_steps, item
        else:
            env_steps, infos = item
        for policy_id, info in infos.items():
            kl = info.get(LEARNER_STATS_KEY, {}).get("kl")
            if kl is not None:
                self._kls.setdefault(policy_id, []).append(kl)
        self._steps += 1
        self._env_steps += env_steps
        if self._steps >= self.every:
            self._update()
        return item

    def _update(self) -> None:
        local = self._local_worker
        for policy_id in local.policies_to_train:
            policy: Any = local.policy_map[policy_id]
            policy.update_target()
            if self.adapts and self._kls.get(policy_id):
                policy.update_kl(sum(self._kls[policy_id]) / len(self._kls[policy_id]))
        self._steps, self._kls = 0, {}
        counters = _get_shared_metrics().counters
        counters[NUM_TARGET_UPDATES] += 1
        counters[LAST_TARGET_UPDATE_TS] = self._env_steps

    def get_state(self) -> dict[str, Any]:
        """Returns what was noted since the last update."""
        return {
            "steps": self._steps,
            "env_steps": self._env_steps,
            "kls": {k: list(v) for k, v in self._kls.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes it back."""
        self._steps, self._env_steps = int(state["steps"]), int(state["env_steps"])
        self._kls = {policy_id: list(kls) for policy_id, kls in state["kls"].items()}


def execution_plan(workers: WorkerSet, config: APPOConfig) -> LocalIterator[Any]:
    """Runs IMPALA's plan; behind learner steps the target policy and the KL penalty are updated."""
    config = APPOConfig.view(config)
    return asynchronous_plan(workers, config, UpdateTargetAndKL)  # configs of a program's own may derive nothing


DEFAULT_CONFIG: dict[str, Any] = APPOConfig.defaults()

APPOTrainer = build_trainer(
    name="APPO",
    config_class=APPOConfig,
    policies={
        "torch": "rlframe.agents.appo.appo_policy:AsyncPPOTorchPolicy",
        "tf": "rlframe.agents.appo.appo_policy:AsyncPPOTFPolicy",
    },
    execution_plan=execution_plan,
)
