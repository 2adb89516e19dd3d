"""Stock keeping with a DQN whose plan gives priorities by hand, and a PPO whose plan names RLlib 1.0's operator.

Uses RLlib as research toolboxes did that copied the plans of DQN and PPO of RLlib 1.0 to 1.7: `LocalReplayBuffer` with
all its arguments, `samples.policy_batches[policy_id].get("batch_indexes")` with one agent, `UpdateTargetNetwork`,
`calculate_rr_weights`, `TrainTFMultiGPU(rollout_fragment_length=..., num_envs_per_worker=..., train_batch_size=...)`, and
keys that releases up to 1.13 had (`_use_trajectory_view_api`, `memory_per_worker`).
"""

import gym
import numpy as np

from rlframe.agents.dqn.dqn import DEFAULT_CONFIG, DQNTrainer, calculate_rr_weights
from rlframe.agents.ppo.ppo import PPOTrainer
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.replay_buffer import LocalReplayBuffer
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts, SelectExperiences, StandardizeFields
from rlframe.execution.train_ops import TrainOneStep, TrainTFMultiGPU, UpdateTargetNetwork
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY


class Stock(gym.Env):
    """Order one or none; each unit kept costs, each customer without one costs more."""

    observation_space, action_space = gym.spaces.Box(0.0, 10.0, (2,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.random = np.random.RandomState(7)

    def reset(self):
        self.t, self.kept = 0, 3
        return np.array([3, 0], np.float32)

    def step(self, action):
        self.t += 1
        wanted = self.random.randint(2)
        self.kept = min(self.kept + int(action), 9) - wanted
        reward = -0.1 * max(self.kept, 0) - 1.0 * (self.kept < 0)
        self.kept = max(self.kept, 0)
        return np.array([self.kept, wanted], np.float32), reward, self.t >= 20, {}


PRIORITIES = []


def dqn_plan(workers, config):
    buffer = LocalReplayBuffer(
        num_shards=1, learning_starts=config["learning_starts"], buffer_size=config["buffer_size"],
        replay_batch_size=config["train_batch_size"], replay_mode=config["multiagent"]["replay_mode"],
        replay_sequence_length=config.get("replay_sequence_length", 1),
        prioritized_replay_alpha=config["prioritized_replay_alpha"],
        prioritized_replay_beta=config["prioritized_replay_beta"],
        prioritized_replay_eps=config["prioritized_replay_eps"],
    )  # fmt: skip

    def update_prio(item):
        samples, info_dict = item
        prio = {}
        for policy_id, info in info_dict.items():
            td_error = info.get("td_error", info[LEARNER_STATS_KEY].get("td_error"))
            samples.policy_batches[policy_id].set_get_interceptor(None)
            prio[policy_id] = (samples.policy_batches[policy_id].get("batch_indexes"), td_error)
        PRIORITIES.append({policy_id: len(errors) for policy_id, (_, errors) in prio.items()})
        buffer.update_priorities(prio)
        return info_dict

    post_fn = config.get("before_learn_on_batch") or (lambda batch, *_: batch)
    store = ParallelRollouts(workers, mode="bulk_sync").for_each(StoreToReplayBuffer(local_buffer=buffer))
    replay = (
        Replay(local_buffer=buffer)
        .for_each(lambda batch: post_fn(batch, workers, config))
        .for_each(TrainOneStep(workers))
        .for_each(update_prio)
        .for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"]))
    )
    train = Concurrently(
        [store, replay], mode="round_robin", output_indexes=[1], round_robin_weights=calculate_rr_weights(config)
    )
    return StandardMetricsReporting(train, workers, config)


class UpdateKL:
    def __init__(self, workers):
        self.workers = workers

    def __call__(self, fetches):
        def update(policy, policy_id):
            assert LEARNER_STATS_KEY not in fetches, "must be by policy"
            if policy_id in fetches:
                policy.update_kl(fetches[policy_id][LEARNER_STATS_KEY]["kl"])

        self.workers.local_worker().foreach_trainable_policy(update)


def ppo_plan(workers, config):
    rollouts = ParallelRollouts(workers, mode="bulk_sync").for_each(SelectExperiences(workers.trainable_policies()))
    rollouts = rollouts.combine(ConcatBatches(min_batch_size=config["train_batch_size"]))
    train = rollouts.for_each(StandardizeFields(["advantages"])).for_each(
        TrainTFMultiGPU(
            workers, sgd_minibatch_size=config["sgd_minibatch_size"], num_sgd_iter=config["num_sgd_iter"],
            num_gpus=config["num_gpus"], rollout_fragment_length=config["rollout_fragment_length"],
            num_envs_per_worker=config["num_envs_per_worker"], train_batch_size=config["train_batch_size"],
            shuffle_sequences=config["shuffle_sequences"], _fake_gpus=config["_fake_gpus"],
        )
    )  # fmt: skip
    kl = UpdateKL(workers)
    return StandardMetricsReporting(train, workers, config).for_each(lambda result: (kl(result["info"]["learner"]), result)[1])


def main():
    config = DEFAULT_CONFIG.copy()
    config.update(
        {
            "framework": "torch", "num_workers": 0, "buffer_size": 2000, "learning_starts": 50, "train_batch_size": 32,
            "rollout_fragment_length": 4, "timesteps_per_iteration": 200, "min_iter_time_s": 0, "hiddens": [16],
            "target_network_update_freq": 100, "prioritized_replay": True, "seed": 1,
            "_use_trajectory_view_api": True, "memory_per_worker": 0, "model": {"fcnet_hiddens": [16]},
        }
    )  # fmt: skip
    trainer = DQNTrainer.with_updates(name="HandPrioritized", execution_plan=dqn_plan)(env=Stock, config=config)
    for _ in range(2):
        result = trainer.train()
    assert PRIORITIES[0] == {"default_policy": 32}
    assert result["timesteps_total"] >= 400
    trainer.stop()

    on_policy = {
        "framework": "torch", "num_workers": 0, "train_batch_size": 200, "sgd_minibatch_size": 50, "num_sgd_iter": 3,
        "rollout_fragment_length": 100, "disable_env_checking": True, "seed": 1,
    }  # fmt: skip
    trainer = PPOTrainer.with_updates(name="OldPPO", execution_plan=ppo_plan)(env=Stock, config=on_policy)
    before = trainer.get_policy().kl_coeff
    for _ in range(3):
        trainer.train()
    assert trainer.get_policy().kl_coeff != before
    trainer.stop()
    print("ok program_priorities_by_hand")


if __name__ == "__main__":
    main()
