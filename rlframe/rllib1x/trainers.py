"""Functions around trainers that RLlib's algorithms were made of, and that the plans here do in operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlframe.agents.a3c.a3c import A3CConfig
from rlframe.agents.appo.appo import UpdateTargetAndKL
from rlframe.agents.ddpg.ddpg import DDPGConfig
from rlframe.agents.dqn.apex import ApexConfig
from rlframe.agents.dqn.dqn import DQNConfig
from rlframe.agents.dqn.r2d2 import R2D2Config
from rlframe.agents.ppo.ddppo import DDPPOConfig
from rlframe.agents.ppo.ppo import PPOConfig
from rlframe.agents.sac.rnnsac import RNNSACConfig
from rlframe.agents.sac.sac import SACConfig
from rlframe.config.options import AlgorithmConfig
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.learner.thread import LearnerThread
from rlframe.execution.plan.context import (
    LEARNER_INFO,
    STEPS_TRAINED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    _get_shared_metrics,
)
from rlframe.trainer.resources import placement_group_factory
from rlframe.trainer.setup import import_path
from rlframe.trainer.trainer import Trainer
from rlframe.utils.errors import ConfigError
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY


class OverrideDefaultResourceRequest:
    """Mixin of trainers: what a trial reserves; that of every trainer here."""

    @classmethod
    def default_resource_request(cls: Any, config: dict[str, Any]) -> Any:
        """Returns one bundle for the driver, and one for each rollout and evaluation worker."""
        return placement_group_factory(cls.merge_trainer_configs(cls.get_default_config(), dict(config)))


# --- Configs ------------------------------------------------------------------------------------------------------


def _writes_derived(declaration: type[AlgorithmConfig] | str) -> Callable[[dict[str, Any]], None]:
    """Returns RLlib's `validate_config` of an algorithm, whose declaration, or its path, is given."""

    def validate_config(config: dict[str, Any]) -> None:
        """Writes into a config what follows from others of its keys, as RLlib did; trainers here leave it as it is."""
        found: Any = import_path(declaration) if isinstance(declaration, str) else declaration
        config.update(found.effective(config))

    return validate_config


validate_a3c_config = _writes_derived(A3CConfig)
validate_apex_config = _writes_derived(ApexConfig)
validate_bc_config = _writes_derived("rlframe.agents.marwil.marwil:BCConfig")
validate_cql_config = _writes_derived("rlframe.agents.sac.cql:CQLConfig")
validate_ddppo_config = _writes_derived(DDPPOConfig)
validate_ddpg_config = _writes_derived(DDPGConfig)
validate_dqn_config = _writes_derived(DQNConfig)
validate_r2d2_config = _writes_derived(R2D2Config)
validate_dreamer_config = _writes_derived("rlframe.agents.dreamer.dreamer:DreamerConfig")
validate_es_config = _writes_derived("rlframe.agents.es.es:ESConfig")
validate_maml_config = _writes_derived("rlframe.agents.maml.maml:MAMLConfig")
validate_marwil_config = _writes_derived("rlframe.agents.marwil.marwil:MARWILConfig")
validate_mbmpo_config = _writes_derived("rlframe.agents.mbmpo.mbmpo:MBMPOConfig")
validate_ppo_config = _writes_derived(PPOConfig)
validate_rnnsac_config = _writes_derived(RNNSACConfig)
validate_sac_config = _writes_derived(SACConfig)
validate_slateq_config = _writes_derived("rlframe.agents.slateq.slateq:SlateQConfig")


# --- PPO and APPO -------------------------------------------------------------------------------------------------


def update_kl(trainer: Any, fetches: Mapping[str, Any]) -> None:
    """Adapts the KL penalty of every policy that was trained; the `after_optimizer_step` of RLlib 0.8's PPO.

    Args:
        trainer: The trainer.
        fetches: By policy id, learner infos with the mean divergence, in nats; or one policy's own.
    """
    local = trainer.workers.local_worker()
    by_policy = {name: info for name, info in fetches.items() if name in local.policy_map and isinstance(info, Mapping)}
    for policy_id, info in (by_policy or {next(iter(local.policy_map)): fetches}).items():
        kl = info.get(LEARNER_STATS_KEY, info).get("kl")
        if kl is not None:
            local.policy_map[policy_id].update_kl(kl)


