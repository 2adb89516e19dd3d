"""A graph of who plays against whom: trainers that are Ray actors, exchanged weights, configs pickled beside checkpoints.

Uses RLlib as Jjschwartz/potmmcp does (baposgmcp/rllib: trainer.py, train.py, export_lib.py, import_lib.py, policy.py,
utils.py): `ray.remote` of a trainer class of one's own with a logger that writes nothing, `get_weights` of one policy and
`set_weights` of others while they are references still, a mapping function that looks into `episode.policy_map`, a config
stripped of what cannot be pickled, files of a checkpoint told by their names, and a restored LSTM policy that outlives
its trainer and is unrolled along a history.
"""

import copy
import os
import os.path as osp
import pickle

import gym
import numpy as np
import ray
from rlframe.agents.ppo.ppo import PPOTrainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.policy.policy import PolicySpec
from rlframe.tune.logger import NoopLogger, pretty_print
from rlframe.tune.registry import register_env

CONFIG_FILE = "trainer_config.pkl"


class Pursuit(MultiAgentEnv):
    """Two agents on a ring of five places: agent 0 wants to be where agent 1 is, who sees it come."""

    def __init__(self, config):
        super().__init__()
        assert config["env_name"] == "pursuit"
        self.observation_space, self.action_space = gym.spaces.Box(0, 1, (5,), np.float32), gym.spaces.Discrete(3)

    def observe(self):
        gap = np.eye(5, dtype=np.float32)[(self.at[1] - self.at[0]) % 5]
        return {"0": gap, "1": gap}

    def reset(self):
        self.at, self.t = [0, np.random.randint(1, 5)], 0
        return self.observe()

    def step(self, actions):
        self.t += 1
        for i in range(2):
            self.at[i] = (self.at[i] + int(actions[str(i)]) - 1) % 5
        caught = float(self.at[0] == self.at[1])
        return self.observe(), {"0": caught, "1": -caught}, {"__all__": self.t >= 8}, {}


class GraphPPOTrainer(PPOTrainer):
    def sync_weights(self):
        self.workers.sync_weights()


def noop_logger_creator(config):
    return NoopLogger(config, "")


def symmetric_policy_mapping_fn(agent_id, episode, worker, **kwargs):
    policy_ids = list(episode.policy_map.keys())
    policy_ids.sort()
    return policy_ids[int(agent_id)]


def make_config(default, policy_id):
    config = dict(default)
    spec = PolicySpec(config=dict(config["policy_config"]))
    config.pop("policy_config")
    config["multiagent"] = {
        "policies": {"pi_0": spec, "pi_1": spec}, "policy_mapping_fn": symmetric_policy_mapping_fn,
        "policies_to_train": [policy_id],
    }  # fmt: skip
    return config


def get_remote_trainer(config):
    remote = ray.remote(num_cpus=1, num_gpus=0.0, memory=None, object_store_memory=None, resources=None)(
        GraphPPOTrainer
    )
    return remote.remote(env="pursuit", config=config, logger_creator=noop_logger_creator)


def train(trainers, num_iterations):
    for _ in range(num_iterations):
        futures = {policy_id: trainer.train.remote() for policy_id, trainer in trainers.items()}
        results = {policy_id: ray.get(future) for policy_id, future in futures.items()}
        for policy_id, result in results.items():
            assert set(result["info"]["learner"]) == {policy_id}
            assert "episode_reward_mean" in pretty_print(result)
        weights = {policy_id: trainer.get_weights.remote(policy_id) for policy_id, trainer in trainers.items()}
        for policy_id, trainer in trainers.items():
            for other in set(trainers) - {policy_id}:
                trainer.set_weights.remote(weights[other])
            trainer.sync_weights.remote()
    return results


def export(trainer, export_dir):
    ray.get(trainer.save.remote(export_dir))
    config = copy.deepcopy(ray.get(trainer.get_config.remote()))
    del config["evaluation_config"], config["multiagent"]["policy_mapping_fn"]
    with open(osp.join(export_dir, CONFIG_FILE), "wb") as fout:
        pickle.dump(config, fout)


