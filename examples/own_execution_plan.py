"""An execution plan of your own: DQN that learns from four replayed batches for each sample, and reports its plan.

python examples/own_execution_plan.py --iterations 3
"""

import argparse

from rlframe.agents.dqn import DQNTrainer
from rlframe.execution.common import STEPS_SAMPLED_COUNTER
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer, TrainOneStep, UpdateTargetNetwork


def count_large_rewards(batch):
    """An operator is any function: counts steps that paid, in the plan's shared counters."""
    LocalIterator.get_metrics().counters["paid_steps"] += int((batch["rewards"] > 0).sum())
    return batch


def execution_plan(workers, config, *, local_replay_buffer):
    """Samples and stores; learns four replayed batches for each sample."""
    rollouts = ParallelRollouts(workers, mode="bulk_sync").for_each(count_large_rewards)
    store = rollouts.for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))
    learn = (
        Replay(local_buffer=local_replay_buffer)
        .for_each(TrainOneStep(workers))
        .for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"]))
    )
    train = Concurrently([store, learn], mode="round_robin", output_indexes=[1], round_robin_weights=[1, 4])
    return StandardMetricsReporting(train, workers, config)


EagerDQN = DQNTrainer.with_updates(name="EagerDQN", execution_plan=execution_plan)


def main(iterations: int = 3) -> float:
    trainer = EagerDQN({"seed": 0, "prioritized_replay": False}, env="CartPole-v1")
    for _ in range(iterations):
        result = trainer.train()
    print(f"{result['info']['paid_steps']} of {result['info'][STEPS_SAMPLED_COUNTER]} steps paid")
    print(trainer.plan_report())
    trainer.stop()
    return float(result["info"]["paid_steps"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=3)
    main(parser.parse_args().iterations)
