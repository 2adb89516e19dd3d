"""Four in a row against a policy of chance: eager TensorFlow, a mask by `tf.maximum(tf.math.log(mask), tf.float32.min)`.

Uses RLlib as ColdFrenzy/Adaptive_Learning does (main.py, models/action_mask_model.py, policies/random_policy.py):
`framework: tf2`, `with_common_config` of a whole config, `build_trainer(name=, default_config=)` without a default policy,
policies with classes of their own in the table, `original_space.spaces` in the model, the local worker's environment read
for scores, `get_policy(...).get_weights()` and `trainer.set_weights` per policy.
"""

from functools import reduce

import numpy as np
import ray
import tensorflow as tf
from gym import spaces
from rlframe.agents.pg import PGTFPolicy
from rlframe.agents.trainer import with_common_config
from rlframe.agents.trainer_template import build_trainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.models import ModelCatalog
from rlframe.models.tf import TFModelV2
from rlframe.policy.policy import Policy


class Connect4(MultiAgentEnv):
    """Two players drop stones into seven columns of six; four in a column win (rows do not count here)."""

    observation_space = spaces.Dict({"action_mask": spaces.Box(0, 1, (7,)), "state": spaces.Box(-1, 2, (7, 6))})
    action_space = spaces.Discrete(7)

    def __init__(self, config=None):
        super().__init__()
        self.player1, self.player2 = "player1", "player2"
        self.score = {self.player1: 0, self.player2: 0}

    def reset(self):
        self.board, self.turn = np.zeros((7, 6)), 0
        return self.observe()

    def observe(self):
        mask = (self.board[:, -1] == 0).astype(np.float32)
        return {[self.player1, self.player2][self.turn]: {"action_mask": mask, "state": self.board.astype(np.float32)}}

    def step(self, actions):
        ((player, column),) = actions.items()
        height = int((self.board[column] != 0).sum())
        assert height < 6, "a full column was chosen: the mask did not hold"
        mark = 1 + self.turn
        self.board[column, height] = mark
        won = height >= 3 and (self.board[column, height - 3 : height + 1] == mark).all()
        self.score[player] += int(won)
        self.turn = 1 - self.turn
        done = {"__all__": bool(won or (self.board != 0).all())}
        if done["__all__"]:
            obs = self.observe()
            other = next(iter(obs))
            return {**obs, player: obs[other]}, {player: float(won), other: -float(won)}, done, {}
        return self.observe(), {player: 0.0}, done, {}


class Connect4ActionMaskModel(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, true_obs_shape=(7, 6), show_model=False,
                 *args, **kwargs):  # fmt: skip
        super(Connect4ActionMaskModel, self).__init__(obs_space, action_space, num_outputs, model_config, name, *args, **kwargs)
        original_obs = obs_space.original_space.spaces["state"]
        obs_dim = reduce(lambda x, y: x * y, original_obs.shape)
        inputs = tf.keras.layers.Input(shape=(obs_dim,), name="observations")
        hidden_layer = tf.keras.layers.Dense(16, name="layer1", activation=tf.nn.relu)(inputs)
        out_layer = tf.keras.layers.Dense(num_outputs, name="out", activation=None)(hidden_layer)
        self.base_model = tf.keras.Model(inputs, out_layer, name="action_mask")
        if show_model:
            self.base_model.summary()

    def forward(self, input_dict, state, seq_lens):
        obs_state = input_dict["obs"]["state"]
        action_mask = input_dict["obs"]["action_mask"]
        obs_state = tf.reshape(obs_state, shape=(-1, obs_state.shape[1] * obs_state.shape[2]))
        action_logits = self.base_model(obs_state)
        inf_mask = tf.maximum(tf.math.log(action_mask), tf.float32.min)
        action_logits = tf.cast(action_logits, dtype=tf.float32)
        inf_mask = tf.cast(inf_mask, dtype=tf.float32)
        return action_logits + inf_mask, state


class RandomPolicy(Policy):
    """Chooses among what the mask allows, which preprocessing puts first."""

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, prev_reward_batch=None,
                        info_batch=None, episodes=None, **kwargs):  # fmt: skip
        return [int(np.random.choice(np.flatnonzero(obs[:7]))) for obs in obs_batch], [], {}

    def learn_on_batch(self, samples):
        pass

    def get_weights(self):
        return {}

    def set_weights(self, weights):
        pass


def select_policy(agent_id):
    return "player1" if agent_id == "player1" else "player2"


def main():
    ModelCatalog.register_custom_model("connect4_mask", Connect4ActionMaskModel)
    env = Connect4(None)
    model = {"model": {"custom_model": "connect4_mask", "custom_model_config": {}}}
    config = {
        "num_gpus": 0, "num_workers": 0, "num_envs_per_worker": 1, "rollout_fragment_length": 10, "train_batch_size": 60,
        "env": Connect4, "gamma": 0.9, "framework": "tf2",
        "multiagent": {
            "policies_to_train": ["player1"],
            "policies": {
                "player1": (PGTFPolicy, env.observation_space, env.action_space, model),
                "mirror": (PGTFPolicy, env.observation_space, env.action_space, model),
                "player2": (RandomPolicy, env.observation_space, env.action_space, model),
            },
            "policy_mapping_fn": select_policy,
        },
    }
    new_config = with_common_config(config)
    trainer = build_trainer(name="PG", default_config=new_config)
    trainer_obj = trainer(config=new_config)
    env = trainer_obj.workers.local_worker().env
    for _ in range(3):
        results = trainer_obj.train()
    assert results["episodes_total"] >= 1 and "player1" in results["info"]["learner"]
    assert sum(env.score.values()) >= 1, env.score
    weights = trainer_obj.get_policy("player1").get_weights()
    mirror = trainer_obj.get_policy("mirror").get_weights()
    pairs = zip(mirror.items(), weights.items())
    trainer_obj.set_weights({"mirror": {k2: v1 for (k2, _), (_, v1) in pairs}, "player1": weights})
    for v1, v2 in zip(weights.values(), trainer_obj.get_policy("mirror").get_weights().values()):
        assert (v1 == v2).all()
    ray.shutdown()
    print("ok program_connect_four_mask")


if __name__ == "__main__":
    main()
