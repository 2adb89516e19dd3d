"""Self-play: one player in both seats of tic-tac-toe learns in the first against itself in the second.

python examples/decentralized.py --episodes 3000        (needs: pip install -e '.[multiagent]')
"""

import argparse

from rlframe.agents.decentralized import DecentralizedTrainer, LearningPlayer, RandomPlayer, round_robin

DQN = {"model": {"fcnet_hiddens": [64, 64]}, "lr": 1e-3, "gamma": 0.95, "train_batch_size": 64, "learning_starts": 200,
       "rollout_fragment_length": 16,
       "exploration_config": {"epsilon_timesteps": 4000, "final_epsilon": 0.1}}  # fmt: skip


def main(episodes: int = 3000) -> float:
    trainer = DecentralizedTrainer(
        env="pettingzoo.classic.tictactoe_v3:env", episodes_per_train=episodes, test_freq=episodes, seed=0
    )
    player, chance = LearningPlayer("DQN", DQN, name="player"), RandomPlayer("chance")
    trainer.train([player, player], learning_mask=[1, 0], plot=False)
    table = round_robin(trainer, [player, chance])
    for name, rating in table["ratings"].items():
        print(f"{name}: rated {rating:.0f}")
    return table["ratings"]["player"] - table["ratings"]["chance"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=3000)
    main(parser.parse_args().episodes)
