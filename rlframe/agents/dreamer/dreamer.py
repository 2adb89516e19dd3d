"""Dreamer: behaviours learned by imagining, in a model that replayed episodes taught; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.off_policy import TwoRatesConfig
from rlframe.agents.families.optimization import GradientClippingConfig
from rlframe.config.declaration import Section
from rlframe.config.options import option, section
from rlframe.env.registry import SpecCreator
from rlframe.env.wrappers.repeated_actions import FRAME_SKIP, RepeatingCreator
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import StoreToReplayBuffer, TrainOneStep
from rlframe.replay.episodic import EpisodicBuffer as EpisodicBuffer
from rlframe.trainer.template import build_trainer
from rlframe.utils.seeding import derive_seed

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


#: Keys that are not read, and what is.
_INSTEAD = {
    "gamma": "discount",
    "train_batch_size": "batch_size and batch_length",
}


class DreamerModelConfig(Section):
    """Options of Dreamer's networks."""

    custom_model: Any = option(None, "A class derived from DreamerModel, or its name; None is DreamerModel.")
    custom_model_config: dict[Any, Any] = option({}, "Its own options. Free-form.")
    deter_size: int = option(200, "Width of the deterministic state, and of the layers around it.", low=1)
    stoch_size: int = option(30, "Width of the stochastic state.", low=1)
    depth_size: int = option(32, "Channels of the first convolution, of which the others have multiples.", low=1)
    hidden_size: int = option(400, "Width of the dense layers.", low=1)
    action_init_std: float = option(5.0, "Standard deviation of first actions, before squashing.", above=0)
    predict_termination: bool = option(
        False, "A network learns where episodes terminate, and imagined returns end there.",
        source="Hafner et al. 2020, appendix A",
    )  # fmt: skip


