"""Two trainers in one environment: PPO trains one policy and DQN the other; each plays with the other's weights.

python examples/two_trainers.py --iterations 60
"""

import argparse

from rlframe.agents.dqn import DQNTorchPolicy, DQNTrainer
from rlframe.agents.ppo import PPOTorchPolicy, PPOTrainer
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.policy import PolicySpec

# What the two algorithms share a key for is each policy's own.
POLICIES = {
    "ppo_policy": PolicySpec(PPOTorchPolicy, config={"lr": 1e-3, "exploration_config": {"type": "StochasticSampling"}}),
    "dqn_policy": PolicySpec(
        DQNTorchPolicy,
        config={
            "n_step": 3,
            "gamma": 0.95,
            "lr": 1e-3,
            "exploration_config": {"type": "EpsilonGreedy", "epsilon_timesteps": 10_000, "final_epsilon": 0.02},
        },
    ),
}
PPO = {"train_batch_size": 1000, "sgd_minibatch_size": 250, "num_sgd_iter": 6}
DQN = {"timesteps_per_iteration": 1000}


def make(trainer_class, trained: str, own: dict):
    """Agents 0 and 1 act by PPO's policy, 2 and 3 by DQN's; the trainer trains one of the two policies."""
    multiagent = {
        "policies": POLICIES,
        "policy_mapping_fn": lambda agent_id, **kwargs: "ppo_policy" if agent_id < 2 else "dqn_policy",
        "policies_to_train": [trained],
    }
    config = {"num_workers": 0, "seed": 0, "min_iter_time_s": 0, "multiagent": multiagent,
              "model": {"fcnet_hiddens": [64], "vf_share_layers": False}, "env_config": {"num_agents": 4}}  # fmt: skip
    return trainer_class({**config, **own}, env=MultiAgentCartPole)


def main(iterations: int = 60) -> tuple[float, float]:
    ppo, dqn = make(PPOTrainer, "ppo_policy", PPO), make(DQNTrainer, "dqn_policy", DQN)
    best = {"ppo_policy": 0.0, "dqn_policy": 0.0}
    for iteration in range(iterations):
        for trainer, policy_id in ((ppo, "ppo_policy"), (dqn, "dqn_policy")):
            reward = trainer.train()["policy_reward_mean"].get(policy_id, 0.0)
            best[policy_id] = max(best[policy_id], reward)
        # By hand: each trainer gets the other's policy as it is now.
        dqn.set_weights(ppo.get_weights(["ppo_policy"]))
        ppo.set_weights(dqn.get_weights(["dqn_policy"]))
        print(f"{iteration + 1}: best mean return {best}")
        if min(best.values()) >= 150:
            break
    ppo.stop()
    dqn.stop()
    return best["ppo_policy"], best["dqn_policy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=60)
    main(parser.parse_args().iterations)
