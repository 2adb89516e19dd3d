"""Processor time of training under RLlib 1.9.2 and here, over spaces, models, several agents and options.

An environment that costs nothing, so that what is measured is the framework's. Otherwise as `beside_rllib19.py`.

python benchmarks/settings_beside_rllib19.py --rllib-python PATH [--only ppo dqn] [--framework torch]
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time

import numpy as np
from beside_rllib19 import one_thread

OLD = sys.version_info < (3, 9)  # RLlib's side
PACKAGE = "ray.rllib" if OLD else "rlframe"
spaces = importlib.import_module("gym.spaces" if OLD else "gymnasium.spaces")
VECTOR = spaces.Box(-10, 10, (8,), np.float32)
OBSERVATIONS = {
    "vector": VECTOR,
    "discrete": spaces.Discrete(16),
    "dict": spaces.Dict({"a": VECTOR, "b": spaces.Discrete(5), "mask": spaces.Box(0, 1, (4,), np.float32)}),
    "image": spaces.Box(0, 255, (84, 84, 4), np.uint8),
    "small image": spaces.Box(0, 255, (42, 42, 3), np.uint8),
}
PARTS = (spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32))
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "multi": spaces.MultiDiscrete([3, 4]),
    "tuple": spaces.Tuple(PARTS),
}
PPO = {"train_batch_size": 2000, "sgd_minibatch_size": 128, "num_sgd_iter": 10, "rollout_fragment_length": 200}
ON_IMAGES = {**PPO, "train_batch_size": 400, "rollout_fragment_length": 100, "num_sgd_iter": 2}
REPLAY = {"learning_starts": 500, "timesteps_per_iteration": 500, "buffer_size": 10_000}
DQN = {**REPLAY, "timesteps_per_iteration": 1000}
RAINBOW = {"num_atoms": 51, "v_min": -10.0, "v_max": 300.0, "noisy": True, "n_step": 3}
LSTM = {"model": {"use_lstm": True, "lstm_cell_size": 64}}
ATTENTION = {"model": {"use_attention": True, "max_seq_len": 10, "attention_num_transformer_units": 1}}
CURIOSITY = {"exploration_config": {"type": "Curiosity", "sub_exploration": {"type": "StochasticSampling"}}}
SOON = {"min_iter_time_s": 0}
#: Algorithm, what the environment is like, config.
CASES = {
    "ppo": ("PPO", {}, PPO),
    "ppo, discrete observations": ("PPO", {"obs": "discrete"}, PPO),
    "ppo, dict": ("PPO", {"obs": "dict"}, PPO),
    "ppo, box": ("PPO", {"act": "box"}, PPO),
    "ppo, multi": ("PPO", {"act": "multi"}, PPO),
    "ppo, tuple": ("PPO", {"act": "tuple"}, PPO),
    "ppo, image": ("PPO", {"obs": "image"}, ON_IMAGES),
    "ppo, small image": ("PPO", {"obs": "small image"}, ON_IMAGES),
    "ppo, custom model": ("PPO", {}, {**PPO, "model": {"custom_model": "dense"}}),
    "ppo, LSTM": ("PPO", {}, {**PPO, **LSTM}),
    "ppo, attention": ("PPO", {}, {**PPO, **ATTENTION, "num_sgd_iter": 2}),
    "ppo, callbacks": ("PPO", {}, {**PPO, "callbacks": "own"}),
    "ppo, 8 environments": ("PPO", {}, {**PPO, "num_envs_per_worker": 8}),
    "ppo, filter": ("PPO", {}, {**PPO, "observation_filter": "MeanStdFilter"}),
    "ppo, complete episodes": ("PPO", {}, {**PPO, "batch_mode": "complete_episodes"}),
    "ppo, short episodes": ("PPO", {"length": 5}, PPO),
    "ppo, Curiosity": ("PPO", {}, {**PPO, **CURIOSITY}),
    "ppo, 10 agents": ("PPO", {"agents": 10}, PPO),
    "ppo, 10 agents, custom model": ("PPO", {"agents": 10}, {**PPO, "model": {"custom_model": "dense"}}),
    "ppo, 10 agents, LSTM": ("PPO", {"agents": 10}, {**PPO, **LSTM}),
    "dqn": ("DQN", {}, DQN),
    "dqn, dict": ("DQN", {"obs": "dict"}, DQN),
    "dqn, rainbow": ("DQN", {}, {**DQN, **RAINBOW}),
    "dqn, image": ("DQN", {"obs": "image"}, {**DQN, "timesteps_per_iteration": 200, "buffer_size": 2000}),
    "dqn, 10 agents": ("DQN", {"agents": 10}, DQN),
    "r2d2": ("R2D2", {}, {**REPLAY, "buffer_size": 1000, "model": {**LSTM["model"], "max_seq_len": 20}}),
    "sac": ("SAC", {"act": "box"}, REPLAY),
    "sac, discrete": ("SAC", {}, REPLAY),
    "sac, 10 agents": ("SAC", {"act": "box", "agents": 10}, REPLAY),
    "td3": ("TD3", {"act": "box"}, REPLAY),
    "a2c": ("A2C", {}, SOON),
    "a2c, custom model": ("A2C", {}, {**SOON, "model": {"custom_model": "dense"}}),
    "pg": ("PG", {}, {}),
    "pg, 10 agents": ("PG", {"agents": 10}, {}),
    "marwil": ("MARWIL", {}, {}),
}


def imported(module: str, name: str):
    """Returns a name of RLlib's, or of this package."""
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)