def import_policy(trainer_dir, policy_id):
    checkpoints = sorted(f for f in os.listdir(trainer_dir) if f.startswith("checkpoint"))
    checkpoint_dir = osp.join(trainer_dir, checkpoints[-1])
    with open(osp.join(trainer_dir, CONFIG_FILE), "rb") as fin:
        config = pickle.load(fin)
    config["multiagent"]["policy_mapping_fn"] = symmetric_policy_mapping_fn
    trainer = GraphPPOTrainer(env="pursuit", config=dict(config), logger_creator=noop_logger_creator)
    # the original looks for the file `checkpoint-N` in the directory
    trainer.restore(osp.join(checkpoint_dir, "checkpoint-%d" % int(checkpoints[-1].split("_")[1])))
    assert trainer.iteration == 2
    policy = trainer.get_policy(policy_id)
    trainer.stop()
    return policy


class UnrolledPolicy:
    def __init__(self, policy):
        self.policy = policy

    def compute_action(self, obs, hidden, last_action):
        return self.policy.compute_single_action(obs, hidden, prev_action=last_action, explore=False)

    def unroll(self, history):
        hidden, action, info = self.policy.get_initial_state(), None, {}
        for last_action, obs in history:
            action, hidden, info = self.compute_action(obs, hidden, last_action)
        return hidden, action, info

    def get_pi(self, info):
        exps = np.exp(info["action_dist_inputs"] - np.max(info["action_dist_inputs"]))
        probs = exps / exps.sum()
        return {a: probs[a] for a in range(len(probs))}


def main():
    ray.init(num_cpus=3, ignore_reinit_error=True)
    register_env("pursuit", Pursuit)
    default = {
        "env_config": {"env_name": "pursuit"}, "framework": "torch", "num_gpus": 0.0, "num_workers": 0,
        "policy_config": {"gamma": 0.95}, "train_batch_size": 160, "sgd_minibatch_size": 80, "num_sgd_iter": 2,
        "rollout_fragment_length": 16, "log_level": "ERROR", "model": {"use_lstm": True, "lstm_cell_size": 8,
        "max_seq_len": 8, "fcnet_hiddens": [8], "vf_share_layers": True},
    }  # fmt: skip
    trainers = {policy_id: get_remote_trainer(make_config(default, policy_id)) for policy_id in ("pi_0", "pi_1")}
    results = train(trainers, num_iterations=2)
    rewards = results["pi_0"]["policy_reward_mean"]
    assert rewards["pi_0"] == -rewards["pi_1"] and rewards["pi_0"] >= 0, rewards
    weights = {key: ray.get(trainer.get_weights.remote()) for key, trainer in trainers.items()}
    for name, value in weights["pi_0"]["pi_0"].items():
        assert np.array_equal(value, weights["pi_1"]["pi_0"][name]), "exchanged after each iteration"

    os.makedirs("export/pi_0")
    export(trainers["pi_0"], "export/pi_0")
    policy = UnrolledPolicy(import_policy("export/pi_0", "pi_0"))
    history = [(None, np.eye(5, dtype=np.float32)[2]), (1, np.eye(5, dtype=np.float32)[1])]
    hidden, action, info = policy.unroll(history)
    assert [np.shape(h) for h in hidden] == [(8,), (8,)] and action in (0, 1, 2)
    pi = policy.get_pi(info)
    assert abs(sum(pi.values()) - 1) < 1e-5 and max(pi, key=pi.get) == action
    assert np.isfinite(info["vf_preds"])
    for name, value in policy.policy.get_weights().items():
        assert np.array_equal(value, weights["pi_0"]["pi_0"][name])
    ray.shutdown()
    print("ok program_interaction_graph")


if __name__ == "__main__":
    main()
