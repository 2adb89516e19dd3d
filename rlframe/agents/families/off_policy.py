"""Algorithms that learn from a replay buffer: their keys, and the plan they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.optimization import GradientClippingConfig
from rlframe.config.common import CommonConfig
from rlframe.config.model import ACTIVATIONS, NetworkConfig
from rlframe.config.options import Section, Variants, option, section
from rlframe.config.unsupported import UNSUPPORTED, options_beyond_one_buffer
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer, TrainOneStep, UpdatePriorities, UpdateTargetNetwork
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.execution.iterators import LocalIterator

REPLAY_BUFFERS = Variants()
"""The declared replay buffers by the name that stands in `type`."""


@REPLAY_BUFFERS.add("LocalReplayBuffer")
class LocalReplayBufferConfig(Section):
    """The replay buffer in the trainer's own process.

    What it stores and how it samples is said by the algorithm's own keys: prioritized_replay, learning_starts, ….
    """

    type: Any = option("LocalReplayBuffer", "Class of buffer: a name, a dotted path or a class.")
    capacity: int = option(50_000, "Rows kept; the oldest go first.", unit="env steps", low=1)


@REPLAY_BUFFERS.add("EpisodeReplayBuffer")
class EpisodeReplayBufferConfig(Section):
    """A buffer of whole episodes (or of the sequences that fragments and max_seq_len cut them into)."""

    type: Any = option("EpisodeReplayBuffer", "Class of buffer: a name, a dotted path or a class.")
    capacity: int = option(1000, "Episodes kept of each policy; the oldest go first.", unit="episodes", low=1)


@REPLAY_BUFFERS.add("ReplayActor")
class ReplayActorConfig(Section):
    """A buffer in several shards, beside remote workers each in a process of its own; for plans as Ape-X's."""

    type: Any = option("ReplayActor", "Class of buffer: a name, a dotted path or a class.")
    capacity: int = option(
        2_000_000, "Rows kept of each policy, in all shards; the oldest go first.", unit="env steps", low=1
    )


def _faults_of_rows(replay_buffer_config: Mapping[Any, Any] | None) -> Iterator[str]:
    """Yields what is wrong with the buffer of an algorithm that replays single rows."""
    kind = (replay_buffer_config or {}).get("type")
    if getattr(kind, "__name__", kind) == "EpisodeReplayBuffer":
        yield "replay_buffer_config.type='EpisodeReplayBuffer' is for whole episodes; leave it at 'LocalReplayBuffer'"
    if kind == "ReplayActor":
        yield (
            "replay_buffer_config.type='ReplayActor' is for the plan of APEX and APEX_DDPG, apex_execution_plan; leave "
            "it at 'LocalReplayBuffer'"
        )


def _faults_of_shards(replay_buffer_config: Mapping[Any, Any] | None) -> Iterator[str]:
    """Yields what is wrong with the buffer of an algorithm that replays from shards."""
    kind = (replay_buffer_config or {}).get("type")
    if getattr(kind, "__name__", kind) == "EpisodeReplayBuffer":
        yield "replay_buffer_config.type='EpisodeReplayBuffer' is for whole episodes; leave it at 'ReplayActor'"
    elif getattr(kind, "__name__", kind) not in (None, "ReplayActor", "LocalReplayBuffer"):
        yield f"replay_buffer_config.type={kind!r}: rows are in shards here, which are made by the plan; leave it out"


def _faults_of_episodes(replay_buffer_config: Mapping[Any, Any] | None) -> Iterator[str]:
    """Yields what is wrong with the buffer of an algorithm that replays episodes, or sequences of their steps."""
    kind = (replay_buffer_config or {}).get("type")
    if kind is None or getattr(kind, "__name__", kind) == "LocalReplayBuffer":
        yield (
            f"replay_buffer_config.type={kind!r} is for single rows; whole episodes or sequences are replayed here: "
            "set 'EpisodeReplayBuffer'"
        )


