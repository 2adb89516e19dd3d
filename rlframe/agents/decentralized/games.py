"""Games that players play side by side: who sits where, what each learns from, and how games ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.decentralized.learning_player import LearningPlayer
from rlframe.agents.decentralized.players import MASK, ActingPolicy, League, Player, members_of
from rlframe.data.columns import STATE_IN_PREFIX
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.data.sequences import cut_into_sequences
from rlframe.env.env_context import EnvContext
from rlframe.env.multi_agent_adapt import MultiAgentAdapter
from rlframe.evaluation.sampling.loop import Hooks, RunnerSettings
from rlframe.evaluation.sampling.multi_agent import MultiAgentRunner
from rlframe.evaluation.sampling.multi_agent_postprocessing import MultiAgentPostprocessing
from rlframe.evaluation.sampling.rollout import EnvSlot, clip_rewards
from rlframe.models.preprocessors import get_preprocessor
from rlframe.utils.errors import ConfigError, EnvError
from rlframe.utils.filter import Filter
from rlframe.utils.seeding import derive_seed

#: Columns that are the same whoever acted: those of rows that a player takes from others.
_COMMON = ("obs", "new_obs", "actions", "rewards", "terminateds", "truncateds", "eps_id", "agent_index", "t", "turn")


@dataclass(frozen=True)
class Seat:
    """One agent of a game, and what its player does there.

    Attributes:
        agent: The agent's id.
        player: Who acts for it.
        learns: Whether the player learns from what happens there.
        explores: Whether it explores there.
    """

    agent: Any
    player: Player
    learns: bool = False
    explores: bool = False


@dataclass(frozen=True)
class Group:
    """Seats in which one player does the same: their rows and actions are one batch.

    Attributes:
        player: The player.
        learns: See `Seat`.
        explores: See `Seat`.
        seats: Names of the seats, for messages.
        mask: Where the action mask lies in a flat observation; None without one.
    """

    player: Player
    learns: bool
    explores: bool
    seats: list[Any]
    mask: slice | None


@dataclass(frozen=True)
class Game:
    """How a game ended.

    Attributes:
        returns: Undiscounted return by agent.
        winners: Agents who won; empty for a draw.
        length: Steps of the game.
        slot: The place in which it was played.
        illegal_moves: Actions that were taken although the mask forbade them, which it did with all others as well.
    """

    returns: dict[Any, float]
    winners: tuple[Any, ...]
    length: int
    slot: int
    illegal_moves: int = 0


class Places(list[EnvSlot]):
    """The places in which games are played, with what vectors of environments have for their attributes."""

    def get_env_attr(self, name: str) -> list[Any]:
        """Returns an attribute of each place's game.

        Raises:
            ConfigError: If the game has none of that name.
        """
        return [getattr(game, name) for game in self._games(name)]

    def set_env_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of every game: what is played from then on goes by it.

        Raises:
            ConfigError: If the game has none of that name.
        """
        for game in self._games(name):
            setattr(game, name, value)

    def _games(self, name: str) -> list[Any]:
        games = [getattr(slot.env.env, "unwrapped", slot.env.env) for slot in self]
        for game in games:
            if not hasattr(game, name):
                raise ConfigError(f"{type(game).__name__} has no attribute {name!r}; wanted one that the game has")
        return games


def make_slots(creator: Callable[[EnvContext], Any], env_config: Any, count: int, seed: int, stream: int) -> Places:
    """Returns the places in which games are played.

    Args:
        creator: Makes a game.
        env_config: What it is given.
        count: Number of games side by side.
        seed: Seed of all games.
        stream: Number that tells these games from others of the same seed.

    Raises:
        EnvError: If it makes no game of several agents.
    """
    context = EnvContext(dict(env_config), worker_index=0)
    slots = Places(
        EnvSlot(creator, context.copy_with_overrides(vector_index=index), index=index, seed=seed, stream=stream)
        for index in range(count)
    )
    env = slots[0].env
    if not isinstance(env, MultiAgentAdapter) or not env.possible_agents:
        raise EnvError(
            f"got {type(env).__name__}, wanted a game of several agents that it names: one of PettingZoo's, or a "
            "MultiAgentEnv with possible_agents"
        )
    return slots


