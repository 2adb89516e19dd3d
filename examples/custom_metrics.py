"""Callbacks: metrics of your own per episode, and a curriculum at the end of each iteration.

python examples/custom_metrics.py --iterations 3
"""

import argparse

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer


class PoleAngles(DefaultCallbacks):
    """Follows the pole's angle through each episode."""

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.user_data["angles"] = []

    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.user_data["angles"].append(abs(float(episode.last_raw_obs_for()[2])))

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        angles = episode.user_data["angles"]
        episode.custom_metrics["pole_angle"] = sum(angles) / len(angles)
        episode.hist_data["pole_angles"] = angles

    def on_train_result(self, *, trainer, result, **kwargs):
        result["steady"] = result["custom_metrics"].get("pole_angle_mean", 1.0) < 0.05


def main(iterations: int = 3) -> float:
    trainer = DQNTrainer({"seed": 0, "callbacks": PoleAngles}, env="CartPole-v1")
    for _ in range(iterations):
        result = trainer.train()
        print(f"mean pole angle {result['custom_metrics']['pole_angle_mean']:.4f} rad, steady: {result['steady']}")
    trainer.stop()
    return float(result["custom_metrics"]["pole_angle_mean"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=3)
    main(parser.parse_args().iterations)
