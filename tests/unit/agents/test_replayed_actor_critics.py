"""SAC, DDPG and TD3 as trainers: defaults, mistakes, exact resume, priorities, several agents."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

from rlframe.agents.ddpg import TD3Trainer
from rlframe.agents.dqn import R2D2Trainer, SimpleQTrainer
from rlframe.agents.registry import get_trainer_class
from rlframe.examples.env.multi_agent import MultiAgentPendulum
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from tests.helpers.frameworks import TORCH_FIRST, needs_tf

SMALL = {
    "seed": 5,
    "learning_starts": 30,
    "timesteps_per_iteration": 40,
    "train_batch_size": 16,
    "log_sys_usage": False,
}
NETWORKS = {
    "SAC": {"Q_model": {"fcnet_hiddens": [16]}, "policy_model": {"fcnet_hiddens": [16]}},
    "DDPG": {"actor_hiddens": [16], "critic_hiddens": [16]},
    "TD3": {"actor_hiddens": [16], "critic_hiddens": [16]},
}
CROSSQ = {"critic_batch_norm": True, "use_target_network": False}


def make(name, env="Pendulum-v1", **overrides):
    config = {**copy.deepcopy(SMALL), **copy.deepcopy(NETWORKS[name]), **overrides}
    return get_trainer_class(name)(config, env=env)


RLLIBS = {
    "SAC": {
        "num_workers": 0, "rollout_fragment_length": 1, "train_batch_size": 256, "timesteps_per_iteration": 100,
        "twin_q": True, "tau": 5e-3, "initial_alpha": 1.0, "target_entropy": "auto", "n_step": 1,
        "prioritized_replay": False, "training_intensity": None, "grad_clip": None, "learning_starts": 1500,
        "target_network_update_freq": 0, "_deterministic_loss": False, "evaluation_config": {},
        "optimization": {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "entropy_learning_rate": 3e-4},
    },
    "DDPG": {
        "train_batch_size": 256, "timesteps_per_iteration": 1000, "twin_q": False, "policy_delay": 1,
        "smooth_target_policy": False, "target_noise": 0.2, "target_noise_clip": 0.5, "actor_hiddens": [400, 300],
        "critic_hiddens": [400, 300], "prioritized_replay": True, "critic_lr": 1e-3, "actor_lr": 1e-3, "tau": 0.002,
        "use_huber": False, "huber_threshold": 1.0, "l2_reg": 1e-6, "grad_clip": None, "learning_starts": 1500,
        "target_network_update_freq": 0, "evaluation_config": {"explore": False},
        "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 50_000},
    },
    "TD3": {
        "twin_q": True, "policy_delay": 2, "smooth_target_policy": True, "learning_starts": 10_000, "l2_reg": 0.0,
        "tau": 5e-3, "train_batch_size": 100, "prioritized_replay": False, "clip_rewards": False,
        "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 1_000_000},
        "exploration_config": {
            "type": "GaussianNoise", "random_timesteps": 10_000, "stddev": 0.1, "initial_scale": 1.0,
            "final_scale": 1.0, "scale_timesteps": 1,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", RLLIBS)
def test_defaults_are_those_of_rllib(name):
    defaults = get_trainer_class(name).get_default_config()
    assert {key: defaults[key] for key in RLLIBS[name]} == RLLIBS[name]


@pytest.mark.parametrize(
    ("name", "overrides", "said"),
    [
        ("SAC", {"initial_alpha": -0.5}, r"initial_alpha: got -0.5 \(float\), wanted a number >= 0"),
        ("SAC", {"target_entropy": "automatic"}, "target_entropy: got 'automatic'.*'auto'"),
        ("SAC", {"n_critics": 1}, "set twin_q=False for one critic"),
        ("SAC", {"n_quantiles": 2}, "top_quantiles_to_drop=2 must be smaller than n_quantiles=2"),
        ("SAC", {"critic_batch_norm": True, "Q_model": {"custom_model": "mine"}}, "leave out Q_model.custom_model"),
        ("SAC", {"Q_model": {"fcnet_hidden": [8]}}, "did you mean Q_model.fcnet_hiddens"),
        ("SAC", {"_use_beta_distribution": True}, "squashed Gaussians"),
        ("SAC", {"exploration_config": {"type": "ParameterNoise"}}, "ParameterNoise' is for deterministic policies"),
        ("DDPG", {"grad_clip": -1.0}, "grad_clip: got -1.0"),
        ("DDPG", {"smooth_target_policy": True, "target_noise_clip": 0.0}, "set smooth_target_policy=False"),
        ("DDPG", {"multiagent": {"replay_mode": "lockstep"}}, "it needs prioritized_replay=False"),
        ("TD3", {"worker_side_prioritization": True}, "needs prioritized_replay=True"),
        ("DDPG", {"prioritized_replay_eps": 0.0}, "prioritized_replay_eps=0 .* needs prioritized_replay=False"),
    ],
)
def test_wrong_configs_are_refused(name, overrides, said):
    with pytest.raises(ConfigError, match=said):
        make(name, **overrides)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"lr": 1e-3}, "lr=0.001 has no effect on SAC; set optimization"),
        ({"model": {"fcnet_hiddens": [64]}}, r"model.fcnet_hiddens=\[64\] has no effect on SAC"),
        ({"use_target_network": False}, "without critic_batch_norm"),
    ],
)
def test_keys_without_effect_are_remarked_on(overrides, said):
    with pytest.warns(UserWarning, match=said):
        make("SAC", **overrides)


def with_actions(space):
    class Env(gym.Env):
        observation_space, action_space = gym.spaces.Box(-1, 1, (2,), np.float32), space

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.zeros(2, np.float32), 0.0, False, True, {}

    return lambda config: Env()


@pytest.mark.parametrize(
    ("name", "space", "said"),
    [
        ("DDPG", gym.spaces.Discrete(3), "DDPG got the action space Discrete.*use SAC or DQN for choices"),
        ("TD3", gym.spaces.Discrete(3), "use SAC or DQN for choices"),
        ("SAC", gym.spaces.MultiDiscrete([2, 2]), "SAC got the action space MultiDiscrete.*wanted Discrete, or a Box"),
        ("SAC", gym.spaces.Box(-np.inf, np.inf, (1,), np.float32), "wanted finite low and high"),
        ("TD3", gym.spaces.Box(0, np.inf, (1,), np.float32), "wanted finite low and high"),
        ("DQN", gym.spaces.Box(-1, 1, (1,), np.float32), "DQN.* needs a Discrete action space"),
    ],
    ids=str,
)
def test_action_spaces_that_do_not_fit_are_refused_in_a_sentence(name, space, said):
    with pytest.raises(UnsupportedSpaceException, match=said):
        get_trainer_class(name)({**SMALL, **NETWORKS.get(name, {})}, env=with_actions(space))


def test_quantiles_of_discrete_actions_are_refused():
    with pytest.raises(ConfigError, match="n_quantiles: got 5 with the action space"):
        make("SAC", "CartPole-v1", n_quantiles=5)


@pytest.mark.parametrize("name", RLLIBS)
def test_actions_reach_the_whole_range_and_are_mapped_once(name):
    policy = make(name).get_policy()
    np.testing.assert_allclose(policy.to_env_actions(np.array([[-1.0], [0.5], [1.0]])), [[-2.0], [1.0], [2.0]])


@pytest.mark.parametrize(
    ("name", "env", "options"),
    [
        ("SAC", "Pendulum-v1", {"prioritized_replay": True, "n_step": 3}),
        ("SAC", "Pendulum-v1", CROSSQ),
        ("SAC", "CartPole-v1", {"n_critics": 3}),
        ("TD3", "Pendulum-v1", {"num_envs_per_worker": 3, "observation_filter": "MeanStdFilter"}),
        ("DDPG", "Pendulum-v1", {"exploration_config": {"type": "ParameterNoise"}}),
    ],
    ids=str,
)
def test_restored_trainer_goes_on_bit_for_bit(name, env, options, tmp_path):
    one, two = make(name, env, **options), make(name, env, **{**options, "seed": 99})
    one.train()
    two.restore(one.save(str(tmp_path)))
    for _ in range(2):
        a, b = one.train(), two.train()
        assert a["info"]["num_steps_trained"] > 0
        assert a["info"]["num_target_updates"] == b["info"]["num_target_updates"]
        np.testing.assert_equal(a["info"]["learner"], b["info"]["learner"])
    for key, array in one.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, two.get_weights()["default_policy"][key], err_msg=key)


@pytest.mark.parametrize(
    ("name", "without_noise"),
    [("SAC", {"_deterministic_loss": True}), ("DDPG", {}), ("TD3", {"smooth_target_policy": False})],
)
def test_workers_give_rows_their_first_priorities(name, without_noise):
    options = {"prioritized_replay": True, "worker_side_prioritization": True, "n_step": 2, **without_noise}
    worker = make(name, rollout_fragment_length=6, **options).workers.local_worker()
    rows = worker.sample()
    columns = (rows[key] for key in ("obs", "actions", "rewards", "new_obs", "terminateds"))
    errors = worker.policy_map["default_policy"].compute_td_error(*columns, discounts=rows["discounts"])
    np.testing.assert_allclose(rows["weights"], np.abs(errors) + 1e-6, rtol=1e-5)
    assert (rows["weights"] > 1e-3).all()
    np.testing.assert_allclose(rows["discounts"], [*[0.99**2] * 5, 0.99], rtol=1e-6)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_an_initial_alpha_of_zero_stays_zero(env):
    trainer = make("SAC", env, initial_alpha=0)
    trainer.get_policy().set_learning_rate(0.1)  # as schedules do
    for _ in range(2):
        stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["alpha_value"] < 1e-37
    assert np.isfinite(stats["alpha_loss"])


@needs_tf
def test_a_trainer_learns_in_tensorflow():
    trainer = make("SAC", "CartPole-v1", framework="tf", timesteps_per_iteration=34)
    before = trainer.get_weights()["default_policy"]
    assert trainer.train()["info"]["num_steps_trained"] >= 16
    assert all(not np.array_equal(array, before[key]) for key, array in trainer.get_weights()["default_policy"].items())


class Wide(TorchModelV2, nn.Module):
    """A program's model with an option of its own."""

    inputs: list = []  # noqa: RUF012

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.inputs.append((obs_space.shape, num_outputs, width))
        self.layers = nn.Sequential(nn.Linear(obs_space.shape[0], width), nn.ReLU(), nn.Linear(width, num_outputs))

    def forward(self, input_dict, state, seq_lens):
        return self.layers(input_dict["obs_flat"].float()), state


