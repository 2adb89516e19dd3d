"""PG, A2C, PPO and PQN: plans, configs, resuming, and what a user does with them, in one process."""

import copy
import logging
import math

import gymnasium
import numpy as np
import pytest

from rlframe.agents.a3c import A2CTrainer, A3CTrainer
from rlframe.agents.dqn import PQNTrainer
from rlframe.agents.pg import PGTrainer, post_process_advantages
from rlframe.agents.ppo import DEFAULT_CONFIG, PPOTrainer
from rlframe.agents.ppo.ppo import UpdateKL, recompute_advantages, warn_about_bad_reward_scales
from rlframe.agents.ppo.ppo_policy import PPOTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.rllib1x.ppo import KLCoeffMixin
from rlframe.utils.errors import ConfigError
from rlframe.utils.metrics.learner_info import LearnerInfo
from tests.contract.test_policies import make as make_policy
from tests.contract.test_policies import make_batch
from tests.helpers.frameworks import FRAMEWORKS, TORCH_FIRST, cases

SMALL = {
    "seed": 5,
    "num_workers": 0,
    "min_iter_time_s": 0,
    "model": {"fcnet_hiddens": [16]},
    "train_batch_size": 80,
    "rollout_fragment_length": 20,
    "log_sys_usage": False,
}
MORE = {
    PGTrainer: {},
    A2CTrainer: {},
    PPOTrainer: {"sgd_minibatch_size": 32, "num_sgd_iter": 2, "num_envs_per_worker": 2},
    PQNTrainer: {"sgd_minibatch_size": 32, "num_sgd_iter": 2, "num_envs_per_worker": 2},
}
every_trainer = pytest.mark.parametrize("cls", list(MORE), ids=lambda cls: cls.__name__)
torch_first = pytest.mark.parametrize("framework", TORCH_FIRST)


def make(cls, env="CartPole-v1", **overrides):
    return cls({**copy.deepcopy(SMALL), **MORE.get(cls, {}), **overrides}, env=env)


@cases(["cls"], {cls.__name__: cls for cls in MORE}, in_tensorflow=["PPO"])
def test_restored_trainer_goes_on_bit_for_bit(cls, framework, tmp_path):
    one = make(cls, framework=framework, observation_filter="MeanStdFilter")
    for _ in range(2):
        one.train()
    path = one.save(str(tmp_path))
    two = make(cls, framework=framework, observation_filter="MeanStdFilter")
    two.restore(path)
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        assert a["info"]["learner"] == b["info"]["learner"]
    for name, array in one.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, two.get_weights()["default_policy"][name], err_msg=name)


@every_trainer
def test_one_iteration_is_one_train_batch(cls):
    trainer = make(cls)
    result = trainer.train()
    assert result["info"]["num_steps_sampled"] == result["info"]["num_steps_trained"] == 80
    assert trainer.train()["timesteps_total"] == 160


@torch_first
def test_stats_are_those_of_rllib(framework):
    stats = make(PPOTrainer, framework=framework).train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert list(stats) == [
        *("allreduce_latency", "cur_kl_coeff", "cur_lr", "total_loss", "policy_loss", "vf_loss", "vf_explained_var"),
        *("kl", "entropy", "entropy_coeff"),
    ]
    assert all(math.isfinite(value) for value in stats.values())


@torch_first
@pytest.mark.parametrize("cls", [PGTrainer, A2CTrainer, PPOTrainer], ids=lambda cls: cls.__name__)
def test_continuous_actions_reach_the_environment_within_bounds(cls, framework):
    trainer = make(cls, env="Pendulum-v1", framework=framework)
    trainer.train()
    env = trainer.workers.local_worker().env
    for seed in range(5):
        obs, _ = env.reset(seed=seed)
        assert env.action_space.contains(trainer.compute_single_action(obs))
        assert env.action_space.contains(trainer.compute_action(obs, explore=False))


def test_microbatches_give_the_step_of_the_whole_batch():
    whole, parts = make(A2CTrainer, grad_clip=None), make(A2CTrainer, microbatch_size=20, grad_clip=None)
    whole.train()
    parts.train()
    for name, array in whole.get_weights()["default_policy"].items():
        np.testing.assert_allclose(array, parts.get_weights()["default_policy"][name], atol=1e-5, err_msg=name)


