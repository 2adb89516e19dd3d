"""`rlframe tournament`: every player of a game of two seats against every other one, and ratings of what came out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.cli.trust import Trust
from rlframe.utils.errors import ConfigError


@app.command()
def tournament(  # noqa: PLR0913, PLR0917  one parameter for each option
    players: Annotated[
        list[str],
        typer.Argument(metavar="PLAYER...", help="Directories of saved players, module:function, random, algorithms."),
    ],
    env: Annotated[str | None, typer.Option("--env", help="The game, module:name. [the mail-sorting game]")] = None,
    env_args: Annotated[str, typer.Option(help="Its arguments, as YAML or JSON.")] = "{}",
    games: Annotated[int, typer.Option(min=1, help="Games for each pair and order.")] = 100,
    seed: Annotated[int, typer.Option(help="Same seed, same games.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Play each player against each other one, in either seat; print Elo ratings, results by seat, lengths of games."""
    with reporting(debug):
        from rlframe.agents.decentralized import round_robin
        from rlframe.cli.game_runs import make_player, make_trainer
        from rlframe.utils.yaml_text import parse_yaml

        arguments = parse_yaml(env_args, where="--env-args")
        if not isinstance(arguments, dict):
            raise ConfigError(f"--env-args: got {env_args}, wanted a dict such as {{required_mail: 2}}")
        trainer = make_trainer(
            {"env": env, "env_args": arguments, "episodes_per_test": games, "num_test_envs": min(games, 16),
             "num_train_envs": 1, "seed": seed}
        )  # fmt: skip
        table = round_robin(trainer, [make_player(text, text, trust=trust) for text in players])
        sys.stdout.write(json.dumps(table, indent=2) + "\n" if as_json else _text(table))


def _text(table: Mapping[str, Any]) -> str:
    from rlframe.agents.decentralized import statistics

    width = max(map(len, table["ratings"]))
    lines = [f"{name:<{width}}  {rating:6.0f}" for name, rating in table["ratings"].items()]
    for pair, told in table["games"].items():
        span = "no game had a winner" if told["time_spans"] is None else f"{told['time_spans']:.1f} steps to a win"
        lines += ["", f"{pair}: {told['num_games']} games, {span}, {told['illegal_moves']} illegal moves"]
        lines += ["  " + line for line in statistics.table(told["seats"]).splitlines()]
    return "\n".join(lines) + "\n"
