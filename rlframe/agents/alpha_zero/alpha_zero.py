"""AlphaZero: tree search with a network's priors and values, which learn from it; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rlframe.agents.families.optimization import GradientClippingConfig, LearningRateScheduleConfig, MinibatchConfig
from rlframe.config.declaration import Section
from rlframe.config.options import option, section
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.mixing_ops import SimpleReplayBuffer
from rlframe.execution.plan.context import policy_parts
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer, TrainOneStep
from rlframe.trainer.template import build_trainer


class SearchConfig(Section):
    """Options of the tree search."""

    puct_coefficient: float = option(1.0, "c: weight of what the network expects against what was found.", low=0)
    num_simulations: int = option(30, "Simulations for each action.", low=2)
    temperature: float = option(1.5, "τ: exponent of visits in the tree policy; large is greedy.", above=0)
    dirichlet_epsilon: float = option(0.25, "Share of noise in the root's priors.", low=0, high=1)
    dirichlet_noise: float = option(0.03, "α of the noise; small draws favour one action.", above=0)
    argmax_tree_policy: bool = option(False, "Take the likeliest action of the tree policy instead of drawing one.")
    add_dirichlet_noise: bool = option(True, "Exploring searches have noise at the root.")


class RankedRewardsConfig(Section):
    """Options of ranked rewards: an outcome is good if it is better than most of the last ones."""

    enable: bool = option(True, "Whether outcomes are ranked.", source="Laterre et al. 2018")
    percentile: float = option(75.0, "An outcome of this percentile or more is worth 1, others -1.", low=0, high=100)
    buffer_max_length: int = option(1000, "Outcomes that are ranked against.", unit="episodes", low=1)
    initialize_buffer: bool = option(True, "The first outcomes are those of acting at random.")
    num_init_rewards: int = option(100, "How many.", unit="episodes", low=1)


class AlphaZeroConfig(MinibatchConfig, GradientClippingConfig, LearningRateScheduleConfig):
    """Keys of AlphaZero (Silver et al. 2017) for one player."""

    new_defaults: ClassVar[Any] = {
        "lr": 5e-5,
        "rollout_fragment_length": 200,
        "train_batch_size": 4000,
        "batch_mode": "complete_episodes",
        "evaluation_config": {"mcts_config": {"argmax_tree_policy": True, "add_dirichlet_noise": False}},
    }

    mcts_config: SearchConfig = section(SearchConfig, "Options of the tree search.")
    ranked_rewards: RankedRewardsConfig = section(RankedRewardsConfig, "Options of ranked rewards.")
    learning_starts: int = option(1000, "Steps stored before the first update, with replay.", unit="env steps", low=0)
    buffer_size: int = option(
        10_000, "Sampled batches that are replayed, the last ones; simple_optimizer=True learns without replay.", low=1
    )
    store_buffer_in_checkpoints: bool = option(
        True, "Checkpoints hold the replayed batches, without which training does not go on exactly.", tunable=False
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.batch_mode != "complete_episodes":
            yield f"batch_mode={self.batch_mode!r}: outcomes are those of whole episodes; set 'complete_episodes'"
        if self.multiagent.policies:
            yield "multiagent.policies: the search steps the whole environment, for one agent; leave it out"
        if self.model.use_lstm or self.model.use_attention:
            yield "model: the search asks about states out of their order; leave use_lstm and use_attention out"
        if self.clip_rewards:
            yield f"clip_rewards={self.clip_rewards}: the search counts rewards as they are; leave it out"
        if self.exploration_config.get("type", "StochasticSampling") != "StochasticSampling":
            yield "exploration_config: the search explores by mcts_config; leave it out"

    def remarks(self) -> Iterator[str]:
        """Yields remarks on keys that are not read."""
        yield from super().remarks()
        if self.gamma != self.defaults()["gamma"]:
            yield f"gamma={self.gamma} has no effect here: an outcome is the sum of an episode's rewards"


class LateReplay(SimpleReplayBuffer):
    """Gives batches from the time on that enough steps are stored.

    Args:
        num_slots: Batches to keep.
        learning_starts: Env steps stored before it gives any.
        seed: Seed of the choice.
    """

    def __init__(self, num_slots: int, learning_starts: int, seed: int | None = None) -> None:
        super().__init__(num_slots, seed=seed)
        self._learning_starts, self._stored = learning_starts, 0

    def add_batch(self, sample_batch: Any) -> None:
        """Keeps a batch."""
        self._stored += sample_batch.env_steps()
        super().add_batch(sample_batch)

    def replay(self) -> Any:
        """Returns a random batch of those kept, or None while there are too few steps."""
        return super().replay() if self._stored >= self._learning_starts else None

    def get_state(self) -> dict[str, Any]:
        """Returns the batches, the random stream, and the number of steps."""
        return {**super().get_state(), "stored": self._stored}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        super().set_state(state)
        self._stored = int(state["stored"])


class RankOutcomes:
    """Takes a batch and gives it with what its steps were worth, `value_targets`; touches no counters.

    Args:
        workers: The WorkerSet; outcomes are ranked against those that its local policies keep.
    """

    def __init__(self, workers: WorkerSet) -> None:
        self.workers = workers

    def __call__(self, batch: Any) -> Any:
        """Returns the batch."""
        local: Any = self.workers.local_worker()
        for policy_id, rows in policy_parts(local, batch):
            local.policy_map[policy_id].value_rows(rows)
        return batch


def execution_plan(
    workers: WorkerSet, config: AlphaZeroConfig, *, local_replay_buffer: Any = None
) -> LocalIterator[Any]:
    """Alternates (1) sample, rank and store with (2) replay a train batch and learn from it."""
    config = AlphaZeroConfig.view(config)
    learn = TrainOneStep(workers, num_sgd_iter=config.num_sgd_iter, sgd_minibatch_size=config.sgd_minibatch_size)
    gather = ConcatBatches(config.train_batch_size, config.multiagent.count_steps_by)
    sampled = ParallelRollouts(workers, mode="bulk_sync").for_each(RankOutcomes(workers))
    if local_replay_buffer is None:
        return StandardMetricsReporting(sampled.combine(gather).for_each(learn), workers, config)
    store = sampled.for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))
    replay = Replay(local_buffer=local_replay_buffer).combine(gather).for_each(learn)
    train = Concurrently([store, replay], mode="round_robin", output_indexes=[1])
    return StandardMetricsReporting(train, workers, config)


def make_replay(config: Mapping[str, Any], seed: int | None) -> LateReplay | None:
    """Returns the buffer of a trainer's plan, None for a plan without."""
    if config["simple_optimizer"] is True:
        return None
    return LateReplay(config["buffer_size"], config["learning_starts"], seed)


execution_plan.make_replay_buffer = make_replay  # type: ignore[attr-defined]  # what trainers make for it

DEFAULT_CONFIG: dict[str, Any] = AlphaZeroConfig.defaults()

AlphaZeroTrainer = build_trainer(
    name="AlphaZero",
    config_class=AlphaZeroConfig,
    policies={
        "torch": "rlframe.agents.alpha_zero.alpha_zero_policy:AlphaZeroTorchPolicy",
        "tf": "rlframe.agents.alpha_zero.alpha_zero_policy:AlphaZeroTFPolicy",
    },
    execution_plan=execution_plan,
)