# --- PPO's config ---------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_rllib():
    expected = {
        "lr": 5e-5, "train_batch_size": 4000, "sgd_minibatch_size": 128, "num_sgd_iter": 30, "shuffle_sequences": True,
        "use_critic": True, "use_gae": True, "lambda": 1.0, "kl_coeff": 0.2, "kl_target": 0.01, "vf_loss_coeff": 1.0,
        "entropy_coeff": 0.0, "clip_param": 0.3, "vf_clip_param": 10.0, "grad_clip": None, "num_workers": 2,
    }  # fmt: skip
    assert {key: DEFAULT_CONFIG[key] for key in expected} == expected
    assert DEFAULT_CONFIG["model"]["vf_share_layers"] is False


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sgd_minibatch_size": 100}, "sgd_minibatch_size=100 must be at most train_batch_size=80"),
        ({"use_critic": False}, "use_gae=True needs use_critic=True"),
        ({"use_gae": False}, "use_gae=False needs batch_mode='complete_episodes'"),
        ({"entropy_coeff": -1.0}, "entropy_coeff: got -1.0"),
        ({"clip_param": 0.0}, "clip_param: got 0.0"),
        ({"sgd_minibatchsize": 10}, "did you mean sgd_minibatch_size"),
    ],
)
def test_wrong_configs_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make(PPOTrainer, **overrides)


@pytest.mark.parametrize(("batch", "envs", "expected"), [(80, 2, 20), (96, 2, 48), (90, 4, 23), (4000, 1, 20)])
def test_fragments_are_fitted_to_the_train_batch(batch, envs, expected):
    trainer = make(PPOTrainer, train_batch_size=batch, num_envs_per_worker=envs)
    assert trainer.workers.local_worker().policy_config["rollout_fragment_length"] == expected
    assert trainer.config["rollout_fragment_length"] == 20, "what was asked for is not written over"


def test_returns_without_a_critic_need_whole_episodes():
    trainer = make(PPOTrainer, use_gae=False, use_critic=False, batch_mode="complete_episodes")
    assert math.isfinite(trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])


def test_large_returns_are_warned_of(caplog):
    config = {"vf_clip_param": 10.0}
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        warn_about_bad_reward_scales(config, {"episode_reward_mean": 1999.0})
        warn_about_bad_reward_scales(config, {"episode_reward_mean": math.nan})
        assert not caplog.records
        result = {"episode_reward_mean": -2001.0}
        assert warn_about_bad_reward_scales(config, result) is result
    assert "raise vf_clip_param" in caplog.text


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_networks_begin_as_the_config_says(framework):
    model = {"fcnet_hiddens": [8, 6], "fcnet_weights_initializer": "orthogonal", "free_log_std": True,
             "initial_log_std": -0.5, "vf_share_layers": False}  # fmt: skip
    weights = make_policy(
        framework, "PPO", {"model": model}, action_space=gymnasium.spaces.Box(-1, 1, (2,))
    ).get_weights()
    for name, gain in {"hidden_1": 2**0.5, "output": 0.01, "value_hidden_1": 2**0.5, "value": 1.0}.items():
        rows = weights[f"{name}.weight"]
        np.testing.assert_allclose(rows @ rows.T, gain**2 * np.eye(len(rows)), atol=1e-5, err_msg=name)
        assert not weights[f"{name}.bias"].any()
    np.testing.assert_array_equal(weights["free_log_std.log_std"], np.full(2, -0.5, np.float32))