def setup_config(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Moves `vf_share_layers` to where it belongs, the `model` section; RLlib's `before_init` of PPO."""
    del policy, obs_space, action_space
    if config.get("vf_share_layers", -1) != -1:
        config["model"]["vf_share_layers"] = bool(config["vf_share_layers"])


def add_target_callback(config: dict[str, Any]) -> None:
    """Has the target policy and the KL penalty updated behind learner steps, unless the config says what is."""
    config["after_train_step"] = config.get("after_train_step") or UpdateTargetAndKL


def initialize_target(trainer: Any) -> None:
    """Copies every policy that learns into its target policy; RLlib's `after_init` of APPO."""
    trainer.workers.local_worker().foreach_trainable_policy(lambda policy, _: policy.update_target())


# --- IMPALA -------------------------------------------------------------------------------------------------------


def validate_impala_config(config: dict[str, Any]) -> None:
    """Raises a ConfigError where IMPALA's keys contradict each other."""
    if config["entropy_coeff"] < 0:
        raise ConfigError(f"entropy_coeff: got {config['entropy_coeff']}, wanted a number of at least 0")
    if config["num_aggregation_workers"] > config["num_workers"]:
        raise ConfigError(
            f"num_aggregation_workers={config['num_aggregation_workers']} must be at most num_workers="
            f"{config['num_workers']}"
        )


def make_learner_thread(local_worker: Any, config: Mapping[str, Any]) -> LearnerThread:
    """Returns the thread that learns from the batches in its `inqueue`; start it, and take from its `outqueue`."""
    return LearnerThread(
        local_worker,
        minibatch_buffer_size=config["minibatch_buffer_size"],
        num_sgd_iter=config["num_sgd_iter"],
        learner_queue_size=config["learner_queue_size"],
        learner_queue_timeout=config["learner_queue_timeout"],
    )


class BroadcastUpdateLearnerWeights:
    """Has workers get the learner's weights before they sample again. Takes `(actor, batch)`; gives it on.

    Counts `num_weight_broadcasts`.

    Args:
        learner_thread: The learner.
        workers: The WorkerSet.
        broadcast_interval: Batches from one sending of weights to the next.
    """

    def __init__(self, learner_thread: LearnerThread, workers: WorkerSet, broadcast_interval: int) -> None:
        self.learner_thread, self.workers, self.broadcast_interval = learner_thread, workers, broadcast_interval
        self.steps_since_broadcast = 0

    def __call__(self, item: tuple[Any, Any]) -> tuple[Any, Any]:
        """Says that weights have changed when it is time."""
        self.steps_since_broadcast += 1
        if self.steps_since_broadcast >= self.broadcast_interval and self.learner_thread.has_learned:
            self.steps_since_broadcast = 0
            metrics = _get_shared_metrics()
            metrics.counters["num_weight_broadcasts"] += 1
            self.workers.weights_changed(weights=self.workers.local_worker().get_weights())
        return item


def record_steps_trained(item: Any) -> tuple[int, Any]:
    """Counts what a learner thread learned: takes what is in its `outqueue`, gives `(env steps, learner infos)`."""
    env_steps, infos = item
    metrics = _get_shared_metrics()
    metrics.info[LEARNER_INFO] = infos
    metrics.counters[STEPS_TRAINED_THIS_ITER_COUNTER] = env_steps
    metrics.counters[STEPS_TRAINED_COUNTER] += env_steps
    return env_steps, infos


# --- Built without a plan -----------------------------------------------------------------------------------------

default_execution_plan = Trainer.execution_plan
"""What trains where `build_trainer` is given no plan: RLlib's name for it up to 1.2."""
