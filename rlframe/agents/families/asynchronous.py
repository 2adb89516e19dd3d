"""Workers sample without waiting, a learner thread corrects for their lag: the keys, and the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.actor_critic import ActionBoundConfig, ActorCriticConfig
from rlframe.config.common import Function, Number
from rlframe.config.options import option
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.learner_ops import BroadcastLearned, FeedLearner, make_learner
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.tree_agg import gather_experiences

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.execution.iterators import LocalIterator

BOUND_COEFF = 1.0
BEHAVIOUR_KL_COEFF = 0.5


class AsynchronousConfig(ActorCriticConfig, ActionBoundConfig):
    """Keys of IMPALA (Espeholt et al. 2018) and of what has its flow of data."""

    # RLlib's deviations depend on the state: see "Where it departs" in IMPALA's README.md.
    new_defaults = {  # noqa: RUF012
        "rollout_fragment_length": 50,
        "train_batch_size": 500,
        "action_bound_coeff": BOUND_COEFF,
        "model": {"free_log_std": None},
    }

    # The correction
    vtrace: bool = option(True, "Correct for the workers' lag; False takes A3C's losses.", source="eq. 1")
    vtrace_clip_rho_threshold: float | None = option(
        1.0, "ρ̄: largest importance weight of a value error.", above=0, infinite=True
    )
    vtrace_clip_pg_rho_threshold: float | None = option(
        1.0, "Largest importance weight of the policy gradient.", above=0
    )
    vtrace_drop_last_ts: bool = option(
        True, "The last row of a fragment only gives the value that the row before is bootstrapped with."
    )
    vtrace_lambda: float | None = option(
        None,
        "λ: how far an error reaches back. None is 1, RLlib's, the whole fragment; 0.9 for Gaussian actions.",
        low=0,
        high=1,
        source="remark 2",
    )
    normalize_values: bool | None = option(
        None,
        "PopArt: values are learned normalised by the running mean and standard deviation of their targets. None does "
        "so where only the learner uses values: with V-trace that drops last rows.",
        source="Yu et al. 2022, section 5.1",
    )
    scale_advantages: bool | None = option(
        None,
        "Advantages of a batch (of a device's share of it) are divided by their root mean square. None does so with "
        "V-trace.",
    )
    use_critic: bool = option(True, "Without V-trace: advantages are measured against values.")
    use_gae: bool = option(True, "Without V-trace: generalised advantage estimates.", source="Schulman et al. 2016")
    lambda_: float = option(1.0, "Without V-trace: decay of the advantages' trace.", low=0, high=1, key="lambda")

    # The flow of data
    min_iter_time_s: Number | None = option(
        None,
        "Shortest iteration. None: 10 s with remote workers; without, iterations are the same work on every machine: "
        "timesteps_per_iteration, or 4000 env steps.",
        unit="s",
        low=0,
        tunable=False,
    )
    num_multi_gpu_tower_stacks: int = option(
        1, "Batches that are unpacked ahead for the learner; above 1 by a thread of their own.", low=1
    )
    minibatch_buffer_size: int = option(1, "Train batches that are learned from in turn.", low=1)
    num_sgd_iter: int = option(1, "Learner steps on each train batch.", low=1)
    replay_proportion: float = option(0.0, "Earlier fragments mixed in for each new one, on average.", low=0)
    replay_buffer_num_slots: int = option(0, "Fragments kept for that.", unit="fragments", low=0)
    learner_queue_size: int = option(16, "Train batches that may wait for the learner.", unit="batches", low=1)
    learner_queue_timeout: Number = option(300, "Longest wait of the learner for a train batch.", unit="s", above=0)
    max_sample_requests_in_flight_per_worker: int = option(2, "Fragments that each worker is asked for ahead.", low=1)
    broadcast_interval: int = option(1, "Train batches learned from one sending of weights to the next.", low=1)
    num_aggregation_workers: int = option(0, "Processes that join fragments to train batches.", low=0)
    num_data_loader_buffers: int = option(-1, "Old name of num_multi_gpu_tower_stacks.", deprecated=True)

    # The loss and the optimiser
    # 250 is 0.5 for the mean over 500 rows. So far none of 43 runs on CartPole took 60,000 steps with it, or with
    # RLlib's 40; with 40 for the mean, 5 of 35 took 180,000 or more.
    grad_clip: float | None = option(
        250.0,
        "Largest norm of the gradient of the loss summed over rows (APPO: of the mean); None or 0 does not clip.",
        low=0,
        infinite=True,
    )
    opt_type: str = option("adam", "The optimiser.", choices=("adam", "rmsprop"))
    decay: float = option(0.99, "RMSProp: share of the old mean of squared gradients that is kept.", low=0, high=1)
    momentum: float = option(0.0, "RMSProp: share of the last step that is done again.", low=0, high=1)
    epsilon: float = option(
        0.1, "RMSProp: what is added to the root of that mean, of gradients as for grad_clip.", above=0
    )
    behaviour_kl_coeff: float = option(
        BEHAVIOUR_KL_COEFF,
        "Weight of KL(μ‖π), how far the policy that learns is from those that acted; 0 leaves it to V-trace alone.",
        low=0,
        source="Rolnick et al. 2019, section 3",
    )
    separate_vf_optimizer: bool = option(
        False, "Values and policy have losses and optimisers of their own.", key="_separate_vf_optimizer"
    )
    lr_vf: float = option(5e-4, "Learning rate of the values, if separate.", low=0, key="_lr_vf")
    after_train_step: Function | None = option(
        None, "(workers, config) -> a function of (env steps, learner infos), called behind each learner step."
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.replay_proportion > 0 and self.replay_buffer_num_slots == 0:
            yield f"replay_proportion={self.replay_proportion:g} needs replay_buffer_num_slots >= 1"
        if self.num_aggregation_workers > self.num_workers:
            yield (
                f"num_aggregation_workers={self.num_aggregation_workers} must be at most num_workers="
                f"{self.num_workers}: each joins the fragments of one worker or more"
            )
        if self.separate_vf_optimizer and self.model.vf_share_layers:
            yield "_separate_vf_optimizer=True needs model.vf_share_layers=False: each weight has one optimiser"
        if self.normalize_values and not (self.vtrace and self.vtrace_drop_last_ts):
            yield (
                "normalize_values=True needs vtrace=True and vtrace_drop_last_ts=True: workers bootstrap with values "
                "otherwise, and do not know their units; leave it out"
            )

    def estimates_advantages(self) -> bool:
        """Whether workers estimate advantages, so that `use_gae` is read."""
        return not self.vtrace


def asynchronous_plan(
    workers: WorkerSet, config: AsynchronousConfig, after_train_step: Function | None = None
) -> LocalIterator[Any]:
    """Lets (1) workers fill the learner's queue, while (2) the learner's new weights go to the workers.

    Args:
        workers: The WorkerSet.
        config: The trainer's config.
        after_train_step: Stands in where the config says none.
    """
    learner = make_learner(workers, config, after_train_step)
    store = gather_experiences(workers, config).for_each(FeedLearner(learner))
    learned = learner.results().for_each(BroadcastLearned(workers, learner))
    train = Concurrently([store, learned], mode="async", output_indexes=[1])
    return StandardMetricsReporting(train, workers, config).within(learner).for_each(learner.add_learner_metrics)
