"""Two drones, one shooting, one defending: PPO with an LSTM per policy, trained, saved and restored by a script.

Uses RLlib as gym-pybullet-drones' duel does (its multi-agent script): spaces by integer agent id inside a Dict, configs
for the model per policy, `policy_mapping_fn` with one argument, a trainer restored from the printed path, then one
episode driven by hand with a state per agent.
"""

import argparse
import tempfile

import numpy as np
import ray
from gym import spaces
from ray.tune import register_env

from rlframe.agents import ppo
from rlframe.env.multi_agent_env import MultiAgentEnv


class Duel(MultiAgentEnv):
    """The shooter wants to be near the goal, the defender near the shooter."""

    shooter_id, defender_id = 0, 1

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Dict({0: spaces.Box(-2, 2, (4,), np.float32), 1: spaces.Box(-2, 2, (5,), np.float32)})
        self.action_space = spaces.Dict({0: spaces.Box(-1, 1, (2,), np.float32), 1: spaces.Box(-1, 1, (2,), np.float32)})

    def observe(self):
        both = np.concatenate([self.x[0], self.x[1]]).astype(np.float32)
        return {0: both, 1: np.append(both, np.float32(self.t / 15))}

    def reset(self):
        self.t, self.x = 0, np.array([[1.0, 0.0], [-1.0, 0.0]])
        return self.observe()

    def step(self, action):
        self.t += 1
        for i in action:
            self.x[i] = np.clip(self.x[i] + 0.1 * np.asarray(action[i]), -2, 2)
        goal, apart = np.linalg.norm(self.x[0]), np.linalg.norm(self.x[0] - self.x[1])
        over = self.t >= 15
        return self.observe(), {0: -goal, 1: -apart}, {0: over, 1: over, "__all__": over}, {0: {}, 1: {}}


def select_policy(agent_id):
    return "defender" if agent_id == 1 else "shooter"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lstm", default=True)
    parser.add_argument("--num_workers", default=1)
    args = parser.parse_args([])
    env = Duel()
    ray.init(local_mode=False, num_cpus=2, include_dashboard=False)
    register_env("shoot-and-defend-v0", lambda _: Duel())
    model = {"fcnet_hiddens": [32, 16], "fcnet_activation": "relu", "use_lstm": args.lstm, "lstm_cell_size": 8}
    config = ppo.DEFAULT_CONFIG.copy()
    config["num_workers"] = args.num_workers
    config["framework"] = "torch"
    config["env"] = "shoot-and-defend-v0"
    config["train_batch_size"] = 240
    config["rollout_fragment_length"] = 120
    config["sgd_minibatch_size"] = 240 // 8
    config["lr"] = 1e-4
    config["gamma"] = 0.9995
    config["num_sgd_iter"] = 2
    config["multiagent"] = {
        "policies_to_train": ["shooter", "defender"],
        "policies": {
            name: (None, env.observation_space[i], env.action_space[i], {"model": dict(model)})
            for i, name in ((env.shooter_id, "shooter"), (env.defender_id, "defender"))
        },
        "policy_mapping_fn": select_policy,
    }
    agent = ppo.PPOTrainer(config)
    with tempfile.TemporaryDirectory() as folder:
        for i in range(2):
            results = agent.train()
            print("[INFO] {:d}: max {:f} min {:f} mean {:f}".format(
                i, results["episode_reward_max"], results["episode_reward_min"], results["episode_reward_mean"]))
        checkpoint = agent.save(folder)
        agent.stop()
        config["num_workers"] = 0
        agent = ppo.PPOTrainer(config)
        agent.restore(checkpoint)
        assert agent.iteration == 2
    obs, done = env.reset(), {"__all__": False}
    states = {i: agent.get_policy(select_policy(i)).get_initial_state() for i in obs}
    while not done["__all__"]:
        action = {}
        for i in obs:
            action[i], states[i], _ = agent.compute_action(obs[i], state=states[i], policy_id=select_policy(i), explore=False)
        obs, reward, done, info = env.step(action)
    assert np.any(states[0][0] != 0) and states[0][0].shape == (8,)
    agent.stop()
    ray.shutdown()
    print("ok program_drone_duel_lstm")


if __name__ == "__main__":
    main()