class DreamerConfig(TwoRatesConfig, GradientClippingConfig):
    """Keys of Dreamer (Hafner et al. 2020)."""

    new_defaults: ClassVar[Any] = {
        "num_workers": 0,
        "batch_mode": "complete_episodes",
        "horizon": 1000,
        "grad_clip": 100.0,
        "actor_lr": 8e-5,
        "critic_lr": 8e-5,
        "env_config": {FRAME_SKIP: 2},
    }

    td_model_lr: float = option(6e-4, "Learning rate of the world model's Adam.", low=0, log=True)
    discount: float = option(0.99, "γ: discount of imagined rewards.", low=0, high=1)
    lambda_: float = option(
        0.95, "λ: weight of longer imagined returns.", low=0, high=1, key="lambda", source="Hafner et al. 2020, eq. 6"
    )
    dreamer_train_iters: int = option(100, "Learner steps behind each sample.", low=1)
    batch_size: int = option(50, "Pieces of episodes in a learner step.", unit="pieces", low=1)
    batch_length: int = option(50, "Observations of such a piece; shorter episodes are taken whole.", low=2)
    imagine_horizon: int = option(15, "H: steps that are imagined from each replayed one.", unit="env steps", low=2)
    free_nats: float = option(3.0, "Divergence of posterior and prior that costs nothing.", unit="nats", low=0)
    kl_coeff: float = option(1.0, "Weight of the divergence in the model's loss.", low=0)
    prefill_timesteps: int = option(
        5000, "Random steps before learning, counted as frame_skip repeats them.", unit="frames", low=0
    )
    explore_noise: float = option(0.3, "Standard deviation of what is added to actions in [-1, 1].", low=0)
    buffer_size: int = option(1000, "Episodes kept; the oldest go first.", unit="episodes", low=1)
    store_buffer_in_checkpoints: bool = option(
        True, "Checkpoints hold the episodes, without which training does not go on exactly.", tunable=False
    )
    dreamer_model: DreamerModelConfig = section(DreamerModelConfig, "Options of the networks.")

    def frame_skip(self) -> Any:
        """Returns how often the environment does each action."""
        return self.env_config.get(FRAME_SKIP, 1)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        skip = self.frame_skip()
        if not isinstance(skip, int) or skip < 1:
            yield f"env_config.frame_skip={skip!r}: wanted an integer >= 1, how often each action is done"
        yield from self._faults_of_others()

    def _faults_of_others(self) -> Iterator[str]:
        """Yields what other algorithms can, and this one cannot."""
        if self.framework != "torch":
            yield f"framework={self.framework!r}: Dreamer is in PyTorch alone, as in RLlib; set 'torch'"
        if self.batch_mode != "complete_episodes":
            yield f"batch_mode={self.batch_mode!r}: whole episodes are replayed; set 'complete_episodes'"
        if self.clip_actions:
            yield "clip_actions=True: actions are squashed into their bounds already; leave it out"
        if not self.normalize_actions:
            yield "normalize_actions=False: the policy acts in [-1, 1], which is mapped to the bounds; leave it out"
        if self.num_gpus > 1:
            yield f"num_gpus={self.num_gpus}: Dreamer learns on one GPU; set 1"
        if self.multiagent.policies:
            yield "multiagent.policies: one policy learns, in its own model of the environment; leave it out"
        if self.exploration_config != self.defaults()["exploration_config"]:
            yield "exploration_config: actions are explored by explore_noise and prefill_timesteps; leave it out"
        if self.model.custom_model or self.model.use_lstm or self.model.use_attention:
            yield "model: the networks are Dreamer's own, with memory; set dreamer_model instead"
        if self.input != "sampler":
            yield f"input={self.input!r}: episodes are sampled; leave it out"

    def remarks(self) -> Iterator[str]:
        """Yields remarks on keys that are not read."""
        yield from super().remarks()
        defaults = self.defaults()
        for key, instead in _INSTEAD.items():
            if self[key] != defaults[key]:
                yield f"{key}={self[key]} has no effect here; set {instead}"
        for key, default in defaults["model"].items():
            if self["model"].get(key) != default:
                yield f"model.{key}={self['model'][key]!r} has no effect on Dreamer's networks; set dreamer_model"

    derived_in_evaluation: ClassVar[frozenset[str]] = frozenset({"horizon"})

    def derived(self) -> dict[str, Any]:
        """Returns horizon and random steps in actions, and how these are explored."""
        skip = self.frame_skip()
        exploration = {"type": "StochasticSampling", "random_timesteps": self.prefill_timesteps // skip}
        horizon = self.horizon and max(self.horizon // skip, 1)
        return {**super().derived(), "horizon": horizon, "exploration_config": exploration, "action_repeat": skip}


class RepeatActions:
    """Mixin of the trainer: registered environments do each action `frame_skip` times; others read it themselves."""

    def _resolve_env(self, env: Any) -> tuple[str | None, Any]:
        """Returns name and creator of an environment."""
        name, made = super()._resolve_env(env)  # type: ignore[misc]  # the trainer's behind the mixin
        return name, RepeatingCreator(made.spec, made.make) if isinstance(made, SpecCreator) else made


class LearnFromEpisodes:
    """Takes any item, learns some times from replayed pieces, and gives what the last learner step gave.

    Args:
        workers: The WorkerSet.
        episode_buffer: Where the pieces are drawn.
        dreamer_train_iters: Learner steps.
    """

    def __init__(self, workers: WorkerSet, episode_buffer: EpisodicBuffer, dreamer_train_iters: int) -> None:
        self.episode_buffer, self.dreamer_train_iters = episode_buffer, dreamer_train_iters
        self._train = TrainOneStep(workers)

    def plan_args(self) -> str:
        """Returns the number of learner steps, for reports."""
        return f"{self.dreamer_train_iters} steps"

    def __call__(self, _item: Any) -> Any:
        """Learns; counts and times as `TrainOneStep` does."""
        for _ in range(self.dreamer_train_iters):
            item = self._train(self.episode_buffer.sample(self.episode_buffer.batch_size))
        return item


def execution_plan(
    workers: WorkerSet, config: DreamerConfig, *, local_replay_buffer: EpisodicBuffer
) -> LocalIterator[Any]:
    """Samples episodes, stores them, and learns behind each sample once there are `prefill_timesteps`."""
    config, buffer = DreamerConfig.view(config), local_replay_buffer
    store = ParallelRollouts(workers, mode="bulk_sync").for_each(StoreToReplayBuffer(local_buffer=buffer))
    learn = LearnFromEpisodes(workers, buffer, config.dreamer_train_iters)
    return StandardMetricsReporting(store.filter(buffer.has_enough).for_each(learn), workers, config)


def make_replay(config: Mapping[str, Any], seed: int | None) -> EpisodicBuffer:
    """Returns the buffer of a trainer's plan."""
    starts = config["prefill_timesteps"] // config["env_config"].get(FRAME_SKIP, 1)
    return EpisodicBuffer(
        config["buffer_size"], config["batch_length"], batch_size=config["batch_size"], learning_starts=starts,
        seed=None if seed is None else derive_seed(seed, "replay"),
    )  # fmt: skip


execution_plan.make_replay_buffer = make_replay  # type: ignore[attr-defined]  # what trainers make for it

DEFAULT_CONFIG: dict[str, Any] = DreamerConfig.defaults()

DREAMERTrainer = build_trainer(
    name="DREAMER",
    config_class=DreamerConfig,
    policies={"torch": "rlframe.agents.dreamer.dreamer_torch_policy:DreamerTorchPolicy"},
    execution_plan=execution_plan,
    mixins=[RepeatActions],
)
