"""Players and games as files and command lines name them: what `rlframe train decentralized` and `tournament` run."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.cli.config_files import read_config_file
from rlframe.utils import names
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.yaml_text import parse_yaml

if TYPE_CHECKING:
    from rlframe.agents.decentralized import DecentralizedTrainer, Player
    from rlframe.cli.flags import Flag

#: File of a run directory that has the settings of the game.
SETTINGS = "game.json"
_HOOKS = ("train_fn", "test_fn", "save_best_fn", "save_last_fn", "stop_fn", "reward_metric")
_OF_PLAYERS = ("players", "seats", "learning_mask", "exploration_mask", "plot")
_HELP = {
    "players": "{name: player}; a player is random, me, an algorithm, module:function, a directory of a saved player, "
    "{algorithm, config}, or a list of those, of whom one plays each game",
    "seats": "a name of `players`, or a player, for each seat; the same one in several is one player",
    "learning_mask": "1 for each seat whose player learns from what happens there [all who can]",
    "exploration_mask": "1 for each seat whose player explores there [all]",
    "plot": "file of the curve of tests, or false [plots/results.png in the run directory]",
}


def settings_text() -> str:
    """Returns the settings of a game as lines of help."""
    lines = [f"  --{key.replace('_', '-')}: {text}" for key, text in _HELP.items()]
    for key, value in _trainer_settings().items():
        about = "module:function" if key in _HOOKS else f"[{value}]"
        about += ", or a seat's agent" if key == "reward_metric" else ""
        lines.append(f"  --{key.replace('_', '-')}: {about}")
    return "Settings of a game, as flags or keys of --config FILE (DecentralizedTrainer says more):\n" + "\n".join(
        lines
    )


def _trainer_settings() -> dict[str, Any]:
    from rlframe.agents.decentralized import DecentralizedTrainer

    parameters = inspect.signature(DecentralizedTrainer).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "checkpoint_dir"}


def read_settings(path: str | Path | None, flags: Sequence[Flag], more: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a game: flags over the file.

    Raises:
        ConfigError: If a key is not known; names it.
    """
    made = {} if path is None else dict(read_config_file(path).config)
    for flag in flags:
        value = True if flag.value is None else parse_yaml(flag.value, where=f"--{flag.name}")
        made[flag.name.replace("-", "_")] = value
    made |= {key: value for key, value in more.items() if value is not None}
    known = [*_OF_PLAYERS, *_trainer_settings()]
    unknown = [key for key in made if key not in known]
    if unknown:
        raise ConfigError(f"got the settings {', '.join(unknown)} of a game, wanted some of {', '.join(known)}")
    if not isinstance(made.get("seats"), list):
        raise ConfigError(
            f"seats: got {made.get('seats')!r}, wanted a list with a player for each seat: --seats '[DQN, random]'"
        )
    return made


def check_trusted(settings: Mapping[str, Any], place: Path, *, trust: bool) -> None:
    """Raises a CheckpointError where a run names code that is not rlframe's, unless it is trusted."""
    texts = names.texts_in({key: value for key, value in settings.items() if key != "plot"})
    foreign = sorted(
        text for text in texts
        if (names.spells_path(text) or names.spells_file(text)) and not text.startswith("rlframe.")
    )  # fmt: skip
    if foreign and not trust:
        raise CheckpointError(
            f"{place} names code that is not rlframe's, and would run it: {', '.join(foreign)}; if you trust where it "
            "comes from, give --trust"
        )


def is_game_run(directory: Path | None) -> bool:
    """Returns whether a directory is one of `rlframe train decentralized`."""
    return directory is not None and (directory / SETTINGS).is_file()


def read_run(directory: Path, *, trust: bool) -> dict[str, Any]:
    """Returns the settings of a run, which names nothing that is not trusted."""
    settings = parse_yaml((directory / SETTINGS).read_text(encoding="utf-8"), json_only=True, where=str(directory))
    if not isinstance(settings, dict):
        raise CheckpointError(f"{directory / SETTINGS}: holds a {type(settings).__name__}, wanted settings of a game")
    check_trusted(settings, directory, trust=trust)
    return settings


def make_player(what: Any, name: str, *, trust: bool = True) -> Player:
    """Returns a player by what a file or a command line says of it, see `settings_text`.

    Raises:
        ConfigError: If there is no such player.
        CheckpointError: If a saved one names code that is not trusted.
    """
    from rlframe.agents.decentralized import HumanPlayer, League, LearningPlayer, RandomPlayer, ScriptedPlayer

    if isinstance(what, list):
        return League(
            [make_player(member, f"{name}, member {at}", trust=trust) for at, member in enumerate(what)], name
        )
    if isinstance(what, dict):
        unknown = set(what) - {"algorithm", "config", "checkpoint", "share_experience"}
        if unknown or "algorithm" not in what:
            raise ConfigError(
                f"player {name!r}: got {what}, wanted algorithm, and config, checkpoint and share_experience if need be"
            )
        return LearningPlayer(name=name, **what)
    text = str(what)
    if text in ("random", "me"):
        return RandomPlayer(name) if text == "random" else HumanPlayer("you" if name == "me" else name)
    if os.path.isdir(text):
        if is_game_run(Path(text)):
            saved = sorted(str(path) for path in Path(text).glob("players/*/*") if path.is_dir())
            raise ConfigError(
                f"player {name!r}: {text} is a run, wanted one of its players: {', '.join(saved) or 'it has none yet'}"
            )
        made = LearningPlayer.read(text, name=name)
        check_trusted({"config": made.config}, Path(text), trust=trust)
        return made
    if names.spells_path(text) or names.spells_file(text):
        kind = names.Kind("player", "a function of an observation, or a class with get_action", callable)
        return ScriptedPlayer(names.find(text, kind), name)
    if os.sep in text:
        raise ConfigError(f"player {name!r}: there is no saved player in {text}")
    return LearningPlayer(text, name=name)