class Free(importlib.import_module("gym" if OLD else "gymnasium").Env):
    """Observations out of 64 that are drawn once, rewards that repeat, episodes of one length."""

    def __init__(self, config):
        self.observation_space = OBSERVATIONS[config.get("obs", "vector")]
        self.action_space = ACTIONS[config.get("act", "discrete")]
        self.length = config.get("length", 100)
        self.observation_space.seed(0)
        self.observations = [self.observation_space.sample() for _ in range(64)]

    def reset(self):
        self.steps = 0
        return self.observations[0]

    def step(self, action):
        self.steps += 1
        return self.observations[self.steps % 64], float(self.steps % 3), self.steps >= self.length, {}


class FreeAgents(imported("env.multi_agent_env", "MultiAgentEnv")):
    """Several of them at once, one for each agent."""

    def __init__(self, config):
        super().__init__()
        self.envs = dict(enumerate(Free(config) for _ in range(config["agents"])))
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space

    def reset(self):
        return {agent: env.reset() for agent, env in self.envs.items()}

    def step(self, actions):
        told = {agent: self.envs[agent].step(action) for agent, action in actions.items()}
        obs, rewards, dones, infos = ({agent: four[part] for agent, four in told.items()} for part in range(4))
        return obs, rewards, {**dones, "__all__": all(dones.values())}, infos


def register_model() -> None:
    """Registers a model of a program's own in PyTorch, as "dense"."""
    torch = importlib.import_module("torch")
    base = imported("models.torch.torch_modelv2", "TorchModelV2")

    class Dense(base, torch.nn.Module):
        def __init__(self, *args):
            base.__init__(self, *args)
            torch.nn.Module.__init__(self)
            tanh, linear = torch.nn.Tanh, torch.nn.Linear
            self.body = torch.nn.Sequential(linear(8, 64), tanh(), linear(64, 64), tanh())
            self.outputs, self.values = linear(64, args[2]), linear(64, 1)

        def forward(self, input_dict, state, seq_lens):
            self.features = self.body(input_dict["obs"].float())
            return self.outputs(self.features), state

        def value_function(self):
            return self.values(self.features).squeeze(1)

    imported("models", "ModelCatalog").register_custom_model("dense", Dense)


def own_callbacks():
    """Returns callbacks that do something at each step and episode."""

    class Own(imported("agents.callbacks", "DefaultCallbacks")):
        def on_episode_start(self, *, episode, **kwargs):
            episode.user_data["steps"] = []

        def on_episode_step(self, *, episode, **kwargs):
            episode.user_data["steps"].append(1.0)

        def on_episode_end(self, *, episode, **kwargs):
            episode.custom_metrics["steps"] = float(np.sum(episode.user_data["steps"]))

        def on_postprocess_trajectory(self, *, episode, postprocessed_batch, **kwargs):
            episode.custom_metrics["rows"] = postprocessed_batch.count

    return Own


def train(case: str, framework: str) -> None:
    """Runs one case in this process, and prints milliseconds of its processor per env step: the best iteration's."""
    if OLD:
        importlib.import_module("ray").init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    algorithm, env, config = CASES[case]
    if "custom_model" in config.get("model", {}):
        register_model()
    settings = {**config, "num_workers": 0, "framework": framework, "seed": 1, "env_config": env, "log_level": "ERROR"}
    if "callbacks" in config:
        settings["callbacks"] = own_callbacks()
    if "agents" in env:
        policies = {name: (None, None, None, {}) for name in ("even", "odd")}
        choose = lambda agent, *args, **kwargs: "odd" if agent % 2 else "even"  # noqa: E731 - RLlib calls it in many ways
        settings["multiagent"] = {"policies": policies, "policy_mapping_fn": choose}
    maker = imported("agents.registry", "get_trainer_class")(algorithm)
    trainer = maker(config=settings, env=FreeAgents if "agents" in env else Free)
    for _ in range(3):
        result = trainer.train()
    best, began, rounds = float("inf"), time.monotonic(), 0
    while rounds < 2 or (time.monotonic() - began < 6 and rounds < 15):
        steps, used = result["timesteps_total"], time.process_time()
        result, rounds = trainer.train(), rounds + 1
        best = min(best, (time.process_time() - used) / (result["timesteps_total"] - steps))
    print("figure: " + json.dumps(best * 1000), flush=True)
    trainer.stop()


def measure(python: str, case: str, framework: str) -> float:
    """Runs one case in a process of its own."""
    command = [python, __file__, "--train", case, framework]
    done = subprocess.run(command, capture_output=True, text=True, env=one_thread())
    figures = [line for line in done.stdout.splitlines() if line.startswith("figure: ")]
    if done.returncode or not figures:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return float(figures[0][len("figure: ") :])


def main(rllib_python: str, only: list[str], framework: str) -> None:
    print(f"{'case':<30} RLlib 1.9.2  rlframe  ratio   ({framework}, milliseconds of the processor per env step)")
    for case in only or CASES:
        theirs, ours = (measure(python, case, framework) for python in (rllib_python, sys.executable))
        print(f"{case:<30} {theirs:>11.2f} {ours:>8.2f} {theirs / ours:>6.1f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], sys.argv[3])
    else:
        parser = argparse.ArgumentParser()
        parser.add_argument("--rllib-python", required=True)
        parser.add_argument("--only", nargs="*", default=[], choices=list(CASES))
        parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
        main(**vars(parser.parse_args()))