def spaces_of(env: MultiAgentAdapter) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns the observation and action spaces of a game by agent.

    Raises:
        EnvError: If the game does not say them.
    """
    made = []
    for name in ("observation_space", "action_space"):
        spaces = getattr(env, name)
        by_agent = spaces if isinstance(spaces, dict) else dict.fromkeys(env.possible_agents, spaces)
        for agent in env.possible_agents:
            if by_agent.get(agent) is None:
                raise EnvError(f"seat {agent!r}: the game says no {name}; give it {name}s by agent")
        made.append(by_agent)
    return made[0], made[1]


def clips_of(player: Player) -> bool | float | None:
    """Returns how a player's rewards are clipped, see `clip_rewards`."""
    return player.trainer.config["clip_rewards"] if isinstance(player, LearningPlayer) else None


class RowRouting:
    """Gives every player who learns the rows that it learns from; called where a runner postprocesses.

    Args:
        groups: All groups by id.
        share: Which rows players learn from that do not say so themselves: "own", or "all".
    """

    def __init__(self, groups: Mapping[str, Group], share: str) -> None:
        self._groups, self._share = groups, share

    def share_of(self, learner: LearningPlayer) -> str:
        """Returns which rows a player learns from: its own setting goes before that of all."""
        return learner.share_experience or self._share

    def learners(self) -> list[LearningPlayer]:
        """Returns the players who learn, each once."""
        found = {id(g.player): g.player for g in self._groups.values() if g.learns}
        return [player for player in found.values() if isinstance(player, LearningPlayer)]

    def __call__(
        self, batches: dict[str, SampleBatch], names: Mapping[tuple[int, int], Any], running: Mapping[int, Any]
    ) -> dict[str, SampleBatch]:
        """Hands rows on, postprocessed by who learns from them; returns none."""
        for learner in self.learners():
            taken = {pid: self._part(learner, batch) for pid, batch in batches.items() if self._takes(learner, pid)}
            if taken:
                postprocess = MultiAgentPostprocessing(dict.fromkeys(taken, learner.policy), Hooks())
                for batch in postprocess(taken, names, running).values():
                    learner.feed.put(self._in_sequences(learner, batch))
        return {}

    def _takes(self, learner: LearningPlayer, group_id: str) -> bool:
        group = self._groups[group_id]
        if self.share_of(learner) == "own":
            return group.player is learner and group.learns
        # What is learned on-policy needs the player's own choices, in whichever seat.
        return learner.replays or (group.player is learner and group.explores)

    def _part(self, learner: LearningPlayer, batch: SampleBatch) -> SampleBatch:
        own = self.share_of(learner) == "own" or not learner.replays
        kept = {name: np.array(batch[name]) for name in _COMMON if name in batch}
        made = batch.copy() if own else SampleBatch(kept | _fresh_memory(learner.policy, batch.count))
        made["rewards"] = clip_rewards(made["rewards"], clips_of(learner))
        return made

    @staticmethod
    def _in_sequences(learner: LearningPlayer, batch: SampleBatch) -> SampleBatch:
        policy: Any = learner.policy
        return cut_into_sequences(batch, policy.max_seq_len) if policy.learns_sequences() else batch


def _fresh_memory(policy: Any, rows: int) -> dict[str, NDArray[Any]]:
    """Returns the state that a memory begins with, as a column for each of its parts: what others' rows start from."""
    states = [np.asarray(state) for state in policy.get_initial_state()]
    return {f"{STATE_IN_PREFIX}{index}": np.repeat(state[None], rows, axis=0) for index, state in enumerate(states)}


def _check_memory(seat: Seat, player: LearningPlayer) -> None:
    """Raises a ConfigError where a memory sees steps before the present one, which others' rows do not have."""
    views = player.policy.acting_views()
    if views:
        raise ConfigError(
            f"share_experience: got 'all', but player {player.name!r} in seat {seat.agent!r} acts on "
            f"{', '.join(views)}, too, which rows of others do not have; wanted share_experience='own', or a model "
            "without them"
        )


