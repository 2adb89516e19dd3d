"""What a rollout is made of: a worker's environments with their episodes, and the columns that steps go to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTIONS,
    AGENT_INDEX,
    DONES,
    ENV_ID,
    EPS_ID,
    INFOS,
    NEXT_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TRUNCATEDS,
    T,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.sub_environments import SubEnvironment
from rlframe.evaluation.sampling.nonfinite_rows import blame_action
from rlframe.evaluation.sampling.slot_environment import OwnsEnvironment
from rlframe.evaluation.sampling.slot_replay import RepeatsActions
from rlframe.utils.errors import EnvError, NonFiniteError, describe_error
from rlframe.utils.seeding import seed_sequence

if TYPE_CHECKING:
    from rlframe.env.env_context import EnvContext

#: Actions kept for replay at restore. A longer episode (an environment that never ends) is started anew instead.
MAX_REPLAYED_ACTIONS = 1_000_000


class EnvSlot(OwnsEnvironment, RepeatsActions):
    """Owns one environment and numbers its episodes.

    Episode i of slot s in worker w is seeded with `derive_seed(seed, "env", w, s, i)`: it can be repeated on its own
    from that seed and its actions; where a life is an episode, from those of the lives before it, too. With `as_many`
    an environment with one agent has the contract of several. `on_made` gets each environment that is made.

    Attributes:
        env: The environment with Gymnasium's API.
        index: Number of the slot within the worker.
        episode: Number of the running episode, from 0; -1 before the first.
        episode_seed: What the running episode was reset with.
        actions: The running episode's actions so far, in the environment's space; None when too many, or when the
            environment cannot be brought back alone.
        lives: The same of the episodes before it in one game, where `reset()` goes on with a game that is not over.
        sub_env: The copy in a user's `VectorEnv` that `env` is; None for an environment of its own.
    """

    def __init__(  # noqa: PLR0913 - keyword-only but for two
        self,
        creator: Callable[[EnvContext], Any],
        context: EnvContext,
        *,
        index: int,
        seed: int,
        stream: int,
        restarts: int = 0,
        horizon: int | None = None,
        as_many: bool = False,
        on_made: Callable[[Any, EnvContext], None] | None = None,
    ) -> None:
        self._as_many, self._on_made = as_many, on_made
        self._creator = creator
        self._context = context
        self._horizon = horizon
        self.index = index
        self.seed, self.stream = seed, stream
        self._seed_path = seed_sequence(seed, "env", stream, index).spawn_key
        # 15 bits of an episode's id: rows of a worker and of the one that replaces it must not look like one episode.
        self.id_stream = (stream + (restarts << 10)) & 0x7FFF
        self.worker_index = int(context.worker_index)
        self.episode = -1
        self.episode_seed = 0
        self.actions: list[Any] | None = []
        self.lives: list[list[Any] | None] = []
        self._recorded = 0  # actions since the game began
        self.failed: bool | str = False  # or "begun", until the loop has taken notice
        self.sub_env: SubEnvironment | None = None
        self.env = self._make()

    @property
    def episode_id(self) -> int:
        """A number unique among all episodes of all workers of a run."""
        return (self.id_stream << 48) | (self.index << 36) | max(self.episode, 0)

    def begin(self) -> tuple[Any, dict[str, Any]]:
        """Starts the next episode and returns its first observation and info.

        Raises:
            EnvError: If `reset` raises; says where, and with which seed.
        """
        if self.episode < 0:
            self._end_game()  # of what reset the environment before it was sampled from
        if any(not game.was_real_done for game in _games(self.env)):
            self.lives = [*self.lives, None if self.failed else self.actions]
        else:
            self.lives, self._recorded = [], 0
        self.episode += 1
        # As `derive_seed` would, but for the path, whose numbers stay what they are.
        sequence = np.random.SeedSequence(self.seed, spawn_key=(*self._seed_path, self.episode))
        self.episode_seed = int(sequence.generate_state(1)[0] & 0x7FFFFFFF)
        self.actions = [] if self.sub_env is None else None
        self.failed = False
        try:
            result = self.env.reset(seed=self.episode_seed)
        except Exception as error:
            self.fail("reset", error)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise EnvError(f"reset() of {self.where()} returned {type(result).__name__}, wanted (observation, info)")
        return result

    def record(self, action: Any) -> None:
        """Notes an action of the running episode, for `replay`."""
        if self.actions is not None:
            self.actions.append(action)
            self._recorded += 1
            if self._recorded > MAX_REPLAYED_ACTIONS:
                self.actions = None

    def where(self) -> str:
        """Returns which environment this is, for messages."""
        steps = "many" if self.actions is None else len(self.actions)
        return (
            f"the environment of worker {self.worker_index}, slot {self.index} "
            f"(episode {self.episode}, seed {self.episode_seed}, after {steps} steps)"
        )

    def fail(self, method: str, cause: Exception, action: Any = None) -> NoReturn:
        """Raises the error that says where an environment raised what; the slot starts anew when used again.

        Raises:
            EnvError: With `cause` as its cause; errors that say where already are raised as they are.
            NonFiniteError: Where `action`, which it was given, is NaN or infinite.
        """
        self.failed = True
        if self.sub_env is not None:
            self.sub_env.group.fail()
        if isinstance(cause, (EnvError, NonFiniteError)):
            raise cause
        blame_action(action, f"{method}() of {self.where()} raised {type(cause).__name__} for it", cause)
        raise EnvError(
            f"{method}() of {self.where()} raised {describe_error(cause)}. To see it alone: make the "
            f"environment, reset(seed={self.episode_seed}), and repeat the actions"
        ) from cause

    def _end_game(self) -> None:
        for game in _games(self.env):
            game.was_real_done = True


def step_together(slots: Sequence[EnvSlot], actions: Sequence[Any], agent_id: str | None = None) -> None:
    """Steps the user's `VectorEnv` whose copies all slots are; each slot then takes its part.

    Args:
        slots: All slots of a worker.
        actions: One for each, in the environment's space.
        agent_id: Key of an action in each of `actions`, where they are dicts by agent.

    Raises:
        EnvError: If it raises; all slots begin anew then, see `fail_together`.
    """
    sub_env = slots[0].sub_env
    if sub_env is None:
        return
    try:
        sub_env.group.step(actions if agent_id is None else [by_agent[agent_id] for by_agent in actions])
    except Exception as error:
        slots[0].fail("vector_step", error)


def fail_together(slots: Sequence[EnvSlot]) -> None:
    """Has all copies in a user's `VectorEnv` begin anew where one has failed: nobody knows where the others stand."""
    sub_env = slots[0].sub_env
    if sub_env is not None and any(slot.failed for slot in slots):
        sub_env.group.fail()
        for slot in slots:
            slot.failed = True


