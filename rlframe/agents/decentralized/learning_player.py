"""A player who learns: an algorithm of rlframe that is fed with the rows of a game that others drive."""

from __future__ import annotations

import copy
import importlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.agents.decentralized.players import MASK, Player
from rlframe.agents.registry import get_trainer_class
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.callbacks import make_callbacks, overridden_hooks
from rlframe.offline.input_reader import InputReader
from rlframe.policy.parts import Component
from rlframe.policy.policy import Policy
from rlframe.trainer import checkpointing
from rlframe.trainer.checkpoint_paths import resolve_path
from rlframe.utils.errors import CheckpointError, ConfigError, UnsupportedSpaceException
from rlframe.utils.state_files import read_state, write_state

#: An iteration of a player's trainer ends when its rows are used up, not before.
_NO_END = 1 << 40
#: Keys about sampling and tests, and the only value that a player's config may have.
_OF_THE_GAME: dict[str, Any] = {
    "env": None, "input": "sampler", "num_workers": 0, "num_envs_per_worker": 1, "evaluation_interval": None,
    "evaluation_num_workers": 0, "horizon": None, "soft_horizon": False, "no_done_at_end": False, "sample_async": False,
}  # fmt: skip
#: Algorithms that cannot learn from the rows of one player, and why.
_CANNOT_PLAY = {
    "QMIX": "acts for groups of agents", "MADDPG": "learns from what all agents see and do",
    "A3C": "has workers compute its gradients: in one process that is A2C",
    "DDPPO": "learns in workers that sample themselves", "CQL": "learns from files", "IQL": "learns from files",
    "TD3BC": "learns from files",
}  # fmt: skip
#: Callbacks that a player's trainer calls.
_HEARD = frozenset({"on_learn_on_batch", "on_train_result", "on_trainer_init", "on_evaluate_start", "on_evaluate_end"})


