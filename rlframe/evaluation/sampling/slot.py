"""One environment of a worker: its episodes, their seeds, and how to get back to where it stood."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rlframe.env.sub_environments import SubEnvironment
from rlframe.evaluation.sampling.nonfinite_rows import blame_action
from rlframe.evaluation.sampling.slot_environment import OwnsEnvironment
from rlframe.evaluation.sampling.slot_replay import RepeatsActions
from rlframe.utils.errors import EnvError, NonFiniteError, describe_error
from rlframe.utils.seeding import derive_seed

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
        self.seed = seed
        self.stream = stream
        # 15 bits of an episode's id: rows of a worker and of the one that replaces it must not look like one episode.
        self.id_stream = (stream + (restarts << 10)) & 0x7FFF
        self.worker_index = int(context.worker_index)
        self.episode = -1
        self.episode_seed = 0
        self.actions: list[Any] | None = []
        self.lives: list[list[Any] | None] = []
        self._recorded = 0  # actions since the game began
        self.failed = False
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
        self.episode_seed = derive_seed(self.seed, "env", self.stream, self.index, self.episode)
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


def _games(env: Any) -> Iterator[Any]:
    """Yields the wrappers, ours or others of that habit, that say in `was_real_done` whether a game is over."""
    while env is not None:
        attributes = getattr(env, "__dict__", {})
        if "was_real_done" in attributes:
            yield env
        env = attributes.get("env")
