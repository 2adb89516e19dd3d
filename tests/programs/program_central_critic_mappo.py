"""A critic that sees the whole team: MAPPO from PPO's policy by `with_updates`.

Uses RLlib as Replicable-MARL/MARLlib does (marllib/marl/algos/core/CC/mappo.py, utils/centralized_critic.py): PPO's own
`ppo_surrogate_loss` called with the model's `value_function` swapped, `KLCoeffMixin` and the schedules initialised
by hand in `before_init`, columns added in `postprocess_fn` from `other_agent_batches`, `default_policy=None` with
`get_policy_class` that looks at the framework, and a Dict observation with a state for the critic.
"""

import gym
import numpy as np
import ray
from rlframe.agents.ppo.ppo import DEFAULT_CONFIG as PPO_CONFIG
from rlframe.agents.ppo.ppo import PPOTrainer
from rlframe.agents.ppo.ppo_torch_policy import KLCoeffMixin, PPOTorchPolicy, ppo_surrogate_loss
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation.postprocessing import Postprocessing, compute_advantages
from rlframe.models import ModelCatalog
from rlframe.models.torch.misc import SlimFC, normc_initializer
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.sample_batch import SampleBatch
from rlframe.policy.torch_policy import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.utils.framework import try_import_torch
from rlframe.utils.torch_ops import convert_to_torch_tensor
from ray.tune.registry import register_env

torch, nn = try_import_torch()


class Spread(MultiAgentEnv):
    """Two agents are paid for being in different places; each sees its own, the state has both."""

    def __init__(self, config):
        super().__init__()
        self.length = config["length"]
        self.observation_space = gym.spaces.Dict({"obs": gym.spaces.Box(-1, 1, (3,), np.float32),
                                                  "state": gym.spaces.Box(-1, 1, (4,), np.float32)})
        self.action_space = gym.spaces.Discrete(2)
        self.agents = ["agent_0", "agent_1"]

    def observe(self):
        state = np.array([*self.places, self.t / self.length, 1.0], np.float32)
        return {name: {"obs": np.array([self.places[i], i, self.t / self.length], np.float32), "state": state}
                for i, name in enumerate(self.agents)}

    def reset(self):
        self.t, self.places = 0, [0.0, 0.0]
        return self.observe()

    def step(self, actions):
        self.places = [float(actions[name]) for name in self.agents]
        self.t += 1
        reward = float(self.places[0] != self.places[1])
        return self.observe(), dict.fromkeys(self.agents, reward), {"__all__": self.t == self.length}, {}


class CentralCritic(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **kwargs):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.own = model_config["custom_model_config"]
        width, n = self.own["hidden"], action_space.n
        self.p_encoder = SlimFC(3, width, initializer=normc_initializer(1.0), activation_fn="tanh")
        self.p_branch = SlimFC(width, num_outputs, initializer=normc_initializer(0.01), activation_fn=None)
        self.vf_branch = SlimFC(width, 1, activation_fn=None)
        self.cc = nn.Sequential(SlimFC(4 + n, width, activation_fn="tanh"), SlimFC(width, 1, activation_fn=None))
        self.actions, self._features = n, None

    def forward(self, input_dict, state, seq_lens):
        self._features = self.p_encoder(input_dict["obs"]["obs"].float())
        return self.p_branch(self._features), state

    def value_function(self):
        assert self._features is not None, "must call forward() first"
        return torch.reshape(self.vf_branch(self._features), [-1])

    def central_value_function(self, state, opponent_actions=None):
        others = torch.nn.functional.one_hot(opponent_actions.long(), self.actions).float()
        return torch.reshape(self.cc(torch.cat([state, others], dim=1)), [-1])


class CentralizedValueMixin:
    def __init__(self):
        self.compute_central_vf = self.model.central_value_function


