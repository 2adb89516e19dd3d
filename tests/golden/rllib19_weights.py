"""Wrote `rllib19_weights.npz`: weights drawn at random, and what policies of RLlib 1.9.2 compute with them.

Runs beside RLlib, not here: Python 3.8, ray[rllib]==1.9.2, torch 1.13.1, tensorflow-cpu 2.11.1, gym 0.19, as
`python rllib19_weights.py OUTPUT.npz`. All arrays lie one after the other in `data`; `index` says in JSON which.
"""

import contextlib
import json
import sys

import gym
import numpy as np
import tensorflow as tf
from ray.rllib.agents.dqn.dqn import DEFAULT_CONFIG as DQN
from ray.rllib.agents.dqn.dqn_tf_policy import DQNTFPolicy
from ray.rllib.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from ray.rllib.agents.dqn.simple_q import DEFAULT_CONFIG as SIMPLE_Q
from ray.rllib.agents.dqn.simple_q_tf_policy import SimpleQTFPolicy
from ray.rllib.agents.dqn.simple_q_torch_policy import SimpleQTorchPolicy
from ray.rllib.agents.ppo.ppo import DEFAULT_CONFIG as PPO
from ray.rllib.agents.ppo.ppo_tf_policy import PPOTFPolicy
from ray.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy

VECTOR, IMAGE = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(0, 1, (10, 10, 2), np.float32)
TWO, THREE = gym.spaces.Discrete(2), gym.spaces.Discrete(3)
PLANE = gym.spaces.Box(-1, 1, (2,), np.float32)
CONVS = {"conv_filters": [[4, [4, 4], 2], [8, [5, 5], 1]]}
MEMORY = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
ATOMS = {"num_atoms": 3, "noisy": True, "v_min": -1.0, "v_max": 2.0}
CLASSES = {
    "ppo": (PPO, PPOTorchPolicy, PPOTFPolicy),
    "dqn": (DQN, DQNTorchPolicy, DQNTFPolicy),
    "simple_q": (SIMPLE_Q, SimpleQTorchPolicy, SimpleQTFPolicy),
}
CASES = {
    "ppo_separate": ("ppo", VECTOR, TWO, {"fcnet_hiddens": [5, 4]}, {}),
    "ppo_shared_free": (
        "ppo",
        VECTOR,
        PLANE,
        {"fcnet_hiddens": [5], "vf_share_layers": True, "free_log_std": True},
        {},
    ),
    "ppo_vision": ("ppo", IMAGE, THREE, CONVS, {}),
    "ppo_vision_shared": ("ppo", IMAGE, THREE, {**CONVS, "vf_share_layers": True}, {}),
    "ppo_lstm": ("ppo", VECTOR, TWO, {"fcnet_hiddens": [5], **MEMORY}, {}),
    "dqn": ("dqn", VECTOR, TWO, {"fcnet_hiddens": [5, 6]}, {"hiddens": [4]}),
    "dqn_plain": ("dqn", VECTOR, TWO, {"fcnet_hiddens": [5, 6]}, {"hiddens": [4], "dueling": False}),
    "dqn_atoms_noisy": ("dqn", VECTOR, TWO, {"fcnet_hiddens": [5]}, {"hiddens": [4], **ATOMS}),
    "simple_q": ("simple_q", VECTOR, TWO, {"fcnet_hiddens": [5]}, {}),
}


def record(framework, case):
    algorithm, obs, actions, model, keys = CASES[case]
    config, torch_policy, tf_policy = CLASSES[algorithm]
    config = {**config, **keys, "framework": framework, "worker_index": 0, "num_workers": 0}
    config["model"] = {**config["model"], **model}
    with contextlib.ExitStack() as stack:
        if framework == "tf":
            session = stack.enter_context(tf.compat.v1.Session(graph=stack.enter_context(tf.Graph().as_default())))
            with tf.compat.v1.variable_scope("default_policy"):
                policy = tf_policy(obs, actions, config)
            policy._sess = session
            session.run(tf.compat.v1.global_variables_initializer())
        else:
            policy = torch_policy(obs, actions, config)
        rng = np.random.RandomState(0)
        weights = {name: rng.normal(0, 0.4, np.shape(array)) for name, array in policy.get_weights().items()}
        # RLlib's noise cannot be turned off, so there is none.
        weights = {name: (0 if "sigma" in name else 1) * array.astype(np.float32) for name, array in weights.items()}
        policy.set_weights(weights)
        columns = {"obs": rng.uniform(0, 1, (6, *obs.shape)).astype(np.float32)}
        if "use_lstm" in model:
            columns.update({f"state_in_{i}": rng.normal(size=(6, 4)).astype(np.float32) for i in range(2)})
            columns.update(prev_actions=rng.randint(0, 2, 6), prev_rewards=rng.normal(size=6).astype(np.float32))
            if framework == "torch":
                columns["seq_lens"] = np.ones(6, np.int32)
        _, states, extra = policy.compute_actions_from_input_dict(columns, explore=False)
    outputs = {f"state_out_{index}": state for index, state in enumerate(states)}
    outputs["action_dist_inputs"] = extra["action_dist_inputs" if algorithm == "ppo" else "q_values"]
    outputs.update({"vf_preds": extra["vf_preds"]} if "vf_preds" in extra else {})
    columns.pop("seq_lens", None)
    return {"weights": weights, "columns": columns, "outputs": outputs}


index, arrays = [], []
for framework in ("torch", "tf"):
    for case in CASES:
        for kind, named in record(framework, case).items():
            for name, array in named.items():
                arrays.append(np.asarray(array, np.float32).reshape(-1))
                index.append([framework, case, kind, name, np.shape(array)])
np.savez_compressed(sys.argv[1], data=np.concatenate(arrays), index=json.dumps(index))
