"""The replay buffer a trainer's config describes."""

from __future__ import annotations

from typing import Any

from rlframe.replay.episode import EpisodeReplayBuffer
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.utils.seeding import derive_seed


def make_local_replay_buffer(config: dict[str, Any], seed: int) -> LocalReplayBuffer:
    """Returns a `LocalReplayBuffer` for `replay_buffer_config` and the priority keys beside it.

    Without `prioritized_replay` it is a plain uniform buffer.
    """
    prioritized = bool(config.get("prioritized_replay"))
    anneal = prioritized and config["final_prioritized_replay_beta"] != config["prioritized_replay_beta"]
    priorities = {
        "prioritized_replay_alpha": config.get("prioritized_replay_alpha", 0.6),
        "prioritized_replay_beta": config.get("prioritized_replay_beta", 0.4),
        "prioritized_replay_eps": config.get("prioritized_replay_eps", 1e-6),
    }
    if anneal:
        priorities["final_prioritized_replay_beta"] = config["final_prioritized_replay_beta"]
        priorities["prioritized_replay_beta_annealing_timesteps"] = config[
            "prioritized_replay_beta_annealing_timesteps"
        ]
    return LocalReplayBuffer(
        num_shards=1,
        learning_starts=config["learning_starts"],
        capacity=config["replay_buffer_config"]["capacity"],
        replay_batch_size=config["train_batch_size"],
        replay_mode=config["multiagent"]["replay_mode"],
        replay_sequence_length=config.get("replay_sequence_length", 1),
        prioritized=prioritized,
        seed=derive_seed(seed, "replay"),
        **priorities,
    )


def make_episode_replay_buffer(config: dict[str, Any], seed: int) -> EpisodeReplayBuffer:
    """Returns an `EpisodeReplayBuffer` for `replay_buffer_config`."""
    return EpisodeReplayBuffer(
        capacity=config["replay_buffer_config"]["capacity"],
        learning_starts=config["learning_starts"],
        replay_batch_size=config["train_batch_size"],
        seed=derive_seed(seed, "replay"),
    )


#: By `replay_buffer_config.type`: what makes the buffer of a config.
MAKERS = {"LocalReplayBuffer": make_local_replay_buffer, "EpisodeReplayBuffer": make_episode_replay_buffer}