class Feed(InputReader):
    """Rows that wait for a player's execution plan, handed out in items of as many as it samples at once.

    Attributes:
        rows_per_item: Rows of an item; 0 hands on whole batches, as they came.
    """

    def __init__(self) -> None:
        self.rows_per_item = 0
        self._waiting: list[SampleBatch] = []
        self._rows = 0

    def put(self, batch: SampleBatch) -> None:
        """Adds rows, without what is no number: `infos` are for postprocessing, and are in no checkpoint."""
        if batch.count:
            for name in [name for name, column in batch.items() if np.asarray(column).dtype == object]:
                del batch[name]
            self._waiting.append(batch)
            self._rows += batch.count

    @property
    def ready(self) -> int:
        """Rows in whole items."""
        return self._rows - self._rows % self.rows_per_item if self.rows_per_item else self._rows

    def next(self) -> SampleBatch:
        """Returns the next item."""
        size = self.rows_per_item
        if size and self._waiting[0].count < size:
            self._waiting = [_joined(self._waiting)]
        first = self._waiting.pop(0)
        if size and first.count > size:
            self._waiting.insert(0, first.slice(size, first.count))
            first = first.slice(0, size)
        self._rows -= first.count
        return first

    def get_state(self) -> dict[str, Any]:
        """Returns the rows that wait."""
        if not self._waiting:
            return {"columns": {}}
        return {"columns": {name: np.array(column) for name, column in _joined(self._waiting).items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self._waiting, self._rows = [], 0
        if state["columns"]:
            self.put(SampleBatch(state["columns"]))


def _joined(batches: list[SampleBatch]) -> SampleBatch:
    joined: SampleBatch = SampleBatch.concat_samples(batches) if len(batches) > 1 else batches[0]
    return joined


class LearnerSteps(Component):
    """Counts a policy's learner steps."""

    def __init__(self) -> None:
        self.count = 0

    def after_learning(self, samples: Any, stats: Any) -> None:
        """Counts one."""
        del samples, stats
        self.count += 1

    def get_state(self) -> dict[str, Any]:
        """Returns the count."""
        return {"count": self.count}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes it back."""
        self.count = int(state["count"])


class LearningPlayer(Player):
    """A player by one of rlframe's algorithms, who learns where its seat is in the learning mask.

    The config means what it means in a trainer of the algorithm alone: a learner step for as many rows, updates of
    targets and schedules by the rows that it was given. Where observations have an `action_mask`, the model is
    `ActionMaskModel` unless the config names another.

    Args:
        algorithm: Name of the algorithm, or a trainer class.
        config: The trainer's config, without environment and policies.
        checkpoint: A checkpoint, or directory of one, that the player's weights are taken from.
        name: What the player is called; None takes the algorithm's name.
        share_experience: What it learns from, "own" or "all", see `DecentralizedTrainer`; None leaves it to that.

    Attributes:
        trainer: The trainer, once the player has sat down in a game.
        share_experience: As it was given.

    Raises:
        ConfigError: If there is no such algorithm, or `share_experience` is none of these.
    """

    learns = True

    def __init__(
        self,
        algorithm: Any,
        config: Mapping[str, Any] | None = None,
        *,
        checkpoint: str | None = None,
        name: str | None = None,
        share_experience: str | None = None,
    ) -> None:
        self._class = get_trainer_class(algorithm) if isinstance(algorithm, str) else algorithm
        if not hasattr(self._class, "get_default_config"):
            raise ConfigError(
                f"player: got the algorithm {algorithm!r}, wanted a name such as 'DQN', or a trainer class"
            )
        super().__init__(name or str(getattr(self._class, "_name", self._class)))
        if share_experience not in (None, "own", "all"):
            raise ConfigError(
                f"player {self.name!r}: share_experience: got {share_experience!r}, wanted 'own', 'all' or None"
            )
        self.share_experience = share_experience
        self._config, self._checkpoint = dict(config or {}), checkpoint
        self._weights: Any = None
        self._statistics: Any = None
        self.feed = Feed()
        self.trainer: Any = None
        self._steps = LearnerSteps()

    def make_policy(self, observation_space: Any, action_space: Any, seed: int) -> Policy:
        """Returns the player's policy, which is one for all games it plays; builds its trainer at first."""
        if self.trainer is None:
            self._build(observation_space, action_space, seed)
        return self.policy

    @property
    def policy(self) -> Policy:
        """The player's policy.

        Raises:
            ConfigError: If the player has not sat down in a game yet.
        """
        policy: Policy = self._seated().get_policy()
        return policy

    def _seated(self) -> Any:
        """Returns the trainer, which is there once the player has sat down."""
        if self.trainer is None:
            raise ConfigError(f"player {self.name!r} has no policy yet: it gets one when it sits down in a game")
        return self.trainer

    @property
    def replays(self) -> bool:
        """Whether the player learns from rows that others may have made: its algorithm has a replay buffer."""
        return self.trainer.local_replay_buffer is not None

    @property
    def gradient_steps(self) -> int:
        """Learner steps so far."""
        return self._steps.count

    def prefer(self, key: str, value: Any) -> None:
        """Sets a key that the player's config leaves open, where its algorithm replays; before it sits down."""
        if self.trainer is None and "replay_buffer_config" in self._class.get_default_config():
            self._config.setdefault(key, value)

    def _check_config(self) -> None:
        """Raises a ConfigError for keys that say how to sample: the game does that for all its players."""
        trainers = [getattr(base, "_name", None) for base in self._class.__mro__]
        for algorithm, reason in _CANNOT_PLAY.items():
            if algorithm in trainers:
                raise ConfigError(
                    f"player {self.name!r}: got {algorithm}, which {reason}; wanted an algorithm that learns from what "
                    "one player does, such as DQN, PPO or SAC"
                )
        batch_mode = self._class.get_default_config().get("batch_mode")
        for key, wanted in {**_OF_THE_GAME, "batch_mode": batch_mode}.items():
            got = self._config.get(key, wanted)
            if got != wanted:
                raise ConfigError(
                    f"player {self.name!r}: {key}: got {got!r}, wanted {wanted!r} or nothing: the game's trainer "
                    "samples and tests for all players, in one process"
                )
        spec = self._config.get("callbacks")
        unheard = [] if spec is None else sorted(overridden_hooks(make_callbacks(spec)) - _HEARD)
        if unheard:
            raise ConfigError(
                f"player {self.name!r}: callbacks: got {', '.join(unheard)}, wanted none but "
                f"{', '.join(sorted(_HEARD))}: games belong to all players; DecentralizedTrainer has hooks for them"
            )

    def _build(self, observation_space: Any, action_space: Any, seed: int) -> None:
        self._check_config()
        config = {
            "seed": seed, **_masked(self._class, observation_space, self._config), "env": None, "num_workers": 0,
            "num_envs_per_worker": 1, "observation_space": observation_space, "action_space": action_space,
            "input": lambda _: self.feed, "input_evaluation": [], "min_iter_time_s": 0, "log_sys_usage": False,
            "timesteps_per_iteration": _NO_END,
        }  # fmt: skip
        try:
            self.trainer = self._class(config, logger_creator=_NoLogger)
        except (ConfigError, UnsupportedSpaceException) as error:
            raise ConfigError(f"player {self.name!r}: {error}") from error
        self.trainer.expect_no_episodes()
        policy = self.policy
        policy.components["learner steps"] = self._steps
        whole = policy.learns_sequences()
        self.feed.rows_per_item = 0 if whole else int(self.trainer._effective_config["rollout_fragment_length"])
        if self._checkpoint is not None:
            self._weights, self._statistics = weights_in(self._checkpoint, self.name)
        self._take_weights(policy)
        if self._statistics is not None and policy._obs_filter is not None:
            policy._obs_filter.set_state(self._statistics)

    def _take_weights(self, policy: Policy) -> None:
        if self._weights is None:
            return
        try:
            policy.set_weights(self._weights)
        except ValueError as error:
            self.trainer = None
            origin = "those it was saved with" if self._checkpoint is None else self._checkpoint
            raise ConfigError(
                f"player {self.name!r}: its weights, {origin}, are of another network: {error}"
            ) from error

    def learn(self) -> int:
        """Learns from the rows that have come; returns the number of learner steps.

        Rows that do not fill what the algorithm samples at once wait for more.
        """
        before = self._steps.count
        counters = self.trainer.train_exec_impl.shared_metrics.get().counters
        while self.feed.ready:
            waiting = self.feed.ready
            self.trainer.env_steps_limit = counters["num_steps_sampled"] + waiting
            self.trainer.train()
            counters = self.trainer.train_exec_impl.shared_metrics.get().counters
            if self.feed.ready == waiting:
                raise ConfigError(
                    f"player {self.name!r}: {self.trainer} takes no rows; give a player another algorithm"
                )
        return self._steps.count - before

    def frozen(self, name: str | None = None) -> LearningPlayer:
        """Returns a copy of the player as it is now, to play against; it learns only where it is told to."""
        name = name or f"{self.name} (frozen)"
        made = LearningPlayer(
            self._class, copy.deepcopy(self._config), name=name, share_experience=self.share_experience
        )
        made._weights = copy.deepcopy(dict(self.policy.get_weights()))
        if self.policy._obs_filter is not None:
            made._statistics = copy.deepcopy(self.policy._obs_filter.get_state())
        return made

    def save(self, directory: str) -> str:
        """Writes a checkpoint of the player's trainer; returns its path."""
        path: str = self._seated().save(directory)
        return path

    @property
    def config(self) -> dict[str, Any]:
        """The config that the player was given; not to be changed."""
        return self._config

    def write(self, directory: str) -> None:
        """Writes what `read` makes a player like this one of: algorithm, config, weights, statistics of its filter.

        Raises:
            CheckpointError: If the directory cannot be written, or the config has what is no JSON.
        """
        name = str(getattr(self._class, "_name", self._class))
        weights = {key: np.asarray(value) for key, value in self.policy.get_weights().items()}
        kept = self.policy._obs_filter
        state = {"weights": weights, "filter": None if kept is None else kept.get_state()}
        told = {"algorithm": name, "config": self._config, "share_experience": self.share_experience}
        write_state(directory, state, {"kind": "player", **told})

    @classmethod
    def read(cls, directory: str, name: str | None = None) -> LearningPlayer:
        """Returns a player by what `write` wrote. Nothing is executed until it sits down in a game.

        Raises:
            CheckpointError: If the directory holds no such player, or is damaged.
        """
        state, meta = read_state(directory)
        if meta.get("kind") != "player":
            raise CheckpointError(
                f"{directory}: got a checkpoint of {meta.get('kind')!r}, wanted a player, as LearningPlayer.write() "
                "leaves one"
            )
        made = cls(meta["algorithm"], meta["config"], name=name, share_experience=meta.get("share_experience"))
        made._weights, made._statistics = state["weights"], state["filter"]
        return made

    def get_state(self) -> dict[str, Any]:
        """Returns all that the player goes on from."""
        return {"trainer": checkpointing.gather(self.trainer)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from there."""
        checkpointing.apply(self.trainer, state["trainer"])


def _masked(trainer_class: Any, space: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config whose model minds the action mask, where there is one and no other model is asked for."""
    model = dict(config.get("model") or {})
    parts = getattr(space, "spaces", None)
    if not isinstance(parts, Mapping) or MASK not in parts or model.get("custom_model"):
        return dict(config)
    defaults = trainer_class.get_default_config()
    if not (model.get("use_lstm") or model.get("use_attention")):  # behind a memory masks count by themselves
        tf = config.get("framework", defaults.get("framework")) in ("tf", "tf2", "tfe")
        module = importlib.import_module(f"rlframe.models.{'tf' if tf else 'torch'}.action_mask")
        model["custom_model"] = module.ActionMaskModel
    # The mask is for the model's outputs, so these must be values of actions.
    plain = {key: value for key, value in {"hiddens": [], "dueling": False}.items() if key in defaults}
    return {**plain, **config, "model": model}


def weights_in(checkpoint: str, player: str) -> tuple[dict[str, Any], Any]:
    """Returns the weights of the only policy in a checkpoint, and the state of its observation filter.

    Raises:
        ConfigError: If it holds several.
    """
    try:
        state, _ = read_state(resolve_path(checkpoint))
    except CheckpointError as error:
        raise CheckpointError(f"player {player!r}: {error}") from error
    policies = state["local_worker"]["policies"]
    if len(policies) != 1:
        raise ConfigError(
            f"player {player!r}: {checkpoint} has the policies {list(policies)}, wanted one with only one"
        )
    ((policy_id, policy),) = policies.items()
    return policy["weights"], state["local_worker"]["filters"].get(policy_id)


class _NoLogger:
    """Takes results, and writes nothing: the trainer of all players has its own log."""

    def __init__(self, config: Any) -> None:
        del config
        self.logdir = tempfile.gettempdir()

    def on_result(self, result: Any) -> None:
        """Drops a result."""

    def flush(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


__all__ = ["LearningPlayer"]
