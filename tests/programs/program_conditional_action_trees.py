"""A grid game in which only some actions are possible: a policy that samples along a tree of valid actions.

Uses RLlib as Bam4d/Griddly does (python/griddly/util/rllib: torch/conditional_actions/*, environment/core.py,
callbacks.py): `VTraceTorchPolicy.with_updates` with a loss made of `VTraceLoss` and `make_time_major`, a mixin that
sets `view_requirements` before the policy is there and overrides `compute_actions_from_input_dict`, which reads the
last step's infos, spaces with setters that are floats of 64 bits, callbacks that look through `_VectorEnvToBaseEnv`
and keep counters per `episode.episode_id`, `last_info_for("agent0")`, and `episode.media`.
"""

from collections import Counter

import gym
import numpy as np
import ray
import torch
from rlframe import BaseEnv, Policy, SampleBatch
from rlframe import tune
from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.impala.vtrace_torch_policy import VTraceLoss, VTraceTorchPolicy, build_vtrace_loss, make_time_major
from rlframe.env.base_env import _VectorEnvToBaseEnv
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.torch_policy import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.policy.view_requirement import ViewRequirement
from rlframe.tune.registry import register_env
from rlframe.utils import override
from rlframe.utils.torch_ops import convert_to_non_torch_type
from torch import nn
from torch.distributions import Categorical

SIZE = 4


class Griddly(gym.Env):
    """Whoever carries the key on a board of 4 x 4 may also drop it; nobody walks off the board."""

    player_count = 1

    def __init__(self, env_config):
        self._spaces = {}
        self.env_config = env_config
        self.generate_valid_action_trees = env_config.get("generate_valid_action_trees", False)
        self.env_steps, self.worker_idx, self.invalid = 0, None, 0

    @property
    def action_space(self):
        return self._spaces.setdefault("action", gym.spaces.MultiDiscrete([2, 5]))

    @action_space.setter
    def action_space(self, value):
        self._spaces["action"] = value

    @property
    def observation_space(self):
        low, high = np.zeros((SIZE, SIZE, 2)), np.ones((SIZE, SIZE, 2))
        return self._spaces.setdefault(
            "observation", gym.spaces.Box(low.astype(float), high.astype(float), dtype=float)
        )

    @observation_space.setter
    def observation_space(self, value):
        self._spaces["observation"] = value

    def moves(self):
        y, x = self.at
        return [m for m, ok in ((1, y > 0), (2, y < SIZE - 1), (3, x > 0), (4, x < SIZE - 1)) if ok]

    def tree(self):
        tree = {0: {m: {} for m in [0, *self.moves()]}}
        if self.carries:
            tree[1] = {0: {}, 1: {}}
        return tree

    def observe(self):
        seen = np.zeros((SIZE, SIZE, 2))
        seen[tuple(self.at) + (0,)] = 1
        seen[..., 1] = self.carries
        return seen.astype(float)

    def reset(self, **kwargs):
        self.at, self.carries, self.t = [0, 0], False, 0
        return self.observe()

    def step(self, action):
        self.t, self.env_steps = self.t + 1, self.env_steps + 1
        kind, what = int(action[0]), int(action[1])
        self.invalid += self.t > 1 and what not in self.tree().get(kind, {})
        dropped = kind == 1 and self.carries and what == 1
        if kind == 0 and what in self.moves():
            dy, dx = {1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}[what]
            self.at = [self.at[0] + dy, self.at[1] + dx]
        self.carries = (self.carries or self.at == [1, 1]) and not dropped
        over = self.t >= 12
        info = {"PlayerResults": {"1": "Win" if dropped else "Lose"}, "invalid": self.invalid,
                "History": [{"PlayerId": 1, "ActionName": ("move", "drop")[kind]}]}  # fmt: skip
        if self.generate_valid_action_trees:
            info["valid_action_tree"] = self.tree().copy()
        if over:
            info["videos"] = [{"level": 0, "path": "none.mp4"}]
        return self.observe(), float(dropped), over, info

    def on_episode_start(self, worker_idx, env_idx):
        self.worker_idx, self.env_idx = worker_idx, env_idx


