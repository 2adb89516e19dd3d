"""Fictitious self-play: best responses by DQN, and averages of them that a second trainer learns from a reservoir.

Uses RLlib as indylab/nxdo does (grl/algos/nfsp_rllib: nfsp.py, nfsp_torch_avg_policy.py, reservoir_replay_buffer.py;
grl/rl_apps/nfsp/general_nfsp.py): a policy by `build_torch_policy` with `action_sampler_fn`,
`make_model_and_action_dist`, `before_init` and `extra_learn_fetches_fn`, a plan that replays from a `ray.remote`
subclass of `LocalReplayBuffer` through `LocalIterator` and yields `_NextValueNotReady`, `StoreToReplayBuffer(actors=)`
called by a callback with a `MultiAgentBatch` of its own, batches of one policy handed to another in
`on_postprocess_trajectory` and `on_sample_end`, attributes hung onto workers, policies and trainers.
"""

import collections
import copy
import random

import gym
import numpy as np
import ray
from ray.util.iter import LocalIterator, _NextValueNotReady
from ray.util.iter_metrics import SharedMetrics
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTorchPolicy, DQNTrainer
from rlframe.agents.trainer import with_common_config
from rlframe.agents.trainer_template import build_trainer
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.replay_buffer import LocalReplayBuffer
from rlframe.execution.train_ops import StoreToReplayBuffer
from rlframe.execution.train_ops import TrainOneStep
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.policy.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.policy.torch_policy_template import build_torch_policy
from rlframe.utils import merge_dicts, try_import_torch
from rlframe.utils.error import UnsupportedSpaceException
from rlframe.utils.schedules import ConstantSchedule

torch, nn = try_import_torch()
F = nn.functional

DEFAULT_CONFIG = with_common_config({
    "replay_sequence_length": 1, "exploration_config": {"type": "StochasticSampling"},
    "evaluation_config": {"explore": False}, "explore": False, "buffer_size": int(2e4), "before_learn_on_batch": None,
    "lr": 0.01, "lr_schedule": None, "grad_clip": None, "learning_starts": 40, "train_batch_size": 32,
    "timesteps_per_iteration": 0, "num_workers": 0, "min_iter_time_s": 0,
})  # fmt: skip


class Pennies(MultiAgentEnv):
    """Two moves each of matching pennies; what was shown before is seen."""

    def __init__(self, env_config):
        super().__init__()
        self.observation_space, self.action_space = gym.spaces.Box(0, 1, (3,), np.float32), gym.spaces.Discrete(2)

    def observe(self):
        return {i: np.array(self.shown, np.float32) for i in range(2)}

    def reset(self):
        self.shown = [0, 0, 0]
        return self.observe()

    def step(self, actions):
        won = 1.0 if actions[0] == actions[1] else -1.0
        over = bool(self.shown[0])
        self.shown = [1, actions[0], actions[1]]
        return self.observe(), {0: won, 1: -won}, {"__all__": over}, {}


def compute_policy_logits(policy, model, obs, is_training=None):
    return model({SampleBatch.CUR_OBS: obs, "is_training": is_training}, [], None)[0]


def build_avg_model_and_distribution(policy, obs_space, action_space, config):
    if not isinstance(action_space, gym.spaces.Discrete):
        raise UnsupportedSpaceException(f"Action space {action_space} is not supported for NFSP.")
    policy.avg_model = ModelCatalog.get_model_v2(
        obs_space=obs_space, action_space=action_space, num_outputs=action_space.n, model_config=config["model"],
        framework=config["framework"], name="avg_pol",
    )  # fmt: skip
    policy.avg_func_vars = policy.avg_model.variables()
    return policy.avg_model, TorchCategorical


def build_supervised_learning_loss(policy, model, dist_class, train_batch):
    logits = compute_policy_logits(policy, policy.avg_model, train_batch[SampleBatch.CUR_OBS], is_training=True)
    policy.loss = F.cross_entropy(input=logits, target=train_batch[SampleBatch.ACTIONS].long())
    return policy.loss


