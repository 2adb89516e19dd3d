"""`rlframe play` with the players of a game: against a person at the terminal, and as text, GIF or MP4."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.cli.game_runs import make_player, make_trainer, read_run
from rlframe.utils.errors import ConfigError, EnvError
from rlframe.utils.video import INSTALL, Video

_SUFFIXES = {".txt": "ansi", ".gif": "rgb_array", ".mp4": "rgb_array"}
_FRAMES_PER_S = 2.0


def play_game(
    directory: Path, *, best: bool, seed: int | None, seat: int | None, replay: Path | None, trust: bool
) -> None:
    """Plays one game with the players of a run, and says how it ended.

    Args:
        directory: A run of `rlframe train decentralized`.
        best: Whether players are as they were at the best test; else as they were at the end.
        seed: Same seed, same game.
        seat: Number of the seat that a person takes; None for nobody.
        replay: File that shows the game: .txt, .gif or .mp4; None for none.
        trust: Whether code that the run names is imported.

    Raises:
        ConfigError: If there is no such seat, or the file has another ending.
        EnvError: If the game cannot be drawn so.
    """
    settings = read_run(directory, trust=trust)
    names, known = list(settings["seats"]), settings.get("players") or {}
    if seat is not None and not 0 <= seat < len(names):
        raise ConfigError(f"--seat: got {seat}, wanted 0 to {len(names) - 1}: the game has the seats {names}")
    if replay is not None and replay.suffix not in _SUFFIXES:
        raise ConfigError(f"--replay: got {replay}, wanted a file that ends in {', '.join(_SUFFIXES)}")
    players: dict[str, Any] = {}
    for name in map(str, names):
        saved = directory / "players" / name.replace("/", "_") / ("best" if best else "last")
        players[name] = make_player(str(saved) if saved.is_dir() else known.get(name, name), name, trust=trust)
    seats = [players[str(name)] for name in names]
    mode = "ansi" if seat is not None else _SUFFIXES[replay.suffix] if replay else None
    if replay is not None and mode != _SUFFIXES[replay.suffix]:
        raise ConfigError("--replay: a game with a person at the terminal is kept as text alone: give a .txt file")
    game = _Recorded(settings, _drawable(settings, mode, needed=replay is not None), seed)
    if seat is not None:
        seats[seat] = _person(game)
    result = game.trainer.test(seats, eval_metrics=True)
    if replay is not None:
        save(game.frames, replay)
    for agent, rates in result["seats"].items():
        ended = next(name for name in ("win", "draw", "loss") if rates[name]["rate"] == 1.0)
        sys.stdout.write(f"{agent}: {ended}, return {rates['mean_return']:+.2f}\n")
    sys.stdout.write(f"{result['num_collected_steps']} steps\n" + (f"replay: {replay}\n" if replay else ""))


def _drawable(settings: dict[str, Any], mode: str | None, *, needed: bool) -> str | None:
    """Returns how a game is drawn; None where it cannot be, and need not be: a person is shown observations then.

    Raises:
        EnvError: If a replay needs what the game cannot draw.
    """
    if mode is None:
        return None
    told = _trainer_of(settings, {}).test_env[0].env.metadata.get("render_modes") or []
    if needed and told and mode not in told:
        fitting = [suffix for suffix, kind in _SUFFIXES.items() if kind in told]
        raise EnvError(
            f"--replay: the game draws {', '.join(map(repr, told))}, not {mode!r}; wanted "
            + (f"a file that ends in {', '.join(fitting)}" if fitting else "another game: this one has no replays")
        )
    return mode if needed or mode in told else None


def _trainer_of(settings: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """Returns a trainer that tests by one game, with further arguments of the game."""
    one = {"num_train_envs": 1, "num_test_envs": 1, "episodes_per_test": 1}
    kept = {key: settings[key] for key in ("env", "seed", "seats") if key in settings}
    return make_trainer(kept | one | {"env_args": dict(settings.get("env_args") or {}) | arguments})


class _Recorded:
    """One game that is drawn when it begins and after each step.

    Args:
        settings: Those of the run.
        mode: How it is drawn, "ansi" or "rgb_array"; None where it is not.
        seed: Seed of the game; None for the run's.

    Attributes:
        trainer: Tests by that game alone.
        frames: Pictures or texts of the first game so far.
    """

    def __init__(self, settings: dict[str, Any], mode: str | None, seed: int | None) -> None:
        given = settings if seed is None else settings | {"seed": seed}
        self.trainer = _trainer_of(given, {} if mode is None else {"render_mode": mode})
        self.frames: list[Any] = []
        self._env, self._games = self.trainer.test_env[0].env, 0
        if mode is not None:
            self._env.reset = self._drawing(self._env.reset, begins=True)
            self._env.step = self._drawing(self._env.step, begins=False)

    def _drawing(self, method: Callable[..., Any], *, begins: bool) -> Callable[..., Any]:
        def drawn(*arguments: Any, **keywords: Any) -> Any:
            result = method(*arguments, **keywords)
            self._games += begins
            if self._games == 1:  # the next game begins at once
                self.frames.append(self._frame())
            return result

        return drawn

    def _frame(self) -> Any:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):  # some games print their text
            frame = self._env.render()
        frame = said.getvalue() if frame is None else frame
        if isinstance(frame, str) and frame.strip():
            return frame
        if isinstance(frame, np.ndarray) and frame.ndim == 3:
            return np.ascontiguousarray(frame[:, :, :3].astype(np.uint8))
        raise EnvError(f"the game drew {type(frame).__name__}, wanted a text or a picture [height, width, 3]")


def _person(game: _Recorded) -> Any:
    from rlframe.agents.decentralized import HumanPlayer

    return HumanPlayer(show=lambda obs: game.frames[-1] if game.frames else str(obs))


def save(frames: list[Any], path: Path) -> None:
    """Writes a replay: texts below each other, or pictures as GIF or MP4, two a second.

    Raises:
        ConfigError: If what writes such files is not installed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".txt":
        path.write_text("\n\n".join(frames) + "\n", encoding="utf-8")
    elif path.suffix == ".mp4":
        video = Video(path, frames[0], _FRAMES_PER_S, flag="--replay")
        for frame in frames:
            video.append(frame)
        video.close()
    else:
        try:
            from PIL import Image
        except ImportError as error:
            raise ConfigError(f"--replay of a GIF needs Pillow: {INSTALL}") from error
        first, *others = [Image.fromarray(frame) for frame in frames]
        first.save(path, save_all=True, append_images=others, duration=int(1000 / _FRAMES_PER_S), loop=0)


__all__ = ["play_game", "save"]
