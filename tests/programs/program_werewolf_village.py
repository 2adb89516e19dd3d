"""A social game in turns: masked actions, scripted wolves, callbacks as a dict, whoever loses learns next.

Uses RLlib as nicofirst1/rl_werewolf does (src/trainable/evaluation_train.py, src/policies/RevengeTarget.py,
src/models/PaModel.py, src/trainers/AlternatePPOTrainer.py, gym_ww/callbacks.py): `"callbacks": {"on_episode_end": f}`
with `info["env"].envs[0]`, `Policy` subclasses whose weights are None, `use_lstm` behind a custom model,
`trial_name_creator`, and a trainer that looks into `config["multiagent"]` after each result.
"""

import gym
import numpy as np
import ray
from rlframe import Policy, tune
from rlframe.agents.ppo import DEFAULT_CONFIG, PPOTrainer
from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.models import ModelCatalog
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.utils import try_import_torch

torch, nn = try_import_torch()
PLAYERS = ["werewolf_0", "villager_1", "villager_2", "villager_3"]


class Werewolves(MultiAgentEnv):
    """By day all vote, by night the wolf eats: whom most name is dead, and must not be named again."""

    def __init__(self, config):
        super().__init__()
        self.num_players = config["num_players"]
        self.action_space = gym.spaces.Discrete(self.num_players)
        self.observation_space = gym.spaces.Dict({
            "array_obs": gym.spaces.Box(0, 1, (self.num_players + 1,), np.float32),
            "action_mask": gym.spaces.Box(0, 1, (self.num_players,), np.float32),
        })
        self.custom_metrics = {}

    def observe(self):
        alive = self.alive.astype(np.float32)
        seen = np.append(alive, float(self.night)).astype(np.float32)
        turn = [0] if self.night else np.flatnonzero(self.alive)
        return {PLAYERS[i]: {"array_obs": seen, "action_mask": alive} for i in turn}

    def reset(self):
        self.alive, self.night, self.days = np.ones(self.num_players, bool), False, 0
        self.custom_metrics = {"win_wolf": 0, "tot_days": 0}
        return self.observe()

    def step(self, votes):
        assert all(self.alive[int(vote)] for vote in votes.values()), "dead players are masked"
        out = np.bincount([int(vote) for vote in votes.values()], minlength=self.num_players).argmax()
        self.alive[out] = False
        self.night, self.days = not self.night, self.days + self.night
        wolf, villagers = self.alive[0], self.alive[1:].sum()
        over = not wolf or villagers <= 1
        self.custom_metrics = {"win_wolf": int(bool(wolf)), "tot_days": self.days}
        rewards = {name: 0.0 for name in votes}
        if over:
            rewards = {name: (1.0 if ("wolf" in name) == bool(wolf) else -1.0) for name in PLAYERS if name in votes}
        dones = {"__all__": bool(over)}
        if not over and not self.alive[out]:
            dones[PLAYERS[out]] = True
        return self.observe(), rewards, dones, {}


class RevengeTarget(Policy):
    """Names anybody who lives."""

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, prev_reward_batch=None,
                        info_batch=None, episodes=None, **kwargs):
        masks = np.asarray(obs_batch)[:, : self.action_space.n]  # "action_mask" comes before "array_obs"
        return [int(np.random.choice(np.flatnonzero(mask > 0))) for mask in masks], [], {}

    def get_weights(self):
        return None

    def set_weights(self, weights):
        pass

    def learn_on_batch(self, samples):
        return {}


class ParametricActions(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, "pa_model")
        nn.Module.__init__(self)
        real = obs_space.original_space.spaces["array_obs"]
        self.embed = FullyConnectedNetwork(real, action_space, num_outputs, model_config, name + "_action_embed")

    def forward(self, input_dict, state, seq_lens):
        embedding, _ = self.embed({"obs": input_dict["obs"]["array_obs"]})
        mask = torch.clamp(torch.log(input_dict["obs"]["action_mask"]), min=torch.finfo(torch.float32).min)
        return embedding + mask, state

    def value_function(self):
        return self.embed.value_function()


