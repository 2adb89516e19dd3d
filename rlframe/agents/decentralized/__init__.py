"""Players of one game who each learn for themselves; each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.decentralized.decentralized import DecentralizedTrainer
    from rlframe.agents.decentralized.learning_player import LearningPlayer
    from rlframe.agents.decentralized.players import HumanPlayer, League, Player, RandomPlayer, ScriptedPlayer
    from rlframe.agents.decentralized.tournament import elo_ratings, round_robin

_NAMES = {
    "DecentralizedTrainer": "rlframe.agents.decentralized.decentralized",
    "HumanPlayer": "rlframe.agents.decentralized.players",
    "League": "rlframe.agents.decentralized.players",
    "LearningPlayer": "rlframe.agents.decentralized.learning_player",
    "Player": "rlframe.agents.decentralized.players",
    "RandomPlayer": "rlframe.agents.decentralized.players",
    "ScriptedPlayer": "rlframe.agents.decentralized.players",
    "elo_ratings": "rlframe.agents.decentralized.tournament",
    "round_robin": "rlframe.agents.decentralized.tournament",
}

__all__ = [
    "DecentralizedTrainer",
    "HumanPlayer",
    "League",
    "LearningPlayer",
    "Player",
    "RandomPlayer",
    "ScriptedPlayer",
    "elo_ratings",
    "round_robin",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
