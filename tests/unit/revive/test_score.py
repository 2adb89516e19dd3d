"""What rollouts and logs are worth, by numbers worked out by hand and by sums over rows."""

import numpy as np
import pytest

from rlframe.revive.data import GraphData
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.score import logged_score, score_per_step

GRAPH = {
    "metadata": {
        "graph": {"push": ["place"], "next_place": ["place", "push"], "done": ["next_place"]},
        "columns": [
            {"x": {"dim": "place", "type": "continuous"}},
            {"p": {"dim": "push", "type": "continuous"}},
            {"done": {"dim": "done", "type": "category", "values": [0, 1]}},
        ],
    }
}


class Reward:
    """The place itself."""

    def __call__(self, arrays, place=None):
        return arrays["place"][..., 0]

    def check(self, arrays):
        assert self(arrays).shape == arrays["place"].shape[:-1]


def logged(ends, ended):
    rows, graph = ends[-1], DecisionGraph.from_dict(GRAPH)
    place, done = np.arange(rows, dtype=np.float32)[:, None], np.zeros((rows, 1), np.float32)
    done[np.array(ends)[ended] - 1] = 1
    arrays = {"place": place, "next_place": place + 1, "push": np.zeros_like(place), "done": done, "index": ends}
    return GraphData.from_arrays(arrays, graph)


def test_rewards_that_an_end_leaves_out_are_none_and_those_behind_the_log_are_like_the_others():
    sums, steps = np.array([10.0, 4.0, 4.0]), np.array([10, 4, 4])
    scores = score_per_step(sums, steps, np.array([False, True, False]), horizon=10, gamma=1.0)
    assert scores.tolist() == [1.0, 0.4, 1.0]
    discounted = score_per_step(np.array([1.5, 1.5]), np.array([2, 2]), np.array([True, False]), 4, 0.5)
    assert discounted.tolist() == [1.5 / 4, 1.875 / 4]  # 1 + ½ of rewards of 1; 1 + ½ + ¼ + ⅛ if it had gone on


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_log_scores_what_a_rollout_from_each_row_would_that_did_the_same(gamma):
    data, horizon = logged([6, 9, 20], [0, 2]), 7
    wanted = []
    for part, ended in zip(data.trajectories, (True, False, True), strict=True):
        for row in range(part.start, part.stop):
            rewards = Reward()(data.arrays)[row : min(row + horizon, part.stop)]
            discounts = gamma ** np.arange(horizon)
            lived = len(rewards)
            if ended and row + lived == part.stop:
                lived = horizon
            score = (discounts[: len(rewards)] * rewards).sum() / discounts[:lived].sum()
            wanted.append(score * discounts.mean())
    assert logged_score(data, Reward(), horizon, gamma) == pytest.approx(np.mean(wanted))


def test_log_of_a_process_that_does_not_end_scores_its_mean_reward():
    data = logged([6, 9], [])
    assert logged_score(data, Reward(), 4, 1.0) == pytest.approx(4.0)