def test_recomputed_advantages_are_those_of_the_values_as_they_are():
    trainer = make(PPOTrainer, num_envs_per_worker=2, train_batch_size=40, **{"lambda": 0.9})
    policy = trainer.get_policy()
    rows = trainer.workers.local_worker().sample()
    sampled = {name: rows[name].copy() for name in ("advantages", "vf_preds")}
    np.testing.assert_allclose(recompute_advantages(policy, rows)["vf_preds"], sampled["vf_preds"], atol=1e-6)
    policy.set_weights({name: array + 0.1 for name, array in policy.get_weights().items()})
    again = recompute_advantages(policy, rows)
    values, following, expected = policy.values(rows["obs"]), policy.values(rows["new_obs"]), np.zeros(rows.count)
    trace = 0.0
    for t in reversed(range(rows.count)):  # eq. 16 of Schulman et al. 2016, row by row
        last = t == rows.count - 1 or rows["eps_id"][t] != rows["eps_id"][t + 1]
        after = 0.0 if rows["terminateds"][t] else following[t]
        trace = rows["rewards"][t] + 0.99 * after - values[t] + (0.0 if last else 0.99 * 0.9 * trace)
        expected[t] = trace
    np.testing.assert_allclose(again["value_targets"], expected + values, rtol=1e-4)
    np.testing.assert_allclose(again["advantages"], (expected - expected.mean()) / expected.std(), atol=1e-3)
    np.testing.assert_array_equal(rows["advantages"], sampled["advantages"], "the batch itself stays")


def test_advantages_are_recomputed_before_each_pass_but_the_first():
    one, two = (make(PPOTrainer, recompute_advantages=flag) for flag in (False, True))
    stats = [trainer.train()["info"]["learner"]["default_policy"]["learner_stats"] for trainer in (one, two)]
    assert stats[0]["vf_loss"] != stats[1]["vf_loss"]
    one, two = (make(PPOTrainer, recompute_advantages=flag, num_sgd_iter=1) for flag in (False, True))
    assert one.train()["info"]["learner"] == two.train()["info"]["learner"]


def test_advantages_that_cannot_be_recomputed_are_refused():
    derived = PPOTrainer.with_updates(
        default_policy=PPOTorchPolicy.with_updates(name="Mine", postprocess_fn=compute_gae_for_sample_batch_twice)
    )
    with pytest.raises(ConfigError, match=r"recompute_advantages: got Mine, .* a postprocess_trajectory of its own"):
        make(derived, recompute_advantages=True, sgd_minibatch_size=32, num_sgd_iter=2).train()
    with pytest.raises(ConfigError, match="recompute_advantages=True needs a model without memory"):
        make(PPOTrainer, recompute_advantages=True, model={"use_lstm": True})


def compute_gae_for_sample_batch_twice(policy, batch, other_agent_batches=None, episode=None):
    return compute_gae_for_sample_batch(policy, compute_gae_for_sample_batch(policy, batch))


def test_kl_penalty_grows_and_shrinks_by_hand():
    mixin = KLCoeffMixin({"kl_coeff": 0.2, "kl_target": 0.01})
    assert mixin.update_kl(0.021) == pytest.approx(0.3)
    assert mixin.update_kl(0.015) == pytest.approx(0.3)
    assert mixin.update_kl(0.004) == pytest.approx(0.15)


@torch_first
def test_kl_coefficient_follows_the_divergence_and_is_saved(framework, tmp_path):
    trainer = make(PPOTrainer, framework=framework, kl_target=1e9)
    assert trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]["cur_kl_coeff"] == pytest.approx(0.2)
    stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["cur_kl_coeff"] == pytest.approx(0.1)
    path = trainer.save(str(tmp_path))
    again = make(PPOTrainer, framework=framework, kl_target=1e9)
    again.restore(path)
    assert again.get_policy().kl_coeff == pytest.approx(0.05)


@torch_first
def test_entropy_bonus_follows_its_schedule(framework):
    trainer = make(PPOTrainer, framework=framework, entropy_coeff=1.0, entropy_coeff_schedule=[[0, 1.0], [160, 0.0]])
    found = [trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]["entropy_coeff"] for _ in range(3)]
    assert found == [1.0, 0.5, 0.0]


def test_more_entropy_pays_more_for_it():
    free, paid = make(PPOTrainer, lr=5e-3), make(PPOTrainer, lr=5e-3, entropy_coeff=1.0)
    for _ in range(8):
        a, b = free.train(), paid.train()
    entropy = [result["info"]["learner"]["default_policy"]["learner_stats"]["entropy"] for result in (a, b)]
    assert entropy[0] < entropy[1]


def test_sampling_asynchronously_needs_workers():
    with pytest.raises(ConfigError, match="sample_async=True needs num_workers >= 1"):
        make(A3CTrainer)
    trainer = make(A3CTrainer, sample_async=False)
    assert trainer.train()["info"]["num_steps_sampled"] > 0


