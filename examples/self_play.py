"""Self-play with a growing league: tic-tac-toe against past selves, which a callback adds.

python examples/self_play.py --iterations 40        (needs: pip install "rlframe[multiagent]")
"""

import argparse

import numpy as np
from pettingzoo.classic import tictactoe_v3

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.ppo import PPOTrainer
from rlframe.models.torch.action_mask import ActionMaskModel
from rlframe.policy.policy import Policy, PolicySpec


class RandomMoves(Policy):
    """Plays any of the allowed moves; has nothing to learn."""

    def __init__(self, observation_space, action_space, config):
        super().__init__(observation_space, action_space, config)
        self.rng = np.random.default_rng(config.get("seed"))

    def compute_actions(self, obs_batch, state_batches=None, **kwargs):
        masks = obs_batch[:, :9]  # keys of Dict observations are flattened in alphabetical order: action_mask first
        return [self.rng.choice(np.flatnonzero(mask)) for mask in masks], [], {}


def opponents(league):
    """Lets the learner play one side, and any of the league the other; sides change from game to game."""

    def mapping(agent_id, episode, worker, **kwargs):
        learns = ("player_1", "player_2")[episode.episode_id % 2] == agent_id
        return "main" if learns else league[episode.episode_id // 2 % len(league)]

    return mapping


class League(DefaultCallbacks):
    """Adds a frozen copy of the learner to the league whenever it loses less than three games in ten."""

    def on_train_result(self, *, trainer, result, **kwargs):
        games = result["hist_stats"]["policy_main_reward"]
        result["not_lost"] = float(np.mean([reward >= 0 for reward in games]))
        result["league"] = len(trainer.workers.local_worker().policy_map) - 1
        if result["not_lost"] > 0.7 and result["league"] < 5:
            name = f"past_{result['league']}"
            league = [pid for pid in trainer.workers.local_worker().policy_map if pid != "main"] + [name]
            past = trainer.add_policy(name, policy_mapping_fn=opponents(league), policies_to_train=["main"])
            past.set_weights(trainer.get_policy("main").get_weights())


def main(iterations: int = 40) -> tuple[float, int]:
    multiagent = {
        "policies": {"main": PolicySpec(), "random": PolicySpec(RandomMoves)},
        "policy_mapping_fn": opponents(["random"]),
        "policies_to_train": ["main"],
    }
    config = {"num_workers": 0, "num_envs_per_worker": 8, "seed": 0, "callbacks": League,
              "multiagent": multiagent, "model": {"custom_model": ActionMaskModel, "fcnet_hiddens": [64, 64]},
              "lr": 1e-3, "train_batch_size": 2000, "sgd_minibatch_size": 250, "num_sgd_iter": 6,
              "entropy_coeff": 0.01}  # fmt: skip
    trainer = PPOTrainer(config, env=tictactoe_v3.env)
    for iteration in range(iterations):
        result = trainer.train()
        print(f"{iteration + 1}: not lost {result['not_lost']:.2f}, league of {result['league']}")
    trainer.stop()
    return float(result["not_lost"]), result["league"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=40)
    main(parser.parse_args().iterations)
