"""Trainers of Ray 1.11 to 2.0 that override `training_iteration` or `training_step`: PG, PPO, a DQN, and two together.

Uses RLlib as research code of these releases does: `synchronous_parallel_sample`, `train_one_step` and
`multi_gpu_train_one_step`, `self._counters` and `self._timers`, `sync_weights(global_vars=..., policies=...)`,
`sample_min_n_steps_from_buffer`, `update_priorities_in_replay_buffer`, `setup()` that makes the buffer, policies of which
one learns by PPO and one by DQN, `super().training_iteration()`, and a method that trains nothing.
"""

import gym
import numpy as np

from rlframe.agents.dqn.dqn import DQNTrainer, calculate_rr_weights
from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from rlframe.agents.pg.pg import PGTrainer
from rlframe.agents.ppo.ppo import PPOTrainer
from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from rlframe.agents.trainer import Trainer, with_common_config
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.evaluation.postprocessing import Postprocessing
from rlframe.execution.common import LAST_TARGET_UPDATE_TS, NUM_TARGET_UPDATES
from rlframe.execution.rollout_ops import standardize_fields, synchronous_parallel_sample
from rlframe.execution.train_ops import multi_gpu_train_one_step, train_one_step
from rlframe.policy.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.utils.annotations import override
from rlframe.utils.metrics import (
    NUM_AGENT_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TARGET_NET_UPDATE_TIMER,
)
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY
from rlframe.utils.replay_buffers import MultiAgentPrioritizedReplayBuffer
from rlframe.utils.replay_buffers.utils import sample_min_n_steps_from_buffer, update_priorities_in_replay_buffer
from rlframe.utils.sgd import standardized
from rlframe.utils.typing import PartialTrainerConfigDict, ResultDict

SMALL = {
    "framework": "torch", "num_workers": 0, "seed": 5, "rollout_fragment_length": 20, "train_batch_size": 100,
    "model": {"fcnet_hiddens": [16]}, "min_time_s_per_reporting": 0,
}  # fmt: skip


