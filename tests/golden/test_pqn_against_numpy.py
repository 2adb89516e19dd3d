"""PQN's targets and loss against the paper's recursion, row by row, in NumPy."""

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.numpy_policy import NumpyPolicy
from tests.contract.test_policies import ACTIONS, OBS_SPACE, make
from tests.helpers.frameworks import FRAMEWORKS

GAMMA, LAMBDA = 0.9, 0.7
#: Of each trajectory its length and how it ends; both slots of the worker have seven rows.
PIECES = [(3, "terminated"), (4, "cut"), (1, "terminated"), (2, "truncated"), (4, "cut")]


def fragments(policy):
    """Returns rows of two slots as the sampler gives them."""
    rng = np.random.default_rng(0)
    rows = sum(length for length, _ in PIECES)
    lasts = np.cumsum([length for length, _ in PIECES]) - 1
    obs = rng.normal(size=(rows, 4)).astype(np.float32)
    ended = {how: np.isin(np.arange(rows), [at for at, (_, kind) in zip(lasts, PIECES, strict=True) if kind == how])
             for how in ("terminated", "truncated")}  # fmt: skip
    new_obs = np.roll(obs, -1, axis=0)
    new_obs[lasts] = rng.normal(size=(len(lasts), 4))
    return SampleBatch(
        {
            "obs": obs,
            "new_obs": new_obs,
            "actions": rng.integers(3, size=rows),
            "rewards": rng.normal(size=rows).astype(np.float32),
            "terminateds": ended["terminated"],
            "truncateds": ended["truncated"],
            "dones": ended["terminated"] | ended["truncated"],
            "eps_id": np.repeat(np.arange(len(PIECES)), [length for length, _ in PIECES]),
            "env_id": np.repeat([0, 1], 7),
            "action_dist_inputs": policy.forward(obs, False)[0],
        }
    )


def slow_returns(policy, batch):
    """G = r + γ (λ G' + (1 − λ) max Q'), from a trajectory's last row backwards (Gallici et al. 2024, section 4)."""
    best_next = policy.forward(batch["new_obs"], False)[0].max(axis=1).astype(np.float64)
    targets, row = np.zeros(batch.count), batch.count
    for length, how in reversed(PIECES):
        following = None
        for _ in range(length):
            row -= 1
            if following is None:
                ahead = 0.0 if how == "terminated" else best_next[row]
            else:
                ahead = LAMBDA * following + (1 - LAMBDA) * best_next[row]
            targets[row] = following = float(batch["rewards"][row]) + GAMMA * ahead
    return targets


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_targets_are_lambda_returns_of_the_greedy_policy(framework):
    policy = make(framework, "PQN", {}, gamma=GAMMA, **{"lambda": LAMBDA})
    batch = fragments(policy)
    wanted = slow_returns(policy, batch)
    made = policy.postprocess_trajectory(batch.copy())
    np.testing.assert_allclose(made["value_targets"], wanted, rtol=1e-5, atol=1e-5)
    assert not {"new_obs", "action_dist_inputs"} & set(made)

    worker = NumpyPolicy(OBS_SPACE, ACTIONS, policy.config, recipe=policy.acting_recipe())
    worker.set_weights(policy.get_weights())
    again = worker.postprocess_trajectory(batch.copy())
    np.testing.assert_allclose(again["value_targets"], made["value_targets"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_loss_is_half_the_mean_squared_error_and_the_norm_is_in_the_network(framework):
    policy = make(framework, "PQN", {}, grad_clip=None)
    batch = policy.postprocess_trajectory(fragments(policy))
    q = slow_network(policy.get_weights(), batch["obs"].astype(np.float64))
    np.testing.assert_allclose(policy.forward(batch["obs"], False)[0], q, atol=1e-5)
    errors = q[np.arange(batch.count), batch["actions"]] - batch["value_targets"]
    gradients, info = policy.compute_gradients(batch)
    stats = info["learner_stats"]
    assert stats["loss"] == pytest.approx(0.5 * np.square(errors).mean(), rel=1e-4)
    assert stats["mean_td_error"] == pytest.approx(errors.mean(), rel=1e-4)
    gradient = gradients[list(policy.model.trainable_variables(as_dict=True)).index("q.output.bias")]
    wanted = [errors[batch["actions"] == action].sum() / batch.count for action in range(3)]
    np.testing.assert_allclose(gradient, wanted, atol=1e-5)


def slow_network(weights, x):
    """Dense layers, each normalised over its units, then rectified; the output is linear."""
    index = 0
    while f"q.hidden_{index}.weight" in weights:
        x = x @ weights[f"q.hidden_{index}.weight"].T + weights[f"q.hidden_{index}.bias"]
        x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        x = np.maximum(x * weights[f"q.hidden_{index}_norm.weight"] + weights[f"q.hidden_{index}_norm.bias"], 0)
        index += 1
    assert index > 0
    return x @ weights["q.output.weight"].T + weights["q.output.bias"]
