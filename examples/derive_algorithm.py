"""Derive an algorithm with `with_updates`: DQN with a Boltzmann loss bonus and a config key of its own.

python examples/derive_algorithm.py --iterations 5
"""

import argparse

from rlframe.agents.dqn import DEFAULT_CONFIG, DQNTorchPolicy, DQNTrainer
from rlframe.agents.dqn.dqn_policy import build_q_losses


def conservative_q_loss(policy, model, dist_class, train_batch):
    """DQN's loss, plus a penalty on Q-values of actions that were not taken (Kumar et al. 2020, in one line)."""
    td_loss = build_q_losses(policy, model, dist_class, train_batch)
    q = policy.online(train_batch["obs"]).q
    taken = q.gather(1, train_batch["actions"].view(-1, 1)).squeeze(1)
    return td_loss + policy.config["conservatism"] * (q.logsumexp(1) - taken).mean()


ConservativePolicy = DQNTorchPolicy.with_updates(name="ConservativePolicy", loss_fn=conservative_q_loss)
ConservativeTrainer = DQNTrainer.with_updates(
    name="ConservativeDQN",
    default_config={**DEFAULT_CONFIG, "conservatism": 0.1},
    default_policy=ConservativePolicy,
)


def main(iterations: int = 5) -> float:
    trainer = ConservativeTrainer({"seed": 0, "conservatism": 0.05}, env="CartPole-v1")
    for _ in range(iterations):
        result = trainer.train()
        stats = result["info"]["learner"]["default_policy"]["learner_stats"]
        steps, mean_return = result["timesteps_total"], result["episode_reward_mean"]
        print(f"{steps:6d} steps, return {mean_return:.1f}, mean Q {stats['mean_q']:.2f}")
    trainer.stop()
    return float(result["episode_reward_mean"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=5)
    main(parser.parse_args().iterations)