def reset_slots(
    slots: Sequence[EnvSlot], forget: Callable[[int], None], *, whole: bool, recreate: bool
) -> list[tuple[int, Any]]:
    """Begins episodes in slots that have failed, all before a callback sees the first of them: it may look at all.

    Args:
        slots: The slots; those that begin count as failed until the loop has taken notice.
        forget: Gets a slot's index, and drops what is left of its last episode.
        whole: Whether the others begin anew as well.
        recreate: Whether an environment that has failed is made anew.

    Returns:
        Index of each such slot, with its first observation and info.
    """
    fail_together(slots)
    begun = []
    for index, slot in enumerate(slots):
        if whole or slot.failed:
            if slot.failed is True and recreate:
                slot.recreate()
            forget(index)
            begun.append((index, slot.begin()))
            slot.failed = "begun"
    return begun


def _games(env: Any) -> Iterator[Any]:
    """Yields the wrappers, ours or others of that habit, that say in `was_real_done` whether a game is over."""
    while env is not None:
        attributes = getattr(env, "__dict__", {})
        if "was_real_done" in attributes:
            yield env
        env = attributes.get("env")


@dataclass(frozen=True)
class TrajectorySlice:
    """Rows `start:stop` of a batch that are one trajectory of one slot; `ended` if its episode ended there.

    `episode` is the `Episode` it belongs to where callbacks asked for one; `made` its rows if postprocessed already.
    """

    slot: int
    start: int
    stop: int
    ended: bool
    episode: Any = None
    made: SampleBatch | None = None


