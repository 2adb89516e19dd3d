"""Who may sit in a seat of a game without learning: scripted and random players, persons, and leagues of players."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.preprocessors import get_preprocessor
from rlframe.policy.policy import Policy
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import derive_seed, make_rng

MASK = "action_mask"


class Player:
    """Somebody who may sit in one seat or several; the same object in several seats is one player.

    Args:
        name: What the player is called in results and messages; None takes the class's name.

    Attributes:
        learns: Whether the player can learn.
    """

    learns = False

    def __init__(self, name: str | None = None) -> None:
        self.name = type(self).__name__ if name is None else name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def make_policy(self, observation_space: Any, action_space: Any, seed: int) -> Policy:
        """Returns what acts for the player in the games of one runner.

        Args:
            observation_space: Space of its seats' observations, as the game has it.
            action_space: Space of their actions.
            seed: Seed of what it draws.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make_policy().")


class ActingPolicy(Policy):
    """Acts by a function of single observations, as the game gives them; learns nothing.

    Args:
        observation_space: As the game has it.
        action_space: As the game has it.
        seed: Seed of its stream.
        choose: `fn(observation, action space, random stream) -> action`.

    Attributes:
        waiting: Observations that are acted on next, as the game gave them.
        rng: Its random stream.
    """

    #: What others learn from its rows.
    train_columns: tuple[str, ...] | None = ("new_obs",)

    def __init__(self, observation_space: Any, action_space: Any, seed: int, choose: Callable[..., Any]) -> None:
        preprocessor = get_preprocessor(observation_space)(observation_space)
        config = {"normalize_actions": False, "clip_actions": False, "seed": seed, "explore": False}
        super().__init__(preprocessor.observation_space, action_space, config)
        self.waiting: list[Any] = []
        self.rng = make_rng(seed, "player")
        self._choose = choose
        self.exploration = self._create_exploration()

    def act_on_rows(
        self,
        obs: NDArray[Any],  # noqa: ARG002 - acts on what the game gave
        explore: bool = True,  # noqa: ARG002
        timestep: int | None = None,  # noqa: ARG002
        inputs: Mapping[str, NDArray[Any]] | None = None,  # noqa: ARG002
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns an action for each observation that waits, `[B, ...]`, and no columns."""
        return np.stack([self._numbers(self._choose(seen, self.action_space, self.rng)) for seen in self.waiting]), {}

    def _numbers(self, action: Any) -> NDArray[Any]:
        numbers = np.asarray(action)
        if numbers.dtype.kind not in "biuf" or numbers.shape != self.action_space.shape:
            raise TypeError(f"chose {action!r}, which is no action of {self.action_space}")
        # NumPy would round 1.5 to a choice.
        if numbers.dtype.kind == "f" and np.issubdtype(self.action_space.dtype, np.integer) and np.any(numbers % 1):
            raise TypeError(f"chose {action!r}, which is no action of {self.action_space}")
        return numbers

    def get_state(self) -> dict[str, Any]:
        """Returns where its stream is."""
        return {"rng": self.rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self.rng.bit_generator.state = state["rng"]


class ScriptedPlayer(Player):
    """Acts by a function, or by the method of an object.

    Args:
        script: `fn(observation) -> action`, an object with `get_action(observation)`, or a class of such, which is made
            without arguments. A function that takes a second argument is given a NumPy generator as well. The
            observation is the game's own; where it is a dict, that may have an `action_mask`.
        name: What it is called; None takes the script's name.

    Raises:
        ConfigError: If it is none of these.
    """

    def __init__(self, script: Any, name: str | None = None) -> None:
        super().__init__(name or getattr(script, "__name__", type(script).__name__))
        try:
            made = script() if inspect.isclass(script) else script
        except Exception as error:
            raise ConfigError(
                f"player {self.name!r}: making {script.__name__}() raised {type(error).__name__}: {error}; wanted a "
                "class that is made without arguments, or an object of it"
            ) from error
        function = getattr(made, "get_action", made)
        if not callable(function):
            raise ConfigError(
                f"player {self.name!r}: got {script!r}, wanted a function of an observation, or an object with "
                "get_action(observation)"
            )
        self._function: Callable[..., Any] = function
        self._takes_rng = _positional(function) > 1

    def make_policy(self, observation_space: Any, action_space: Any, seed: int) -> Policy:
        """Returns a policy that calls the script."""
        return ActingPolicy(observation_space, action_space, seed, self._chosen)

    def _chosen(self, obs: Any, space: Any, rng: np.random.Generator) -> Any:
        del space
        return self._function(obs, rng) if self._takes_rng else self._function(obs)


def _positional(function: Any) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # written in C, without a signature
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


class RandomPlayer(Player):
    """Takes any of the allowed actions, each as likely as the others."""

    def make_policy(self, observation_space: Any, action_space: Any, seed: int) -> Policy:
        """Returns a policy that draws."""
        return ActingPolicy(observation_space, action_space, seed, _drawn)


def _drawn(obs: Any, space: Any, rng: np.random.Generator) -> Any:
    allowed = None if not isinstance(obs, Mapping) or MASK not in obs else np.flatnonzero(obs[MASK])
    if allowed is not None and len(allowed):
        return allowed[int(rng.integers(len(allowed)))]
    space.seed(int(rng.integers(2**31)))
    return space.sample()


class HumanPlayer(Player):
    """A person at the terminal, who is shown the observation and the allowed actions, and types a number.

    Args:
        name: What the person is called.
        ask: Asks for a line; `input` unless given.
        tell: Shows a text; `print` unless given.
        show: `fn(observation) -> text`; None shows the observation itself.
    """

    def __init__(
        self,
        name: str = "you",
        *,
        ask: Callable[[str], str] = input,
        tell: Callable[[str], Any] = print,
        show: Callable[[Any], str] | None = None,
    ) -> None:
        super().__init__(name)
        self._ask, self._tell, self._show = ask, tell, str if show is None else show

    def make_policy(self, observation_space: Any, action_space: Any, seed: int) -> Policy:
        """Returns a policy that asks.

        Raises:
            ConfigError: If actions are no numbered choices.
        """
        if not hasattr(action_space, "n"):
            raise ConfigError(
                f"player {self.name!r}: a person types the number of a choice; got the actions {action_space}"
            )
        return ActingPolicy(observation_space, action_space, seed, self._chosen)

    def _chosen(self, obs: Any, space: Any, rng: np.random.Generator) -> int:
        del rng
        masked = isinstance(obs, Mapping) and MASK in obs
        allowed = np.flatnonzero(obs[MASK]).tolist() if masked else list(range(int(space.n)))
        self._tell(self._show(obs))
        while True:
            text = self._ask(f"{self.name}, your action ({', '.join(map(str, allowed))}): ").strip()
            if text.isdecimal() and int(text) in allowed:
                return int(text)
            self._tell(f"got {text!r}, wanted one of {allowed}")


class League(Player):
    """Several players of whom one sits down for each game; who joins later is drawn from the next game on.

    In a seat of the learning mask those members learn who can, each from the games in which it sat there.

    Args:
        members: The players.
        name: What the league is called.

    Attributes:
        members: The players; add others with `add`.

    Raises:
        ConfigError: If there are none.
    """

    def __init__(self, members: Sequence[Player], name: str = "league") -> None:
        super().__init__(name)
        if not members or any(not isinstance(member, Player) or isinstance(member, League) for member in members):
            raise ConfigError(
                f"player {name!r}: got the members {list(members)}, wanted at least one Player, no League"
            )
        self.members = list(members)

    @property
    def learns(self) -> bool:  # type: ignore[override]  # as its members are
        """Whether one of the members can learn."""
        return any(member.learns for member in self.members)

    def add(self, member: Player) -> None:
        """Lets another player join."""
        self.members.append(member)

    def member_for(self, seed: int, episode_id: int) -> Player:
        """Returns who plays an episode; the same seed and episode give the same one."""
        return self.members[derive_seed(seed, "league", episode_id) % len(self.members)]


def members_of(player: Player) -> list[Player]:
    """Returns who may sit in a player's seat: the members of a league, or the player alone."""
    return player.members if isinstance(player, League) else [player]


__all__ = ["ActingPolicy", "HumanPlayer", "League", "Player", "RandomPlayer", "ScriptedPlayer", "members_of"]
