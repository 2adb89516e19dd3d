"""Robots that act as one but are paid apart: a policy of functions whose losses and advantages have an agent's axis.

Uses RLlib as proroklab/adversarial_comms does (adversarial_comms/trainers/multiagent_ppo.py, hom_multi_action_dist.py,
train_policy.py): `build_torch_policy` with eleven arguments and mixins of its own, a `TorchMultiActionDistribution`
whose log-probabilities stay apart, per-agent rewards taken from `infos`, `compute_advantages` once an agent,
`build_trainer` with PPO's own execution plan and validation, and callbacks that take their arguments by position.
"""

import gym
import numpy as np
import ray
from rlframe.agents.a3c.a3c_torch_policy import apply_grad_clipping
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.ppo import ppo
from rlframe.agents.ppo.ppo_tf_policy import setup_config
from rlframe.agents.trainer_template import build_trainer
from rlframe.evaluation.postprocessing import Postprocessing, compute_advantages
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_action_dist import TorchMultiActionDistribution
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.sample_batch import SampleBatch
from rlframe.policy.torch_policy import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.policy.torch_policy_template import build_torch_policy
from rlframe.utils.annotations import override
from rlframe.utils.framework import try_import_torch
from rlframe.utils.torch_ops import convert_to_torch_tensor, explained_variance
from ray.tune.registry import register_env

torch, nn = try_import_torch()
ROBOTS = 3


class Coverage(gym.Env):
    """Each robot sees a number and is paid to name its parity; the last one is greedy, and paid for the first's too."""

    def __init__(self, config):
        self.observation_space = gym.spaces.Tuple([gym.spaces.Box(0, 1, (2,), np.float32)] * ROBOTS)
        self.action_space = gym.spaces.Tuple([gym.spaces.Discrete(2)] * ROBOTS)
        self.random, self.length = np.random.RandomState(1), config["length"]

    def observe(self):
        self.bits = self.random.randint(0, 2, ROBOTS)
        return tuple(np.eye(2, dtype=np.float32)[bit] for bit in self.bits)

    def reset(self):
        self.t = 0
        return self.observe()

    def step(self, actions):
        right = [float(int(action) == bit) for action, bit in zip(actions, self.bits)]
        rewards = {i: right[i] + (right[0] if i == ROBOTS - 1 else 0.0) for i in range(ROBOTS)}
        self.t += 1
        return self.observe(), sum(rewards.values()), self.t == self.length, {"rewards": rewards}


class Homogeneous(TorchMultiActionDistribution):
    @override(TorchMultiActionDistribution)
    def logp(self, x):
        return torch.stack([d.logp(x[..., i]) for i, d in enumerate(self.flat_child_distributions)], axis=-1)

    @override(TorchMultiActionDistribution)
    def entropy(self):
        return torch.stack([d.entropy() for d in self.flat_child_distributions], axis=-1)

    @override(TorchMultiActionDistribution)
    def sampled_action_logp(self):
        return torch.stack([d.sampled_action_logp() for d in self.flat_child_distributions], axis=-1)