class RolloutBuffer:
    """T steps of B slots, written row by row into arrays that the batch then consists of views of.

    Observations lie as the batch has them, slot after slot, and behind them what followed each slot's last row: images
    are large, and another order would copy each of them once more. `obs_at(t)` is a step of them.

    Attributes:
        obs: [B·T + B, ...]: row `slot · T + t`, then the B observations after the last step.
        actions: [T, B, ...] in the policy's space.
        rewards: [T, B] float32, raw.
        terminateds, truncateds: [T, B] bool.
        skipped: [T, B] bool, rows of no trajectory.
        extras: `{name: [T, B, ...]}`, whatever came with the actions.
        finals: `(t, slot, observation)` where an episode ended: what the batch's `new_obs` has there.
        segments: Trajectories within the buffer, by slot.
    """

    def __init__(self, length: int, first_obs: NDArray[Any], policy: Any, empty: Callable[..., Any] = np.empty) -> None:
        slots = len(first_obs)
        self.length, self.slots, self._empty = length, slots, empty
        self.make_obs(first_obs)
        self.obs_at(0)[:] = first_obs
        self.rewards = np.empty((length, slots), np.float32)
        self.reward_list = [0.0] * slots
        self.terminateds = np.zeros((length, slots), np.bool_)
        self.truncateds = np.zeros((length, slots), np.bool_)
        self.skipped = np.zeros((length, slots), np.bool_)
        self.eps_id = np.empty((length, slots), np.int64)
        self.t = np.empty((length, slots), np.int64)
        self.actions: NDArray[Any] | None = None
        self.extras: dict[str, NDArray[Any]] = {}
        self.finals: list[tuple[int, int, NDArray[Any]]] = []
        self.segments: list[TrajectorySlice] = []
        self._open = [0] * slots
        wanted = policy.train_columns
        self.infos = np.empty((length, slots), object) if wanted is None or INFOS in wanted else None

    def make_obs(self, like: NDArray[Any]) -> None:
        """Makes room for observations such as `like` [B, ...]."""
        rows, shape = self.length * self.slots, like.shape[1:]
        self.obs: NDArray[Any] = self._empty((rows + self.slots, *shape), like.dtype)
        self._steps = self.obs[:rows].reshape(self.slots, self.length, *shape)

    def obs_at(self, t: int) -> NDArray[Any]:
        """Returns the observations [B, ...] of step t, a view; t = T is what came after the last step."""
        return self._steps[:, t] if t < self.length else self.obs[self.length * self.slots :]

    def write_actions(self, t: int, actions: NDArray[Any], extras: dict[str, NDArray[Any]]) -> None:
        """Stores the actions and extra columns of row t."""
        if self.actions is None:
            self.actions = np.empty((self.length, *actions.shape), actions.dtype)
            self.extras = {key: np.empty((self.length, *column.shape), column.dtype) for key, column in extras.items()}
        self.actions[t] = actions
        for key, column in extras.items():
            self.extras[key][t] = column

    def info_row(self, t: int) -> NDArray[Any] | None:
        """Returns where the infos of row t go, None if nobody wants them."""
        return None if self.infos is None else self.infos[t]

    def write_end(self, t: int, slot: int, terminated: bool, truncated: bool) -> None:
        """Stores that an episode ended with row t."""
        self.terminateds[t, slot] = terminated
        self.truncateds[t, slot] = truncated

    def keep_final(self, t: int, slot: int) -> None:
        """Keeps the last observation of an episode before the next one's first takes its row."""
        self.finals.append((t, slot, self.obs_at(t + 1)[slot].copy()))

    def skip_row(self, t: int, slot: int) -> None:
        """Says that row t of a slot is of no trajectory: the next one begins behind it."""
        self.skipped[t, slot], self._open[slot] = True, t + 1

    def close_segment(
        self, slot: int, part_id: int, episode_length: int, episode: Any = None, *, stop: int | None = None
    ) -> None:
        """Marks rows since the slot's last segment as one trajectory of an episode now `episode_length` steps long.

        `stop` is the row after its last where the episode ended; None where it goes on after the buffer.
        """
        ended = stop is not None
        start, stop = self._open[slot], self.length if stop is None else stop
        if stop == start:
            return
        self._open[slot] = stop
        self.eps_id[start:stop, slot] = part_id
        self.t[start:stop, slot] = range(episode_length - (stop - start), episode_length)
        base = slot * self.length
        self.segments.append(TrajectorySlice(slot, base + start, base + stop, ended, episode))