def action_sampler(policy, model, input_dict, state, explore, timestep):
    logits = compute_policy_logits(policy, model, input_dict["obs"], False)
    policy.logits, policy.action_probs = logits, F.softmax(logits, dim=1)
    actions = []
    for probs in policy.action_probs.cpu().detach().numpy():
        actions.append(np.random.choice(range(0, len(probs)), p=probs / probs.sum()))
    return np.asarray(actions, dtype=np.int32), None, state


def behaviour_logits_fetches(policy, input_dict, state_batches, model, action_dist):
    return {"action_probs": policy.action_probs, "behaviour_logits": policy.logits}


class ManualLearningRateSchedule:
    def __init__(self, lr, lr_schedule):
        self.cur_lr = lr
        self.lr_schedule = ConstantSchedule(lr, framework=None)

    def update_lr(self, timesteps_total):
        self.cur_lr = self.lr_schedule.value(timesteps_total)
        for opt in self._optimizers:
            for p in opt.param_groups:
                p["lr"] = self.cur_lr


NFSPTorchAveragePolicy = build_torch_policy(
    name="NFSPAveragePolicy",
    extra_action_out_fn=behaviour_logits_fetches,
    loss_fn=build_supervised_learning_loss,
    get_default_config=lambda: DEFAULT_CONFIG,
    make_model_and_action_dist=build_avg_model_and_distribution,
    action_sampler_fn=action_sampler,
    before_init=lambda policy, obs_space, action_space, config: ManualLearningRateSchedule.__init__(
        policy, config["lr"], config["lr_schedule"]
    ),
    extra_learn_fetches_fn=lambda policy: {"sl_loss": policy.loss},
    optimizer_fn=lambda policy, config: torch.optim.SGD(policy.avg_func_vars, lr=policy.config["lr"]),
    stats_fn=lambda policy, batch: {"loss": policy.loss},
    mixins=[ManualLearningRateSchedule],
)


class ReservoirReplayBuffer:
    """Each row that was ever added is kept with the same probability."""

    def __init__(self, size):
        self.rows, self.size, self.added = [], size, 0

    def add(self, item):
        assert item.count == 1, item
        self.added += 1
        if len(self.rows) < self.size:
            self.rows.append(item)
        elif random.random() < self.size / self.added:
            self.rows[random.randrange(self.size)] = item

    def sample(self, num_items):
        out = SampleBatch.concat_samples(random.choices(self.rows, k=num_items))
        out.decompress_if_needed()
        return out


class LocalReservoirReplayBuffer(LocalReplayBuffer):
    def __init__(self, num_shards=1, learning_starts=1000, buffer_size=10000, replay_batch_size=1,
                 replay_mode="independent", replay_sequence_length=1):  # fmt: skip
        self.replay_starts, self.buffer_size = learning_starts // num_shards, buffer_size // num_shards
        self.replay_batch_size, self.replay_sequence_length = replay_batch_size, replay_sequence_length
        assert replay_mode == "independent" and replay_sequence_length == 1
        self.replay_buffers = collections.defaultdict(lambda: ReservoirReplayBuffer(size=self.buffer_size))
        self.num_added = 0

    def add_batch(self, batch):
        batch = batch.copy()
        if isinstance(batch, SampleBatch):
            batch = MultiAgentBatch({DEFAULT_POLICY_ID: batch}, batch.count)
        for policy_id, b in batch.policy_batches.items():
            for s in b.timeslices(self.replay_sequence_length):
                self.replay_buffers[policy_id].add(s)
        self.num_added += batch.count

    def replay(self):
        if self.num_added < self.replay_starts:
            return None
        samples = {policy_id: b.sample(self.replay_batch_size) for policy_id, b in self.replay_buffers.items()}
        return MultiAgentBatch(samples, self.replay_batch_size)

    def stats(self, debug=False):
        return {policy_id: buffer.added for policy_id, buffer in self.replay_buffers.items()}


ReservoirReplayActor = ray.remote(num_cpus=0)(LocalReservoirReplayBuffer)


