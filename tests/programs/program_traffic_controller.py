"""Autonomous cars in traffic: a trained run is read back from its params.json and driven, with and without an LSTM.

Uses RLlib as flow-project/flow does (examples/train.py, flow/visualize/visualizer_rllib.py, flow/utils/rllib.py):
`get_agent_class` from either of its places, `deepcopy(agent_cls._default_config)`, flow parameters as JSON text inside
`env_config`, `env_config.run` that names the algorithm, `policy_graphs`-like multiagent dicts put back by hand, zeros of
`lstm_cell_size` as first state, and `compute_action` that returns three things then.
"""

import json
import os
from copy import deepcopy

import gym
import numpy as np
import ray

try:
    from rlframe.agents.agent import get_agent_class
except ImportError:
    from rlframe.agents.registry import get_agent_class
from rlframe.env.multi_agent_env import MultiAgentEnv
from ray.tune.registry import register_env

HORIZON = 20


class Ring(MultiAgentEnv):
    """Cars on a ring accelerate; all are paid for the mean speed and punished for its spread."""

    def __init__(self, cars):
        super().__init__()
        self.names = [f"rl_{i}" for i in range(cars)]
        self.observation_space = gym.spaces.Box(-5, 5, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        self.speed, self.t = np.linspace(0, 1, len(self.names)), 0
        return self.observe()

    def observe(self):
        return {name: np.array([self.speed[i], self.speed.mean()], np.float32) for i, name in enumerate(self.names)}

    def step(self, actions):
        pushes = np.array([float(actions[name][0]) for name in self.names])
        self.speed = np.clip(self.speed + 0.1 * np.clip(pushes, -1, 1), 0, 2)
        self.t += 1
        reward = float(self.speed.mean() - self.speed.std())
        return self.observe(), dict.fromkeys(self.names, reward), {"__all__": self.t >= HORIZON}, {}


def make_create_env(params, version=0):
    name = f"{params['env_name']}-v{version}"
    return (lambda *_: Ring(params["vehicles"])), name


def setup_exps(flow_params, use_lstm):
    alg_run = "PPO"
    agent_cls = get_agent_class(alg_run)
    config = deepcopy(agent_cls._default_config)
    config["framework"] = "torch"
    config["num_workers"] = 0
    config["train_batch_size"] = HORIZON * 4
    config["gamma"] = 0.999
    config["model"].update({"fcnet_hiddens": [16, 16], "use_lstm": use_lstm, "lstm_cell_size": 8})
    config["use_gae"] = True
    config["lambda"] = 0.97
    config["kl_target"] = 0.02
    config["num_sgd_iter"] = 2
    config["sgd_minibatch_size"] = 40
    config["clip_actions"] = False
    config["horizon"] = HORIZON
    config["env_config"]["flow_params"] = json.dumps(flow_params, sort_keys=True, indent=4)
    config["env_config"]["run"] = alg_run
    create_env, name = make_create_env(params=flow_params)
    register_env(name, create_env)
    env = create_env()
    config["multiagent"].update({
        "policies": {"av": (None, env.observation_space, env.action_space, {})},
        "policy_mapping_fn": lambda _: "av",
        "policies_to_train": ["av"],
    })
    return agent_cls, name, config


def visualize(config, multiagent, checkpoint):
    config = dict(config, num_workers=0, multiagent=multiagent)
    flow_params = json.loads(config["env_config"]["flow_params"])
    agent_cls = get_agent_class(config["env_config"]["run"])
    create_env, name = make_create_env(params=flow_params)
    register_env(name, create_env)
    agent = agent_cls(env=name, config=config)
    agent.restore(checkpoint)
    env, mapping = create_env(), multiagent["policy_mapping_fn"]
    use_lstm = config["model"]["use_lstm"]
    size = config["model"]["lstm_cell_size"]
    first = {key: [np.zeros(size, np.float32), np.zeros(size, np.float32)] for key in multiagent["policies"]}
    state, states, ret = env.reset(), {}, {key: 0.0 for key in multiagent["policies"]}
    for _ in range(HORIZON):
        action = {}
        for agent_id in state.keys():
            if use_lstm:
                action[agent_id], states[agent_id], logits = agent.compute_action(
                    state[agent_id], state=states.get(agent_id, first[mapping(agent_id)]), policy_id=mapping(agent_id))
            else:
                action[agent_id] = agent.compute_action(state[agent_id], policy_id=mapping(agent_id))
        state, reward, done, _ = env.step(action)
        for actor, value in reward.items():
            ret[mapping(actor)] += value
        if done["__all__"]:
            break
    agent.stop()
    return ret


def main():
    ray.init(num_cpus=1)
    for use_lstm in (False, True):
        flow_params = {"env_name": "MultiRing", "vehicles": 3, "sim": {"render": False}}
        agent_cls, name, config = setup_exps(flow_params, use_lstm)
        agent = agent_cls(env=name, config=config)
        for _ in range(2):
            result = agent.train()
        assert result["policy_reward_mean"]["av"] * 3 == result["episode_reward_mean"] or np.isclose(
            result["policy_reward_mean"]["av"] * 3, result["episode_reward_mean"], rtol=1e-4)
        checkpoint = agent.save(os.path.join(os.getcwd(), "result"))
        plain = {k: v for k, v in config.items() if k not in ("multiagent", "callbacks")}
        params = json.loads(json.dumps({k: plain[k] for k in ("env_config", "model", "framework", "gamma", "horizon")}))
        agent.stop()
        ret = visualize(params, config["multiagent"], checkpoint)
        assert np.isfinite(ret["av"]) and abs(ret["av"]) < 3 * HORIZON * 2
    ray.shutdown()
    print("ok program_traffic_controller")


if __name__ == "__main__":
    main()
