"""A shared kitchen: a learner beside a scripted dummy that is reset between iterations on every worker.

Uses RLlib as the human-aware cooking studies do (human_aware_rl's rllib.py): a Policy subclass with a constructor of its
own keys, custom evaluation that returns lists, `trainer.workers.foreach_worker(lambda ev: ...ev.get_policy(...))`, a
`logger_creator` with `UnifiedLogger`, and a checkpoint beside which the params are pickled by the user.
"""

import os
import pickle
import tempfile

import gym
import numpy as np
from ray.tune.registry import register_env

from rlframe.agents.ppo.ppo import PPOTrainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.policy import Policy
from rlframe.tune.logger import UnifiedLogger


class Kitchen(MultiAgentEnv):
    """Both cooks should pick the dish of the day; the dummy only knows yesterday's."""

    def __init__(self, mdp_params):
        super().__init__()
        self.length = mdp_params["ep_length"]
        self.observation_space, self.action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(3)
        self.random = np.random.RandomState(1)

    def reset(self):
        self.t, self.dish = 0, self.random.randint(3)
        return {"ppo_0": self.dish, "dummy_1": self.dish}

    def step(self, actions):
        sparse = float(actions["ppo_0"] == self.dish)
        self.t, self.dish = self.t + 1, self.random.randint(3)
        infos = {name: {"sparse": sparse} for name in ("ppo_0", "dummy_1")}
        obs = {"ppo_0": self.dish, "dummy_1": self.dish}
        return obs, {"ppo_0": sparse, "dummy_1": sparse}, {"__all__": self.t >= self.length}, infos


class Dummy(Policy):
    def __init__(self, observation_space, action_space, config):
        super(Dummy, self).__init__(observation_space, action_space, config)
        self.favourite = config["favourite"]
        self.steps = self.resets = 0

    def reset(self):
        self.steps, self.resets = 0, self.resets + 1

    def compute_actions(self, obs_batch, state_batches, prev_action_batch=None, prev_reward_batch=None, info_batch=None,
                        episodes=None, **kwargs):
        self.steps += len(obs_batch)
        return [self.favourite] * len(obs_batch), [], {}

    def learn_on_batch(self, samples):
        return {}

    def get_weights(self):
        return {}

    def set_weights(self, weights):
        pass


def evaluate(trainer, evaluation_workers):
    worker = evaluation_workers.local_worker()
    batch = worker.sample()
    ppo = batch.policy_batches["ppo"]
    return {"actions": ppo["actions"].tolist(), "sparse_reward": [float(info["sparse"]) for info in ppo["infos"]]}


def make(params, folder):
    env = Kitchen(params["mdp_params"])

    def choose(agent_id):
        return "ppo" if agent_id.startswith("ppo") else "dummy"

    def logger(config):
        return UnifiedLogger(config, tempfile.mkdtemp(prefix="kitchen", dir=folder), loggers=None)

    return PPOTrainer(
        env="overcooked",
        config={
            "multiagent": {
                "policies": {
                    "ppo": (None, env.observation_space, env.action_space, {}),
                    "dummy": (Dummy, env.observation_space, env.action_space, {"favourite": 2}),
                },
                "policy_mapping_fn": choose,
                "policies_to_train": {"ppo"},
            },
            "callbacks": {"on_episode_end": lambda info: info["episode"].custom_metrics.update(length=info["episode"].length)},
            "custom_eval_function": evaluate,
            "env_config": params["mdp_params"],
            "eager": False,
            **params["training_params"],
        },
        logger_creator=logger,
    )


def main():
    register_env("overcooked", lambda config: Kitchen(config))
    params = {
        "mdp_params": {"ep_length": 10},
        "training_params": {
            "framework": "torch", "num_workers": 0, "train_batch_size": 200, "sgd_minibatch_size": 50, "num_sgd_iter": 8,
            "lr": 5e-3, "evaluation_interval": 2, "rollout_fragment_length": 100, "seed": 0, "lambda": 0.9, "gamma": 0.1,
            "log_level": "ERROR", "vf_clip_param": 10.0, "grad_clip": 0.5, "observation_filter": "NoFilter",
        },
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(params, folder)
        for _ in range(4):
            result = trainer.train()
            trainer.workers.foreach_worker(lambda ev: ev.get_policy("dummy").reset())
        assert trainer.get_policy("dummy").resets == 4 and trainer.get_policy("dummy").steps == 0
        assert result["custom_metrics"]["length_mean"] == 10
        assert len(result["evaluation"]["actions"]) == len(result["evaluation"]["sparse_reward"]) >= 10
        path = trainer.save(folder)
        with open(os.path.join(folder, "config.pkl"), "wb") as file:
            pickle.dump(params, file)
        with open(os.path.join(folder, "config.pkl"), "rb") as file:
            again = make(pickle.load(file), folder)
        again.restore(path)
        for dish in range(3):
            wanted = trainer.compute_action(dish, policy_id="ppo", explore=False)
            assert again.compute_action(dish, policy_id="ppo", explore=False) == wanted
        assert result["policy_reward_mean"]["ppo"] > 3.5, result["policy_reward_mean"]
    print("ok program_kitchen_with_dummy")


if __name__ == "__main__":
    main()