def postprocess(policy, sample_batch, other_agent_batches=None, episode=None):
    if hasattr(policy, "compute_central_vf") and other_agent_batches:
        [(_, opponent)] = list(other_agent_batches.values())
        sample_batch["state"] = sample_batch[SampleBatch.CUR_OBS][:, -4:]
        sample_batch["opponent_actions"] = opponent[SampleBatch.ACTIONS]
        sample_batch[SampleBatch.VF_PREDS] = policy.compute_central_vf(
            convert_to_torch_tensor(sample_batch["state"], policy.device),
            convert_to_torch_tensor(sample_batch["opponent_actions"], policy.device),
        ).cpu().detach().numpy()
    else:
        sample_batch["state"] = np.zeros((sample_batch[SampleBatch.REWARDS].shape[0], 4), np.float32)
        sample_batch["opponent_actions"] = np.zeros_like(sample_batch[SampleBatch.ACTIONS])
        sample_batch[SampleBatch.VF_PREDS] = np.zeros_like(sample_batch[SampleBatch.REWARDS], dtype=np.float32)
    last_r = 0.0 if sample_batch["dones"][-1] else sample_batch[SampleBatch.VF_PREDS][-1]
    return compute_advantages(sample_batch, last_r, policy.config["gamma"], policy.config["lambda"],
                              use_gae=policy.config["use_gae"])


def central_critic_loss(policy, model, dist_class, train_batch):
    CentralizedValueMixin.__init__(policy)
    saved = model.value_function
    model.value_function = lambda: policy.model.central_value_function(train_batch["state"], train_batch["opponent_actions"])
    policy._central_value_out = model.value_function()
    loss = ppo_surrogate_loss(policy, model, dist_class, train_batch)
    model.value_function = saved
    return loss


def setup_torch_mixins(policy, obs_space, action_space, config):
    KLCoeffMixin.__init__(policy, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


MAPPOTorchPolicy = PPOTorchPolicy.with_updates(
    name="MAPPOTorchPolicy", get_default_config=lambda: PPO_CONFIG, postprocess_fn=postprocess,
    loss_fn=central_critic_loss, before_init=setup_torch_mixins,
    mixins=[LearningRateSchedule, EntropyCoeffSchedule, KLCoeffMixin, CentralizedValueMixin],
)  # fmt: skip


def get_policy_class_mappo(config_):
    if config_["framework"] == "torch":
        return MAPPOTorchPolicy


MAPPOTrainer = PPOTrainer.with_updates(name="MAPPOTrainer", default_policy=None, get_policy_class=get_policy_class_mappo)


def main():
    ray.init(num_cpus=2, include_dashboard=False)
    ModelCatalog.register_custom_model("central_critic", CentralCritic)
    register_env("spread", lambda config: Spread(config))
    env = Spread({"length": 10})
    spec = (None, env.observation_space, env.action_space, {})
    trainer = MAPPOTrainer(config={
        "env": "spread", "env_config": {"length": 10}, "framework": "torch", "num_workers": 0, "seed": 5,
        "batch_mode": "complete_episodes", "train_batch_size": 200, "sgd_minibatch_size": 50, "num_sgd_iter": 5,
        "lr": 5e-3, "entropy_coeff": 0.01, "gamma": 0.5, "lambda": 1.0, "vf_clip_param": 20.0, "clip_param": 0.3,
        "horizon": 10, "simple_optimizer": False,
        "model": {"custom_model": "central_critic", "custom_model_config": {"hidden": 32, "opp_action_in_cc": True}},
        "multiagent": {"policies": {"policy_0": spec, "policy_1": spec},
                       "policy_mapping_fn": lambda agent_id: "policy_" + agent_id[-1]},
    })  # fmt: skip
    assert type(trainer.get_policy("policy_0")).__name__ == "MAPPOTorchPolicy"
    critic = {k: v.copy() for k, v in trainer.get_policy("policy_0").get_weights().items()}
    first = trainer.train()
    for _ in range(3):
        result = trainer.train()
    assert result["episode_reward_mean"] >= first["episode_reward_mean"] - 2, (first, result)
    assert np.isfinite(result["info"]["learner"]["policy_1"]["learner_stats"]["vf_loss"])
    after = trainer.get_policy("policy_0").get_weights()
    assert all(not np.array_equal(critic[k], after[k]) for k in critic if k.startswith("cc.")), "the critic learns"
    assert all(np.array_equal(critic[k], after[k]) for k in critic if k.startswith("vf_branch")), "the other does not"
    trainer.stop()
    ray.shutdown()
    print("ok program_central_critic_mappo")


if __name__ == "__main__":
    main()
