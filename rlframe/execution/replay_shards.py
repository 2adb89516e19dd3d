"""A replay buffer in several parts: Ray actors beside remote workers, or all of them in this process."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.utils.errors import CheckpointError
from rlframe.utils.seeding import derive_seed, make_rng

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlframe.execution.plan.context import Batch

_LOGGER = logging.getLogger("rlframe")
#: By how much Ray's processes give way to others, Ray's name of it; the program's own value is kept.
_NICENESS = "RAY_worker_niceness"


class ReplayShards:
    """Replay buffers that share capacity and `learning_starts`; each batch is stored in a random one of them.

    In one process it is a buffer like `LocalReplayBuffer`: batches are drawn from the shards in turn, and priorities go
    to the one that was drawn from last. As Ray actors (`actors`) the shards are asked by a plan's operators.

    Args:
        arguments: Those of `LocalReplayBuffer`, but for `num_shards` and `seed`, for all shards together.
        num_shards: How many there are.
        seed: Seed of the draws.
        remote: Whether they are Ray actors, which are started when they are first asked for.
    """

    def __init__(self, arguments: Mapping[str, Any], num_shards: int, seed: int, *, remote: bool) -> None:
        self._arguments = {**arguments, "num_shards": num_shards}
        steps = arguments.get("prioritized_replay_beta_annealing_timesteps")
        if steps:  # each shard counts what it stores itself
            self._arguments["prioritized_replay_beta_annealing_timesteps"] = max(1, steps // num_shards)
        self.num_shards = num_shards
        self.seed = seed
        self.remote = remote
        self._rng = make_rng(seed, "store")
        self._turn = 0
        self._drawn = 0
        self._replaced = 0
        self._actors: list[Any] = []
        self.buffers: list[LocalReplayBuffer] = []
        if not remote:
            self.buffers = [LocalReplayBuffer(**self._arguments_of(index)) for index in range(num_shards)]

    def _arguments_of(self, index: int) -> dict[str, Any]:
        return {**self._arguments, "seed": derive_seed(self.seed, "shard", index, self._replaced)}

    # ---- in one process -------------------------------------------------------------------------------------------

    def add_batch(self, batch: Batch) -> None:
        """Stores a batch in a random shard."""
        self.buffers[int(self._rng.integers(self.num_shards))].add_batch(batch)

    def replay(self) -> Batch | None:
        """Returns a batch of the next shard that has enough to begin; None where none has."""
        for _ in range(self.num_shards):
            drawn, self._turn = self._turn, (self._turn + 1) % self.num_shards
            batch = self.buffers[drawn].replay()
            if batch is not None:
                self._drawn = drawn
                return batch
        return None

    def update_priorities(self, prio_dict: Mapping[str, Any]) -> None:
        """Gives rows of the batch that was drawn last new priorities; see `LocalReplayBuffer.update_priorities`."""
        self.buffers[self._drawn].update_priorities(prio_dict)

    # ---- as Ray actors --------------------------------------------------------------------------------------------

    def actors(self) -> list[Any]:
        """Returns the shards as Ray actors; starts them, and empty ones in the place of those that have died."""
        from rlframe.evaluation.cluster import answers_of, ensure_ray

        ensure_ray()
        if not self._actors:
            self._actors = [self._start(index) for index in range(self.num_shards)]
            return list(self._actors)
        _, failures = answers_of([actor.get_host.remote() for actor in self._actors])
        for index, error in failures.items():
            self._replaced += 1
            self._actors[index] = self._start(index)
            _LOGGER.warning(
                "replay shard %d of %d died (%s): its transitions are lost; an empty one takes its place",
                index + 1,
                self.num_shards,
                str(error).strip().partition("\n")[0],
            )
        return list(self._actors)

    def _start(self, index: int) -> Any:
        """Starts a shard on the driver's machine where there is room, as batches go through the driver.

        Ray lets its processes run after everybody else. Shards would then wait for the learner, which waits for them:
        on two cores a tenth of its time and more.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from rlframe.execution.replay_buffer import make_replay_actor_class

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        environment = {} if _NICENESS in os.environ else {"env_vars": {_NICENESS: "0"}}
        actor_class = make_replay_actor_class().options(
            max_restarts=0, scheduling_strategy=here, runtime_env=environment
        )
        return actor_class.remote(**self._arguments_of(index))

    def close(self) -> None:
        """Ends the actors."""
        import ray

        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor, no_restart=True)
        self._actors = []

    # ---- reports and state ----------------------------------------------------------------------------------------

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns the `stats` of the first shard."""
        if not self.remote:
            return self.buffers[0].stats(debug)
        import ray

        stats: dict[str, Any] = ray.get((self._actors or self.actors())[0].stats.remote(debug))
        return stats

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns what all shards hold; one that has died holds nothing.

        Args:
            copy: False to hand out views of arrays in this process; see `LocalReplayBuffer.get_state`.
        """
        shards = self._states() if self.remote else [buffer.get_state(copy=copy) for buffer in self.buffers]
        return {
            "kind": "shards",
            "shards": shards,
            "turn": self._turn,
            "drawn": self._drawn,
            "rng": self._rng.bit_generator.state,
        }

    def _states(self) -> list[Any]:
        from rlframe.evaluation.cluster import answers_of

        answers, failures = answers_of([actor.get_state.remote() for actor in self._actors or self.actors()])
        for index, error in failures.items():
            _LOGGER.warning(
                "replay shard %d of %d does not answer (%s): the checkpoint is without its transitions",
                index + 1,
                self.num_shards,
                str(error).strip().partition("\n")[0],
            )
            answers[index] = LocalReplayBuffer(**self._arguments_of(index)).get_state()
        return [answers[index] for index in range(self.num_shards)]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of as many shards, wherever they were; what was stored here is forgotten.

        Raises:
            CheckpointError: If they were more or fewer, or are of another kind.
        """
        saved = state.get("shards")
        if not isinstance(saved, list) or len(saved) != self.num_shards:
            got = f"{len(saved)} shards" if isinstance(saved, list) else "a replay buffer in one part"
            raise CheckpointError(
                f"The checkpoint has {got}, wanted {self.num_shards}; set optimizer.num_replay_buffer_shards as it was "
                "when saving, or store_buffer_in_checkpoints=False to go on with an empty replay buffer"
            )
        rng = make_rng(self.seed, "store")
        rng.bit_generator.state = state["rng"]
        turn, drawn = (int(state[key]) % self.num_shards for key in ("turn", "drawn"))
        if self.remote:
            self._set_states(saved)
        else:
            for buffer, one in zip(self.buffers, saved, strict=True):
                buffer.set_state(one)
        self._rng, self._turn, self._drawn = rng, turn, drawn

    def _set_states(self, saved: list[Any]) -> None:
        import ray

        from rlframe.evaluation.cluster import unwrap_ray_error

        for actor, one in zip(self.actors(), saved, strict=True):
            try:
                ray.get(actor.set_state.remote(one))
            except ray.exceptions.RayError as error:
                raise unwrap_ray_error(error) from error