def on_episode_end(info):
    episode = info["episode"]
    for key, value in info["env"].envs[0].custom_metrics.items():
        episode.custom_metrics[key] = value


class AlternatePPO(PPOTrainer):
    """Those who win pause: `policies_to_train` of the config is looked at, and noted in the result."""

    def step(self):
        result = super().step()
        losing = "wolf_p" if result["custom_metrics"]["win_wolf_mean"] <= 0.5 else "vill_p"
        self.config["multiagent"]["policies_to_train"] = [losing]
        self.workers.foreach_worker(lambda worker: worker.set_policies_to_train([losing]))
        result["custom_metrics"]["trains_next"] = losing
        return result


def mapping(agent_id):
    if "wolf" in agent_id:
        return "wolf_p"
    elif "vil" in agent_id:
        return "vill_p"
    raise NotImplementedError(f"Policy for role {agent_id} not implemented")


def main():
    ray.init(num_cpus=2, log_to_driver=False)
    ModelCatalog.register_custom_model("pa_model", ParametricActions)
    env = Werewolves({"num_players": 4})
    ppo = (PPOTorchPolicy, env.observation_space, env.action_space, {})
    scripted = (RevengeTarget, env.observation_space, env.action_space, {})
    configs = {
        "env": Werewolves, "env_config": {"num_players": 4}, "framework": "torch", "num_workers": 0, "num_gpus": 0,
        "batch_mode": "complete_episodes", "train_batch_size": 200, "rollout_fragment_length": 100,
        "sgd_minibatch_size": 64, "num_sgd_iter": 2, "lr": 3e-4, "lambda": 0.95, "gamma": 0.998,
        "entropy_coeff": 0.01, "kl_coeff": 1.0, "clip_param": 0.2, "use_critic": True, "use_gae": True, "grad_clip": 5,
        "simple_optimizer": True, "callbacks": {"on_episode_end": on_episode_end},
        "model": {"use_lstm": False, "custom_model": "pa_model"},
        "multiagent": {"policies": {"wolf_p": scripted, "vill_p": ppo}, "policy_mapping_fn": mapping,
                       "policies_to_train": ["vill_p"]},
    }  # fmt: skip
    analysis = tune.run("PPO", local_dir="ray_dir", config=configs, trial_name_creator=lambda trial: f"ww_{trial.trial_id}",
                        checkpoint_freq=1, keep_checkpoints_num=2, stop={"training_iteration": 2}, verbose=0)
    (trial,) = analysis.trials
    metrics = trial.last_result["custom_metrics"]
    assert 0 <= metrics["win_wolf_mean"] <= 1 and metrics["tot_days_mean"] >= 0, metrics
    assert set(trial.last_result["info"]["learner"]) == {"vill_p"}, trial.last_result["info"]["learner"].keys()
    assert str(trial).startswith("ww_")

    configs["multiagent"] = {"policies": {"wolf_p": ppo, "vill_p": ppo}, "policy_mapping_fn": mapping,
                             "policies_to_train": ["wolf_p"]}
    config = dict(DEFAULT_CONFIG, **configs)
    trainer = AlternatePPO(config=config)
    before = trainer.get_policy("vill_p").get_weights()
    result = trainer.train()
    assert set(result["info"]["learner"]) == {"wolf_p"}
    assert all(np.array_equal(before[k], v) for k, v in trainer.get_policy("vill_p").get_weights().items())
    expected = trainer.config["multiagent"]["policies_to_train"][0]
    assert result["custom_metrics"]["trains_next"] == expected
    assert set(trainer.train()["info"]["learner"]) == {expected}
    trainer.stop()
    ray.shutdown()
    print("ok program_werewolf_village")


if __name__ == "__main__":
    main()
