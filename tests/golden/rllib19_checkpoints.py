"""Wrote `rllib19_checkpoints.zip`: checkpoints of RLlib 1.9.2's trainers, and the actions of those trainers.

Runs beside RLlib, not here: Python 3.8, ray[rllib]==1.9.2, torch 1.12.1, tensorflow-cpu 2.7.4, gym 0.19, as
`python rllib19_checkpoints.py OUTPUT.zip`; with ray 1.13.0, and `ppo_torch dqn_torch sac_torch` behind the output, it
wrote `rllib113_checkpoints.zip`. Each trainer has learned from a few rows, so that biases are no zeros and optimisers
have a state. `<case>/checkpoint-2` is the file as RLlib wrote it; `<case>.json` the rows and its actions.
"""

import json
import os
import sys
import tempfile
import zipfile

import numpy as np
import ray
import torch
from ray import cloudpickle as pickle
from ray.rllib.agents.registry import get_trainer_class
from ray.rllib.examples.env.multi_agent import MultiAgentCartPole
from ray.rllib.policy.policy import PolicySpec

SMALL = {"model": {"fcnet_hiddens": [5, 4]}, "num_workers": 0, "num_gpus": 0, "seed": 7, "rollout_fragment_length": 16}
ON_POLICY = {**SMALL, "train_batch_size": 32}
PPO = {**ON_POLICY, "sgd_minibatch_size": 16, "num_sgd_iter": 2, "observation_filter": "MeanStdFilter"}
LSTM = {"fcnet_hiddens": [5], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 8}
REPLAY = {**SMALL, "learning_starts": 20, "train_batch_size": 8, "timesteps_per_iteration": 40, "buffer_size": 100,
          "min_iter_time_s": 0}  # fmt: skip
ACTOR_CRITIC = {key: value for key, value in REPLAY.items() if key != "model"}
HIDDENS = {"actor_hiddens": [5], "critic_hiddens": [5]}
NETS = {"Q_model": {"fcnet_hiddens": [5]}, "policy_model": {"fcnet_hiddens": [5]}}
ASYNC = {**ON_POLICY, "num_workers": 1, "min_iter_time_s": 1}
#: Case -> (algorithm, environment, framework, keys).
CASES = {
    "ppo_torch": ("PPO", "CartPole-v0", "torch", PPO),
    "ppo_tf": ("PPO", "CartPole-v0", "tf", PPO),
    "ppo_tf2": ("PPO", "CartPole-v0", "tfe", PPO),
    "ppo_pendulum": ("PPO", "Pendulum-v0", "torch", PPO),
    "ppo_lstm": ("PPO", "CartPole-v0", "torch", {**PPO, "model": LSTM}),
    "a2c_tf": ("A2C", "CartPole-v0", "tf", {**ON_POLICY, "min_iter_time_s": 0}),
    "pg_torch": ("PG", "CartPole-v0", "torch", ON_POLICY),
    "impala_torch": ("IMPALA", "CartPole-v0", "torch", ASYNC),
    "appo_tf": ("APPO", "CartPole-v0", "tf", ASYNC),
    "dqn_torch": ("DQN", "CartPole-v0", "torch", {**REPLAY, "hiddens": [4]}),
    "dqn_tf": ("DQN", "CartPole-v0", "tf", {**REPLAY, "hiddens": [4]}),
    "dqn_buffer": ("DQN", "CartPole-v0", "torch", {**REPLAY, "hiddens": [4], "store_buffer_in_checkpoints": True}),
    "pg_two": ("PG", "two agents", "torch", {**ON_POLICY, "observation_filter": "MeanStdFilter"}),
    "simple_q_torch": ("SimpleQ", "CartPole-v0", "torch", REPLAY),
    "sac_torch": ("SAC", "Pendulum-v0", "torch", {**ACTOR_CRITIC, **NETS}),
    "sac_tf": ("SAC", "Pendulum-v0", "tf", {**ACTOR_CRITIC, **NETS}),
    "sac_discrete": ("SAC", "CartPole-v0", "torch", {**ACTOR_CRITIC, **NETS}),
    "td3_torch": ("TD3", "Pendulum-v0", "torch", {**ACTOR_CRITIC, **HIDDENS}),
    "td3_tf": ("TD3", "Pendulum-v0", "tf", {**ACTOR_CRITIC, **HIDDENS}),
    "ddpg_torch": ("DDPG", "Pendulum-v0", "torch", {**ACTOR_CRITIC, **HIDDENS}),
}


def values(policy, rows):
    """Returns what SAC's and DDPG's critics say of the rows with actions of 0.5; None of others."""
    if not hasattr(policy.model, "get_q_values") or policy.config["framework"] != "torch":
        return None
    actions = torch.full((len(rows), 1), 0.5)
    if policy.action_space.shape != (1,):
        return None
    made = [policy.model.get_q_values(torch.from_numpy(rows), actions)]
    if getattr(policy.model, "twin_q_net", None) is not None or policy.config.get("twin_q"):
        made.append(policy.model.get_twin_q_values(torch.from_numpy(rows), actions))
    return [(part[0] if isinstance(part, tuple) else part).detach().numpy().ravel().tolist() for part in made]


def without_host(path):
    """Takes name and address of the machine out of what Tune wrote, where it did."""
    with open(path, "rb") as file:
        about = pickle.load(file)
    for key in ("hostname", "node_ip", "pid"):
        about.get("last_result", {}).pop(key, None)
    with open(path, "wb") as file:
        pickle.dump(about, file)


def record(case, into):
    algorithm, env, framework, keys = CASES[case]
    config, pid = {**keys, "framework": framework}, "default_policy"
    if env == "two agents":
        # Each agent has a policy of its own; the rows are for that of the second.
        policies = dict.fromkeys(("policy_0", "policy_1"), PolicySpec())
        config.update(env_config={"num_agents": 2})
        config.update(multiagent={"policies": policies, "policy_mapping_fn": lambda agent, **_: f"policy_{agent}"})
        pid = "policy_1"
    trainer = get_trainer_class(algorithm)(config=config, env=MultiAgentCartPole if env == "two agents" else env)
    for _ in range(2):
        result = trainer.train()
    with tempfile.TemporaryDirectory() as folder:
        path = trainer.save(folder)
        without_host(path + ".tune_metadata")
        for name in (path, path + ".tune_metadata"):
            into.write(name, os.path.join(case, os.path.basename(name)))
    policy = trainer.get_policy(pid)
    space = policy.observation_space
    rows = np.random.RandomState(0).uniform(-1, 1, (12, *space.shape)).astype(np.float32)
    actions = []
    for row in rows:
        state = policy.get_initial_state()
        state = [np.asarray(part) for part in state] or None
        # DDPG's actor of 1.9 acts within the bounds already; RLlib's sampler scaled such actions once more.
        unsquash = algorithm not in ("DDPG", "TD3")
        actions.append(trainer.compute_single_action(row, state=state, explore=False, unsquash_action=unsquash,
                                                     policy_id=pid))  # fmt: skip
    actions = [np.asarray(action[0] if isinstance(action, tuple) else action).tolist() for action in actions]
    about = {"algorithm": algorithm, "env": env, "framework": framework, "config": keys, "rows": rows.tolist(),
             "actions": actions, "timesteps": result["timesteps_total"], "values": values(policy, rows)}  # fmt: skip
    into.writestr(case + ".json", json.dumps(about, default=lambda number: number.item()))
    trainer.stop()


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_LZMA) as archive:
        for each in sys.argv[2:] or CASES:
            record(each, archive)
