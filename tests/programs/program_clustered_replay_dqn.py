"""Replay by kinds of episodes: DQN's plan rebuilt around buffers of one's own, statistics of one's own.

Uses RLlib as the explanation-aware agents of proroklab-style research code do (xarl's XADQN): `merge_trainer_configs`
with `_allow_unknown_configs`, names imported by way of `agents.dqn.dqn`, `split_by_episode`, `timeslices` and `flatten`
in a plan, `Replay` and `StoreToReplayBuffer` written by the user, `with_updates` of `stats_fn`, of the plan and of
`get_policy_class`.
"""

import random
from collections import defaultdict

import gym
import numpy as np

from rlframe.agents.dqn.dqn import (
    DEFAULT_CONFIG as DQN_DEFAULT_CONFIG,
    LEARNER_STATS_KEY,
    Concurrently,
    DQNTrainer,
    StandardMetricsReporting,
    TrainOneStep,
    UpdateTargetNetwork,
    calculate_rr_weights,
)
from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy, compute_q_values
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.policy.sample_batch import DEFAULT_POLICY_ID, SampleBatch
from rlframe.utils.torch_ops import explained_variance
from ray.util.iter import LocalIterator
from ray.util.iter_metrics import SharedMetrics

CONFIG = DQNTrainer.merge_trainer_configs(
    DQN_DEFAULT_CONFIG,
    {
        "buffer_options": {"priority_id": "weights", "size": 300, "clusters": 2},
        "clustering_scheme": "extrinsic_reward",
        "replay_sequence_length": 1,
        "batch_mode": "complete_episodes",
    },
    _allow_unknown_configs=True,
)


class Clusters:
    """Slices of episodes by whether they paid; each kind is replayed equally often."""

    def __init__(self, size):
        self.size, self.kinds, self.updated = size, defaultdict(list), 0

    def store(self, piece):
        kind = self.kinds[bool(piece["rewards"].sum() > 0)]
        kind.append(piece)
        del kind[: -self.size]
        return piece

    def replay(self, count):
        kinds = [kind for kind in self.kinds.values() if kind]
        return [random.choice(random.choice(kinds)) for _ in range(count)] if kinds else []


def build_stats(policy, batch):
    values = compute_q_values(policy, policy.model, {"obs": batch[SampleBatch.CUR_OBS]}, explore=False, is_training=True)[0]
    chosen = values.gather(1, batch[SampleBatch.ACTIONS].long().unsqueeze(1))[:, 0]
    return {"cur_lr": policy.cur_lr, "reward_explained": explained_variance(batch[SampleBatch.REWARDS], chosen)}


ClusteredPolicy = DQNTorchPolicy.with_updates(name="ClusteredPolicy", stats_fn=build_stats)


def get_policy_class(config):
    return ClusteredPolicy if config["framework"] == "torch" else None


def plan(workers, config):
    buffer = Clusters(config["buffer_options"]["size"])
    assert config["clustering_scheme"] == "extrinsic_reward"

    def update_priorities(item):
        batch, info = item
        td_error = info[DEFAULT_POLICY_ID].get("td_error", info[DEFAULT_POLICY_ID][LEARNER_STATS_KEY].get("td_error"))
        assert len(td_error) == batch.count
        buffer.updated += 1
        return info

    store_op = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(lambda batch: batch.split_by_episode())
        .flatten()
        .for_each(lambda episode: episode.timeslices(config["replay_sequence_length"]))
        .flatten()
        .for_each(buffer.store)
    )

    def replay(_):
        while True:
            for piece in buffer.replay(config["train_batch_size"]):
                yield piece

    replay_op = (
        LocalIterator(replay, SharedMetrics())
        .combine(ConcatBatches(min_batch_size=config["train_batch_size"]))
        .for_each(TrainOneStep(workers))
        .for_each(update_priorities)
        .for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"]))
    )
    train_op = Concurrently([store_op, replay_op], mode="round_robin", output_indexes=[1],
                            round_robin_weights=calculate_rr_weights(config))
    return StandardMetricsReporting(train_op, workers, config)


ClusteredTrainer = DQNTrainer.with_updates(
    name="Clustered", default_config=CONFIG, execution_plan=plan, get_policy_class=get_policy_class
)


def main():
    random.seed(0)
    trainer = ClusteredTrainer(
        env="CartPole-v1",
        config={
            "framework": "torch", "num_workers": 0, "timesteps_per_iteration": 100, "min_iter_time_s": 0,
            "train_batch_size": 16, "learning_starts": 0, "target_network_update_freq": 50, "seed": 1,
            "model": {"fcnet_hiddens": [16]}, "hiddens": [], "prioritized_replay": False,
        },
    )  # fmt: skip
    for _ in range(2):
        result = trainer.train()
    stats = result["info"]["learner"][DEFAULT_POLICY_ID][LEARNER_STATS_KEY]
    assert np.isfinite(float(stats["reward_explained"])), stats
    assert result["info"]["num_steps_trained"] >= 16
    assert isinstance(trainer.get_policy(), ClusteredPolicy)
    trainer.stop()
    print("ok program_clustered_replay_dqn")


if __name__ == "__main__":
    main()
