"""A user's `VectorEnv` as the sampling loops know environments: each of its copies alone, stepped together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlframe.env.vector_env import VectorEnv
from rlframe.utils.errors import EnvError


class SlotEnvironments:
    """Makes what stands in each slot: an environment of its own, or a copy in a `VectorEnv` that all share.

    Args:
        creator: The user's, from an `EnvContext`.

    Attributes:
        group: What is stepped together; None where every slot has an environment of its own, or nothing is made yet.
    """

    def __init__(self, creator: Callable[[Any], Any]) -> None:
        self._creator = creator
        self.group: VectorGroup | None = None

    @property
    def count(self) -> int | None:
        """How many copies there are; None where every slot has an environment of its own."""
        return None if self.group is None else self.group.vector_env.num_envs

    def creator_of(self, index: int) -> Callable[[Any], Any]:
        """Returns the function that makes what stands in a slot."""
        return partial(self._make, index)

    def _make(self, index: int, context: Any) -> Any:
        if self.group is not None and not self.group.broken:
            return SubEnvironment(self.group, index)
        made = self._creator(context)
        if not isinstance(made, VectorEnv):
            return made
        if self.group is None:
            self.group = VectorGroup(made)
        else:
            self.group.renew(made)
        return SubEnvironment(self.group, index)


class VectorGroup:
    """The copies in a `VectorEnv`: each is reset when its episode ends, and all are stepped by one call.

    Args:
        vector_env: The user's.

    Attributes:
        vector_env: The user's.
        broken: Whether it raised; it begins anew, or is replaced, before it is used again.
    """

    def __init__(self, vector_env: VectorEnv) -> None:
        count = getattr(vector_env, "num_envs", None)
        if not isinstance(count, int) or count < 1:
            raise EnvError(
                f"{type(vector_env).__name__} has num_envs={count!r}; wanted the number of its copies, from 1"
            )
        self.renew(vector_env)

    def renew(self, vector_env: VectorEnv) -> None:
        """Takes another environment in the place of a broken one."""
        self.vector_env = vector_env
        self.broken = False
        self._begun = False
        self._first: dict[int, Any] = {}
        self._steps: list[tuple[Any, ...]] = []

    def fail(self) -> None:
        """Notes that nobody knows where the copies stand."""
        self.broken, self._begun = True, False

    def reset(self, index: int) -> Any:
        """Returns the first observation of a copy; the first call resets all, and keeps those of the others."""
        self.broken = False
        if not self._begun:
            result = self.vector_env.vector_reset()
            if _has_infos(result):
                result = list(zip(*result, strict=True))
            self._first = dict(enumerate(self._checked("vector_reset", "observations", result)))
            self._begun = True
        return self._first.pop(index) if index in self._first else self.vector_env.reset_at(index)

    def step(self, actions: Sequence[Any]) -> None:
        """Steps all copies; `taken` has what came of it."""
        result = self.vector_env.vector_step(list(actions))
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            raise EnvError(
                f"vector_step() returned {type(result).__name__}; wanted (observations, rewards, dones, infos), or "
                "terminateds and truncateds in the place of dones"
            )
        names = ("observations", "rewards", "dones", "infos")
        parts = [self._checked("vector_step", names[min(at, 3)], part) for at, part in enumerate(result)]
        self._steps = list(zip(*parts, strict=True))

    def taken(self, index: int) -> tuple[Any, ...]:
        """Returns what the last step gave for a copy."""
        *rest, info = self._steps[index]
        return (*rest, {} if info is None else info)

    def _checked(self, method: str, what: str, part: Any) -> Any:
        if len(part) != self.vector_env.num_envs:
            raise EnvError(
                f"{method}() of {type(self.vector_env).__name__} returned {len(part)} {what}; wanted "
                f"{self.vector_env.num_envs}, one for each copy"
            )
        return part


class SubEnvironment:
    """One copy in a `VectorEnv`, in the contract of the old gym.

    Args:
        group: The copies.
        index: Which of them.
    """

    def __init__(self, group: VectorGroup, index: int) -> None:
        self.group = group
        self.index = index
        self.vector_env = group.vector_env
        self.observation_space = self.vector_env.observation_space
        self.action_space = self.vector_env.action_space

    def seed(self, seed: int) -> None:
        """Seeds the single environment, if there is one for each copy that can be seeded."""
        single = self.single()
        if callable(getattr(single, "seed", None)):
            single.seed(seed)

    @property
    def unseedable(self) -> str | None:
        """Why no seed reaches the copy; None where one does."""
        if callable(getattr(self.single(), "seed", None)):
            return None
        return (
            f"{type(self.vector_env).__name__} cannot be seeded: its get_sub_environments() returns no environments "
            "with seed(). Runs with it are not reproducible."
        )

    def single(self) -> Any:
        """Returns the single environment of this copy; None where there are no such."""
        singles = self.vector_env.get_sub_environments()
        return singles[self.index] if len(singles) == self.vector_env.num_envs else None

    def reset(self) -> Any:
        """Begins an episode of this copy."""
        return self.group.reset(self.index)

    def step(self, action: Any) -> tuple[Any, ...]:
        """Returns what this copy gave when all were stepped; they have been, with this action."""
        del action
        return self.group.taken(self.index)

    def render(self) -> Any:
        """Shows this copy."""
        return self.vector_env.try_render_at(self.index)

    def close(self) -> None:
        """Closes the environment, if it knows how; the first copy does it for all."""
        if self.index:
            return
        for env in (self.vector_env, *self.vector_env.get_sub_environments()):
            close = getattr(env, "close", None)
            if callable(close):
                close()


def _has_infos(result: Any) -> bool:
    """Returns whether `vector_reset` returned observations and infos."""
    pair = isinstance(result, tuple) and len(result) == 2
    return pair and isinstance(result[1], list) and all(isinstance(info, dict) for info in result[1])
