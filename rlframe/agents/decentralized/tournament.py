"""Tournaments: every player against every other one, in both seats, and ratings of what came out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.agents.decentralized.decentralized import DecentralizedTrainer
from rlframe.agents.decentralized.players import Player
from rlframe.utils.errors import ConfigError

#: Points of a rating that make a win ten times as likely as a loss, and the mean of all ratings.
_SCALE, _MEAN = 400.0, 1000.0
#: Draws that everybody is taken to have played against everybody: whoever won all has a rating all the same.
_PRIOR_GAMES = 1.0
_ROUNDS = 2000


def elo_ratings(scores: Mapping[tuple[str, str], tuple[float, int]]) -> dict[str, float]:
    """Returns the ratings that make results most likely (Bradley and Terry 1952), on Elo's scale, with mean 1000.

    Unlike ratings that are updated game by game, they do not depend on the order of games.

    Args:
        scores: `{(player, opponent): (points of the player, games)}`, a win being 1 and a draw 1/2; each pair once.
    """
    names = list(dict.fromkeys(itertools.chain.from_iterable(scores)))
    number = {name: index for index, name in enumerate(names)}
    points = np.full((len(names), len(names)), _PRIOR_GAMES / 2)
    np.fill_diagonal(points, 0.0)
    for (first, second), (won, games) in scores.items():
        points[number[first], number[second]] += won
        points[number[second], number[first]] += games - won
    games = points + points.T
    strength = np.ones(len(names))
    for _ in range(_ROUNDS):
        following = points.sum(1) / (games / (strength[:, None] + strength)).sum(1)
        following /= np.exp(np.log(following).mean())
        done = np.allclose(following, strength, rtol=1e-10)
        strength = following
        if done:
            break
    return {name: _MEAN + _SCALE * math.log10(value) for name, value in zip(names, strength.tolist(), strict=True)}


def round_robin(trainer: DecentralizedTrainer, players: Sequence[Player]) -> dict[str, Any]:
    """Lets all players of a game of two seats play each other, each pair with either in the first seat.

    Args:
        trainer: Its game is played, `episodes_per_test` games for each pair and order.
        players: The players; their names differ.

    Returns:
        `ratings` by name, the best first; `games`, `{"first vs second": {"seats", "time_spans", "illegal_moves",
        "num_games"}}`, with `seats` as in `statistics.seat_rates` and the others as in `DecentralizedTrainer.test`.

    Raises:
        ConfigError: If there are fewer than two players, two have one name, or the game has not two seats.
    """
    names = [player.name for player in players]
    if trainer.num_agents != 2 or len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(
            f"tournament: got the players {names} for the seats {trainer.agent_names}; wanted two or more players of "
            "different names, and a game of two seats"
        )
    scores: dict[tuple[str, str], tuple[float, int]] = {}
    games: dict[str, Any] = {}
    for first, second in itertools.permutations(players, 2):
        played = trainer.test([first, second], eval_metrics=True)
        count = played["num_collected_episodes"]
        told = {name: played[name] for name in ("seats", "time_spans", "illegal_moves")}
        games[f"{first.name} vs {second.name}"] = told | {"num_games": count}
        seat = played["seats"][trainer.agent_names[0]]
        scores[first.name, second.name] = ((seat["win"]["rate"] + seat["draw"]["rate"] / 2) * count, count)
    ratings = sorted(elo_ratings(scores).items(), key=lambda pair: -pair[1])
    return {"ratings": dict(ratings), "games": games}


__all__ = ["elo_ratings", "round_robin"]