def execution_plan(workers, config):
    actor = ReservoirReplayActor.remote(
        num_shards=1, learning_starts=config["learning_starts"], buffer_size=config["buffer_size"],
        replay_batch_size=config["train_batch_size"], replay_mode=config["multiagent"]["replay_mode"],
        replay_sequence_length=config["replay_sequence_length"],
    )  # fmt: skip
    workers.local_worker().replay_buffer_actor = actor
    post_fn = config.get("before_learn_on_batch") or (lambda b, *a: b)

    def gen_replay(_):
        while True:
            item = ray.get(actor.replay.remote())
            yield _NextValueNotReady() if item is None else item

    replay_op = LocalIterator(gen_replay, SharedMetrics())
    replay_op = replay_op.for_each(lambda x: post_fn(x, workers, config)).for_each(TrainOneStep(workers))
    replay_op = StandardMetricsReporting(replay_op, workers, config)
    return map(lambda x: x if not isinstance(x, _NextValueNotReady) else {}, replay_op)


NFSPTrainer = build_trainer(
    name="NFSPTrainer", default_policy=NFSPTorchAveragePolicy, default_config=DEFAULT_CONFIG,
    get_policy_class=lambda config: NFSPTorchAveragePolicy, validate_config=lambda config: None,
    execution_plan=execution_plan,
)  # fmt: skip


@ray.remote(num_cpus=0)
class StatDeque:
    def __init__(self, max_items):
        self._data = collections.deque(maxlen=max_items)

    def add(self, item):
        self._data.append(item)

    def get_mean(self):
        return np.mean(self._data)


PAIRS = [("average_policy_0", "best_response_0"), ("average_policy_1", "best_response_1")]


def make_callbacks(store_to_avg_policy_buffer):
    class NFSPBestResponseCallbacks(DefaultCallbacks):
        def on_postprocess_trajectory(self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch,
                                      original_batches, **kwargs):  # fmt: skip
            super().on_postprocess_trajectory(
                worker=worker, episode=episode, agent_id=agent_id, policy_id=policy_id, policies=policies,
                postprocessed_batch=postprocessed_batch, original_batches=original_batches, **kwargs,
            )  # fmt: skip
            postprocessed_batch.data["source_policy"] = [policy_id] * len(postprocessed_batch.data["rewards"])
            for average_policy_id, br_policy_id in PAIRS:
                if policy_id in (average_policy_id, br_policy_id):
                    for key in ("action_probs", "behaviour_logits", "q_values", "action_dist_inputs"):
                        if key in postprocessed_batch:
                            del postprocessed_batch.data[key]
                if policy_id == average_policy_id:
                    new_batch = policies[br_policy_id].postprocess_trajectory(
                        sample_batch=postprocessed_batch, other_agent_batches=original_batches, episode=episode
                    )
                    for key in new_batch:
                        postprocessed_batch[key] = new_batch[key]
            assert agent_id == int(policy_id[-1])

        def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
            played = set(episode.agent_rewards.keys())
            for mine, other in ((0, 1), (1, 0)):
                if played == {(other, f"average_policy_{other}"), (mine, f"best_response_{mine}")}:
                    worker.avg_br_reward_deque.add.remote(episode.agent_rewards[(mine, f"best_response_{mine}")])

        def on_sample_end(self, *, worker, samples, **kwargs):
            assert isinstance(samples, MultiAgentBatch)
            for policy_samples in samples.policy_batches.values():
                for key in ("action_prob", "action_logp"):
                    if key in policy_samples.data:
                        del policy_samples.data[key]
            for average_policy_id, br_policy_id in PAIRS:
                if br_policy_id in samples.policy_batches:
                    own = samples.policy_batches[br_policy_id]
                    store_to_avg_policy_buffer(
                        MultiAgentBatch(policy_batches={average_policy_id: own}, env_steps=own.count)
                    )
                if average_policy_id in samples.policy_batches:
                    both = samples.policy_batches[average_policy_id]
                    if br_policy_id in samples.policy_batches:
                        both = samples.policy_batches[br_policy_id].concat(other=both)
                    del samples.policy_batches[average_policy_id]
                    samples.policy_batches[br_policy_id] = both

        def on_train_result(self, *, trainer, result, **kwargs):
            result["scenario_name"] = trainer.scenario_name
            result["avg_br_reward_both_players"] = ray.get(trainer.avg_br_reward_deque.get_mean.remote())

    return NFSPBestResponseCallbacks


