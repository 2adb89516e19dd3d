"""DQN: double, dueling, n-step, prioritised, distributional, noisy; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlframe.agents.dqn.simple_q import SimpleQConfig
from rlframe.config.options import option
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.replay_buffer import LocalReplayBuffer
from rlframe.execution.replay_ops import Replay, StoreToReplayBuffer, UpdatePriorities
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep, UpdateTargetNetwork
from rlframe.trainer.template import build_trainer


class DQNConfig(SimpleQConfig):
    """Keys of DQN; with all its options on it is Rainbow (Hessel et al. 2018)."""

    num_atoms: int = option(
        1, "Atoms of the value distribution; 1 learns expected values.", low=1, source="Bellemare et al. 2017"
    )
    v_min: float = option(-10.0, "Smallest return the atoms cover.", unit="discounted return")
    v_max: float = option(10.0, "Largest return the atoms cover.", unit="discounted return")
    noisy: bool = option(False, "Heads explore by learned noise on their weights.", source="Fortunato et al. 2018")
    sigma0: float = option(0.5, "Initial size of that noise.", low=0, source="Fortunato et al. 2018, section 3.2")
    dueling: bool = option(True, "Separate state value and advantages.", source="Wang et al. 2016, eq. 9")
    hiddens: Sequence[int] = option([256], "Hidden layers of each head; [] puts heads on the trunk itself.", low=1)
    double_q: bool = option(
        True, "Select with the online network, evaluate with the target network.", source="van Hasselt et al. 2016"
    )
    n_step: int = option(
        1, "Rewards summed before bootstrapping.", unit="env steps", low=1, source="Sutton & Barto 2018, eq. 7.1"
    )
    prioritized_replay: bool = option(True, "Sample by TD error.", source="Schaul et al. 2016")
    prioritized_replay_alpha: float = option(0.6, "Exponent of priorities.", low=0, source="Schaul et al. 2016, eq. 1")
    prioritized_replay_beta: float = option(
        0.4, "Exponent of importance weights, at the start.", low=0, high=1, source="Schaul et al. 2016, section 3.4"
    )
    final_prioritized_replay_beta: float = option(0.4, "That exponent at the end of annealing.", low=0, high=1)
    prioritized_replay_beta_annealing_timesteps: int = option(
        20_000, "Steps over which it moves from the first to the last value.", unit="env steps", low=1
    )
    prioritized_replay_eps: float = option(1e-6, "Added to |TD error|, so that no priority is 0.", above=0)
    before_learn_on_batch: Callable[..., Any] | None = option(
        None, "(batch, workers, config) -> batch, called on every replayed batch."
    )
    training_intensity: float | None = option(
        None, "Rows trained per row sampled; None is one update per sample.", unit="rows / env step", above=0
    )
    worker_side_prioritization: bool = option(False, "Workers compute the first priorities.")

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.worker_side_prioritization and not self.prioritized_replay:
            yield "worker_side_prioritization=True needs prioritized_replay=True"
        if self.prioritized_replay and self.multiagent.replay_mode == "lockstep":
            yield "multiagent.replay_mode='lockstep' draws joint steps uniformly, it needs prioritized_replay=False"
        if self.v_min >= self.v_max:
            yield f"v_min={self.v_min} must be smaller than v_max={self.v_max}"
        if self.exploration_config.get("type") == "ParameterNoise" and self.noisy:
            yield "exploration_config.type='ParameterNoise' and noisy=True both put noise on the weights; choose one"


def validate_config(config: dict[str, Any]) -> None:
    """Lengthens fragments to `n_step`, and has whole episodes for parameter noise, both as RLlib does.

    A shorter fragment has no window of that many rewards; parameter noise changes the weights once per episode.
    """
    if config["exploration_config"].get("type") == "ParameterNoise":
        config["batch_mode"] = "complete_episodes"
    config["rollout_fragment_length"] = max(config["rollout_fragment_length"], config["n_step"])


def calculate_rr_weights(config: dict[str, Any]) -> list[float]:
    """Returns how often (store, learn) run per round, so that `training_intensity` is met in the mean."""
    intensity = config["training_intensity"]
    if not intensity:
        return [1, 1]
    sampled = config["rollout_fragment_length"] * max(config["num_workers"], 1) * config["num_envs_per_worker"]
    return [1, intensity * sampled / config["train_batch_size"]]


class BeforeLearn:
    """Item in and out: a batch. Runs the user's `before_learn_on_batch`; touches no counters."""

    def __init__(self, workers: WorkerSet, config: dict[str, Any]) -> None:
        self.function = config["before_learn_on_batch"] or (lambda batch, workers, config: batch)
        self.workers, self.config = workers, config

    def __call__(self, batch: Any) -> Any:
        """Returns what the user's function makes of the batch."""
        return self.function(batch, self.workers, self.config)


def execution_plan(
    workers: WorkerSet, config: dict[str, Any], *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay, learn, re-prioritise, copy the target."""
    store = ParallelRollouts(workers, mode="bulk_sync").for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))
    learn = (
        Replay(local_buffer=local_replay_buffer)
        .for_each(BeforeLearn(workers, config))
        .for_each(TrainOneStep(workers))
        .for_each(UpdatePriorities(local_replay_buffer, config["prioritized_replay"]))
        .for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"]))
    )
    weights = calculate_rr_weights(config)
    train = Concurrently([store, learn], mode="round_robin", output_indexes=[1], round_robin_weights=weights)
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = DQNConfig.defaults()

DQNTrainer = build_trainer(
    name="DQN",
    config_class=DQNConfig,
    validate_config=validate_config,
    policies={
        "torch": "rlframe.agents.dqn.dqn_torch_policy:DQNTorchPolicy",
        "tf": "rlframe.agents.dqn.dqn_tf_policy:DQNTFPolicy",
    },
    execution_plan=execution_plan,
)

#: RLlib's name for the base of other off-policy algorithms.
GenericOffPolicyTrainer = DQNTrainer
