"""A PettingZoo game with A2C: an environment object shared through `register_env`, `local_mode`, a changed default.

Uses RLlib as student projects on PettingZoo's particle games do: `deepcopy(A2C_DEFAULT_CONFIG)` with an `lr_schedule`,
`PettingZooEnv` around a wrapped AEC environment, `ray.init(local_mode=True)`, and a table printed from the result.
"""

from copy import deepcopy

import numpy as np
import ray
from pettingzoo.classic import tictactoe_v3

import rlframe.agents.a3c.a2c as a2c
from rlframe.agents.registry import get_agent_class
from rlframe.env import PettingZooEnv
from ray.tune.registry import register_env
from rlframe.models import ModelCatalog
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.torch_modelv2 import TorchModelV2
import torch

LINE = "{:3d} reward {:6.2f}/{:6.2f}/{:6.2f} len {:6.2f}"


class Masked(TorchModelV2, torch.nn.Module):
    """Hides moves that the game does not allow; sees the board only."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        torch.nn.Module.__init__(self)
        board = obs_space.original_space["observation"]
        self.inner = FullyConnectedNetwork(board, action_space, num_outputs, model_config, name + "_inner")

    def forward(self, input_dict, state, seq_lens):
        board = input_dict["obs"]["observation"].float().flatten(1)
        logits, _ = self.inner({"obs": board, "obs_flat": board})
        return logits + torch.clamp(torch.log(input_dict["obs"]["action_mask"].float()), min=-1e10), state

    def value_function(self):
        return self.inner.value_function()


def main():
    config = deepcopy(a2c.A2C_DEFAULT_CONFIG)
    config["env_config"] = {}
    config["rollout_fragment_length"] = 20
    config["num_workers"] = 0
    config["num_envs_per_worker"] = 1
    config["framework"] = "torch"
    config["lr_schedule"] = [[0, 0.007], [20000000, 0.0000000001]]
    config["clip_rewards"] = True
    config["timesteps_per_iteration"] = 100
    config["min_iter_time_s"] = 0
    ModelCatalog.register_custom_model("masked", Masked)
    config["model"] = {"custom_model": "masked"}
    game = PettingZooEnv(tictactoe_v3.env())
    register_env("tictactoe", lambda _: game)
    assert get_agent_class("A2C") is a2c.A2CTrainer
    agent = a2c.A2CTrainer(env="tictactoe", config=config)
    for it in range(3):
        result = agent.train()
        print(LINE.format(it + 1, result["episode_reward_min"], result["episode_reward_mean"],
                          result["episode_reward_max"], result["episode_len_mean"]))
    assert 4 < result["episode_len_mean"] < 20, result["episode_len_mean"]
    observation = game.reset()
    (seat,) = observation[0] if isinstance(observation, tuple) else observation
    first = (observation[0] if isinstance(observation, tuple) else observation)[seat]
    assert first["action_mask"][int(agent.compute_action(first))] == 1
    assert np.isclose(result["info"]["learner"]["default_policy"]["learner_stats"]["cur_lr"], 0.007, rtol=1e-3)
    agent.stop()
    print("ok program_pettingzoo_a2c")


if __name__ == "__main__":
    main()
