"""Boards of the mail-sorting game: cells and targets from two CSV files, checked, and the tables that moves look up."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.utils.errors import EnvError

#: What cells are, by the codes of the colour map.
COLOURS = {"w": "start", "gr": "floor", "r": "forbidden", "y": "delivery", "g": "pick-up", "b": "charging"}
#: Mails have the numbers 1 to 9; 0 is none.
NUM_MAILS = 9
#: Stay, forward, back, left, right: what a move adds to (row, column).
MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))

_COLOUR_ROWS = (
    "r gr g gr gr gr g gr b",
    "gr y gr gr y gr gr y gr",
    "g gr gr w gr w gr gr g",
    "gr gr w w gr w w gr gr",
    "gr y gr gr y gr gr y gr",
    "gr gr w w gr w w gr gr",
    "g gr gr w gr w gr gr g",
    "gr y gr gr y gr gr y gr",
    "b gr g gr gr gr g gr r",
)
_TARGET_CELLS = {(row, column): 3 * (row // 3) + column // 3 + 1 for row in (1, 4, 7) for column in (1, 4, 7)}


class Board:
    """A square board of N × N cells.

    Args:
        colours: N rows of N codes, see `COLOURS`.
        targets: N rows of N integers: the mail that a delivery cell takes, 0 elsewhere.

    Attributes:
        size: N.
        colours: Codes by cell, `[N²]`; cells are numbered row by row.
        targets: Mails by cell, int `[N²]`.
        starts: Cells where robots begin.
        mails: Mails that some cell takes.
        next_cell: Where a move leads, int `[N², 5]`; the cell itself where the board ends.
        allowed: Which moves the board allows, whoever stands there, bool `[10, N², 5]`, by mail, cell and move;
            chargers are left out.

    Raises:
        EnvError: If maps are no squares of one size, have unknown codes, a mail cannot be carried to its target, or
            nobody can leave a target.
    """

    def __init__(self, colours: Sequence[Sequence[str]], targets: Sequence[Sequence[Any]]) -> None:
        self.size = len(colours)
        self.colours = _checked_colours(colours)
        self.targets = _checked_targets(targets, self.colours, self.size)
        cells = range(self.size**2)
        self.starts = [cell for cell in cells if self.colours[cell] == "w"]
        self.mails = sorted({int(mail) for mail in self.targets if mail})
        self.next_cell = self._neighbours()
        self.allowed = self._allowed_moves()
        self._check_reachable()

    @classmethod
    def from_csv(cls, colour_map: str | Path, target_map: str | Path) -> Board:
        """Reads a board from two CSV files: codes of colours, and numbers of targets.

        Raises:
            EnvError: If a file cannot be read, or the board is faulty; names the file.
        """
        try:
            return cls(_rows_of(colour_map), _rows_of(target_map))
        except EnvError as error:
            raise EnvError(f"board of {colour_map} and {target_map}: {error}") from error

    @classmethod
    def default(cls) -> Board:
        """Returns the board of 9 × 9 cells that the game has when it is given none."""
        targets = [[_TARGET_CELLS.get((row, column), 0) for column in range(9)] for row in range(9)]
        return cls([row.split() for row in _COLOUR_ROWS], targets)

    def _neighbours(self) -> NDArray[np.int64]:
        size = self.size
        made = np.empty((size**2, len(MOVES)), np.int64)
        for cell in range(size**2):
            for move, (down, right) in enumerate(MOVES):
                row, column = cell // size + down, cell % size + right
                made[cell, move] = row * size + column if 0 <= row < size and 0 <= column < size else cell
        return made

    def _allowed_moves(self) -> NDArray[np.bool_]:
        cells = np.arange(self.size**2)
        enter = np.zeros((NUM_MAILS + 1, len(cells)), bool)
        for mail in range(NUM_MAILS + 1):
            enter[mail] = [self._may_enter(int(cell), mail) for cell in cells]
        allowed: NDArray[np.bool_] = enter[:, self.next_cell] & (self.next_cell != cells[:, None])
        allowed[:, :, 0] = True
        return allowed

    def _may_enter(self, cell: int, mail: int) -> bool:
        colour = self.colours[cell]
        if colour in ("r", "b"):  # chargers ask for the battery, too: the game knows that
            return False
        if colour == "y":
            return mail > 0 and int(self.targets[cell]) == mail
        if colour == "g":
            return mail == 0
        # Between two cells that are closed a robot would stand in others' way: only who delivers there may come.
        around = [other for other in self.next_cell[cell, 1:] if other != cell and self.colours[other] in ("y", "r")]
        return len(around) < 2 or (mail > 0 and any(int(self.targets[other]) == mail for other in around))

    def reachable(self, start: int, mail: int) -> set[int]:
        """Returns the cells that a robot with a mail (0 for none) can come to from a cell on an empty board."""
        seen, waiting = {start}, deque([start])
        while waiting:
            cell = waiting.popleft()
            for move in np.flatnonzero(self.allowed[mail, cell]):
                other = int(self.next_cell[cell, move])
                if other not in seen:
                    seen.add(other)
                    if self.colours[other] != "g" and self.colours[other] != "y":  # there the mail changes
                        waiting.append(other)
        return seen

    def _check_reachable(self) -> None:
        greens = [cell for cell, colour in enumerate(self.colours) if colour == "g"]
        if not self.starts or not greens or not self.mails:
            raise EnvError(
                f"got {len(self.starts)} start cells (w), {len(greens)} pick-up cells (g) and targets {self.mails}; "
                "wanted at least one of each"
            )
        used = {cell for start in self.starts for cell in self.reachable(start, 0) if self.colours[cell] == "g"}
        if not used:
            raise EnvError("no pick-up cell can be reached from a start cell")
        for green in sorted(used):
            for mail in self.mails:
                found = [cell for cell in self.reachable(green, mail) if self.targets[cell] == mail]
                for cell in found:
                    self._check_way_out(cell)
                if not found:
                    raise EnvError(
                        f"the target of mail {mail} cannot be reached from the pick-up cell in row "
                        f"{green // self.size}, column {green % self.size}"
                    )

    def _check_way_out(self, cell: int) -> None:
        if not any(self.colours[other] == "g" for other in self.reachable(cell, 0)):
            raise EnvError(
                f"no pick-up cell can be reached from the delivery cell in row {cell // self.size}, column "
                f"{cell % self.size}, by a robot that delivered there; a cell between two that are delivery cells or "
                "forbidden is closed to robots without a mail for them"
            )


def _rows_of(path: str | Path) -> list[list[str]]:
    try:
        with open(path, newline="", encoding="utf-8") as handle:
            return [[field.strip() for field in row] for row in csv.reader(handle) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise EnvError(f"cannot read {path}: {error}") from error


def _check_square(rows: Sequence[Sequence[Any]], what: str, size: int) -> None:
    for number, row in enumerate(rows):
        if len(row) != size:
            raise EnvError(f"the {what} has {len(row)} fields in row {number}, wanted {size}: boards are squares")
    if len(rows) != size or size < 2:
        raise EnvError(f"the {what} has {len(rows)} rows, wanted {max(size, 2)}, as many as the other map")


def _checked_colours(colours: Sequence[Sequence[str]]) -> list[str]:
    _check_square(colours, "colour map", len(colours))
    for number, row in enumerate(colours):
        for column, code in enumerate(row):
            if code not in COLOURS:
                raise EnvError(
                    f"the colour map has {code!r} in row {number}, column {column}; wanted one of {', '.join(COLOURS)}"
                )
    return [code for row in colours for code in row]


def _checked_targets(targets: Sequence[Sequence[Any]], colours: list[str], size: int) -> NDArray[np.int64]:
    _check_square(targets, "target map", size)
    made = np.zeros(size**2, np.int64)
    for cell, (given, colour) in enumerate(zip([value for row in targets for value in row], colours, strict=True)):
        where = f"in row {cell // size}, column {cell % size}"
        try:
            made[cell] = int(given)
        except ValueError as error:
            raise EnvError(f"the target map has {given!r} {where}; wanted an integer") from error
        if not 0 <= made[cell] <= NUM_MAILS or (made[cell] > 0) != (colour == "y"):
            wanted = f"1 to {NUM_MAILS} on a delivery cell" if colour == "y" else f"0 on a {COLOURS[colour]} cell"
            raise EnvError(f"the target map has {made[cell]} {where}; wanted {wanted}")
    return made