class ReplayConfig(CommonConfig):
    """The replay buffer; what else algorithms share is declared below."""

    replays_episodes: ClassVar[bool] = False
    """Whether the algorithm replays whole episodes, not single rows."""
    replays_shards: ClassVar[bool] = False
    """Whether its plan has the replay buffer in shards."""

    learning_starts: int = option(1000, "Steps sampled before the first update.", unit="env steps", low=0)
    replay_buffer_config: dict[Any, Any] | None = option(
        {"type": "LocalReplayBuffer", "capacity": 50_000},
        "The replay buffer; None for plans without one.",
        variants=REPLAY_BUFFERS,
    )
    buffer_size: int = option(-1, "Old name of replay_buffer_config.capacity.", deprecated=True)
    store_buffer_in_checkpoints: bool = option(
        True, "Checkpoints hold the replay buffer, so that resuming is exact; False leaves it out in restore() too."
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        of_kind = _faults_of_shards if self.replays_shards else _faults_of_rows
        of_kind = _faults_of_episodes if self.replays_episodes else of_kind
        yield from of_kind(self.replay_buffer_config)

    def derived(self) -> dict[str, Any]:
        """Returns whole episodes for parameter noise, which changes the weights once per episode."""
        noisy = self.exploration_config.get("type") == "ParameterNoise"
        return {**super().derived(), **({"batch_mode": "complete_episodes"} if noisy else {})}


class OffPolicyConfig(ReplayConfig):
    """The networks that targets come from."""

    target_network_update_freq: int = option(
        500,
        "Steps between two updates of the target networks; 0 updates them with each learner step.",
        unit="env steps sampled",
        low=0,
        source="Mnih et al. 2015, algorithm 1",
    )


class NStepConfig(OffPolicyConfig):
    """Targets that sum several rewards."""

    n_step: int = option(
        1, "Rewards summed before bootstrapping.", unit="env steps", low=1, source="Sutton & Barto 2018, eq. 7.1"
    )

    def derived(self) -> dict[str, Any]:
        """Returns fragments of `n_step` rows at least: a shorter one has no window of that many rewards."""
        return {**super().derived(), "rollout_fragment_length": max(self.rollout_fragment_length, self.n_step)}


class PrioritizedReplayConfig(OffPolicyConfig):
    """Rows are drawn by their TD errors."""

    # Ape-X's plan reads it, also over algorithms that have another by default; theirs refuses it.
    unsupported: ClassVar[Any] = {key: value for key, value in UNSUPPORTED.items() if key != "optimizer"}

    prioritized_replay: bool = option(True, "Sample by TD error.", source="Schaul et al. 2016")
    prioritized_replay_alpha: float = option(0.6, "Exponent of priorities.", low=0, source="Schaul et al. 2016, eq. 1")
    prioritized_replay_beta: float = option(
        0.4, "Exponent of importance weights, at the start.", low=0, high=1, source="Schaul et al. 2016, section 3.4"
    )
    final_prioritized_replay_beta: float = option(0.4, "That exponent at the end of annealing.", low=0, high=1)
    prioritized_replay_beta_annealing_timesteps: int = option(
        20_000, "Steps over which it moves from the first to the last value.", unit="env steps", low=1
    )
    prioritized_replay_eps: float = option(1e-6, "Added to |TD error|, so that no priority is 0.", low=0)
    worker_side_prioritization: bool = option(False, "Workers compute the first priorities.")

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.worker_side_prioritization and not self.prioritized_replay:
            yield "worker_side_prioritization=True needs prioritized_replay=True"
        if self.prioritized_replay and not self.prioritized_replay_eps:
            yield "prioritized_replay_eps=0 never draws rows without error again, it needs prioritized_replay=False"
        if self.prioritized_replay and self.multiagent.replay_mode == "lockstep":
            yield "multiagent.replay_mode='lockstep' draws joint steps uniformly, it needs prioritized_replay=False"


class SequenceReplayConfig(OffPolicyConfig):
    """Policies with memory learn from replayed sequences."""

    replay_sequence_length: int = option(
        1,
        "Rows of a sequence, burn-in included, that a policy with memory learns from; 1 or -1 is burn_in + "
        "model.max_seq_len. Policies without memory replay single rows.",
        unit="env steps",
        low=-1,
    )
    replay_sequence_overlap: int = option(
        0,
        "Rows of a sequence that the next one of its episode learns from, too.",
        unit="env steps",
        low=0,
        source="Kapturowski et al. 2019, section 2.3, where it is 40 of 80",
    )
    burn_in: int = option(
        0,
        "Rows at the beginning of a sequence that only warm up its recurrent state.",
        unit="env steps",
        low=0,
        source="Kapturowski et al. 2019, section 3",
    )
    zero_init_states: bool = option(
        True, "Sequences begin with states of zeros; False takes the states that the policy had there when it acted."
    )
    prioritized_replay_eta: float = option(
        0.9,
        "A sequence's priority is this share of its largest |TD error|, and the rest of their mean.",
        low=0,
        high=1,
        source="Kapturowski et al. 2019, section 2.3",
    )

    def has_memory(self) -> bool:
        """Whether `model` says that policies have memory; models of the user's own say so themselves."""
        return self.model.use_lstm or self.model.use_attention

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        length, burn_in = self.replay_sequence_length, self.burn_in
        if length == 0:
            yield "replay_sequence_length=0: wanted -1, which is burn_in + model.max_seq_len, or a number of rows"
        if 1 < length <= burn_in:
            yield (
                f"burn_in={burn_in} leaves nothing of replay_sequence_length={length} to learn from; set burn_in below "
                "it, or replay_sequence_length=-1, which is burn_in + model.max_seq_len"
            )
        learned = (length if length > 1 else burn_in + self.model.max_seq_len) - burn_in
        if 0 < learned <= self.replay_sequence_overlap:
            yield (
                f"replay_sequence_overlap={self.replay_sequence_overlap} must be smaller than the {learned} rows of a "
                "sequence behind burn-in, or sequences would never move on"
            )
        if self.has_memory():
            yield from self._faults_with_memory()

    def _faults_with_memory(self) -> Iterator[str]:
        if self.replay_sequence_length <= 1 and self.burn_in + self.model.max_seq_len < 2:
            yield (
                f"model.max_seq_len={self.model.max_seq_len}: a model with memory learns from sequences of steps; set "
                "2 or more, such as 20"
            )
        if self.get("worker_side_prioritization"):
            yield (
                "worker_side_prioritization=True computes TD errors of single rows, but a model with memory learns "
                "from sequences; set it to False: new sequences get the largest priority"
            )
        if self.multiagent.replay_mode == "lockstep":
            yield (
                "multiagent.replay_mode='lockstep' replays single rows, but a model with memory learns from sequences; "
                "leave it out"
            )

    def derived(self) -> dict[str, Any]:
        """Returns the length of sequences, and whole episodes for models with memory: sequences end with a sample."""
        made = super().derived()
        if self.replay_sequence_length == -1:
            made["replay_sequence_length"] = self.burn_in + self.model.max_seq_len
        return {**made, **({"batch_mode": "complete_episodes"} if self.has_memory() else {})}


class DoubleQConfig(OffPolicyConfig):
    """Targets of the largest value, without its bias."""

    double_q: bool = option(
        True, "Select with the online network, evaluate with the target network.", source="van Hasselt et al. 2016"
    )


class TrainingIntensityConfig(OffPolicyConfig):
    """How much is learned from each step."""

    training_intensity: float | None = option(
        None, "Rows trained per row sampled; None is one update per sample.", unit="rows / env step", above=0
    )


class SoftTargetConfig(OffPolicyConfig):
    """Target networks that follow slowly."""

    tau: float = option(
        5e-3,
        "How far the target networks then move towards the online ones; 1 copies.",
        low=0,
        high=1,
        source="Lillicrap et al. 2016, algorithm 1",
    )


class TwinCriticConfig(OffPolicyConfig):
    """A second critic against overestimated values."""

    twin_q: bool = option(
        True, "Two critics, of which targets take the smaller value.", source="Fujimoto et al. 2018, algorithm 1"
    )


class NetworkSectionsConfig(CommonConfig):
    """Networks of actor and critics, each described by a section."""

    Q_model: NetworkConfig = section(
        NetworkConfig, "Options of each critic's network.", fcnet_activation="relu", post_fcnet_activation=None
    )
    policy_model: NetworkConfig = section(
        NetworkConfig, "Options of the actor's network.", fcnet_activation="relu", post_fcnet_activation=None
    )
    initial_weights: str = option(
        "normc", "How weights begin: 'normc' as RLlib's, rows of norm 1, outputs of 0.01; 'fan_in' as PyTorch's own.",
        choices=("normc", "fan_in"),
    )  # fmt: skip


class TwoRatesConfig(CommonConfig):
    """An optimiser each for actor and critics."""

    critic_lr: float = option(1e-3, "Learning rate of the critic's Adam.", low=0, log=True)
    actor_lr: float = option(1e-3, "Learning rate of the actor's Adam.", low=0, log=True)

    def remarks(self) -> Iterator[str]:
        """Yields remarks on keys that are not read."""
        yield from super().remarks()
        if self.lr != self.defaults()["lr"]:
            yield f"lr={self.lr} has no effect here; set actor_lr and critic_lr"


class DeterministicActorConfig(TwoRatesConfig, NStepConfig, SoftTargetConfig, TrainingIntensityConfig):
    """An actor that gives one action for each observation, and critics of observation and action."""

    actor_hiddens: Sequence[int] = option([400, 300], "Hidden layers of the actor.", low=1)
    actor_hidden_activation: str = option("relu", "Activation of these.", choices=ACTIVATIONS)
    critic_hiddens: Sequence[int] = option([400, 300], "Hidden layers of the critic.", low=1)
    critic_hidden_activation: str = option("relu", "Activation of these.", choices=ACTIVATIONS)


class ReplayedActorCriticConfig(
    TwinCriticConfig, PrioritizedReplayConfig, SequenceReplayConfig, NStepConfig, SoftTargetConfig,
    TrainingIntensityConfig, GradientClippingConfig,
):  # fmt: skip
    """Actors that learn from replayed steps, one update for each step of the environment."""

    new_defaults = {  # noqa: RUF012
        "num_workers": 0,
        "rollout_fragment_length": 1,
        "train_batch_size": 256,
        "learning_starts": 1500,
        "target_network_update_freq": 0,
    }

    use_huber: bool = option(False, "The critics' losses are Huber's instead of squares.")
    huber_threshold: float = option(1.0, "Error from which Huber's is linear.", above=0)


Operator = Callable[[Any], Any]


def replay_plan(
    workers: WorkerSet,
    config: OffPolicyConfig,
    local_replay_buffer: Any,
    *,
    before_learning: Sequence[Operator] = (),
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay, learn, re-prioritise where rows have priorities, update targets.

    Args:
        workers: The WorkerSet.
        config: The trainer's config.
        local_replay_buffer: The buffer, as the trainer made it.
        before_learning: Operators between replay and the learner step: batch in, batch out.
    """
    config = OffPolicyConfig.view(config)
    unread = options_beyond_one_buffer(config.optimizer)
    if unread and not _has_own_policies(workers):
        raise ConfigError(
            f"optimizer: got {unread!r}, which this algorithm's plan does not read; use lr and the "
            "algorithm's own keys, or execution_plan=apex_execution_plan for these options"
        )
    return alternating_plan(workers, config, local_replay_buffer, before_learning=before_learning)


def _has_own_policies(workers: WorkerSet) -> bool:
    """Returns whether a policy's class is the program's own, which may read keys that plans do not."""
    from rlframe.policy.users_code import is_users

    return any(workers.local_worker().foreach_policy(lambda policy, _: is_users(type(policy))))


def alternating_plan(
    workers: WorkerSet,
    config: OffPolicyConfig,
    local_replay_buffer: Any,
    *,
    before_learning: Sequence[Operator] = (),
    by_steps_trained: bool = False,
) -> LocalIterator[Any]:
    """Does what `replay_plan` says, whatever `optimizer` holds.

    Args:
        workers: The WorkerSet.
        config: The trainer's config.
        local_replay_buffer: The buffer, as the trainer made it.
        before_learning: Operators between replay and the learner step: batch in, batch out.
        by_steps_trained: `target_network_update_freq` counts steps trained instead of steps sampled.
    """
    config = OffPolicyConfig.view(config)
    store = ParallelRollouts(workers, mode="bulk_sync").for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))
    learn = Replay(local_buffer=local_replay_buffer)
    operators: list[Operator] = [*before_learning, TrainOneStep(workers)]
    if config.get("prioritized_replay"):
        operators.append(UpdatePriorities(local_replay_buffer))
    operators.append(UpdateTargetNetwork(workers, config.target_network_update_freq, by_steps_trained))
    for operator in operators:
        learn = learn.for_each(operator)
    weights = calculate_rr_weights(config)
    train = Concurrently([store, learn], mode="round_robin", output_indexes=[1], round_robin_weights=weights)
    return StandardMetricsReporting(train, workers, config)


def calculate_rr_weights(config: Mapping[str, Any]) -> list[float]:
    """Returns how often (store, learn) run per round, so that `training_intensity` is met in the mean."""
    intensity = config.get("training_intensity")
    if not intensity:
        return [1, 1]
    sampled = config["rollout_fragment_length"] * max(config["num_workers"], 1) * config["num_envs_per_worker"]
    return [1, intensity * sampled / config["train_batch_size"]]