def test_returns_to_go_by_hand():
    class Policy:
        config = {"gamma": 0.5}  # noqa: RUF012

    batch = SampleBatch(
        {
            "rewards": np.array([1.0, 2.0, 4.0, 8.0], np.float32),
            "terminateds": np.array([False, True, False, False]),
            "dones": np.array([False, True, False, False]),
            "eps_id": np.array([0, 0, 1, 1]),
            "t": np.array([0, 1, 0, 1]),
        }
    )
    assert post_process_advantages(Policy(), batch)["advantages"].tolist() == [2.0, 2.0, 8.0, 8.0]


def test_a_loss_and_a_key_of_the_users_own():
    from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy, ppo_surrogate_loss

    def loss(policy, model, dist_class, train_batch):
        return policy.config["half"] * ppo_surrogate_loss(policy, model, dist_class, train_batch)

    trainer = PPOTrainer.with_updates(
        name="Half",
        default_config={**DEFAULT_CONFIG, "half": 0.5},
        default_policy=PPOTorchPolicy.with_updates(name="HalfPolicy", loss_fn=loss),
    )
    made = trainer({**copy.deepcopy(SMALL), "sgd_minibatch_size": 40, "num_sgd_iter": 1}, env="CartPole-v1")
    assert math.isfinite(made.train()["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])


def test_a_policy_of_the_other_framework_is_refused():
    from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy

    derived = PPOTrainer.with_updates(name="Torch", default_policy=PPOTorchPolicy)
    pytest.importorskip("tensorflow")
    with pytest.raises(ConfigError, match="the policy PPOTorchPolicy of Torch learns in 'torch'"):
        derived({**SMALL, "sgd_minibatch_size": 40, "framework": "tf"}, env="CartPole-v1")


@torch_first
def test_limits_may_be_infinite_and_minibatches_whole_batches(framework, tmp_path):
    asked = {"framework": framework, "vf_clip_param": math.inf, "grad_clip": math.inf, "sgd_minibatch_size": 0}
    trainer = make(PPOTrainer, **asked)
    stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert all(math.isfinite(value) for value in stats.values())
    again = make(PPOTrainer, **asked)
    again.restore(trainer.save(str(tmp_path)))
    assert {key: again.config[key] for key in asked} == asked


def test_update_kl_takes_what_train_ops_give_and_infos_alone():
    trainer = make(PPOTrainer)
    policy, infos = trainer.get_policy(), {"default_policy": {"learner_stats": {"kl": 1.0}}}
    update = UpdateKL(trainer.workers)
    for factor, item in ((1.5, (None, infos)), (2.25, infos)):
        assert update(item) is item
        assert policy.kl_coeff == pytest.approx(0.2 * factor)


def test_a_learner_that_tells_no_divergence_leaves_the_penalty_as_it_is():
    trainer = make(PPOTrainer)
    update, policy = UpdateKL(trainer.workers), trainer.get_policy()
    for told in ({"learner_stats": {}}, LearnerInfo(learner_stats={"kl": None}), LearnerInfo(model={}), {}):
        update({"default_policy": told})
    assert policy.kl_coeff == pytest.approx(0.2)


@torch_first
def test_a_divergence_without_weight_may_be_infinite(framework):
    policy = make_policy(framework, "PPO", {"kl_coeff": 0.0})
    batch = make_batch(32)
    batch["action_dist_inputs"] = np.full_like(batch["action_dist_inputs"], np.nan)
    stats = policy.learn_on_batch(batch)["learner_stats"]
    assert np.isfinite(stats["total_loss"])
    assert np.isnan(stats["kl"])


def test_a_divergence_counts_once_its_weight_was_set_by_hand():
    policy = make_policy("torch", "PPO", {"kl_coeff": 0.0, "lr": 0.0})
    policy.without_autograd = None
    plain = policy.learn_on_batch(make_batch(32))["learner_stats"]
    policy.kl_coeff = 0.5
    weighed = policy.learn_on_batch(make_batch(32))["learner_stats"]
    assert weighed["total_loss"] == pytest.approx(plain["total_loss"] + 0.5 * plain["kl"])
