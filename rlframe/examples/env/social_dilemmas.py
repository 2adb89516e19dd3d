"""Games of two players and two (or three) actions, played again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete

from rlframe.env.multi_agent_env import MultiAgentDict, MultiAgentEnv
from rlframe.examples.env.episode_infos import (
    InfoAccumulationInterface,
    NPlayersNDiscreteActionsInfoMixin,
    TwoPlayersTwoActionsInfoMixin,
)
from rlframe.utils.errors import EnvError


class MatrixSequentialSocialDilemma(InfoAccumulationInterface, MultiAgentEnv):
    """Both players see what both did last; payoffs are by both actions. Derive with a `PAYOUT_MATRIX`.

    A player's observation is its own action times the number of actions, plus the other's; one more at the start.

    Args:
        config: `players_ids` (player_row, player_col), `max_steps` of an episode (20), `output_additional_info` (True):
            the last step's infos are the shares of an episode's steps by what both did, `{"CC": 0.5, "CD": ...}` with
            two actions (C is the first), as `TwoPlayersTwoActionsInfoMixin` in front of this class tells it, else
            `{"0_2": 0.5, ...}`.
    """

    #: Payoffs `[own action, other's action, player]`.
    PAYOUT_MATRIX: ClassVar[Any]
    NUM_AGENTS = 2
    NUM_ACTIONS: ClassVar[int] = 2
    NUM_STATES: ClassVar[int] = 5
    ACTION_SPACE: ClassVar[Any] = Discrete(2)
    OBSERVATION_SPACE: ClassVar[Any] = Discrete(5)
    NAME: ClassVar[str] = "matrix game"

    # A part in front of this class replaces them; one that this class derived from could not stand there.
    _init_info: Any = NPlayersNDiscreteActionsInfoMixin._init_info
    _reset_info: Any = NPlayersNDiscreteActionsInfoMixin._reset_info
    _accumulate_info: Any = NPlayersNDiscreteActionsInfoMixin._accumulate_info
    _get_episode_info: Any = NPlayersNDiscreteActionsInfoMixin._get_episode_info

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Derives the spaces from the payoffs."""
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "PAYOUT_MATRIX"):  # a class that is unpickled gets its attributes, these too, afterwards
            return
        cls.NUM_ACTIONS = len(cls.PAYOUT_MATRIX)
        cls.NUM_STATES = cls.NUM_ACTIONS**2 + 1
        cls.ACTION_SPACE, cls.OBSERVATION_SPACE = Discrete(cls.NUM_ACTIONS), Discrete(cls.NUM_STATES)

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        self.players_ids = list(options.get("players_ids", ["player_row", "player_col"]))
        self.player_row_id, self.player_col_id = self.players_ids
        self.possible_agents = self.players_ids
        self.max_steps = int(options.get("max_steps", 20))
        self.observation_space, self.action_space = self.OBSERVATION_SPACE, self.ACTION_SPACE
        self.output_additional_info = bool(options.get("output_additional_info", True))
        self.step_count_in_current_episode = 0
        self._init_info()
        self.np_random = np.random.default_rng()

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seeds `np_random`, for payoffs of your own that are drawn; those here are not."""
        self.np_random = np.random.default_rng(seed)
        return [seed]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode."""
        del seed, options
        self.step_count_in_current_episode = 0
        self._reset_info()
        return dict.fromkeys(self.players_ids, self.NUM_STATES - 1)

    def step(self, actions: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Pays both for both actions."""
        self.step_count_in_current_episode += 1
        row, col = int(actions[self.player_row_id]), int(actions[self.player_col_id])
        seen = (row * self.NUM_ACTIONS + col, col * self.NUM_ACTIONS + row)
        obs = dict(zip(self.players_ids, seen, strict=True))
        paid = dict(zip(self.players_ids, (float(p) for p in self.PAYOUT_MATRIX[row][col]), strict=True))
        self._accumulate_info(row, col)
        over = self.step_count_in_current_episode >= self.max_steps
        infos = {}
        if over and self.output_additional_info:
            infos = {player: self._get_episode_info() for player in self.players_ids}
        return obs, paid, dict.fromkeys([*self.players_ids, "__all__"], over), infos

    def __str__(self) -> str:
        return self.NAME


class IteratedMatchingPennies(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
    """One player wants the same, the other the opposite."""

    PAYOUT_MATRIX = np.array([[[+1, -1], [-1, +1]], [[-1, +1], [+1, -1]]])
    NAME = "IMP"


class IteratedPrisonersDilemma(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
    """To defect pays more, whatever the other does; both lose by it."""

    PAYOUT_MATRIX = np.array([[[-1, -1], [-3, +0]], [[+0, -3], [-2, -2]]])
    NAME = "IPD"


class IteratedAsymPrisonersDilemma(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
    """The prisoners' dilemma with more for the first player where both cooperate."""

    PAYOUT_MATRIX = np.array([[[+0, -1], [-3, +0]], [[+0, -3], [-2, -2]]])
    NAME = "IPD"


class IteratedStagHunt(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
    """To hunt together pays most, to hunt alone least."""

    PAYOUT_MATRIX = np.array([[[3, 3], [0, 2]], [[2, 0], [1, 1]]])
    NAME = "IteratedStagHunt"


class IteratedChicken(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
    """Who does not swerve wins, unless the other does not either."""

    PAYOUT_MATRIX = np.array([[[+0, +0], [-1.0, +1.0]], [[+1, -1], [-10, -10]]])
    NAME = "IteratedChicken"


class IteratedAsymChicken(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
    """Chicken with more for the first player where both swerve."""

    PAYOUT_MATRIX = np.array([[[+2.0, +0], [-1.0, +1.0]], [[+2.5, -1], [-10, -10]]])
    NAME = "AsymmetricIteratedChicken"


class IteratedBoS(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
    """Both want to meet, each elsewhere."""

    PAYOUT_MATRIX = np.array([[[+3.0, +2.0], [+0.0, +0.0]], [[+0.0, +0.0], [+2.0, +3.0]]])
    NAME = "IteratedBoS"


class IteratedAsymBoS(TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma):
    """Both want to meet, the first player in one place more than the second in the other."""

    PAYOUT_MATRIX = np.array([[[+4.0, +1.0], [+0.0, +0.0]], [[+0.0, +0.0], [+2.0, +2.0]]])
    NAME = "AsymmetricIteratedBoS"


def define_greed_fear_matrix_game(greed: float, fear: float) -> type[MatrixSequentialSocialDilemma]:
    """Returns a game in which to defect pays `greed` more than to cooperate with a cooperator, and `fear` more else.

    To cooperate together pays 3, to defect together 1.
    """
    matrix = np.array([[[3, 3], [1 - fear, 3 + greed]], [[3 + greed, 1 - fear], [1, 1]]])
    parts = {"PAYOUT_MATRIX": matrix, "NAME": f"IteratedGreedFear with greed={greed} and fear={fear}"}
    return type("GreedFearGame", (TwoPlayersTwoActionsInfoMixin, MatrixSequentialSocialDilemma), parts)


class IteratedBoSAndPD(MatrixSequentialSocialDilemma):
    """A battle of the sexes with a third action, to defect."""

    PAYOUT_MATRIX = np.array(
        [
            [[3.5, +1], [+0, +0], [-3, +2]],
            [[+0.0, +0], [+1, +3], [-3, +2]],
            [[+2.0, -3], [+2, -3], [-1, -1]],
        ]
    )
    NAME = "IteratedBoSAndPD"


class RockPaperScissors(MultiAgentEnv):
    """Rock, paper, scissors: 1 for who wins, -1 for who loses, 10 moves. Each player sees the other's last action.

    Args:
        config: `sheldon_cooper` for five actions: a lizard and Spock, too.

    Attributes:
        player1_score: What the first player has earned, in all episodes together.
        player2_score: What the second has.
    """

    ROCK, PAPER, SCISSORS, LIZARD, SPOCK = range(5)
    #: What an action wins over.
    _BEATS: ClassVar[Mapping[int, tuple[int, int]]] = {
        ROCK: (SCISSORS, LIZARD),
        PAPER: (ROCK, SPOCK),
        SCISSORS: (PAPER, LIZARD),
        LIZARD: (PAPER, SPOCK),
        SPOCK: (ROCK, SCISSORS),
    }
    _MOVES = 10

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.sheldon_cooper = bool((config or {}).get("sheldon_cooper"))
        self.observation_space = self.action_space = Discrete(5 if self.sheldon_cooper else 3)
        self.player1, self.player2 = self.possible_agents = ["player1", "player2"]
        self.last_move, self.num_moves = (self.ROCK, self.ROCK), 0
        self.player1_score, self.player2_score = 0.0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode, as if both had played rock."""
        del seed, options
        self.last_move, self.num_moves = (self.ROCK, self.ROCK), 0
        return self._obs()

    def step(self, action_dict: MultiAgentDict) -> tuple[MultiAgentDict, ...]:
        """Pays for both actions."""
        first, second = (int(action_dict[player]) for player in self.possible_agents)
        if not max(first, second) < self.action_space.n:
            raise EnvError(
                f"RockPaperScissors: got the actions {first} and {second}, wanted some of {self.action_space}"
            )
        self.last_move = (first, second)
        self.num_moves += 1
        paid = float(second in self._BEATS[first]) - float(first in self._BEATS[second])
        self.player1_score += paid
        self.player2_score -= paid
        over = self.num_moves >= self._MOVES
        return self._obs(), {self.player1: paid, self.player2: -paid}, {"__all__": over}, {}

    def _obs(self) -> MultiAgentDict:
        return {self.player1: self.last_move[1], self.player2: self.last_move[0]}
