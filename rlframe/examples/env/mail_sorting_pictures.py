"""The mail-sorting game as text, as a picture, and in a window."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.examples.env.mail_sorting_board import Board

_CELL_PX = 40
_RGB = {"w": (250, 250, 250), "gr": (200, 200, 200), "r": (200, 60, 60), "y": (240, 210, 70), "g": (90, 180, 90),
        "b": (80, 130, 220)}  # fmt: skip
_ROBOTS = ((150, 30, 160), (20, 120, 130), (220, 110, 20), (60, 60, 60), (120, 70, 20), (230, 100, 160))
#: Digits of 3 × 5 dots, each row a number of three bits.
_DIGITS = {
    1: (2, 6, 2, 2, 7), 2: (7, 1, 7, 4, 7), 3: (7, 1, 7, 1, 7), 4: (5, 5, 7, 1, 1), 5: (7, 4, 7, 1, 7),
    6: (7, 4, 7, 5, 7), 7: (7, 1, 1, 1, 1), 8: (7, 5, 7, 5, 7), 9: (7, 5, 7, 1, 7),
}  # fmt: skip


def written(game: Any) -> str:
    """Returns the board as text: robots as letters with their mails, targets as numbers, cells by their codes."""
    board: Board = game.board
    shown = [str(board.targets[cell]) if colour == "y" else colour for cell, colour in enumerate(board.colours)]
    shown = ["." if text == "gr" else text for text in shown]
    for number, cell in enumerate(game.cells.tolist()):
        mail = int(game.mails[number])
        shown[cell] = f"{chr(ord('A') + number)}{mail or ''}"
    rows = [shown[start : start + board.size] for start in range(0, board.size**2, board.size)]
    score = ", ".join(f"player {player + 1}: {count}" for player, count in enumerate(game.delivered))
    lines = ["".join(f"{text:>3}" for text in row) for row in rows]
    return "\n".join([*lines, f"{score} of {game.required_mail} mails, step {game.steps}"])


def draw(game: Any) -> NDArray[np.uint8]:
    """Returns the board as a picture, uint8 `[40·N, 40·N, 3]`."""
    board: Board = game.board
    picture = np.zeros((board.size * _CELL_PX, board.size * _CELL_PX, 3), np.uint8)
    for cell, colour in enumerate(board.colours):
        _box(picture, board, cell, 1, _RGB[colour])
        _digit(picture, board, cell, int(board.targets[cell]), (90, 70, 0))
    for number, cell in enumerate(game.cells.tolist()):
        _box(picture, board, cell, 7, _ROBOTS[int(game.player_of[number]) % len(_ROBOTS)])
        _digit(picture, board, cell, int(game.mails[number]), (255, 255, 255))
    return picture


def _box(picture: NDArray[np.uint8], board: Board, cell: int, edge: int, colour: tuple[int, int, int]) -> None:
    top, left = cell // board.size * _CELL_PX, cell % board.size * _CELL_PX
    picture[top + edge : top + _CELL_PX - edge, left + edge : left + _CELL_PX - edge] = colour


def _digit(picture: NDArray[np.uint8], board: Board, cell: int, digit: int, colour: tuple[int, int, int]) -> None:
    if digit == 0:
        return
    dots = np.array([[row >> bit & 1 for bit in (2, 1, 0)] for row in _DIGITS[digit]], bool)
    mask = np.kron(dots, np.ones((4, 4), bool))
    top, left = cell // board.size * _CELL_PX + 10, cell % board.size * _CELL_PX + 14
    picture[top : top + 20, left : left + 12][mask] = colour


def show(picture: NDArray[np.uint8], window: Any, fps: int) -> Any:
    """Draws a picture into pygame's window, which is opened at first; returns it."""
    import pygame

    size = (picture.shape[1], picture.shape[0])
    if window is None:
        pygame.display.init()
        window = pygame.display.set_mode(size)
        pygame.display.set_caption("Mail sorting")
    pygame.event.pump()
    window.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
    pygame.display.flip()
    pygame.time.delay(1000 // fps)
    return window


__all__ = ["draw", "show", "written"]
