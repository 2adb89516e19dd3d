"""The replay buffer a trainer's config describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.replay.episode import EpisodeReplayBuffer
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.utils import names
from rlframe.utils.errors import ConfigError
from rlframe.utils.from_config import accepted_arguments, refuse_unknown_arguments
from rlframe.utils.seeding import derive_seed

#: Keys, and arguments of the buffer, that not every algorithm has.
_KEYS_OF_SOME = (
    "prioritized_replay_alpha",
    "prioritized_replay_beta",
    "prioritized_replay_eps",
)
_KEYS_OF_ANNEALING = ("final_prioritized_replay_beta", "prioritized_replay_beta_annealing_timesteps")


def make_local_replay_buffer(config: dict[str, Any], seed: int) -> LocalReplayBuffer:
    """Returns a `LocalReplayBuffer` for `replay_buffer_config` and the priority keys beside it."""
    return LocalReplayBuffer(num_shards=1, seed=derive_seed(seed, "replay"), **buffer_arguments(config))


def buffer_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `LocalReplayBuffer` takes for a config, but for its seed and its share.

    Without `prioritized_replay` it is a plain uniform buffer.
    """
    prioritized = bool(config.get("prioritized_replay"))
    anneal = prioritized and config["final_prioritized_replay_beta"] != config["prioritized_replay_beta"]
    of_some = {key: config[key] for key in _KEYS_OF_SOME if key in config}
    if anneal:
        of_some |= {key: config[key] for key in _KEYS_OF_ANNEALING}
    return {
        "learning_starts": config["learning_starts"],
        "capacity": config["replay_buffer_config"]["capacity"],
        "replay_batch_size": config["train_batch_size"],
        "replay_mode": config["multiagent"]["replay_mode"],
        "prioritized": prioritized,
        **of_some,
        **_of_sequences(config),
    }


def _of_sequences(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the buffer's arguments that say what it stores of policies with memory."""
    if config["multiagent"]["replay_mode"] == "lockstep":
        return {}
    if "burn_in" not in config:  # pieces as they were sampled or read
        return {"replay_sequence_length": config["model"]["max_seq_len"]}
    return {
        "replay_sequence_length": sequence_length(config),
        "replay_burn_in": config["burn_in"],
        "replay_zero_init_states": config["zero_init_states"],
    }


def sequence_length(config: Mapping[str, Any]) -> int:
    """Returns the rows of a replayed sequence, those of burn-in included."""
    given = int(config["replay_sequence_length"])
    return given if given > 1 else int(config["burn_in"]) + int(config["model"]["max_seq_len"])


def sequence_period(config: Mapping[str, Any]) -> int:
    """Returns how many rows behind each other the sequences of a trajectory begin."""
    return sequence_length(config) - int(config["burn_in"]) - int(config["replay_sequence_overlap"])


def make_episode_replay_buffer(config: dict[str, Any], seed: int) -> EpisodeReplayBuffer:
    """Returns an `EpisodeReplayBuffer` for `replay_buffer_config`."""
    return EpisodeReplayBuffer(
        capacity=config["replay_buffer_config"]["capacity"],
        learning_starts=config["learning_starts"],
        replay_batch_size=config["train_batch_size"],
        seed=derive_seed(seed, "replay"),
    )


def make_replay_buffer(config: dict[str, Any], seed: int) -> Any:
    """Returns the buffer of a `replay_buffer_config`; None where its plan makes it, as with `ReplayActor`.

    Its `type` is a name, or a program's own class, or the dotted path of one.
    """
    kind = config["replay_buffer_config"].get("type")
    if isinstance(kind, str) and names.spells_path(kind):
        kind = names.find(kind, names.Kind("the replay buffer", "a class", lambda found: isinstance(found, type)))
    if isinstance(kind, type) and not kind.__module__.startswith("rlframe."):
        return _make_own(kind, config)
    maker = MAKERS.get(getattr(kind, "__name__", kind))
    return None if maker is None else maker(config, seed)


def _make_own(kind: type, config: Mapping[str, Any]) -> Any:
    """Returns a buffer of a program's own class, made with what RLlib's was made with, and with its own options."""
    own = {key: value for key, value in config["replay_buffer_config"].items() if key not in ("type", "capacity")}
    refuse_unknown_arguments(kind, own)
    given = {
        "num_shards": 1,
        "learning_starts": config["learning_starts"],
        "capacity": config["replay_buffer_config"]["capacity"],
        "replay_batch_size": config["train_batch_size"],
        "replay_mode": config["multiagent"]["replay_mode"],
        **(_of_sequences(config) if config.get("replay_sequence_length", 1) != 1 else {}),
        **{key: config[key] for key in _KEYS_OF_SOME if config.get("prioritized_replay") and key in config},
    }
    accepted = accepted_arguments(kind)
    made = kind(**{key: value for key, value in given.items() if accepted is None or key in accepted} | own)
    if not all(callable(getattr(made, name, None)) for name in ("add_batch", "replay")):
        raise ConfigError(
            f"replay_buffer_config.type: got {kind.__name__}, which has no add_batch() and replay(); derive it from "
            "rlframe.execution.replay_buffer.LocalReplayBuffer"
        )
    return made


#: By `replay_buffer_config.type`: what makes the buffer of a config.
MAKERS = {"LocalReplayBuffer": make_local_replay_buffer, "EpisodeReplayBuffer": make_episode_replay_buffer}
