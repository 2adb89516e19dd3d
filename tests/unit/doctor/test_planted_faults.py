"""Real programs with one planted fault each: the doctor names it first; of healthy ones it says nothing."""

import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlframe import A2CTrainer, DDPGTrainer, DQNTrainer, ImpalaTrainer, PPOTrainer, R2D2Trainer, SACTrainer, TD3Trainer
from rlframe.doctor import examine_trainer
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.env.registry import register_env


class Scaled(gymnasium.Wrapper):
    """CartPole with one thing wrong."""

    def __init__(self, config):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.config = config
        self.drift = np.random.default_rng(0)
        if config.keys() & {"obs", "noise"}:
            self.observation_space = spaces.Box(-1e9, 1e9, (4,), np.float32)

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return self.seen(observation), info

    def seen(self, observation):
        noise = self.drift.normal(size=4) * self.config.get("noise", 0.0)
        return (observation * self.config.get("obs", 1.0) + noise).astype(np.float32)

    def step(self, action):
        time.sleep(self.config.get("sleep", 0.0))
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.config.get("endless") and (terminated or truncated):
            observation, _ = self.env.reset()
            terminated = truncated = False
        return self.seen(observation), reward * self.config.get("reward", 1.0), terminated, truncated, info


class Corridor(gymnasium.Env):
    """To the right is a goal, worth 10; a step costs 0.1. As signs, both count the same."""

    def __init__(self, config=None):
        del config
        self.observation_space, self.action_space = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = 0, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.x, self.t = max(0, self.x + (1 if action else -1)), self.t + 1
        there = self.x >= 6
        reward = 10.0 if there else -0.1
        return np.array([min(self.x / 6, 1)], np.float32), reward, there, self.t >= 50, {}


class Picture(gymnasium.Wrapper):
    """CartPole's numbers as grey stripes of an image."""

    def __init__(self, config=None):
        del config
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)

    def drawn(self, observation):
        grey = (128 + 60 * np.clip(observation, -2, 2)).astype(np.uint8)
        return np.repeat(np.tile(grey, (8, 1)), 2, axis=1)[:, :, None]

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return self.drawn(observation), info

    def step(self, action):
        observation, *rest = self.env.step(action)
        return self.drawn(observation), *rest


class ScaledPicture(Picture):
    """The same in [0, 1]: of pixels up to 255 DQN's last convolutions do die."""

    def __init__(self, config=None):
        super().__init__(config)
        self.observation_space = spaces.Box(0.0, 1.0, (8, 8, 1), np.float32)

    def drawn(self, observation):
        return super().drawn(observation).astype(np.float32) / 255.0


@pytest.fixture(autouse=True)
def _envs():
    register_env("scaled_picture", ScaledPicture)
    register_env("scaled_cartpole", Scaled)
    register_env("corridor", Corridor)
    register_env("picture", Picture)
    register_env("two_cartpoles", make_multi_agent("CartPole-v1"))


def change_weights(*ends, to, policy_id="default_policy"):
    """Returns what sets the arrays whose names end so to one number before training, as one huge learner step does."""

    def change(trainer):
        policy = trainer.get_policy(policy_id)
        weights = policy.get_weights()
        changed = {name: np.full_like(array, to) for name, array in weights.items() if name.endswith(ends)}
        assert changed, f"none of {list(weights)} ends with {ends}"
        policy.set_weights({**weights, **changed})

    return change


PPO = {"train_batch_size": 1000, "sgd_minibatch_size": 250, "num_sgd_iter": 4, "lr": 3e-4}
DQN = {"learning_starts": 200, "timesteps_per_iteration": 500, "min_iter_time_s": 0}
SAC = {"learning_starts": 200, "timesteps_per_iteration": 250, "min_iter_time_s": 0, "train_batch_size": 64}
A2C = {"timesteps_per_iteration": 1000, "min_iter_time_s": 0}
RELU = {"model": {"fcnet_activation": "relu"}}


def wrong(**env_config):
    return {"env": "scaled_cartpole", "env_config": env_config}