class Corridor(gym.Env):
    """Walk right to the end."""

    observation_space, action_space = gym.spaces.Box(0.0, 10.0, (1,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.length = 5

    def reset(self):
        self.at = self.t = 0
        return np.array([self.at], np.float32)

    def step(self, action):
        self.t += 1
        self.at = max(self.at + (1 if action else -1), 0)
        done = self.at >= self.length or self.t >= 20
        return np.array([self.at], np.float32), 1.0 if self.at >= self.length else -0.1, done, {}


class ReinforceTrainer(PGTrainer):
    @override(Trainer)
    def training_iteration(self) -> ResultDict:
        if self._by_agent_steps:
            batch = synchronous_parallel_sample(
                worker_set=self.workers, max_agent_steps=self.config["train_batch_size"]
            )
        else:
            batch = synchronous_parallel_sample(worker_set=self.workers, max_env_steps=self.config["train_batch_size"])
        batch = batch.as_multi_agent()
        self._counters[NUM_AGENT_STEPS_SAMPLED] += batch.agent_steps()
        self._counters[NUM_ENV_STEPS_SAMPLED] += batch.env_steps()
        results = train_one_step(self, batch)
        with self._timers[SYNCH_WORKER_WEIGHTS_TIMER]:
            self.workers.sync_weights(
                global_vars={"timestep": self._counters[NUM_ENV_STEPS_SAMPLED]}, policies=list(results.keys())
            )
        return results


class ProximalTrainer(PPOTrainer):
    def training_step(self) -> ResultDict:
        batch = synchronous_parallel_sample(worker_set=self.workers, max_env_steps=self.config["train_batch_size"])
        batch = batch.as_multi_agent()
        self._counters[NUM_AGENT_STEPS_SAMPLED] += batch.agent_steps()
        self._counters[NUM_ENV_STEPS_SAMPLED] += batch.env_steps()
        batch = standardize_fields(batch, ["advantages"])
        results = train_one_step(self, batch) if self.config["simple_optimizer"] else multi_gpu_train_one_step(self, batch)
        global_vars = {"timestep": self._counters[NUM_AGENT_STEPS_SAMPLED]}
        if self.workers.remote_workers():
            self.workers.sync_weights(policies=list(results.keys()), global_vars=global_vars)
        for policy_id, info in results.items():
            self.get_policy(policy_id).update_kl(info[LEARNER_STATS_KEY].get("kl"))
        self.workers.local_worker().set_global_vars(global_vars)
        return results


class ReplayingTrainer(DQNTrainer):
    @override(Trainer)
    def setup(self, config: PartialTrainerConfigDict):
        super().setup(config)
        if self.config["_disable_execution_plan_api"] is True:
            self.local_replay_buffer = MultiAgentPrioritizedReplayBuffer(
                learning_starts=self.config["learning_starts"], capacity=500,
                replay_batch_size=self.config["train_batch_size"], seed=5,
            )  # fmt: skip

    def training_iteration(self) -> ResultDict:
        results, local_worker = {}, self.workers.local_worker()
        store_weight, sample_and_train_weight = calculate_rr_weights(self.config)
        for _ in range(store_weight):
            for batch in synchronous_parallel_sample(worker_set=self.workers, concat=False):
                self._counters[NUM_AGENT_STEPS_SAMPLED] += batch.agent_steps()
                self._counters[NUM_ENV_STEPS_SAMPLED] += batch.env_steps()
                self.local_replay_buffer.add(batch)
        global_vars = {"timestep": self._counters[NUM_ENV_STEPS_SAMPLED]}
        for _ in range(sample_and_train_weight):
            batch = sample_min_n_steps_from_buffer(
                self.local_replay_buffer, self.config["train_batch_size"], count_by_agent_steps=self._by_agent_steps
            )
            if batch is None or len(batch) == 0:
                local_worker.set_global_vars(global_vars)
                break
            post_fn = self.config.get("before_learn_on_batch") or (lambda b, *a: b)
            batch = post_fn(batch, self.workers, self.config)
            results = multi_gpu_train_one_step(self, batch)
            update_priorities_in_replay_buffer(self.local_replay_buffer, self.config, batch, results)
            now = self._counters[NUM_ENV_STEPS_SAMPLED]
            if now - self._counters[LAST_TARGET_UPDATE_TS] >= self.config["target_network_update_freq"]:
                with self._timers[TARGET_NET_UPDATE_TIMER]:
                    to_update = local_worker.get_policies_to_train()
                    local_worker.foreach_policy_to_train(lambda p, pid: pid in to_update and p.update_target())
                self._counters[NUM_TARGET_UPDATES] += 1
                self._counters[LAST_TARGET_UPDATE_TS] = now
            with self._timers[SYNCH_WORKER_WEIGHTS_TIMER]:
                self.workers.sync_weights(global_vars=global_vars)
        return results


class TwoAlgorithms(Trainer):
    """One policy learns by PPO from what was just sampled, the other by DQN from what is replayed."""

    @classmethod
    def get_default_config(cls):
        return with_common_config({"num_sgd_iter": 2, "sgd_minibatch_size": 16})

    @override(Trainer)
    def setup(self, config: PartialTrainerConfigDict):
        super().setup(config)
        self.local_replay_buffer = MultiAgentPrioritizedReplayBuffer(learning_starts=60, capacity=500, seed=5)

    @override(Trainer)
    def training_iteration(self) -> ResultDict:
        on_policy = []
        while sum(batch.count for batch in on_policy) < 60:
            for batch in synchronous_parallel_sample(worker_set=self.workers, concat=False):
                self._counters[NUM_ENV_STEPS_SAMPLED] += batch.count
                self._counters[NUM_AGENT_STEPS_SAMPLED] += batch.agent_steps()
                on_policy.append(batch.policy_batches.pop("ppo_policy"))
                self.local_replay_buffer.add(batch)
        replayed = {}
        for _ in range(3):
            drawn = self.local_replay_buffer.sample(num_items=16)
            replayed = train_one_step(self, drawn, ["dqn_policy"])
            self._counters["agent_steps_trained_DQN"] += drawn.agent_steps()
        self.workers.local_worker().get_policy("dqn_policy").update_target()
        rows = SampleBatch.concat_samples(on_policy)
        rows[Postprocessing.ADVANTAGES] = standardized(rows[Postprocessing.ADVANTAGES])
        return {**train_one_step(self, MultiAgentBatch({"ppo_policy": rows}, rows.count), ["ppo_policy"]), **replayed}


class CountingTrainer(PPOTrainer):
    def training_iteration(self) -> ResultDict:
        results = super().training_iteration()
        self._counters["rounds"] += 1
        return results


class PlayingTrainer(Trainer):
    def get_default_policy_class(self, config):
        return PPOTorchPolicy

    @override(Trainer)
    def training_iteration(self) -> ResultDict:
        synchronous_parallel_sample(worker_set=self.workers)
        return {}


def main():
    result = ReinforceTrainer(SMALL, env=Corridor).train()
    assert result["num_env_steps_sampled"] == result["info"]["num_env_steps_trained"] == 100
    assert "policy_loss" in result["info"]["learner"]["default_policy"]["learner_stats"]

    trainer = ProximalTrainer({**SMALL, "sgd_minibatch_size": 25, "num_sgd_iter": 4, "lr": 5e-3}, env=Corridor)
    rewards = [trainer.train()["episode_reward_mean"] for _ in range(15)]
    assert rewards[-1] > rewards[0], rewards

    q_config = {
        **SMALL, "rollout_fragment_length": 4, "train_batch_size": 32, "learning_starts": 50, "hiddens": [16],
        "target_network_update_freq": 40, "min_sample_timesteps_per_reporting": 200,
    }  # fmt: skip
    trainer = ReplayingTrainer(q_config, env=Corridor)
    result = trainer.train()
    assert result["timesteps_total"] == 200 and result["counters"]["num_target_updates"] >= 3
    assert result["timers"]["synch_weights_time_ms"] > 0
    path = trainer.save("checkpoints")
    resumed = ReplayingTrainer(q_config, env=Corridor)
    resumed.restore(path)
    assert resumed._counters[NUM_ENV_STEPS_SAMPLED] == 200
    assert resumed.train()["timesteps_total"] == 400

    policies = {
        "ppo_policy": (PPOTorchPolicy, Corridor.observation_space, Corridor.action_space, {}),
        "dqn_policy": (DQNTorchPolicy, Corridor.observation_space, Corridor.action_space, {}),
    }
    both = {"policies": policies, "policy_mapping_fn": lambda agent, *_, **__: ["ppo_policy", "dqn_policy"][agent % 2]}
    env = make_multi_agent(lambda config: Corridor(config))
    result = TwoAlgorithms({**SMALL, "multiagent": both, "env_config": {"num_agents": 2}}, env=env).train()
    assert set(result["info"]["learner"]) == {"ppo_policy", "dqn_policy"}
    assert result["counters"]["agent_steps_trained_DQN"] == 48

    trainer = CountingTrainer({**SMALL, "sgd_minibatch_size": 25, "num_sgd_iter": 2}, env=Corridor)
    for _ in range(2):
        result = trainer.train()
    assert result["info"]["rounds"] == 2 and result["timesteps_total"] == 200
    assert "kl" in result["info"]["learner"]["default_policy"]["learner_stats"]

    result = PlayingTrainer({**SMALL, "rollout_fragment_length": 100}, env=Corridor).train()
    assert result["episodes_total"] >= 4 and result["info"]["learner"] == {}
    print("ok program_training_iteration")


if __name__ == "__main__":
    main()
