"""The coin game (Lerer and Peysakhovich 2017): two players, coins of their colours, and a price for the other's."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from rlframe.env.multi_agent_env import MultiAgentDict, MultiAgentEnv
from rlframe.examples.env.episode_infos import InfoAccumulationInterface
from rlframe.utils.errors import EnvError

_STATE = (
    *("red_pos", "blue_pos", "coin_pos", "red_coin", "grid_size", "asymmetric", "step_count_in_current_episode"),
    *("max_steps", "both_players_can_pick_the_same_coin", "red_pick", "red_pick_own", "blue_pick", "blue_pick_own"),
)


class CoinGame(InfoAccumulationInterface, MultiAgentEnv):
    """A red and a blue player on a torus: a coin pays 1, and one of the other's colour costs the other 2.

    A player's observation is its own place, the other's, a coin of its own colour, and one of the other's, each a plane
    of zeros and at most a one: uint8 `[grid_size, grid_size, 4]`. Coins take turns in their colours.

    Args:
        config: `players_ids` (player_red, player_blue), `max_steps` of an episode (20), `grid_size` (3), `seed`,
            `asymmetric`: the red player gets 3 more for each coin (False), `both_players_can_pick_the_same_coin`
            (True; with False one of two that come at the same time is drawn), `output_additional_info`: the last
            step's infos are `pick_speed`, coins picked a step, and `pick_own_color`, the share of a player's own
            colour among what it picked (True).

    Raises:
        EnvError: If there are not two `players_ids`.
    """

    NAME = "CoinGame"
    NUM_AGENTS = 2
    NUM_ACTIONS = 4
    ACTION_SPACE: ClassVar[Any] = Discrete(NUM_ACTIONS)
    OBSERVATION_SPACE: Any = None
    #: What actions add to a place.
    MOVES: ClassVar[Sequence[NDArray[Any]]] = [np.array(move) for move in ([0, 1], [0, -1], [1, 0], [-1, 0])]

    #: Shape in front of all arrays: that of the games that are played at once.
    _games: tuple[int, ...] = ()

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        self.players_ids = list(options.get("players_ids", ["player_red", "player_blue"]))
        if len(self.players_ids) != self.NUM_AGENTS:
            raise EnvError(f"{type(self).__name__}: got players_ids {self.players_ids}, wanted two of them")
        self.player_red_id, self.player_blue_id = self.possible_agents = self.players_ids
        self.max_steps = int(options.get("max_steps", 20))
        self.grid_size = int(options.get("grid_size", 3))
        self.asymmetric = bool(options.get("asymmetric", False))
        self.both_players_can_pick_the_same_coin = bool(options.get("both_players_can_pick_the_same_coin", True))
        self.output_additional_info = bool(options.get("output_additional_info", True))
        self.OBSERVATION_SPACE = Box(0, 1, (self.grid_size, self.grid_size, 4), np.uint8)
        self.observation_space, self.action_space = self.OBSERVATION_SPACE, self.ACTION_SPACE
        self.step_count_in_current_episode = 0
        self._init_info()
        self.seed(options.get("seed"))

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seeds places and colours."""
        self.np_random = np.random.default_rng(seed)
        return [seed]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Places players and a coin at random, each on a field of its own.

        Args:
            seed: Of this and the following episodes; None goes on.
            options: Not used.

        Returns:
            `{player: observation}`.
        """
        del options
        if seed is not None:
            self.seed(seed)
        self.step_count_in_current_episode = 0
        self._reset_info()
        self.red_coin = self.np_random.integers(2, size=self._games)
        self.red_pos = self._free_field([])
        self.blue_pos = self._free_field([self.red_pos])
        self.coin_pos = self._free_field([self.red_pos, self.blue_pos])
        return dict(zip(self.players_ids, self._observations(), strict=True))

    def step(self, actions: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Moves both, pays for the coin, and lays the next one where it was picked.

        Args:
            actions: `{player: action}`.

        Returns:
            Dicts by player: observations, rewards, dones, infos.
        """
        self.step_count_in_current_episode += 1
        red, blue = (self._moves(actions[player]) for player in self.players_ids)
        self.red_pos, self.blue_pos = (self.red_pos + red) % self.grid_size, (self.blue_pos + blue) % self.grid_size
        rewards, picked = self._rewards()
        taken = picked[..., None]
        self.red_coin = np.where(picked, 1 - self.red_coin, self.red_coin)
        self.coin_pos = np.where(taken, self._free_field([self.red_pos, self.blue_pos]), self.coin_pos)
        over = self.step_count_in_current_episode >= self.max_steps
        infos: MultiAgentDict = {}
        if over and self.output_additional_info:
            infos = dict(zip(self.players_ids, self._get_episode_info(), strict=True))
        return (
            dict(zip(self.players_ids, self._observations(), strict=True)),
            dict(zip(self.players_ids, rewards, strict=True)),
            dict.fromkeys([*self.players_ids, "__all__"], over),
            infos,
        )

    def _moves(self, actions: Any) -> NDArray[Any]:
        return np.asarray(self.MOVES)[np.reshape(actions, self._games)]

    def _free_field(self, taken: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Returns a random place that is none of those `[*games, 2]`."""
        fields = self.np_random.random((*self._games, self.grid_size**2))
        for place in taken:
            index = place[..., :1] * self.grid_size + place[..., 1:]
            np.put_along_axis(fields, np.asarray(index, np.intp), -1.0, axis=-1)
        chosen = fields.argmax(-1)
        return np.stack([chosen // self.grid_size, chosen % self.grid_size], -1)

    def _rewards(self) -> tuple[list[Any], NDArray[Any]]:
        """Returns both players' rewards, and where a coin was picked."""
        red = (self.red_pos == self.coin_pos).all(-1)
        blue = (self.blue_pos == self.coin_pos).all(-1)
        if not self.both_players_can_pick_the_same_coin:
            first = self.np_random.integers(2, size=self._games).astype(bool)
            red, blue = red & (~blue | first), blue & (~red | ~first)
        of_red, of_blue = self.red_coin == 1, self.red_coin == 0
        for_red = red * (4.0 if self.asymmetric else 1.0) - 2.0 * (blue & of_red)
        for_blue = blue * 1.0 - 2.0 * (red & of_blue)
        if self.output_additional_info:
            self._accumulate_info(red, red & of_red, blue, blue & of_blue)
        return [self._told(for_red), self._told(for_blue)], red | blue

    def _observations(self) -> list[NDArray[Any]]:
        planes = np.zeros((*self._games, self.grid_size, self.grid_size, 4), np.uint8)
        index = np.indices(self._games, sparse=True)
        for place, plane in ((self.red_pos, 0), (self.blue_pos, 1), (self.coin_pos, np.where(self.red_coin, 2, 3))):
            planes[(*index, place[..., 0], place[..., 1], plane)] = 1
        return [self._told(planes), self._told(planes[..., [1, 0, 3, 2]])]

    def _told(self, made: Any) -> Any:
        return float(made) if np.ndim(made) == 0 else made

    def _init_info(self) -> None:
        self.red_pick: list[Any] = []
        self.red_pick_own: list[Any] = []
        self.blue_pick: list[Any] = []
        self.blue_pick_own: list[Any] = []

    def _reset_info(self) -> None:
        self._init_info()

    def _accumulate_info(self, red_pick_any: Any, red_pick_red: Any, blue_pick_any: Any, blue_pick_blue: Any) -> None:
        self.red_pick.append(int(np.sum(red_pick_any)))
        self.red_pick_own.append(int(np.sum(red_pick_red)))
        self.blue_pick.append(int(np.sum(blue_pick_any)))
        self.blue_pick_own.append(int(np.sum(blue_pick_blue)))

    def _get_episode_info(self) -> tuple[dict[str, float], dict[str, float]]:
        return self._picked(self.red_pick, self.red_pick_own), self._picked(self.blue_pick, self.blue_pick_own)

    def _picked(self, any_color: Sequence[int], own_color: Sequence[int]) -> dict[str, float]:
        """Returns coins a step and game, and the share of the player's own colour."""
        coins, steps = sum(any_color), len(any_color) * int(np.prod(self._games))
        speed = {"pick_speed": coins / steps} if steps else {}
        return {**speed, "pick_own_color": sum(own_color) / coins} if coins else speed

    def __str__(self) -> str:
        return self.NAME


class AsymCoinGame(CoinGame):
    """The coin game in which the red player gets 4 for a coin.

    Args:
        config: As that of CoinGame, without `asymmetric`.
    """

    NAME = "AsymCoinGame"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(_asymmetric(type(self), config))


class VectorizedCoinGame(CoinGame):
    """Several coin games at once: actions, observations and rewards have their number B in front.

    Args:
        config: As that of CoinGame, and `batch_size`, B (1), with which nothing is in front unless `force_vectorize`.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        self.batch_size = int(options.get("batch_size", 1))
        self.force_vectorized = bool(options.get("force_vectorize", False))
        self._games = (self.batch_size,)
        super().__init__(options)

    def _told(self, made: Any) -> Any:
        return made if self.batch_size > 1 or self.force_vectorized else super()._told(made[0])

    def _save_env(self) -> dict[str, Any]:
        return copy.deepcopy({name: getattr(self, name) for name in (*_STATE, "batch_size")})

    def _load_env(self, env_state: Mapping[str, Any]) -> None:
        vars(self).update(copy.deepcopy(dict(env_state)))


class AsymVectorizedCoinGame(VectorizedCoinGame):
    """Several coin games at once, in which the red player gets 4 for a coin.

    Args:
        config: As that of VectorizedCoinGame, without `asymmetric`.
    """

    NAME = "AsymCoinGame"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(_asymmetric(type(self), config))


def _asymmetric(cls: type, config: Mapping[str, Any] | None) -> dict[str, Any]:
    options = {"asymmetric": True, **(config or {})}
    if not options["asymmetric"]:
        raise EnvError(f"{cls.__name__}: got asymmetric {options['asymmetric']}; use CoinGame or VectorizedCoinGame")
    return options