class GamesRunner(MultiAgentRunner):
    """Plays games side by side, each followed by the next one at once, with an exploration flag for each seat.

    Args:
        slots: Places of the games.
        seats: Who sits where.
        share: See `RowRouting`.
        fragment: Steps of agents that one `sample()` makes for each game, at least.
        seed: Seed of players that draw, and of leagues.
        playing: Whether players act as trained, without exploration, and nobody learns.
        wait: Whether a game that is over waits until all others are, and all begin together.

    Attributes:
        seed: Seed of who joins from now on, and of leagues.
        groups: Who plays, by the names that messages and checkpoints have.
        agent_steps: Steps of agents so far.
        games: Games that ended and were not taken yet.
    """

    def __init__(  # noqa: PLR0913 - keyword-only but for two
        self,
        slots: list[EnvSlot],
        seats: Sequence[Seat],
        *,
        share: str,
        fragment: int,
        seed: int,
        playing: bool = False,
        wait: bool = False,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.agent_steps = 0
        self.games: list[Game] = []
        self.seed, self._by_agent = seed, {seat.agent: seat for seat in seats}
        self._playing, self._wait = playing, wait
        self._observations, self._actions = spaces_of(slots[0].env)
        self._policies: dict[str, Any] = {}
        self._filters: dict[str, Any] = {}
        for seat in seats:
            self._sit_down(seat)
        settings = RunnerSettings(rollout_fragment_length=fragment)
        self._steps_before = 0
        self._raw: dict[tuple[int, Any], Any] = {}
        self._illegal_moves = [0] * len(slots)
        super().__init__(slots, self._policies, lambda: self._group_for, settings, Hooks(), filters=self._filters)
        self.routing = RowRouting({} if playing else self.groups, share)
        self._check_shareable(seats)
        self._postprocess: Any = self.routing

    # --- who sits where ---------------------------------------------------------------------------------------

    def seat_newcomers(self) -> None:
        """Gives those who joined a league, and did not play yet, their policies."""
        for seat in self._by_agent.values():
            self._sit_down(seat)

    def order_groups(self, ids: Sequence[str]) -> None:
        """Puts the groups into an order; rows are handed on in it."""
        for table in (self.groups, self._policies, self._filters):
            ordered: Any = {group_id: table[group_id] for group_id in ids}
            table.clear()
            table.update(ordered)

    def _sit_down(self, seat: Seat) -> None:
        for member in members_of(seat.player):
            self._group_of(seat, member)

    def _group_of(self, seat: Seat, player: Player) -> str:
        """Returns the id of a player's group in a seat; a new one gets a policy."""
        learns = seat.learns and not self._playing
        explores = seat.explores and not self._playing
        for group_id, known in self.groups.items():
            if known.player is player and (known.learns, known.explores) == (learns, explores):
                self._check_same_spaces(seat, known)
                if seat.agent not in known.seats:
                    known.seats.append(seat.agent)
                return group_id
        space, actions = self._observations[seat.agent], self._actions[seat.agent]
        same = [group_id for group_id, known in self.groups.items() if known.player is player]
        number, place = self._seat_and_place(player, learns=learns, explores=explores)
        group_id = f"{player.name!r} in seat {list(self._by_agent)[number]!r}, place {place}"
        if same:
            self._check_same_spaces(seat, self.groups[same[0]])
            policy = self._policies[same[0]]
        else:
            stream = [number, place] if place else [number]
            policy = player.make_policy(space, actions, derive_seed(self.seed, "player", *stream))
            self._check_fits(seat, player, policy)
        self.groups[group_id] = Group(player, learns, explores, [seat.agent], _mask_columns(space))
        self._policies[group_id], self._filters[group_id] = policy, _filter_of(policy, learns=learns)
        return group_id

    def _seat_and_place(self, player: Player, *, learns: bool, explores: bool) -> tuple[int, int]:
        """Returns the first seat in which a player does the same, and its place in the league there.

        Unlike the order in which groups came into being, these are the same after a league has grown.
        """
        for number, seat in enumerate(self._by_agent.values()):
            members = members_of(seat.player)
            playing = (seat.learns and not self._playing, seat.explores and not self._playing)
            if playing == (learns, explores) and any(member is player for member in members):
                return number, next(place for place, member in enumerate(members) if member is player)
        raise ValueError(f"player {player.name!r} sits in no seat")

    def _check_shareable(self, seats: Sequence[Seat]) -> None:
        """Raises a ConfigError where a player would take rows of seats that see or do something else."""
        learners = [
            (seat, player)
            for seat in seats
            if seat.learns and not self._playing
            for player in members_of(seat.player)
            if isinstance(player, LearningPlayer) and player.replays and self.routing.share_of(player) == "all"
        ]
        for seat, player in learners:
            _check_memory(seat, player)
            for other in seats:
                for spaces, what in ((self._observations, "observations"), (self._actions, "actions")):
                    if spaces[seat.agent] != spaces[other.agent]:
                        raise ConfigError(
                            f"share_experience: got 'all', but player {player.name!r} in seat {seat.agent!r} has "
                            f"{what} {spaces[seat.agent]}, and seat {other.agent!r} has {spaces[other.agent]}; "
                            "wanted the same, or share_experience='own'"
                        )

    def _check_same_spaces(self, seat: Seat, known: Group) -> None:
        other = known.seats[0]
        for spaces, what in ((self._observations, "observations"), (self._actions, "actions")):
            if spaces[seat.agent] != spaces[other]:
                raise ConfigError(
                    f"seat {seat.agent!r}: player {known.player.name!r} sits in seat {other!r}, too, whose {what} are "
                    f"{spaces[other]}, not {spaces[seat.agent]}; give it a player of its own"
                )

    def _check_fits(self, seat: Seat, player: Player, policy: Any) -> None:
        shape = get_preprocessor(self._observations[seat.agent])(self._observations[seat.agent]).observation_space.shape
        got = policy.observation_space.shape, policy.action_space
        if got != (shape, self._actions[seat.agent]):
            raise ConfigError(
                f"seat {seat.agent!r}: player {player.name!r} sees {got[0]} and chooses from {got[1]}, but the "
                f"seat has {shape} and {self._actions[seat.agent]}; seat another player there"
            )

    def _group_for(self, agent_id: Any, episode: Any) -> str:
        seat = self._by_agent.get(agent_id)
        if seat is None:
            raise EnvError(f"agent {agent_id!r} has no seat; the game named {list(self._by_agent)}")
        player = seat.player
        if isinstance(player, League):
            player = player.member_for(self.seed, int(episode.episode_id))
        return self._group_of(seat, player)

    # --- acting -----------------------------------------------------------------------------------------------

    def sample(self) -> MultiAgentBatch:
        """Plays until agents have made `fragment` steps for each game; see `MultiAgentRunner.sample`."""
        self._steps_before = self.agent_steps
        batch = super().sample()
        if self._all_rest():
            self._resting.clear()
            self._started = False  # all begin with the next call, after hooks and tests
        return batch

    @property
    def waits_for_games(self) -> bool:
        """Whether some games of a batch that ends together are not over."""
        return self._wait and self._started

    def _all_rest(self) -> bool:
        return len(self._resting) == len(self.slots)

    def _follow(self, index: int) -> None:
        if self._wait:
            self._resting.add(index)
        else:
            super()._follow(index)

    def _progress(self, env_steps: int, *, complete: bool) -> int:
        del env_steps, complete
        made = self.agent_steps - self._steps_before
        return self.settings.rollout_fragment_length * len(self.slots) if self._all_rest() else made

    def _settings_of(self, group: Group) -> RunnerSettings:
        clips = clips_of(group.player)
        return dataclasses.replace(self.settings, explore=group.explores, clip_rewards=clips)

    def _continue(self, agent: Any, obs: Any) -> None:
        if agent.collector.memory is not None:  # it may see rewards, which are clipped as the player's are
            self.settings = self._settings_of(self.groups[agent.collector.policy_id])
        super()._continue(agent, obs)

    def _prepared(self, agent: Any, raw: Any) -> Any:
        if isinstance(agent.collector.policy, ActingPolicy):
            self._raw[agent.slot, agent.id] = raw
        return super()._prepared(agent, raw)

    def _same(self, index: int, obs: dict[Any, Any]) -> bool:
        for agent in self.rows.agents[index].values():
            if isinstance(agent.collector.policy, ActingPolicy) and agent.id in obs:
                self._raw[index, agent.id] = obs[agent.id]
        return super()._same(index, obs)

    def _act_side(self, collector: Any, obs: NDArray[Any]) -> Any:
        group, policy = self.groups[collector.policy_id], collector.policy
        self.settings = self._settings_of(group)
        scripted = isinstance(policy, ActingPolicy)
        if scripted:
            policy.waiting = [self._raw[agent.slot, agent.id] for agent in collector.waiting]
        try:
            made, flat, extras = super()._act_side(collector, obs)
        except Exception as error:
            if not scripted:
                raise
            seats = ", ".join(sorted({repr(agent.id) for agent in collector.waiting}))
            raise EnvError(
                f"seat {seats}: player {group.player.name!r} raised {type(error).__name__}: {error}; wanted an action"
            ) from error
        self.agent_steps += len(collector.waiting)
        if group.mask is not None:
            self._check_allowed(collector, group, obs[:, group.mask], flat)
        elif scripted:
            self._check_contained(collector, group, flat)
        return made, flat, extras

    def _check_allowed(self, collector: Any, group: Group, masks: NDArray[Any], actions: NDArray[Any]) -> None:
        """Raises an EnvError for an action that the mask forbids; where it forbids all, any is taken, and counted."""
        numbers = np.asarray(actions).astype(np.int64)
        inside = (numbers >= 0) & (numbers < masks.shape[1])
        allowed = masks[np.arange(len(masks)), np.where(inside, numbers, 0)] > 0.5
        wrong = ~inside | ~(allowed | ~(masks > 0.5).any(1))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise EnvError(
                f"seat {collector.waiting[row].id!r}: player {group.player.name!r} chose action {int(numbers[row])}, "
                f"wanted one of those that are allowed there: {np.flatnonzero(masks[row] > 0.5).tolist()}"
            )
        for row in np.flatnonzero(~allowed).tolist():
            self._illegal_moves[collector.waiting[row].slot] += 1

    @staticmethod
    def _check_contained(collector: Any, group: Group, actions: NDArray[Any]) -> None:
        space = collector.policy.action_space
        for agent, action in zip(collector.waiting, actions, strict=True):
            if not space.contains(np.asarray(action, space.dtype)):
                raise EnvError(
                    f"seat {agent.id!r}: player {group.player.name!r} chose action {action!r}, wanted one of {space}"
                )

    # --- ends -------------------------------------------------------------------------------------------------

    def _report(self, index: int, part: int) -> Any:
        episode = super()._report(index, part)
        returns = {agent: float(total) for (agent, _), total in episode.agent_rewards.items()}
        for agent, seat in self._by_agent.items():
            if agent not in returns:
                raise EnvError(
                    f"seat {agent!r}: the game in place {index} ended without a turn and a reward for player "
                    f"{seat.player.name!r}; wanted a result for each seat"
                )
        winners = _winners(self._slot(index).env, returns)
        in_order = {agent: returns[agent] for agent in self._by_agent}
        illegal, self._illegal_moves[index] = self._illegal_moves[index], 0
        self.games.append(Game(in_order, winners, episode.length, index, illegal))
        return episode

    def take_games(self) -> list[Game]:
        """Returns the games that ended since this was asked last."""
        games, self.games = self.games, []
        self.get_metrics()
        return games


class _AsItIs(Filter):
    """Filters by another filter's statistics, which stay as they are.

    Args:
        other: That filter.
    """

    def __init__(self, other: Any) -> None:
        self._other = other

    def __call__(self, x: Any, update: bool = True) -> Any:  # noqa: ARG002 - never
        """Returns the filtered observation."""
        return self._other(x, update=False)

    def filter_batch(self, x: Any, update: bool = True) -> Any:  # noqa: ARG002
        """Returns B filtered observations."""
        return self._other.filter_batch(x, update=False)


def _filter_of(policy: Any, *, learns: bool) -> Any:
    """Returns the filter of a policy's observations; its statistics change where the player learns alone."""
    return policy._obs_filter if learns or policy._obs_filter is None else _AsItIs(policy._obs_filter)


def _winners(env: Any, returns: Mapping[Any, float]) -> tuple[Any, ...]:
    """Returns who won: as the game says by `winning_agents`, else who has the highest return, if others have less."""
    told = getattr(getattr(env, "unwrapped", env), "winning_agents", None)
    if told is not None:
        return tuple(told)
    most = max(returns.values())
    best = tuple(agent for agent, value in returns.items() if value == most)
    return best if len(best) < len(returns) else ()


def _mask_columns(space: Any) -> slice | None:
    """Returns where the action mask is in a flat observation, None where there is none."""
    parts = getattr(space, "spaces", None)
    if not isinstance(parts, Mapping) or MASK not in parts:
        return None
    start = 0
    for name in sorted(parts):
        size = get_preprocessor(parts[name])(parts[name]).size
        if name == MASK:
            return slice(start, start + size)
        start += size
    return None


__all__ = ["Game", "GamesRunner", "Group", "RowRouting", "Seat", "make_slots", "spaces_of"]
