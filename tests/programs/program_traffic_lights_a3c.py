"""Traffic lights of a grid share one policy, learnt by A3C in TensorFlow.

Uses RLlib as LucasAlegre/sumo-rl does (experiments/a3c_4x4grid.py): a policy class in the table of policies,
`A3CTFPolicy`, agents that the mapping sends to '0', `no_done_at_end`, and an endless loop of `train()` that prints.
"""

import numpy as np
import ray
from gym import spaces
from rlframe.agents.a3c.a3c import A3CTrainer
from rlframe.agents.a3c.a3c_tf_policy import A3CTFPolicy  # tensorflow
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.tune.registry import register_env


class Grid(MultiAgentEnv):
    """Queues before four crossings; a light lets one of two directions go."""

    observation_space = spaces.Box(low=np.zeros(11), high=np.ones(11))
    action_space = spaces.Discrete(2)

    def __init__(self, num_seconds):
        super().__init__()
        self.lights, self.num_seconds = [str(i) for i in range(4)], num_seconds

    def observe(self):
        phase = np.eye(2)
        return {
            light: np.concatenate([phase[self.phase[light]], np.clip(self.queue[light] / 20, 0, 1), np.zeros(7)])
            for light in self.lights
        }

    def reset(self):
        self.second = 0
        self.phase = dict.fromkeys(self.lights, 0)
        self.queue = {light: np.zeros(2) for light in self.lights}
        return self.observe()

    def step(self, actions):
        self.second += 5
        rewards = {}
        for light, action in actions.items():
            before = self.queue[light].sum()
            self.queue[light] += np.random.poisson(1.0, 2)
            self.queue[light][action] = max(0, self.queue[light][action] - 4)
            self.phase[light] = int(action)
            rewards[light] = before - self.queue[light].sum()
        done = {"__all__": self.second > self.num_seconds}
        return self.observe(), rewards, done, {light: {"queue": self.queue[light].sum()} for light in self.lights}


def main():
    ray.init(num_cpus=2)
    register_env("4x4grid", lambda _: Grid(num_seconds=100))
    trainer = A3CTrainer(
        env="4x4grid",
        config={
            "multiagent": {
                "policies": {"0": (A3CTFPolicy, spaces.Box(low=np.zeros(11), high=np.ones(11)), spaces.Discrete(2), {})},
                "policy_mapping_fn": (lambda id: "0"),
            },
            "lr": 0.001,
            "no_done_at_end": True,
            "num_workers": 1, "model": {"fcnet_hiddens": [16]}, "min_iter_time_s": 1, "framework": "tf",
        },
    )
    for _ in range(2):
        result = trainer.train()
        print(result)
    assert result["timesteps_total"] > 0 and "0" in result["info"]["learner"]
    assert result["episodes_total"] > 0 and result["policy_reward_mean"].keys() == {"0"}
    trainer.stop()
    ray.shutdown()
    print("ok program_traffic_lights_a3c")


if __name__ == "__main__":
    main()
