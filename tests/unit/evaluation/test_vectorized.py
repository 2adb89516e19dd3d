"""Sampling from an environment's own vectorised version: no throw-away rows, true episodes, clear refusals."""

import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.env.registry import resolve_env
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError
from tests.contract.test_policies import config_of

SMALL = {"min_iter_time_s": 0, "model": {"fcnet_hiddens": [16]}, "log_sys_usage": False, "seed": 3}


def make_worker(name="PPO", **overrides):
    from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy
    from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy

    config = {
        **config_of(name),
        "env": "CartPole-v1",
        "vectorized_env": True,
        "num_envs_per_worker": 4,
        "rollout_fragment_length": 50,
        "num_workers": 0,
        **overrides,
    }
    worker = RolloutWorker(env_creator=resolve_env(config["env"])[1], policy_config=config)
    worker.add_policies(PolicySpec(policy_class={"PPO": PPOTorchPolicy, "DQN": DQNTorchPolicy}[name]))
    return worker


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_rows_are_steps_of_ours_and_follow_each_other(name):
    worker = make_worker(name)
    batches = [worker.sample() for _ in range(5)]
    for batch in batches:
        # CartPole pays 1 for every step; the step that only resets pays 0.
        assert (batch["rewards"] == 1).all()
        assert (batch["eps_id"] >= 0).all()
        follows = batch["eps_id"][1:] == batch["eps_id"][:-1]
        assert (batch["t"][1:][follows] == batch["t"][:-1][follows] + 1).all()
        np.testing.assert_array_equal(batch["new_obs"][:-1][follows], batch["obs"][1:][follows])
        assert np.abs(batch["obs"][batch["t"] == 0]).max() <= 0.05
        ends = batch["terminateds"] | batch["truncateds"]
        # The episode's last observation is the one that ended it, not the next one's first.
        assert (np.abs(batch["new_obs"][ends]) > 0.05).any(axis=1).all()
    # Replay takes rows as they come; a plan that waits for 200 of them gets these in one round.
    assert all(batch.count < 200 if name == "DQN" else batch.count >= 200 for batch in batches)
    episodes = worker.get_metrics()
    starts = sum(int((batch["t"] == 0).sum()) for batch in batches)
    assert 0 <= starts - len(episodes) <= 4
    running = sum(batch.count for batch in batches) - sum(episode.episode_length for episode in episodes)
    assert running >= 0
    assert all(episode.episode_reward == episode.episode_length for episode in episodes)


@pytest.mark.parametrize("slots", [1, 3, 4])
def test_fragments_for_a_train_batch_lack_no_row(slots):
    worker = make_worker(num_envs_per_worker=slots)
    counts = [worker.sample().count for _ in range(5)]
    assert all(0 <= count - 50 * slots < slots for count in counts), counts


def test_it_is_closed_with_its_worker(monkeypatch):
    closed = []
    worker = make_worker()
    vector_env = worker.runner.vector_env
    monkeypatch.setattr(vector_env, "close", lambda: closed.append(vector_env))
    worker.stop()
    assert closed == [vector_env]


def test_one_round_is_enough_for_a_train_batch():
    config = {**SMALL, "vectorized_env": True, "num_envs_per_worker": 4, "num_workers": 0, "num_sgd_iter": 1}
    trainer = PPOTrainer({**config, "train_batch_size": 200, "sgd_minibatch_size": 50}, env="CartPole-v1")
    assert 200 <= trainer.train()["timesteps_total"] < 204


def test_actions_are_those_that_moved_the_cart():
    batch = make_worker().sample()
    # The force shows in the cart's velocity after the step, whatever else acts on it.
    pushed_right = batch["new_obs"][:, 1] > batch["obs"][:, 1]
    assert (pushed_right == (batch["actions"] == 1)).mean() > 0.95


def test_same_seed_same_rows():
    one, other, third = make_worker(), make_worker(), make_worker(seed=4)
    for _ in range(3):
        a, b = one.sample(), other.sample()
        for key in ("obs", "actions", "rewards", "advantages", "eps_id"):
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)
    assert not np.array_equal(third.sample()["obs"][:10], make_worker().sample()["obs"][:10])


@pytest.mark.parametrize(
    ("name", "columns"), [("PPO", ["advantages", "value_targets"]), ("DQN", ["rewards", "discounts"])]
)
def test_postprocessing_is_that_of_each_trajectory_alone(name, columns):
    overrides = {"n_step": 3} if name == "DQN" else {"lambda": 0.9}
    worker, pieces = make_worker(name, **overrides), make_worker(name, **overrides)
    # The same policy, made to take trajectories one by one.
    pieces.policy_map["default_policy"].postprocesses_many = False
    for _ in range(3):
        one, other = worker.sample(), pieces.sample()
        assert one.count == other.count
        for key in ("obs", "new_obs", "eps_id", *columns):
            np.testing.assert_allclose(one[key], other[key], rtol=1e-5, atol=1e-5, err_msg=key)


def test_filters_see_every_observation():
    worker = make_worker(observation_filter="MeanStdFilter")
    for _ in range(3):
        batch = worker.sample()
    assert np.isfinite(batch["obs"]).all()
    assert np.abs(batch["obs"].mean()) < 1.0
    assert worker.filters["default_policy"].get_state()


@pytest.mark.parametrize(("cls", "more"), [
    (PPOTrainer, {"num_workers": 0, "train_batch_size": 200, "sgd_minibatch_size": 50, "num_sgd_iter": 2}),
    (DQNTrainer, {"learning_starts": 50, "timesteps_per_iteration": 200, "hiddens": [16]}),
])  # fmt: skip
def test_trainers_take_it_and_say_what_resuming_loses(cls, more, tmp_path):
    config = {**SMALL, "vectorized_env": True, "num_envs_per_worker": 4, **more}
    trainer = cls(config, env="CartPole-v1")
    for _ in range(2):
        result = trainer.train()
    assert result["timesteps_total"] == result["info"]["num_steps_sampled"]
    assert result["episodes_total"] > 0
    path = trainer.save(str(tmp_path))
    again = cls(config, env="CartPole-v1")
    with pytest.warns(UserWarning, match="new episodes begin"):
        again.restore(path)
    again.train()
    assert trainer.evaluate()["evaluation"]["episodes_this_iter"] > 0


class Counter(DefaultCallbacks):
    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.custom_metrics["length"] = episode.length


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"env": "Acrobot-v1"}, "'Acrobot-v1' has no vectorised version"),
        ({"horizon": 10}, "cannot be had with horizon"),
        ({"batch_mode": "complete_episodes"}, "batch_mode='complete_episodes'"),
        ({"callbacks": Counter}, "cannot be had with callbacks of episodes"),
        ({"callbacks": Counter, "horizon": 5}, "callbacks of episodes, horizon; set vectorized_env=False"),
    ],
)
def test_what_needs_single_environments_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make_worker(**overrides)