class Team(TorchModelV2, nn.Module):
    """One network for all robots, with a message: the mean of what all see."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **own):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.body = nn.Sequential(nn.Linear(4, own["hidden"]), nn.Tanh())
        self.logits, self.value = nn.Linear(own["hidden"], 2), nn.Linear(own["hidden"], 1)

    def forward(self, input_dict, state, seq_lens):
        seen = torch.stack(list(input_dict["obs"]), dim=1).float()
        message = seen.mean(dim=1, keepdim=True).expand_as(seen)
        hidden = self.body(torch.cat([seen, message], dim=-1))
        self._values = self.value(hidden).squeeze(-1)
        return self.logits(hidden).flatten(1), state

    def value_function(self):
        return self._values


def postprocess(policy, sample_batch, other_agent_batches=None, episode=None):
    if "rewards" not in (sample_batch[SampleBatch.INFOS][0] or {}):
        paid = np.zeros((sample_batch.count, ROBOTS), np.float32)  # the batch that the policy is tried with
    else:
        paid = np.array([[info["rewards"][i] for i in range(ROBOTS)] for info in sample_batch[SampleBatch.INFOS]], np.float32)
    batches = []
    for i in range(ROBOTS):
        batch = sample_batch.copy()
        batch[SampleBatch.REWARDS] = paid[:, i]
        batch[SampleBatch.VF_PREDS] = sample_batch[SampleBatch.VF_PREDS][..., i]
        last = 0.0
        if not sample_batch["dones"][-1]:
            last = float(policy._value(sample_batch[SampleBatch.NEXT_OBS][-1])[i])
        batches.append(compute_advantages(batch, last, policy.config["gamma"], policy.config["lambda"], use_gae=True))
    for key in [SampleBatch.REWARDS, SampleBatch.VF_PREDS, Postprocessing.ADVANTAGES, Postprocessing.VALUE_TARGETS]:
        sample_batch[key] = np.stack([batch[key] for batch in batches], axis=-1)
    return sample_batch


def surrogate_loss(policy, model, dist_class, train_batch):
    logits, _ = model.from_batch(train_batch, is_training=True)
    dist = dist_class(logits, model)
    logps, entropies = dist.logp(train_batch[SampleBatch.ACTIONS]), dist.entropy()
    clip, parts = policy.config["clip_param"], []
    for i in range(ROBOTS):
        ratio = torch.exp(logps[:, i] - train_batch[SampleBatch.ACTION_LOGP][..., i])
        gain = train_batch[Postprocessing.ADVANTAGES][..., i]
        surrogate = torch.min(gain * ratio, gain * torch.clamp(ratio, 1 - clip, 1 + clip))
        error = (model.value_function()[..., i] - train_batch[Postprocessing.VALUE_TARGETS][..., i]) ** 2
        parts.append(torch.mean(-surrogate + policy.config["vf_loss_coeff"] * error - policy.entropy_coeff * entropies[:, i]))
    policy._total_loss = torch.sum(torch.stack(parts))
    policy._mean_entropy, policy._mean_vf_loss = entropies.mean(), error.mean()
    return policy._total_loss


def stats(policy, train_batch):
    values = explained_variance(train_batch[Postprocessing.VALUE_TARGETS].flatten(), policy.model.value_function().flatten())
    return {"cur_lr": policy.cur_lr, "total_loss": policy._total_loss, "vf_loss": policy._mean_vf_loss, "vf_explained_var": values,
            "kl": torch.Tensor([0]), "entropy": policy._mean_entropy, "entropy_coeff": policy.entropy_coeff}


def values_of_rows(policy, input_dict, state_batches, model, action_dist):
    return {SampleBatch.VF_PREDS: policy.model.value_function()}


class KLCoeffMixin:
    def __init__(self, config):
        pass

    def update_kl(self, sampled_kl):
        return sampled_kl


class ValueNetworkMixin:
    def __init__(self, obs_space, action_space, config):
        def value(ob):
            self.model({SampleBatch.CUR_OBS: convert_to_torch_tensor(np.asarray([ob]), self.device), "is_training": False},
                       [], convert_to_torch_tensor(np.asarray([1]), self.device))
            return self.model.value_function()[0]

        self._value = value


def setup_mixins(policy, obs_space, action_space, config):
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    KLCoeffMixin.__init__(policy, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


MultiPPOTorchPolicy = build_torch_policy(
    name="MultiPPOTorchPolicy", get_default_config=lambda: ppo.DEFAULT_CONFIG, loss_fn=surrogate_loss, stats_fn=stats,
    extra_action_out_fn=values_of_rows, postprocess_fn=postprocess, extra_grad_process_fn=apply_grad_clipping,
    before_init=setup_config, after_init=setup_mixins,
    mixins=[LearningRateSchedule, EntropyCoeffSchedule, KLCoeffMixin, ValueNetworkMixin],
)  # fmt: skip
MultiPPOTrainer = build_trainer(
    name="MultiPPO", default_config=ppo.DEFAULT_CONFIG, default_policy=MultiPPOTorchPolicy,
    get_policy_class=lambda config: MultiPPOTorchPolicy, execution_plan=ppo.execution_plan,
    validate_config=ppo.validate_config,
)  # fmt: skip


class Evaluation(DefaultCallbacks):
    def on_episode_start(self, worker, base_env, policies, episode, **kwargs):
        episode.user_data["reward_greedy"] = []

    def on_episode_step(self, worker, base_env, episode, **kwargs):
        info = episode.last_info_for()
        if info:
            episode.user_data["reward_greedy"].append(info["rewards"][ROBOTS - 1])

    def on_episode_end(self, worker, base_env, policies, episode, **kwargs):
        episode.custom_metrics["reward_greedy"] = np.sum(episode.user_data["reward_greedy"])


def main():
    ray.init(num_cpus=2, log_to_driver=False)
    register_env("coverage", lambda config: Coverage(config))
    ModelCatalog.register_custom_model("team", Team)
    ModelCatalog.register_custom_action_dist("hom_multi_action", Homogeneous)
    trainer = MultiPPOTrainer(env="coverage", config={
        "framework": "torch", "num_workers": 0, "seed": 3, "env_config": {"length": 10}, "callbacks": Evaluation,
        "train_batch_size": 300, "rollout_fragment_length": 100, "sgd_minibatch_size": 100, "num_sgd_iter": 8, "lr": 2e-2,
        "gamma": 0.5, "clip_param": 0.2, "vf_share_layers": True, "vf_loss_coeff": 1.0e-1, "kl_coeff": 0,
        "kl_target": 0.01, "batch_mode": "complete_episodes", "observation_filter": "NoFilter", "num_envs_per_worker": 2,
        "model": {"custom_model": "team", "custom_action_dist": "hom_multi_action", "custom_model_config": {"hidden": 16}},
    })  # fmt: skip
    first = trainer.train()
    for _ in range(3):
        result = trainer.train()
    assert result["episode_reward_mean"] > first["episode_reward_mean"] + 5, (first["episode_reward_mean"], result["episode_reward_mean"])
    assert 10 < result["custom_metrics"]["reward_greedy_mean"] <= 20
    learner = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert np.isclose(learner["cur_lr"], 2e-2) and 0 <= learner["entropy"] < 0.7, learner
    env = Coverage({"length": 10})
    actions = trainer.compute_action(env.reset())
    assert env.action_space.contains(tuple(int(action) for action in actions)), actions
    trainer.stop()
    ray.shutdown()
    print("ok program_communicating_robots")


if __name__ == "__main__":
    main()
