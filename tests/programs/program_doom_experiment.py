"""A benchmark of simulators: an Experiment from a dict, custom policies in registered trainers, then a loop that plays.

Uses RLlib as alex-petrenko/sample-factory does (benchmarks/rllib: train_rllib.py, custom_ppo_policy.py, vizdoom_model.py,
enjoy_rllib.py): `merge_dicts` of `tune.util` over YAML files, `PPOTFPolicy.with_updates(stats_fn, grad_stats_fn)`,
`PPOTrainer.with_updates(default_policy=...)` under `register_trainable`, `Experiment.from_json` whose `spec` is changed,
`tune.tune.run(exp, scheduler=, queue_trials=)`, and playing with `get_agent_class`, `policy_map`, `get_initial_state`,
`compute_action(state=, prev_action=, prev_reward=, policy_id=)` for an LSTM.
"""

import collections

import gym
import numpy as np
import ray
import tensorflow as tf
import yaml
from rlframe import MultiAgentEnv
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.ppo.ppo_policy import PPOTFPolicy, kl_and_loss_stats
from rlframe.agents.registry import get_agent_class
from rlframe.env.base_env import _DUMMY_AGENT_ID
from rlframe.policy.sample_batch import DEFAULT_POLICY_ID
from rlframe.tune import Experiment
from rlframe.tune.registry import register_env, register_trainable
from rlframe.tune.tune import run
from rlframe.tune.util import merge_dicts

BASE = """
run: CUSTOM_PPO
env: doom_basic
stop: {timesteps_total: 10000}
config:
    framework: tf
    num_workers: 0
    num_envs_per_worker: 2
    rollout_fragment_length: 25
    train_batch_size: 100
    sgd_minibatch_size: 50
    num_sgd_iter: 1
    env_config: {skip_frames: 2}
    model: {use_lstm: true, lstm_cell_size: 8, fcnet_hiddens: [8], lstm_use_prev_action_reward: true, max_seq_len: 5}
"""
MIXIN = "config: {num_sgd_iter: 2, lr: 0.001}\nstop: {training_iteration: 2}\n"


class Doom(gym.Env):
    """A turret turns to its target and shoots."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, config=None):
        self.skip_frames = (config or {}).get("skip_frames", 1)

    def reset(self):
        self.t, self.angle = 0, np.random.uniform(-1, 1)
        return np.array([self.angle, 0.0], np.float32)

    def step(self, action):
        self.t += self.skip_frames
        self.angle = float(np.clip(self.angle + (0.2 if action == 1 else -0.2 if action == 2 else 0), -1, 1))
        hit = action == 0 and abs(self.angle) < 0.15
        return np.array([self.angle, 1.0], np.float32), 1.0 if hit else -0.1, bool(hit or self.t >= 30), {}


def _mean_min_max(x, name):
    return {f"{name}_mean": tf.reduce_mean(x), f"{name}_min": tf.reduce_min(x), f"{name}_max": tf.reduce_max(x)}


def stats(policy, batch_tensors):
    stats_fetches = kl_and_loss_stats(policy, batch_tensors)
    stats_fetches.update(_mean_min_max(policy.model.value_function(), "_summ_value_estimate"))
    stats_fetches.update(_mean_min_max(batch_tensors["value_targets"], "_summ_extra_returns"))
    stats_fetches.update(_mean_min_max(batch_tensors["rewards"], "_summ_rewards"))
    stats_fetches.update(_mean_min_max(batch_tensors["advantages"], "_summ_advantage"))
    return stats_fetches


def grad_stats(policy, train_batch, grads):
    return dict(grad_gnorm=tf.linalg.global_norm(grads))


CustomPPOTFPolicy = PPOTFPolicy.with_updates(stats_fn=stats, grad_stats_fn=grad_stats)


def default_policy_agent_mapping(unused_agent_id):
    return DEFAULT_POLICY_ID


def rollout_loop(agent, num_episodes):
    env = agent.workers.local_worker().env
    multiagent = isinstance(env, MultiAgentEnv)
    policy_map = agent.workers.local_worker().policy_map
    state_init = {p: m.get_initial_state() for p, m in policy_map.items()}
    use_lstm = {p: len(s) > 0 for p, s in state_init.items()}
    action_init = {p: m.action_space.sample() for p, m in policy_map.items()}
    assert use_lstm == {DEFAULT_POLICY_ID: True} and not multiagent
    rewards = []
    env = Doom({"skip_frames": 2})
    for _ in range(num_episodes):
        obs, done, total = env.reset(), False, 0.0
        states = collections.defaultdict(lambda: state_init[DEFAULT_POLICY_ID])
        prev_actions = collections.defaultdict(lambda: action_init[DEFAULT_POLICY_ID])
        prev_rewards = collections.defaultdict(lambda: 0.0)
        while not done:
            action, state, _ = agent.compute_action(
                obs, state=states[_DUMMY_AGENT_ID], prev_action=prev_actions[_DUMMY_AGENT_ID],
                prev_reward=prev_rewards[_DUMMY_AGENT_ID], policy_id=default_policy_agent_mapping(_DUMMY_AGENT_ID),
            )
            assert any((new != old).any() for new, old in zip(state, states[_DUMMY_AGENT_ID]))
            states[_DUMMY_AGENT_ID], prev_actions[_DUMMY_AGENT_ID] = state, action
            obs, reward, done, _ = env.step(action)
            prev_rewards[_DUMMY_AGENT_ID] = reward
            total += reward
        rewards.append(total)
    return rewards


def main():
    register_env("doom_basic", lambda config: Doom(config))
    register_trainable("CUSTOM_PPO", PPOTrainer.with_updates(default_policy=CustomPPOTFPolicy))
    exp = merge_dicts(yaml.safe_load(BASE), {"config": {}})
    exp = merge_dicts(exp, yaml.safe_load(MIXIN))
    ray.init(num_cpus=2)
    exp = Experiment.from_json("doom", exp)
    exp.spec["checkpoint_freq"] = 20
    exp.spec["checkpoint_at_end"] = True
    exp.spec["keep_checkpoints_num"] = 5
    analysis = run(exp, name="doom", scheduler=None, resume=False, queue_trials=False)
    result = analysis.trials[0].last_result
    learner = result["info"]["learner"]["default_policy"]
    learner = learner.get("learner_stats", learner)
    assert result["training_iteration"] == 2 and "_summ_value_estimate_max" in learner and learner["grad_gnorm"] > 0
    checkpoint = analysis.get_last_checkpoint(trial=analysis.trials[0])
    assert checkpoint is not None
    config = merge_dicts(result["config"], {"num_workers": 0, "num_gpus": 0, "num_envs_per_worker": 1})
    agent = get_agent_class("PPO")(env="doom_basic", config=config)
    agent.restore(checkpoint)
    rewards = rollout_loop(agent, 3)
    assert len(rewards) == 3
    ray.shutdown()
    print("ok program_doom_experiment")


if __name__ == "__main__":
    main()
