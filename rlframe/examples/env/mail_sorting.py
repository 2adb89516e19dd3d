"""Robots that sort mail on a board, in turns: a game for PettingZoo's AEC interface.

Robots fetch mails at green cells and bring them to the yellow cells with the mails' numbers; the player whose robots
first deliver as many as required wins. Needs `pip install "rlframe[multiagent]"`; pygame is loaded for a window alone.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv

from rlframe.examples.env.mail_sorting_board import MOVES, NUM_MAILS, Board
from rlframe.examples.env.mail_sorting_pictures import draw, show, written
from rlframe.utils.errors import EnvError

#: Names of the actions, by number.
ACTIONS = ("stay", "forward", "back", "left", "right")
FULL_BATTERY = 10.0
_LOW_BATTERY = 2.0
#: At or below this a charger may be entered; at or above the other it may be left.
_HUNGRY, _FED = 4.0, 8.0
_MOST_STANDS = 5
_DELIVERY_REWARD, _PICK_UP_REWARD, _CHARGER_REWARD, _MOVE_REWARD = 5.0, 1.0, 1.0, -0.1


class MailSorting(AECEnv):  # type: ignore[misc]  # PettingZoo has no types
    """The mail-sorting game.

    An agent is a robot, `player_1_robot_1` and so on, by player, then by robot. It sees a dict: `observation`, its own
    features (x, y, mail, and battery where there are such, each from 0 to 1), then those of the others in their order;
    and `action_mask` of the five actions. A move earns 5 for a delivery, 1 for a pick-up, 1 for coming to a charger, 0
    while charging, and -0.1 otherwise; a forbidden action costs 0.1, and nothing moves.

    Args:
        num_players: Players.
        robots_per_player: Robots of each.
        required_mail: Deliveries of a player that win.
        with_battery: Whether robots have batteries, which moves drain and chargers fill.
        max_step: Moves of all robots together after which the game is cut off.
        random_moves: Whether a turn has 1 to 5 moves, drawn anew for each, instead of one.
        board: A `Board`; None for the one of 9 × 9 cells, or for that of the files.
        colour_map: CSV file of colours, see `Board.from_csv`.
        target_map: CSV file of targets.
        render_mode: "ansi" for text, "rgb_array" for a picture, "human" for a window; None for nothing.

    Attributes:
        winner: The player who has won, from 1; 0 for nobody.
        delivered: Deliveries by player.

    Raises:
        EnvError: If a number is out of range, or the board is faulty.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "mail_sorting_v0", "render_modes": ["ansi", "rgb_array", "human"], "render_fps": 8,
        "is_parallelizable": False,
    }  # fmt: skip

    def __init__(
        self,
        num_players: int = 2,
        robots_per_player: int = 1,
        required_mail: int = 5,
        with_battery: bool = False,
        max_step: int = 500,
        random_moves: bool = False,
        board: Board | None = None,
        colour_map: str | None = None,
        target_map: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        self.board = _board_of(board, colour_map, target_map)
        _check_numbers(self.board, num_players, robots_per_player, required_mail, max_step)
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise EnvError(f"render_mode: got {render_mode!r}, wanted one of {self.metadata['render_modes']} or None")
        self.render_mode = render_mode
        self.required_mail, self.max_step = int(required_mail), int(max_step)
        self.with_battery, self.random_moves = bool(with_battery), bool(random_moves)
        names = [
            f"player_{player + 1}_robot_{robot + 1}"
            for player in range(num_players)
            for robot in range(robots_per_player)
        ]
        self.possible_agents = names
        self.player_of = np.repeat(np.arange(num_players), robots_per_player)
        count = len(names)
        self._number = {name: number for number, name in enumerate(names)}
        # Row i: robot i first, then the others as they come.
        self._order = np.array([[i, *(j for j in range(count) if j != i)] for i in range(count)])
        parts = 4 if self.with_battery else 3
        space = spaces.Dict(
            {
                "action_mask": spaces.Box(0, 1, (len(MOVES),), np.int8),
                "observation": spaces.Box(0.0, 1.0, (count * parts,), np.float32),
            }
        )
        self.observation_spaces = dict.fromkeys(names, space)
        self.action_spaces = {name: spaces.Discrete(len(MOVES)) for name in names}
        self._features = np.zeros((count, parts), np.float32)
        self._rng = np.random.default_rng()
        self._window: Any = None
        self._next = self.board.next_cell.tolist()
        self.agents: list[str] = []

    # --- PettingZoo's interface -------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> Any:
        """Returns the space of an agent's observations; always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Returns the space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begins a game: robots on start cells drawn at random, a mail waiting on each pick-up cell."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        count, board = len(self.possible_agents), self.board
        self.agents = list(self.possible_agents)
        self.cells = self._rng.choice(board.starts, count, replace=False).astype(np.int64)
        self.mails = np.zeros(count, np.int64)
        self.batteries = np.full(count, FULL_BATTERY)
        self.stands = [0] * count
        self.occupied = np.zeros(board.size**2, bool)
        self.occupied[self.cells] = True
        self.waiting_mails = {cell: self._new_mail() for cell, colour in enumerate(board.colours) if colour == "g"}
        self.delivered = [0] * (int(self.player_of[-1]) + 1)
        self.steps = self.winner = 0
        for number in range(count):
            self._describe(number)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._turn = 0
        self._moves_left = self._moves_of_turn()
        self.agent_selection = self.agents[0]

    def observe(self, agent: str) -> dict[str, NDArray[Any]]:
        """Returns what an agent sees."""
        number = self._number[agent]
        return {"action_mask": self.mask(number), "observation": self._features[self._order[number]].ravel()}

    def step(self, action: Any) -> None:
        """Lets the agent whose turn it is move."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        rewards = self.rewards
        for name in rewards:
            rewards[name] = 0.0
        self._cumulative_rewards[agent] = 0.0
        number = self._number[agent]
        rewards[agent] = self._move(number, int(action))
        self._cumulative_rewards[agent] += rewards[agent]  # nobody else is ever paid for this move
        self.steps += 1
        if self.winner or self.steps >= self.max_step:
            ended = self.terminations if self.winner else self.truncations
            for name in self.agents:
                ended[name] = True
        self._moves_left -= 1
        if self._moves_left == 0:
            self._turn = (self._turn + 1) % len(self.agents)
            self._moves_left = self._moves_of_turn()
            self.agent_selection = self.agents[self._turn]
        if self.render_mode == "human":
            self.render()

    @property
    def winning_agents(self) -> list[str]:
        """Robots of the player who has won; none in a game that was cut off."""
        return [
            name for name, player in zip(self.possible_agents, self.player_of, strict=True) if player + 1 == self.winner
        ]

    def render(self) -> Any:
        """Shows the board: returns text or a picture, or draws into a window, as `render_mode` says."""
        if self.render_mode == "ansi":
            return written(self)
        if self.render_mode == "human":
            self._window = show(draw(self), self._window, self.metadata["render_fps"])
            return None
        return draw(self) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Closes the window, where there is one."""
        if self._window is not None:
            import pygame

            pygame.display.quit()
            self._window = None

    # --- rules ------------------------------------------------------------------------------------------------

    def mask(self, number: int) -> NDArray[np.int8]:
        """Returns the actions that a robot may take now, int8 `[5]`; at least one of them.

        Staying is always among them where nothing else is.
        """
        cell, board = int(self.cells[number]), self.board
        targets = board.next_cell[cell]
        made = board.allowed[self.mails[number], cell] & ~self.occupied[targets]
        on_charger = board.colours[cell] == "b"
        made[0] = on_charger or self.stands[number] < _MOST_STANDS
        if self.with_battery:
            self._mask_by_battery(number, cell, made)
        if not made.any():
            made[0] = True
        mask: NDArray[np.int8] = made.view(np.int8)
        return mask

    def _mask_by_battery(self, number: int, cell: int, mask: NDArray[np.bool_]) -> None:
        battery, colours = self.batteries[number], self.board.colours
        if battery <= 0.0 or (colours[cell] == "b" and battery < _FED):
            mask[1:] = False
        elif battery <= _HUNGRY:
            for move in range(1, len(MOVES)):
                other = self._next[cell][move]
                if other != cell and colours[other] == "b" and not self.occupied[other]:
                    mask[move] = True

    def _move(self, number: int, action: int) -> float:
        """Moves a robot; returns its reward."""
        if not 0 <= action < len(MOVES) or not self.mask(number)[action]:
            return _MOVE_REWARD
        self._charge_others(number)
        cell = int(self.cells[number])
        if action == 0:
            return self._stand(number, cell)
        self.stands[number] = 0
        reward = self._enter(number, cell, self._next[cell][action])
        if self.with_battery:
            drain = 0.1 if self.batteries[number] <= _LOW_BATTERY else 0.2
            self.batteries[number] = max(0.0, round(self.batteries[number] - drain, 3))
        self._describe(number)
        return reward

    def _stand(self, number: int, cell: int) -> float:
        if self.board.colours[cell] == "b" and self.with_battery:
            self._charge(number)
            return 0.0
        self.stands[number] += 1
        return _MOVE_REWARD

    def _enter(self, number: int, cell: int, to: int) -> float:
        """Puts a robot into a cell, with what happens there; returns its reward."""
        self.occupied[cell], self.occupied[to] = False, True
        self.cells[number] = to
        if cell in self.waiting_mails:
            self.waiting_mails[cell] = self._new_mail()
        colour = self.board.colours[to]
        if colour == "y":
            self.mails[number] = 0
            player = int(self.player_of[number])
            self.delivered[player] += 1
            if self.delivered[player] >= self.required_mail:
                self.winner = player + 1
            return _DELIVERY_REWARD
        if colour == "g":
            self.mails[number] = self.waiting_mails[to]
            return _PICK_UP_REWARD
        return _CHARGER_REWARD if colour == "b" else _MOVE_REWARD

    def _charge_others(self, mover: int) -> None:
        if self.with_battery:
            for number, cell in enumerate(self.cells.tolist()):
                if number != mover and self.board.colours[cell] == "b":
                    self._charge(number)

    def _charge(self, number: int) -> None:
        self.batteries[number] = min(FULL_BATTERY, self.batteries[number] + 1.0)
        self._describe(number)

    def _describe(self, number: int) -> None:
        """Writes a robot's features."""
        cell, last = int(self.cells[number]), self.board.size - 1
        features = [cell % self.board.size / last, cell // self.board.size / last, self.mails[number] / NUM_MAILS]
        if self.with_battery:
            features.append(self.batteries[number] / FULL_BATTERY)
        self._features[number] = features

    def _new_mail(self) -> int:
        return self.board.mails[int(self._rng.integers(len(self.board.mails)))]

    def _moves_of_turn(self) -> int:
        return int(self._rng.integers(1, 6)) if self.random_moves else 1


def _board_of(board: Board | None, colour_map: str | None, target_map: str | None) -> Board:
    if (colour_map is None) != (target_map is None):
        raise EnvError("a board is made of two files: give both colour_map and target_map, or neither")
    if colour_map is not None and target_map is not None:
        return Board.from_csv(colour_map, target_map)
    return Board.default() if board is None else board


def _check_numbers(board: Board, players: int, robots: int, mails: int, steps: int) -> None:
    given = {"num_players": players, "robots_per_player": robots, "required_mail": mails, "max_step": steps}
    for name, value in given.items():
        if int(value) < 1:
            raise EnvError(f"{name}: got {value}, wanted at least 1")
    if players * robots > len(board.starts):
        raise EnvError(f"got {players} players with {robots} robots each, wanted at most {len(board.starts)} robots: "
                       "the board has no more start cells (w)")  # fmt: skip


def env(**kwargs: Any) -> MailSorting:
    """Returns the game; takes what `MailSorting` does."""
    return MailSorting(**kwargs)


__all__ = ["ACTIONS", "Board", "MailSorting", "env"]