def test_networks_of_the_programs_own_get_their_options_and_learn():
    ModelCatalog.register_custom_model("wide", Wide)
    Wide.inputs.clear()
    custom = {"custom_model": "wide", "custom_model_config": {"width": 8}}
    trainer = make("SAC", Q_model=custom, policy_model=custom)
    # Pendulum's 3 numbers and 1 action: actors tell mean and deviation, critics of both one value.
    assert {((3,), 2, 8), ((4,), 1, 8)} == set(Wide.inputs)
    before = trainer.get_weights()["default_policy"]
    trainer.train()
    assert all(not np.array_equal(array, before[key]) for key, array in trainer.get_weights()["default_policy"].items())


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_custom_networks_are_told_that_they_train_in_the_loss_and_there_alone(framework):
    from rlframe.examples.models import batch_norm_model

    name = "TorchBatchNormModel" if framework == "torch" else "KerasBatchNormModel"
    told = []

    class Noting(getattr(batch_norm_model, name)):
        def forward(self, input_dict, state, seq_lens):
            told.append(bool(input_dict["is_training"]))
            return super().forward(input_dict, state, seq_lens)

    custom = {"custom_model": Noting}
    trainer = make("SAC", Q_model=custom, policy_model=custom, framework=framework)
    policy = trainer.get_policy()
    before = policy.get_weights()
    policy.compute_actions(np.ones((2, 3), np.float32))
    assert not any(told)
    trainer.train()
    after = policy.get_weights()
    statistics = [key for key in after if "running_mean" in key or "moving_mean" in key]
    assert len(statistics) == 2 * 3  # two layers of the actor and of two critics
    assert all(not np.array_equal(after[key], before[key]) for key in statistics)


