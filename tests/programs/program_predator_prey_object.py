"""Predator and prey: A3C over a TF model per policy, weights kept as an object between runs.

Uses RLlib as yarik1988/RLlib_projects does (PredatorVictim/PVtask.py): one environment object that `register_env` hands
out, a model registered under one name per policy, `policy_mapping_fn(agent_id)`, `policy_reward_mean`, and
`save_to_object` and `restore_from_object` in place of files.
"""

import gym
import numpy as np
import ray
import tensorflow as tf

import rlframe.agents.a3c as a3c
from ray.tune.registry import register_env
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.models import ModelCatalog
from rlframe.models.tf.tf_modelv2 import TFModelV2


class PredatorPrey(MultiAgentEnv):
    """Two points on a square; one is rewarded for being near, the other for being far."""

    def __init__(self, params):
        super().__init__()
        self.params = params
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.random = np.random.RandomState(3)

    def reset(self):
        self.places = {name: self.random.uniform(-0.5, 0.5, 2) for name in ("predator", "victim")}
        self.t = 0
        return self.observe()

    def observe(self):
        both = np.concatenate([self.places["predator"], self.places["victim"]]).astype(np.float32)
        return {"predator": both, "victim": both[[2, 3, 0, 1]]}

    def step(self, actions):
        for name, action in actions.items():
            self.places[name] = np.clip(self.places[name] + self.params[name] * np.asarray(action), -1, 1)
        self.t += 1
        distance = float(np.linalg.norm(self.places["predator"] - self.places["victim"]))
        done = self.t >= self.params["max_steps"] or distance < 0.02
        return self.observe(), {"predator": -distance, "victim": distance}, {"__all__": done}, {}


class PointModel(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(PointModel, self).__init__(obs_space, action_space, num_outputs, model_config, name)
        inputs = tf.keras.layers.Input(shape=obs_space.shape, name="observations")
        hidden = tf.keras.layers.Dense(32, activation="relu")(inputs)
        mean = tf.keras.layers.Dense(2, activation="tanh")(hidden)
        deviation = tf.keras.layers.Dense(2, activation="sigmoid")(hidden)
        outputs = tf.keras.layers.Concatenate(axis=1)([mean, deviation])
        self.base_model = tf.keras.Model(inputs, [outputs, tf.keras.layers.Dense(1)(hidden)])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        outputs, self._value_out = self.base_model(input_dict["obs"])
        return outputs, state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


def policy(env, index):
    ModelCatalog.register_custom_model("PointModel_{}".format(index), PointModel)
    return None, env.observation_space, env.action_space, {"model": {"custom_model": "PointModel_{}".format(index)}}


def policy_of(agent_id):
    return "policy_" + agent_id


def main():
    ray.init(num_cpus=3, include_dashboard=False)
    env = PredatorPrey({"predator": 0.05, "victim": 0.03, "max_steps": 20})
    register_env("PredatorPrey", lambda _: env)

    def make():
        return a3c.A3CTrainer(
            env="PredatorPrey",
            config={
                "multiagent": {
                    "policies": {"policy_predator": policy(env, 0), "policy_victim": policy(env, 1)},
                    "policy_mapping_fn": policy_of,
                },
                "framework": "tf",
                "num_workers": 1,
                "min_iter_time_s": 1,
            },
        )

    trainer = make()
    result = trainer.train()
    rewards = result["policy_reward_mean"]
    assert rewards["policy_predator"] < 0 < rewards["policy_victim"], rewards
    saved = trainer.save_to_object()
    observation = env.reset()["victim"]
    action = trainer.compute_action(observation, policy_id="policy_victim", explore=False)
    trainer.stop()
    again = make()
    again.restore_from_object(saved)
    np.testing.assert_allclose(again.compute_action(observation, policy_id="policy_victim", explore=False), action, atol=1e-5)
    assert again.train()["training_iteration"] == 2
    again.stop()
    ray.shutdown()
    print("ok program_predator_prey_object")


if __name__ == "__main__":
    main()
