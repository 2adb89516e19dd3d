"""A football team: as many PPO policies as players, in a config of RLlib 0.7's spelling.

Uses RLlib as google-research/football does (gfootball/examples/run_multiagent_rllib.py): a `MultiAgentEnv` around an
environment of many players whose spaces are cut to one player's, policies as tuples with None as class, old names
(`sample_batch_size`, `vf_share_layers` at the top and as text, `simple_optimizer`) and a mapping in `tune.function`.
"""

import argparse

import gym
import numpy as np
import ray
from rlframe import tune
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.tune.registry import register_env

parser = argparse.ArgumentParser()
parser.add_argument("--num-agents", type=int, default=3)
parser.add_argument("--num-policies", type=int, default=3)
parser.add_argument("--num-iters", type=int, default=2)
parser.add_argument("--simple", action="store_true")


class Football:
    """Players on small pitches of their own, seen from above; the ball rolls to whoever runs right."""

    def __init__(self, players):
        self.observation_space = gym.spaces.Box(0, 255, (players, 42, 42, 4), np.uint8)
        self.action_space = gym.spaces.MultiDiscrete([4] * players)
        self.players = players

    def observe(self):
        seen = np.zeros(self.observation_space.shape, np.uint8)
        for player, x in enumerate(self.at):
            seen[player, 21, x] = 255
        return seen

    def reset(self):
        self.at, self.t = np.full(self.players, 20), 0
        return self.observe()

    def step(self, actions):
        self.t += 1
        self.at = np.clip(self.at + np.array([(0, 1, -1, 0)[int(a)] for a in actions]), 0, 41)
        return self.observe(), (self.at - 20).astype(np.float32) / 20, self.t >= 15, {"score": 0}


class RllibGFootball(MultiAgentEnv):
    def __init__(self, num_agents):
        self.env = Football(num_agents)
        self.action_space = gym.spaces.Discrete(self.env.action_space.nvec[1])
        self.observation_space = gym.spaces.Box(
            low=self.env.observation_space.low[0], high=self.env.observation_space.high[0],
            dtype=self.env.observation_space.dtype,
        )  # fmt: skip
        self.num_agents = num_agents

    def reset(self):
        original_obs = self.env.reset()
        return {"agent_%d" % x: original_obs[x] for x in range(self.num_agents)}

    def step(self, action_dict):
        actions = [value for key, value in sorted(action_dict.items())]
        o, r, d, i = self.env.step(actions)
        rewards, obs, infos = {}, {}, {}
        for pos, key in enumerate(sorted(action_dict.keys())):
            infos[key], rewards[key], obs[key] = i, r[pos], o[pos]
        return obs, rewards, {"__all__": d}, infos


def main():
    args = parser.parse_args([])
    ray.init(num_gpus=0, num_cpus=3)
    register_env("gfootball", lambda _: RllibGFootball(args.num_agents))
    single_env = RllibGFootball(args.num_agents)
    obs_space, act_space = single_env.observation_space, single_env.action_space

    def gen_policy(_):
        return (None, obs_space, act_space, {})

    policies = {"policy_{}".format(i): gen_policy(i) for i in range(args.num_policies)}
    policy_ids = list(policies.keys())
    trials = tune.run(
        "PPO",
        stop={"training_iteration": args.num_iters},
        checkpoint_freq=50,
        config={
            "env": "gfootball", "lambda": 0.95, "kl_coeff": 0.2, "clip_rewards": False, "vf_clip_param": 10.0,
            "entropy_coeff": 0.01, "train_batch_size": 60, "sample_batch_size": 30, "sgd_minibatch_size": 30,
            "num_sgd_iter": 1, "num_workers": 1, "num_envs_per_worker": 1, "batch_mode": "truncate_episodes",
            "observation_filter": "NoFilter", "vf_share_layers": "true", "num_gpus": 0, "lr": 2.5e-4,
            "log_level": "ERROR", "simple_optimizer": args.simple, "framework": "torch",
            "multiagent": {
                "policies": policies,
                "policy_mapping_fn": tune.function(lambda agent_id: policy_ids[int(agent_id[6:])]),
            },
        },
    ).trials  # fmt: skip
    result = trials[0].last_result
    assert set(result["info"]["learner"]) == set(policy_ids)
    assert set(result["policy_reward_mean"]) == set(policy_ids)
    assert result["episode_len_mean"] == 15
    ray.shutdown()
    print("ok program_football_ensemble")


if __name__ == "__main__":
    main()