CONVS = {"model": {"conv_filters": [[4, 3, 2], [8, 4, 1]]}}
MEMORY = {"model": {"use_lstm": True, "lstm_cell_size": 16, "max_seq_len": 10}}
TWO = {
    "env": "two_cartpoles", "env_config": {"num_agents": 2},
    "multiagent": {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent, *_, **__: "b" if agent else "a"},
}  # fmt: skip
PENDULUM = {**SAC, "env": "Pendulum-v1"}
TD3 = {**PENDULUM, "exploration_config": {"random_timesteps": 200}}
#: What is done to the networks before training, by name of a program.
BEFORE = {
    "dead_relus": change_weights("hidden_0.bias", to=-100.0),
    "dead_convolutions": change_weights("convs.0._model.1.bias", to=-1e4),
    "memory_that_is_closed": change_weights("lstm.bias", to=-100.0),
    "dead_critics_of_sac": change_weights("q.hidden_0.bias", to=-1e4),
    "values_of_dqn_without_bounds": change_weights("state_value_output.bias", "value_output.bias", to=1e6),
    "values_of_sac_without_bounds": change_weights("q.output.bias", to=1e6),
    "values_of_td3_without_bounds": change_weights("q.output.bias", to=-1e6),
    "dead_units_of_one_policy": change_weights("hidden_0.bias", to=-100.0, policy_id="b"),
}
#: name -> (trainer, config, iterations, what is found first, the key that is to be changed).
PROGRAMS = {
    "learning_rate_1e6": (PPOTrainer, {**PPO, "lr": 1e6}, 1, "lr_large", "lr"),
    "learning_rate_0": (A2CTrainer, {**A2C, "lr": 0.0}, 1, "lr_zero", "lr"),
    "rewards_times_1e4": (DQNTrainer, {**DQN, **wrong(reward=1e4)}, 2, "large_rewards", "reward"),
    "observations_times_1e4": (PPOTrainer, {**PPO, **wrong(obs=1e4)}, 1, "large_observations", "observation_filter"),
    "episodes_never_end": (PPOTrainer, {**PPO, **wrong(endless=True)}, 2, "no_end", "horizon"),
    "gamma_0.1": (PPOTrainer, {**PPO, "gamma": 0.1}, 2, "gamma_small", "gamma"),
    "goal_hidden_by_clipping": (DQNTrainer, {**DQN, "env": "corridor", "clip_rewards": True}, 2, "rewards_clipped",
                                "clip_rewards"),
    "dead_relus": (PPOTrainer, {**PPO, **RELU}, 1, "dead_units", "fcnet_activation"),
    "entropy_collapse": (PPOTrainer, {**PPO, **wrong(reward=0.0), "lr": 0.01, "num_sgd_iter": 30,
                                       "kl_coeff": 0.0, "clip_param": 10.0}, 5, "entropy_collapse", "entropy_coeff"),
    "replay_ratio_far_off": (DQNTrainer, {**DQN, "training_intensity": 0.02}, 4, "replay_ratio_low",
                             "training_intensity"),
    "values_clipped": (PPOTrainer, {**PPO, "env": "Pendulum-v1", "normalize_values": False, "vf_clip_param": 1.0}, 2,
                       "value_clip", "vf_clip_param"),
    "horizon_before_the_goal": (DQNTrainer, {**DQN, "env": "Acrobot-v1", "horizon": 20}, 4, "horizon_cuts", "horizon"),
    "not_deterministic": (PPOTrainer, {**PPO, **wrong(noise=0.1)}, 2, "not_deterministic", "np_random"),
    "slow_steps": (PPOTrainer, {**PPO, "train_batch_size": 40, "sgd_minibatch_size": 40, **wrong(sleep=0.03)}, 1,
                   "slow_env", "num_workers"),
    "target_never_updated": (DQNTrainer, {**DQN, "learning_starts": 50, "target_network_update_freq": 10**9}, 3,
                             "target_frozen", "target_network_update_freq"),
    "epsilon_falls_too_slowly": (DQNTrainer, {**DQN, "exploration_config": {"epsilon_timesteps": 10**6}}, 2,
                                 "exploring_still", "epsilon_timesteps"),
    "dead_convolutions": (PPOTrainer, {**PPO, **CONVS, "env": "picture"}, 1, "dead_units", "lr"),
    "memory_that_is_closed": (PPOTrainer, {**PPO, **MEMORY}, 1, "dead_units", "lr"),
    "dead_critics_of_sac": (SACTrainer, PENDULUM, 2, "dead_units", "lr"),
    "critics_of_sac_do_not_learn": (SACTrainer, {**PENDULUM, "optimization": {"critic_learning_rate": 0.0}}, 2,
                                    "lr_zero", "optimization.critic_learning_rate"),
    "critic_of_td3_learns_in_leaps": (TD3Trainer, {**TD3, "critic_lr": 0.5}, 2, "lr_large", "critic_lr"),
    "target_of_td3_stands_still": (TD3Trainer, {**TD3, "tau": 0.0}, 2, "target_frozen", "tau"),
    "values_of_dqn_without_bounds": (DQNTrainer, DQN, 2, "values_grow", "double_q"),
    "values_of_sac_without_bounds": (SACTrainer, PENDULUM, 2, "values_grow", "optimization.critic_learning_rate"),
    "values_of_td3_without_bounds": (TD3Trainer, TD3, 2, "values_grow", "critic_lr"),
    "dead_units_of_one_policy": (PPOTrainer, {**PPO, **RELU, **TWO}, 1, "dead_units", "lr"),
}  # fmt: skip
#: Whose finding it is, where there are several policies.
OF_POLICY = {"dead_units_of_one_policy": "b"}
#: Those that take about a second.
QUICK = ("learning_rate_1e6", "gamma_0.1", "dead_relus", "episodes_never_end")