def select_policy(agent_id):
    return f"{'best_response' if np.random.random() < 0.5 else 'average_policy'}_{agent_id}"


def assert_not_called(agent_id):
    assert False, "This function should never be called."


def main():
    ray.init(num_cpus=2, include_dashboard=False)
    env = Pennies({})
    spaces, model = (env.observation_space, env.action_space), {"fcnet_hiddens": [16], "fcnet_activation": "relu"}
    average = {
        f"average_policy_{i}": (NFSPTorchAveragePolicy, *spaces, {"model": model, "explore": False}) for i in (0, 1)
    }
    best = {f"best_response_{i}": (DQNTorchPolicy, *spaces, {}) for i in (0, 1)}
    common = {"log_level": "WARN", "framework": "torch", "env": Pennies, "env_config": {}, "num_gpus": 0.0,
              "num_gpus_per_worker": 0.0, "num_workers": 0, "num_envs_per_worker": 1}  # fmt: skip
    avg_trainer = NFSPTrainer(config=merge_dicts(common, {
        "multiagent": {"policies_to_train": list(average), "policies": average, "policy_mapping_fn": assert_not_called},
        "model": model, "train_batch_size": 32, "lr": 0.1,
    }))  # fmt: skip
    store = StoreToReplayBuffer(actors=[avg_trainer.workers.local_worker().replay_buffer_actor])
    br_trainer = DQNTrainer(config=merge_dicts(common, {
        "callbacks": make_callbacks(store), "gamma": 1.0, "model": model, "hiddens": [16], "dueling": False,
        "multiagent": {"policies_to_train": list(best), "policies": {**average, **best},
                       "policy_mapping_fn": select_policy},
        "buffer_size": 2000, "prioritized_replay": False, "n_step": 1, "learning_starts": 64, "train_batch_size": 32,
        "rollout_fragment_length": 16, "timesteps_per_iteration": 200, "min_iter_time_s": 0, "metrics_smoothing_episodes": 50,
        "exploration_config": {"initial_epsilon": 0.06, "final_epsilon": 0.001, "epsilon_timesteps": 500},
    }))  # fmt: skip
    avg_br_reward_deque = StatDeque.remote(max_items=50)

    def _set_avg_br_rew_deque(worker):
        worker.avg_br_reward_deque = avg_br_reward_deque

    br_trainer.workers.foreach_worker(_set_avg_br_rew_deque)
    br_trainer.avg_br_reward_deque, br_trainer.scenario_name = avg_br_reward_deque, "pennies"
    for trainer in (br_trainer, avg_trainer):
        for policy_id, policy in trainer.workers.local_worker().policy_map.items():
            policy.policy_id = policy_id

    before = avg_trainer.get_weights(list(average))
    for _ in range(2):
        results = avg_trainer.train()
        avg_weights = avg_trainer.get_weights(list(average))
        br_trainer.workers.foreach_worker(lambda worker: worker.set_weights(avg_weights))
        br_trainer.latest_avg_trainer_result = copy.deepcopy(results)
        results = br_trainer.train()
    for _ in range(5):
        avg_results = avg_trainer.train()
    assert results["scenario_name"] == "pennies" and -2 <= results["avg_br_reward_both_players"] <= 2
    assert set(results["info"]["learner"]) == set(best), results["info"]["learner"].keys()
    stored = ray.get(avg_trainer.workers.local_worker().replay_buffer_actor.stats.remote())
    assert set(stored) == set(average) and min(stored.values()) > 40, stored
    learner = avg_results["info"]["learner"]["average_policy_0"]
    assert learner["learner_stats"]["loss"] > 0, learner
    after = avg_trainer.get_weights(list(average))
    changed = [not np.array_equal(after["average_policy_0"][k], v) for k, v in before["average_policy_0"].items()]
    assert any(changed)
    for trainer in (br_trainer, avg_trainer):
        trainer.stop()
    ray.shutdown()
    print("ok program_average_policies_nfsp")


if __name__ == "__main__":
    main()
