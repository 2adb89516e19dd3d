"""Curiosity, RND and RE3: by hand, against NumPy, in both frameworks; in batches, several policies, checkpoints."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.exploration import RE3, RND, Curiosity, make_exploration
from rlframe.exploration.random_encoder import kth_distances
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from tests.helpers.frameworks import FRAMEWORKS, TORCH_FIRST, needs_tf
from tests.unit.exploration.helpers import PENDULUM, rng

OBS, TWO = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), gym.spaces.Discrete(2)
SAMPLING = {"type": "StochasticSampling"}
LINEAR = {"fcnet_hiddens": []}
CURIOUS = {
    "type": "Curiosity", "feature_dim": 1, "feature_net_config": LINEAR, "inverse_net_hiddens": [],
    "forward_net_hiddens": [], "eta": 2.0, "sub_exploration": SAMPLING,
}  # fmt: skip


def make(config: dict[str, Any], framework: str = "torch", actions: Any = TWO, **policy_config: Any) -> Any:
    policy_config = {"framework": framework, "gamma": 0.5, **policy_config}
    made = make_exploration(config, actions, framework=framework, policy_config=policy_config, rng=rng(3))
    made.policy = SimpleNamespace(observation_space=OBS)
    return made


def transitions(count: int = 5, actions: Any = TWO) -> SampleBatch:
    drawn, generator = [], np.random.default_rng(0)
    actions.seed(0)
    drawn = np.stack([actions.sample() for _ in range(count)])
    obs = generator.normal(size=(count + 1, 2)).astype(np.float32)
    rewards = np.ones(count, np.float32)
    return SampleBatch({"obs": obs[:-1], "new_obs": obs[1:], "actions": drawn, "rewards": rewards})


def relu_net(weights: dict[str, Any], name: str, x: Any) -> Any:
    x = np.maximum(x @ weights[f"{name}.0.weight"].T + weights[f"{name}.0.bias"], 0)
    return x @ weights[f"{name}.1.weight"].T + weights[f"{name}.1.bias"]


# --- curiosity --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_curiosity_by_hand(framework: str) -> None:
    exploration = make(CURIOUS, framework)
    state = exploration.networks.get_state()
    state["weights"].update({
        "features.output.weight": np.array([[1, 1]], np.float32), "features.output.bias": np.zeros(1, np.float32),
        "prediction.0.weight": np.array([[2, 1, 0]], np.float32), "prediction.0.bias": np.array([0.5], np.float32),
    })  # fmt: skip
    exploration.networks.set_state(state)
    batch = SampleBatch({
        "obs": np.array([[1, 2]], np.float32), "new_obs": np.array([[3, 4]], np.float32),
        "actions": np.array([0]), "rewards": np.array([10], np.float32),
    })  # fmt: skip
    made = exploration.postprocess_trajectory(exploration.policy, batch)
    # Features 3 and 7; foretold 2 · 3 + 1 + 0.5 = 7.5; half of 0.5² is 0.125, times eta.
    np.testing.assert_allclose(made["rewards"], [10.25])
    assert made["rewards"].dtype == np.float32
    np.testing.assert_array_equal(batch["rewards"], [10])  # the one given is as it was
    # Adam's first step is as long as the learning rate, against the gradient: 0.2 · (7.5 − 7) · (3, 1, 0).
    moved = exploration.networks.get_state()["weights"]["prediction.0.weight"] - [[2, 1, 0]]
    np.testing.assert_allclose(moved, [[-1e-3, -1e-3, 0]], atol=1e-6)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("actions", [TWO, gym.spaces.MultiDiscrete([2, 3])])
def test_curiosity_against_numpy(framework: str, actions: Any) -> None:
    hidden = {"feature_dim": 3, "inverse_net_hiddens": [4], "forward_net_hiddens": [4], "eta": 1.0}
    exploration, batch = make({**CURIOUS, **hidden}, framework, actions), transitions(5, actions)
    weights = exploration.networks.get_state()["weights"]
    phi, next_phi = (batch[key] @ weights["features.output.weight"].T for key in ("obs", "new_obs"))
    taken = np.concatenate(
        [np.eye(n)[column] for n, column in zip([2, 3], batch["actions"].reshape(5, -1).T, strict=False)], axis=1
    )
    missed = 0.5 * np.square(relu_net(weights, "prediction", np.hstack([phi, taken])) - next_phi).sum(1)
    made = exploration.postprocess_trajectory(exploration.policy, batch)
    np.testing.assert_allclose(made["rewards"] - 1, missed, atol=1e-5)


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("kind", ["Curiosity", "RND"])
def test_what_comes_again_is_worth_less(kind: str, framework: str) -> None:
    config = {"type": kind, "sub_exploration": SAMPLING, "lr": 1e-2, "eta": 1.0}
    config["feature_net_config" if kind == "Curiosity" else "net_config"] = {"fcnet_hiddens": [8]}
    exploration, batch = make(config, framework), transitions()
    worth = [float(exploration.postprocess_trajectory(exploration.policy, batch)["rewards"].mean()) for _ in range(60)]
    assert worth[-1] - 1 < 0.5 * (worth[0] - 1)


@needs_tf
@pytest.mark.parametrize("kind", ["Curiosity", "RND", "RE3"])
def test_frameworks_agree_and_take_each_others_state(kind: str) -> None:
    ours, theirs = (make({"type": kind, "sub_exploration": SAMPLING}, framework) for framework in ("torch", "tf"))
    batch = transitions()
    ours.postprocess_trajectory(ours.policy, batch)
    theirs.set_state(copy.deepcopy(ours.get_state()))
    for _ in range(3):
        a, b = (made.postprocess_trajectory(made.policy, batch)["rewards"] for made in (ours, theirs))
        np.testing.assert_allclose(a, b, atol=1e-4)
    weights = theirs.get_state()["networks"]["weights"]
    for name, array in ours.get_state()["networks"]["weights"].items():
        np.testing.assert_allclose(array, weights[name], atol=1e-4, err_msg=name)


# --- RND, RE3 ---------------------------------------------------------------------------------------------------


def test_rnd_against_numpy() -> None:
    exploration, batch = make({"type": "RND", "net_config": LINEAR, "embed_dim": 3, "sub_exploration": SAMPLING}), None
    batch = transitions()
    weights = exploration.networks.get_state()["weights"]
    made = exploration.postprocess_trajectory(exploration.policy, batch)
    obs = batch["new_obs"].astype(np.float64)
    normal = np.clip((obs - obs.mean(0)) / (obs.std(0, ddof=1) + 1e-8), -5, 5)
    both = [normal @ weights[f"{name}.output.weight"].T for name in ("prediction", "target")]
    errors = np.square(both[0] - both[1]).mean(1)
    returns = np.array([sum(0.5**k * e for k, e in enumerate(errors[i:])) for i in range(5)])
    np.testing.assert_allclose(made["rewards"] - 1, errors / returns.std(ddof=1), rtol=1e-4)


@pytest.mark.parametrize(("k", "wanted"), [(1, [3, 3, 4]), (2, [7, 4, 7]), (9, [7, 4, 7])])
def test_kth_distances_by_hand(k: int, wanted: list[float]) -> None:
    line = np.array([[0.0], [3.0], [7.0]], np.float32)
    np.testing.assert_allclose(kth_distances(line, line, k), wanted, atol=1e-6)
    np.testing.assert_allclose(kth_distances(line[:1], line[:1], k), [0])


def test_re3_measures_distances_to_earlier_states_too() -> None:
    config = {"type": "RE3", "encoder_net_config": LINEAR, "k_nn": 1, "memory": 3, "sub_exploration": SAMPLING}
    exploration, batch = make(config), transitions(2)
    embeds = exploration.networks.compute("encoder", batch["obs"])
    apart = float(np.linalg.norm(embeds[0] - embeds[1]))
    made = exploration.postprocess_trajectory(exploration.policy, batch)
    np.testing.assert_allclose(made["rewards"] - 1, 0.2 * np.log1p(apart), rtol=1e-4)
    # The same two again: now each has itself for a neighbour, but the first of those before is forgotten.
    again = exploration.postprocess_trajectory(exploration.policy, batch)
    np.testing.assert_allclose(again["rewards"] - 1, [0.2 * np.log1p(apart), 0], atol=1e-4)


def test_re3_decays_by_iteration() -> None:
    config = {"type": "RE3", "beta_schedule": "linear_decay", "rho": 0.5, "sub_exploration": SAMPLING}
    exploration = make(config, train_batch_size=10)
    exploration.advance(25)
    assert exploration.current_beta() == pytest.approx(0.2 * 0.25)


# --- in a trainer -----------------------------------------------------------------------------------------------

KINDS = {
    "Curiosity": {**CURIOUS, "feature_dim": 4},
    "RND": {"type": "RND", "net_config": LINEAR, "embed_dim": 4, "sub_exploration": SAMPLING},
    "RE3": {"type": "RE3", "encoder_net_config": LINEAR, "embeds_dim": 4, "sub_exploration": SAMPLING},
}
SMALL = {
    "seed": 3, "num_workers": 0, "model": {"fcnet_hiddens": [8]}, "train_batch_size": 40, "sgd_minibatch_size": 20,
    "rollout_fragment_length": 20, "num_envs_per_worker": 2, "num_sgd_iter": 1, "min_iter_time_s": 0,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_goes_on_with_the_same_numbers(kind: str, tmp_path: Any) -> None:
    config = {**SMALL, "exploration_config": KINDS[kind]}
    trainer = PPOTrainer(config, env="CartPole-v1")
    trainer.train()
    path = trainer.save(str(tmp_path))
    again = PPOTrainer({**config, "seed": 4}, env="CartPole-v1")
    again.restore(path)
    for _ in range(2):
        a, b = trainer.train(), again.train()
    assert a["hist_stats"] == b["hist_stats"]
    for name, array in trainer.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, again.get_weights()["default_policy"][name], err_msg=name)


def test_rewards_reach_the_batch_and_not_the_report() -> None:
    trainer = PPOTrainer({**SMALL, "exploration_config": KINDS["Curiosity"]}, env="CartPole-v1")
    batch = trainer.workers.local_worker().sample()
    assert np.all(batch["rewards"] != 1.0)
    returns = [metric.episode_reward for metric in trainer.workers.local_worker().get_metrics()]
    assert returns
    assert all(value == int(value) for value in returns)  # one for each step


def test_dqn_sums_them_over_n_steps() -> None:
    config = {
        "seed": 3, "num_workers": 0, "n_step": 3, "gamma": 0.5, "rollout_fragment_length": 8,
        "exploration_config": {**KINDS["RE3"], "sub_exploration": {"type": "EpsilonGreedy"}},
    }  # fmt: skip
    batch = DQNTrainer(config, env="CartPole-v1").workers.local_worker().sample()
    assert np.all(batch["rewards"][:-3] > 1.75)  # 1 + 0.5 + 0.25, and what was added to each


def test_each_policy_has_its_own() -> None:
    policies = {"curious": PolicySpec(config={"exploration_config": KINDS["Curiosity"]}), "plain": PolicySpec()}
    mapping = {"policies": policies, "policy_mapping_fn": lambda agent_id, **_: "plain" if agent_id else "curious"}
    config = {**SMALL, "num_envs_per_worker": 1, "env_config": {"num_agents": 2}, "multiagent": mapping}
    batches = PPOTrainer(config, env=MultiAgentCartPole).workers.local_worker().sample().policy_batches
    assert np.all(batches["plain"]["rewards"] == 1.0)
    assert np.all(batches["curious"]["rewards"] != 1.0)


def test_evaluation_leaves_rewards_as_they_are() -> None:
    exploration, batch = make(CURIOUS, in_evaluation=True), transitions()
    assert exploration.postprocess_trajectory(exploration.policy, batch) is batch
    assert exploration.get_state()["networks"] is None


# --- what does not fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Curiosity, RND, RE3])
def test_an_exploration_of_actions_is_asked_for(kind: type) -> None:
    with pytest.raises(ConfigError, match=f"sub_exploration: got None, but {kind.__name__} chooses no actions itself"):
        make({"type": kind})


def test_curiosity_wants_choices() -> None:
    with pytest.raises(UnsupportedSpaceException, match=r"wanted a Discrete or MultiDiscrete one.*RND and RE3 do"):
        make(CURIOUS, actions=PENDULUM)
    assert make(KINDS["RND"], actions=PENDULUM).sub_exploration is not None


def test_other_frameworks_and_raw_observations_are_refused() -> None:
    with pytest.raises(ConfigError, match="has networks for 'torch' and 'tf'"):
        _ = make(KINDS["RND"], "jax").networks
    with pytest.raises(ConfigError, match="takes preprocessed observations"):
        _ = make(KINDS["RND"], _disable_preprocessor_api=True).networks


def test_callbacks_that_derive_from_rllibs_for_re3_leave_its_rewards_to_the_exploration(caplog):
    from rlframe.agents.callbacks import DefaultCallbacks, RE3UpdateCallbacks

    class Counts(DefaultCallbacks):
        def on_episode_end(self, *, episode, **kwargs):
            episode.custom_metrics["steps"] = episode.length

    class Both(RE3UpdateCallbacks, Counts):
        pass

    config = {"type": "RE3", "embeds_dim": 8, "k_nn": 2, "sub_exploration": SAMPLING}
    trainer = PPOTrainer(
        {
            "num_workers": 0,
            "train_batch_size": 60,
            "sgd_minibatch_size": 20,
            "num_sgd_iter": 1,
            "callbacks": Both,
            "exploration_config": config,
        },
        env="CartPole-v1",
    )
    assert trainer.train()["custom_metrics"]["steps_mean"] > 0
    assert not caplog.messages
    RE3UpdateCallbacks(k_nn=7)
    assert "got k_nn=7, without effect here; wanted them in exploration_config" in caplog.text