HEALTHY = {
    "ppo_cartpole": (PPOTrainer, PPO, 4),
    "ppo_pendulum": (PPOTrainer, {**PPO, "env": "Pendulum-v1"}, 4),
    "ppo_acrobot": (PPOTrainer, {**PPO, "env": "Acrobot-v1"}, 4),
    "ppo_relu": (PPOTrainer, {**PPO, **RELU}, 4),
    "dqn_cartpole": (DQNTrainer, DQN, 4),
    "dqn_acrobot": (DQNTrainer, {**DQN, "env": "Acrobot-v1"}, 4),
    "sac_pendulum": (SACTrainer, {**SAC, "env": "Pendulum-v1"}, 4),
    "sac_cartpole": (SACTrainer, SAC, 4),
    "a2c_cartpole": (A2CTrainer, A2C, 4),
    "a2c_pendulum": (A2CTrainer, {**A2C, "env": "Pendulum-v1"}, 4),
    "a2c_acrobot": (A2CTrainer, {**A2C, "env": "Acrobot-v1"}, 4),
    "impala_cartpole": (ImpalaTrainer, {"min_iter_time_s": 0}, 8),
    "impala_acrobot": (ImpalaTrainer, {"min_iter_time_s": 0, "env": "Acrobot-v1"}, 8),
    "impala_pendulum": (ImpalaTrainer, {"min_iter_time_s": 0, "env": "Pendulum-v1"}, 8),
    "ppo_images": (PPOTrainer, {**PPO, **CONVS, "env": "picture"}, 3),
    "ppo_memory": (PPOTrainer, {**PPO, **MEMORY}, 3),
    "ppo_attention": (
        PPOTrainer,
        {
            **PPO,
            "model": {
                "use_attention": True,
                "attention_memory_inference": 10,
                "attention_memory_training": 10,
                "max_seq_len": 10,
            },
        },
        2,
    ),
    "ppo_two_policies": (PPOTrainer, {**PPO, **TWO}, 3),
    "dqn_two_policies": (DQNTrainer, {**DQN, **TWO}, 3),
    "dqn_images": (DQNTrainer, {**DQN, **CONVS, "env": "scaled_picture"}, 3),
    "r2d2_cartpole": (R2D2Trainer, {**DQN, **MEMORY, "train_batch_size": 64, "target_network_update_freq": 500}, 3),
    "td3_pendulum": (TD3Trainer, TD3, 4),
    "ddpg_pendulum": (DDPGTrainer, TD3, 4),
}


def examined(trainer_class, config, iterations, before=lambda trainer: None):
    trainer = trainer_class({"num_workers": 0, "seed": 1, "env": "CartPole-v1", **config})
    try:
        before(trainer)
        results = [trainer.train() for _ in range(iterations)]
        return examine_trainer(trainer, results, num_steps=1000)
    finally:
        trainer.stop()


def check(name):
    trainer_class, config, iterations, first, key = PROGRAMS[name]
    found = examined(trainer_class, config, iterations, BEFORE.get(name, lambda trainer: None))
    assert [(finding.name, finding.policy) for finding in found][:1] == [(first, OF_POLICY.get(name))]
    assert key in found[0].change


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_comes_first_with_the_key_to_change(name):
    check(name)


def test_a_healthy_program_has_nothing():
    assert examined(*HEALTHY["a2c_cartpole"]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - set(QUICK)))
def test_each_planted_fault_comes_first_with_the_key_to_change(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HEALTHY.keys() - {"a2c_cartpole"}))
def test_each_healthy_program_has_nothing(name):
    assert examined(*HEALTHY[name]) == []