class GAPAgent(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.network = nn.Sequential(nn.Conv2d(obs_space.shape[2], 8, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.actor_head = nn.Linear(8 * SIZE * SIZE, num_outputs)
        self.critic_head = nn.Linear(8 * SIZE * SIZE, 1)

    def forward(self, input_dict, state, seq_lens):
        hidden = self.network(input_dict["obs"].float().permute(0, 3, 1, 2))
        self._value = self.critic_head(hidden).reshape(-1)
        return self.actor_head(hidden), state

    def value_function(self):
        return self._value


class TorchConditionalMaskingExploration:
    def __init__(self, model, dist_inputs, valid_action_trees, allow_nop=False):
        self._trees, self._parts, self._allow_nop = valid_action_trees, list(model.action_space.nvec), allow_nop
        self._split = dist_inputs.split(tuple(int(n) for n in self._parts), dim=1)

    def get_actions_and_mask(self):
        rows, total = len(self._split[0]), int(np.sum(self._parts))
        actions, logp = torch.zeros([rows, len(self._parts)]), torch.zeros([rows])
        masked, mask = torch.zeros([rows, total]), torch.zeros([rows, total])
        for i in range(rows):
            subtree, offset = self._trees[i] or {0: {0: {}}}, 0
            for a, n in enumerate(self._parts):
                part = torch.zeros([n])
                options = list(subtree.keys())
                part[options] = 1
                if a == len(self._parts) - 1 and not self._allow_nop and len(options) > 1:
                    part[0] = 0
                logits = self._split[a][i] + torch.log(part)
                dist = Categorical(logits=logits)
                sampled = dist.sample()
                actions[i, a] = sampled
                logp[i] += dist.log_prob(sampled)
                masked[i, offset : offset + n], mask[i, offset : offset + n] = logits, part
                offset, subtree = offset + int(n), subtree[int(sampled)]
        return actions, masked, logp, mask


class ConditionalActionMixin:
    def __init__(self):
        self.view_requirements = {SampleBatch.INFOS: ViewRequirement(data_col=SampleBatch.INFOS, shift=-1)}

    @override(Policy)
    def compute_actions_from_input_dict(self, input_dict, explore=None, timestep=None, **kwargs):
        explore = explore if explore is not None else self.config["explore"]
        timestep = timestep if timestep is not None else self.global_timestep
        with torch.no_grad():
            input_dict = self._lazy_tensor_dict(input_dict)
            state_batches = [input_dict[k] for k in input_dict.keys() if "state_in" in k[:8]]
            seq_lens = np.array([1] * len(input_dict["obs"])) if state_batches else None
            self._is_recurrent = state_batches is not None and state_batches != []
            self.model.eval()
            dist_inputs, state_out = self.model(input_dict, state_batches, seq_lens)
            extra_fetches = {}
            if self.config["env_config"].get("generate_valid_action_trees", False):
                infos = input_dict[SampleBatch.INFOS] if SampleBatch.INFOS in input_dict else {}
                trees = []
                for info in infos:
                    known = isinstance(info, dict) and "valid_action_tree" in info
                    trees.append(info["valid_action_tree"] if known else {})
                exploration = TorchConditionalMaskingExploration(self.model, dist_inputs, trees)
                actions, masked_logits, logp, mask = exploration.get_actions_and_mask()
                extra_fetches.update({"invalid_action_mask": mask})
            else:
                action_dist = self.dist_class(dist_inputs, self.model)
                actions, logp = self.exploration.get_exploration_action(
                    action_distribution=action_dist, timestep=timestep, explore=explore
                )
                masked_logits = dist_inputs
            input_dict[SampleBatch.ACTIONS] = actions
            extra_fetches.update(
                {
                    SampleBatch.ACTION_DIST_INPUTS: masked_logits,
                    SampleBatch.ACTION_PROB: torch.exp(logp.float()),
                    SampleBatch.ACTION_LOGP: logp,
                }
            )
            self.global_timestep += len(input_dict[SampleBatch.CUR_OBS])
            return convert_to_non_torch_type((actions, state_out, extra_fetches))


def build_invalid_masking_vtrace_loss(policy, model, dist_class, train_batch):
    if not policy.config["env_config"].get("vtrace_masking", False):
        return build_vtrace_loss(policy, model, dist_class, train_batch)
    model_out, _ = model.from_batch(train_batch)
    output_hidden_shape = policy.action_space.nvec.astype(np.int32)

    def _make_time_major(*args, **kw):
        return make_time_major(policy, train_batch.get("seq_lens"), *args, **kw)

    actions, rewards = train_batch[SampleBatch.ACTIONS], train_batch[SampleBatch.REWARDS]
    mask = torch.ones_like(rewards)
    model_out += torch.clamp(torch.log(train_batch["invalid_action_mask"]), min=-1e9)
    action_dist = dist_class(model_out, model)
    behaviour_logits = torch.clamp(train_batch[SampleBatch.ACTION_DIST_INPUTS], min=-1e9)
    unpacked_behaviour_logits = torch.split(behaviour_logits, list(output_hidden_shape), dim=1)
    unpacked_outputs = torch.split(model_out, list(output_hidden_shape), dim=1)
    values = model.value_function()
    policy.loss = VTraceLoss(
        actions=_make_time_major(actions, drop_last=True),
        actions_logp=_make_time_major(action_dist.logp(actions), drop_last=True),
        actions_entropy=_make_time_major(action_dist.entropy(), drop_last=True),
        dones=_make_time_major(train_batch[SampleBatch.DONES], drop_last=True),
        behaviour_action_logp=_make_time_major(train_batch[SampleBatch.ACTION_LOGP], drop_last=True),
        behaviour_logits=_make_time_major(unpacked_behaviour_logits, drop_last=True),
        target_logits=_make_time_major(unpacked_outputs, drop_last=True),
        discount=policy.config["gamma"],
        rewards=_make_time_major(rewards, drop_last=True),
        values=_make_time_major(values, drop_last=True),
        bootstrap_value=_make_time_major(values)[-1],
        dist_class=TorchCategorical,
        model=model,
        valid_mask=_make_time_major(mask, drop_last=True),
        config=policy.config,
        vf_loss_coeff=policy.config["vf_loss_coeff"],
        entropy_coeff=policy.entropy_coeff,
        clip_rho_threshold=policy.config["vtrace_clip_rho_threshold"],
        clip_pg_rho_threshold=policy.config["vtrace_clip_pg_rho_threshold"],
    )
    return policy.loss.total_loss


def setup_mixins(policy, obs_space, action_space, config):
    ConditionalActionMixin.__init__(policy)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


ConditionalActionVTraceTorchPolicy = VTraceTorchPolicy.with_updates(
    name="ConditionalActionVTraceTorchPolicy",
    loss_fn=build_invalid_masking_vtrace_loss,
    before_init=setup_mixins,
    mixins=[LearningRateSchedule, EntropyCoeffSchedule, ConditionalActionMixin],
)


def get_vtrace_policy_class(config):
    if config["framework"] == "torch":
        return ConditionalActionVTraceTorchPolicy
    raise NotImplementedError("Tensorflow not supported")


ConditionalActionImpalaTrainer = ImpalaTrainer.with_updates(
    name="ConditionalActionImpalaTrainer",
    default_policy=ConditionalActionVTraceTorchPolicy,
    get_policy_class=get_vtrace_policy_class,
)


class GriddlyCallbacks(DefaultCallbacks):
    def __init__(self):
        super().__init__()
        self._trackers = {}

    def _get_envs(self, base_env):
        if isinstance(base_env, _VectorEnvToBaseEnv):
            return base_env.vector_env.envs
        return base_env.envs

    def on_episode_start(self, *, worker, base_env: BaseEnv, policies, episode, env_index=None, **kwargs):
        self._get_envs(base_env)[env_index].on_episode_start(worker.worker_index, env_index)
        self._trackers[episode.episode_id] = Counter()

    def on_episode_step(self, *, worker, base_env: BaseEnv, episode, env_index=None, **kwargs):
        info = episode.last_info_for("agent0")
        for event in info.get("History", []):
            self._trackers[episode.episode_id][event["ActionName"]] += 1

    def on_episode_end(self, *, worker, base_env: BaseEnv, policies, episode, env_index=None, **kwargs):
        env = self._get_envs(base_env)[env_index]
        assert (env.worker_idx, env.env_idx) == (worker.worker_index, env_index)
        info = episode.last_info_for()
        for action_name, frequency in self._trackers.pop(episode.episode_id).items():
            episode.custom_metrics[f"agent_info/agent0/{action_name}"] = frequency
        episode.custom_metrics["agent_info/agent0/win"] = 1 if info["PlayerResults"]["1"] == "Win" else 0
        episode.custom_metrics["invalid"] = info["invalid"]
        for video in info.get("videos", []):
            episode.media[f"level_{video['level']}_1"] = np.zeros((1, 2, 2, 3))


def main():
    ray.init(num_gpus=0, num_cpus=3)
    register_env("ray-griddly-env", Griddly)
    ModelCatalog.register_custom_model("GAP", GAPAgent)
    config = {
        "framework": "torch", "num_workers": 1, "num_envs_per_worker": 2, "callbacks": GriddlyCallbacks,
        "model": {"custom_model": "GAP", "custom_model_config": {}},
        "env": "ray-griddly-env",
        "env_config": {"generate_valid_action_trees": True, "vtrace_masking": True, "record_actions": True},
        "entropy_coeff_schedule": [[0, 0.01], [2000, 0.0]], "lr_schedule": [[0, 0.0005], [2000, 0.0]],
        "rollout_fragment_length": 10, "train_batch_size": 40, "min_iter_time_s": 0, "opt_type": "adam",
    }  # fmt: skip
    analysis = tune.run(ConditionalActionImpalaTrainer, config=config, stop={"timesteps_total": 600}, verbose=0)
    (trial,) = analysis.trials
    result = trial.last_result
    metrics = result["custom_metrics"]
    assert metrics["invalid_max"] == 0, metrics
    assert metrics["agent_info/agent0/move_max"] <= 12
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert np.isfinite(stats["grad_gnorm"]), stats


    plain = dict(config, num_workers=0, env_config={}, callbacks=DefaultCallbacks)
    trainer = ConditionalActionImpalaTrainer(config=plain)
    trainer.train()
    action = trainer.compute_action(Griddly({}).reset())
    assert trainer.get_policy().action_space.contains(np.asarray(action)), action
    trainer.stop()
    ray.shutdown()
    print("ok program_conditional_action_trees")


if __name__ == "__main__":
    main()