def _rows(column: NDArray[Any]) -> NDArray[Any]:
    """Returns [T, B, ...] as [B·T, ...], slot after slot; a view for one slot."""
    if column.shape[1] == 1:
        return column[:, 0]
    swapped: NDArray[Any] = column.swapaxes(0, 1)
    return swapped.reshape(column.shape[0] * column.shape[1], *column.shape[2:])


def clip_rewards(rewards: NDArray[np.float32], how: bool | float | None) -> NDArray[np.float32]:
    """Returns rewards as `clip_rewards` says: True their sign, a number x clips to ±x."""
    if how is None or how is False:
        return rewards
    if how is True:
        return np.sign(rewards)
    return np.clip(rewards, -float(how), float(how))


def assemble(buffer: RolloutBuffer, policy: Any, settings: Any) -> SampleBatch:
    """Returns the buffer as a batch, trajectories one after the other, segments sorted alike.

    Raises:
        NonFiniteError: If a reward or observation is NaN or infinite; names slot, episode and step.
    """
    _check_finite(buffer)
    assert buffer.actions is not None
    wanted = policy.train_columns
    terminateds, truncateds = _rows(buffer.terminateds), _rows(buffer.truncateds)
    columns: dict[str, Any] = {
        OBS: buffer.obs[: buffer.length * buffer.slots],
        ACTIONS: _rows(buffer.actions),
        REWARDS: clip_rewards(_rows(buffer.rewards), settings.clip_rewards),
        TERMINATEDS: terminateds,
        TRUNCATEDS: truncateds,
        EPS_ID: _rows(buffer.eps_id),
        T: _rows(buffer.t),
    }
    if wanted is None or NEXT_OBS in wanted:
        columns[NEXT_OBS] = _next_obs(buffer)
    if wanted is None or DONES in wanted:
        columns[DONES] = terminateds | truncateds
    for key, column in buffer.extras.items():
        columns[key] = _rows(column)
    if wanted is None or ENV_ID in wanted:
        columns[ENV_ID] = np.repeat(np.arange(buffer.slots), buffer.length)
    if wanted is None:
        count = buffer.length * buffer.slots
        columns[AGENT_INDEX] = np.zeros(count, np.int64)
    if buffer.infos is not None:
        columns[INFOS] = _rows(buffer.infos)
    if buffer.slots > 1:
        buffer.segments.sort(key=lambda segment: segment.start)
    return SampleBatch.from_columns(columns)


def _next_obs(buffer: RolloutBuffer) -> NDArray[Any]:
    if buffer.slots == 1 and not buffer.finals:
        return buffer.obs[1:]
    # Each row's successor is the next row, but for the slots' last ones: theirs lie behind all rows.
    rows = buffer.obs[1 : buffer.length * buffer.slots + 1].copy()
    rows[buffer.length - 1 :: buffer.length] = buffer.obs_at(buffer.length)
    for t, slot, obs in buffer.finals:
        rows[slot * buffer.length + t] = obs
    return rows


def _check_finite(buffer: RolloutBuffer) -> None:
    for name, column in (("observation", buffer.obs), ("reward", buffer.rewards)):
        # A sum is NaN or infinite when any element is; the exact place is only looked for then.
        if column.dtype.kind != "f" or np.isfinite(column.sum()):
            continue
        from rlframe.evaluation.sampling.nonfinite_rows import blame

        blame(buffer, name, column)