def test_each_of_several_agents_learns_with_its_own_policy():
    names = ["even", "odd"]
    multiagent = {
        "policies": {name: PolicySpec(config={"gamma": 0.9 + 0.05 * index}) for index, name in enumerate(names)},
        "policy_mapping_fn": lambda agent_id, episode, worker, **kwargs: names[agent_id % 2],
    }
    trainer = make("SAC", MultiAgentPendulum, env_config={"num_agents": 2}, multiagent=multiagent)
    before = {name: trainer.get_policy(name).get_weights() for name in names}
    learner = [trainer.train() for _ in range(2)][-1]["info"]["learner"]
    for name in names:
        assert learner[name]["td_error"].shape == (16,)
        assert any(not np.array_equal(new, before[name][key]) for key, new in trainer.get_weights([name])[name].items())


def test_td3_reports_the_actors_loss_for_updates_in_which_the_actor_waits():
    small = {"actor_hiddens": [2], "critic_hiddens": [2], "num_workers": 0, "learning_starts": 0, "train_batch_size": 2}
    trainer = TD3Trainer({**small, "timesteps_per_iteration": 1, "seed": 0}, env="Pendulum-v1")
    losses = [stats_of(trainer.train()).get("actor_loss") for _ in range(4)]
    given = [loss for loss in losses if loss is not None]
    assert len(given) >= 3
    assert len(set(given)) < len(given)


def stats_of(result):
    return result["info"]["learner"]["default_policy"]["learner_stats"]


@pytest.mark.parametrize(("algorithm", "name"), [(SimpleQTrainer, "loss"), (R2D2Trainer, "total_loss")])
def test_q_learners_report_the_loss_that_rllib_did(algorithm, name):
    small = {"num_workers": 0, "learning_starts": 0, "timesteps_per_iteration": 4, "train_batch_size": 8}
    model = {"fcnet_hiddens": [2], "use_lstm": algorithm is R2D2Trainer, "lstm_cell_size": 2, "max_seq_len": 2}
    assert stats_of(algorithm({**small, "model": model}, env="CartPole-v1").train())[name] > 0
