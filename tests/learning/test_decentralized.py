"""Players of games learn to win them, by the settings in `examples`."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install 'rlframe[multiagent]'")

from rlframe.cli.config_files import read_config_file
from rlframe.cli.game_runs import make_trainer, seat_players

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.learning, pytest.mark.filterwarnings("ignore")]  # what PettingZoo says of its own future


def trained(name, seats, **options):
    """Returns players and trainer behind a training by a file of `examples`."""
    settings = dict(read_config_file(EXAMPLES / f"{name}.yaml").config) | {"seats": seats} | options
    players, trainer = seat_players(settings), make_trainer(settings)
    trainer.test(players)
    weights = [np.array(player.policy.get_flat_weights()) if player.learns else None for player in players]
    mask = settings.get("learning_mask") or [int(player.learns) for player in players]
    trainer.train(players, mask, settings.get("exploration_mask"), plot=False)
    return players, trainer, weights


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("seats", "games", "losses"), [(["learner", "random"], 4000, 0.03), (["random", "learner"], 10_000, 0.08)]
)
def test_dqn_seldom_loses_at_tictactoe_in_either_seat(seats, games, losses, seed):
    agent = f"player_{seats.index('learner') + 1}"
    players, trainer, _ = trained("tictactoe", seats, episodes_per_train=games, reward_metric=agent, seed=seed)
    assert trainer.test(players, eval_metrics=True)["seats"][agent]["loss"]["rate"] <= losses


@pytest.mark.parametrize("seed", range(3))
def test_ppo_beats_a_constant_seat_whose_weights_stay_bit_for_bit(seed):
    players, trainer, before = trained("rock_paper_scissors", ["learner", "constant"], seed=seed)
    rates = trainer.test(players, eval_metrics=True)["seats"]
    assert rates["player_0"]["mean_return"] >= 13.0
    after = [player.policy.get_flat_weights() for player in players]
    assert np.asarray(after[1]).tobytes() == before[1].tobytes()
    assert not np.array_equal(after[0], before[0])