def seat_players(settings: Mapping[str, Any], *, trust: bool = True) -> list[Player]:
    """Returns the player of each seat; the same name, or the same words, are one player."""
    known, made = settings.get("players") or {}, {}
    for seat in settings["seats"]:
        key = json.dumps(seat)
        if key not in made:
            named = isinstance(seat, str) and seat in known
            made[key] = make_player(known[seat] if named else seat, seat if isinstance(seat, str) else key, trust=trust)
    return [made[json.dumps(seat)] for seat in settings["seats"]]


def make_trainer(settings: Mapping[str, Any], **more: Any) -> DecentralizedTrainer:
    """Returns the trainer of a game; hooks are functions, or found by their paths."""
    from rlframe.agents.decentralized import DecentralizedTrainer

    given = {key: value for key, value in settings.items() if key not in _OF_PLAYERS} | more
    for key in _HOOKS:
        if isinstance(given.get(key), str) and (key != "reward_metric" or names.spells_path(given[key])):
            given[key] = names.find(given[key], names.Kind(key, "a function", callable))
    return DecentralizedTrainer(**given)


def train_game(
    settings: Mapping[str, Any], directory: Path | None, *, resume: bool = False, quiet: bool = False
) -> Path:
    """Trains players, and leaves `players/NAME/best` and `last`, a checkpoint, the curve and `result.json`.

    Returns:
        The run directory.
    """
    from rlframe.agents.decentralized import LearningPlayer, statistics
    from rlframe.agents.decentralized.players import members_of

    run = directory or Path("runs") / time.strftime("decentralized_%Y-%m-%d_%H-%M-%S")
    if not resume and is_game_run(run):
        raise ConfigError(f"--run-dir: there is a run in {run}; go on with it by --resume {run}, or name another one")
    seats = seat_players(settings)
    # Who is in a league, such as earlier selves, learns where a mask says so alone.
    mask = settings.get("learning_mask") or [int(isinstance(player, LearningPlayer)) for player in seats]
    learners = {
        member.name: member for player, learns in zip(seats, mask, strict=False) if learns == 1
        for member in members_of(player) if isinstance(member, LearningPlayer)
    }  # fmt: skip

    def keep(which: str) -> None:
        for name, player in learners.items():
            player.write(str(run / "players" / name.replace(os.sep, "_") / which))

    hook = settings.get("save_best_fn")
    best = None if hook is None else names.find(hook, names.Kind("save_best_fn", "a function", callable))

    def save_best(episodes: int) -> None:
        keep("best")
        if best is not None:
            best(episodes)

    trainer = make_trainer(settings, checkpoint_dir=str(run / "checkpoint"), save_best_fn=save_best)
    with _gone_without_a_checkpoint(run), _told(quiet):
        run.mkdir(parents=True, exist_ok=True)
        (run / SETTINGS).write_text(json.dumps({**settings, "seed": trainer.seed}, indent=2) + "\n", encoding="utf-8")
        plot = settings.get("plot", True)
        plot = str(run / "plots" / "results.png") if plot is True or plot is None else plot
        result = trainer.train(seats, mask, settings.get("exploration_mask"), plot, resume=resume)
    keep("last")
    (run / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    tested = trainer.test(seats, eval_metrics=True)
    sys.stdout.write(statistics.table(tested["seats"]) + f"\nrun: {run}\n")
    return run


@contextlib.contextmanager
def _gone_without_a_checkpoint(run: Path) -> Iterator[None]:
    """A context that leaves no directory of a run that it could not go on with: what is refused is no run."""
    fresh = not run.exists()
    try:
        yield
    except BaseException:
        if fresh and not (run / "checkpoint").exists():
            shutil.rmtree(run, ignore_errors=True)
        raise


@contextlib.contextmanager
def _told(quiet: bool) -> Iterator[None]:
    """A context in which tests of a run are told, a line for each, unless it is quiet."""
    logger, handler = logging.getLogger("rlframe.decentralized"), logging.StreamHandler(sys.stdout)
    before = logger.level
    if not quiet:
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


__all__ = ["is_game_run", "make_player", "make_trainer", "read_run", "read_settings", "settings_text", "train_game"]
