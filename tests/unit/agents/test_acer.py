"""ACER as a trainer: mistakes, exact resume, several agents, sequences of workers that act in NumPy."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

from rlframe.agents.acer import ACERTrainer
from rlframe.agents.families.replayed_sequences import encoded
from rlframe.agents.registry import get_trainer_class
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.numpy_policy import NumpyPolicy
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from tests.helpers.frameworks import needs_tf
from tests.unit.agents.test_pqn import Masked
from tests.unit.agents.test_replayed_actor_critics import with_actions

SMALL = {
    "seed": 5,
    "learning_starts": 40,
    "timesteps_per_iteration": 40,
    "rollout_fragment_length": 8,
    "train_batch_size": 24,
    "model": {"fcnet_hiddens": [16]},
    "log_sys_usage": False,
}


def make(env="CartPole-v1", **overrides):
    return ACERTrainer({**copy.deepcopy(SMALL), **overrides}, env=env)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"replay_ratio": -1.0}, r"replay_ratio: got -1.0 \(float\), wanted a number >= 0"),
        ({"importance_c": 0.0}, r"importance_c: got 0.0 \(float\), wanted a number > 0"),
        ({"delta": 0.0}, r"delta: got 0.0 \(float\), wanted a number > 0"),
        ({"ema_alpha": 1.5}, "ema_alpha: got 1.5"),
        ({"rollout_fragment_length": 1}, "rollout_fragment_length=1: Retrace looks along sequences.*set 2 or more"),
        ({"model": {"max_seq_len": 1}}, "model.max_seq_len=1: Retrace looks along sequences"),
        ({"replay_buffer_config": {"type": "LocalReplayBuffer"}}, "set 'EpisodeReplayBuffer'"),
    ],
)
def test_wrong_configs_are_refused(overrides, said):
    with pytest.raises(ConfigError, match=said):
        make(**overrides)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (gym.spaces.Box(-np.inf, np.inf, (1,), np.float32), "ACER's actions lie within bounds.*wanted finite low and"),
        (gym.spaces.MultiDiscrete([2, 2]), "ACER got the action space MultiDiscrete.*wanted Discrete, or a Box"),
    ],
    ids=str,
)
def test_action_spaces_that_do_not_fit_are_refused(space, said):
    with pytest.raises(UnsupportedSpaceException, match=said):
        make(with_actions(space))


@pytest.mark.parametrize("name", ["ACER", "SAC"])
def test_action_masks_are_not_taken_for_numbers(name):
    with pytest.raises(ConfigError, match=f"{name} got observations with an action_mask"):
        get_trainer_class(name)({}, env=Masked)


LSTM = {"fcnet_hiddens": [16], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}


@pytest.mark.parametrize(
    ("env", "model"), [("CartPole-v1", LSTM), ("Pendulum-v1", SMALL["model"])], ids=["choices, LSTM", "numbers"]
)
def test_restored_trainer_goes_on_bit_for_bit(env, model, tmp_path):
    one, two = make(env, model=model), make(env, model=model, seed=99)
    one.train()
    two.restore(one.save(str(tmp_path)))
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["info"]["num_steps_trained"] == b["info"]["num_steps_trained"]
        np.testing.assert_equal(a["info"]["learner"], b["info"]["learner"])
    for key, array in one.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, two.get_weights()["default_policy"][key], err_msg=key)


def test_replayed_updates_are_as_many_as_the_ratio_says():
    only_new, replayed = make(replay_ratio=0.0), make(replay_ratio=3.0, learning_starts=0)
    for trainer, least, most in ((only_new, 1.0, 1.0), (replayed, 2.5, 7.0)):
        for _ in range(10):
            info = trainer.train()["info"]
        assert least <= info["num_steps_trained"] / info["num_steps_sampled"] <= most
    assert only_new.get_policy().num_updates == info["num_steps_sampled"] // 24


@pytest.mark.parametrize(
    ("env", "model"),
    [
        ("CartPole-v1", {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}),
        ("Pendulum-v1", {"use_lstm": True, "lstm_cell_size": 4}),
        ("CartPole-v1", {"use_attention": True, "attention_dim": 8, "attention_head_dim": 4}),
        ("CartPole-v1", {}),
    ],
    ids=["choices, LSTM", "numbers, LSTM", "attention", "no memory"],
)
def test_learning_sees_what_acting_saw(env, model):
    trainer = make(env, model={"fcnet_hiddens": [16], "max_seq_len": 5, **model}, rollout_fragment_length=17)
    rows, policy = trainer.workers.local_worker().sample(), trainer.get_policy()
    batch = policy._lazy_tensor_dict(policy._learned_columns(rows))
    for networks in (policy.model, policy.target_model):  # which are the same before the first update
        made = networks.actor(encoded(policy, networks, batch))[batch["valid_mask"]]
        np.testing.assert_allclose(made.detach().numpy(), rows["action_dist_inputs"], atol=1e-5)
    assert batch["valid_mask"].sum() == 17


class Shared(TorchModelV2, nn.Module):
    """A program's model: what actor and critics share."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.layers = nn.Sequential(nn.Linear(obs_space.shape[0], width), nn.ReLU(), nn.Linear(width, num_outputs))

    def forward(self, input_dict, state, seq_lens):
        return self.layers(input_dict["obs_flat"].float()), state


class Remembers(Shared):
    """The same with a state."""

    def get_initial_state(self):
        return [np.zeros(3, np.float32)]

    def forward(self, input_dict, state, seq_lens):
        return super().forward(input_dict, state, seq_lens)[0], [state[0] + 1.0]


def test_a_models_states_are_acers_and_refused_where_features_of_single_observations_are_wanted():
    ModelCatalog.register_custom_model("acer remembers", Remembers)
    model = {"custom_model": "acer remembers", "custom_model_config": {"width": 8}}
    trainer = make(model=model)
    assert trainer.get_policy().get_initial_state()[0].shape == (3,)
    assert trainer.train()["info"]["num_steps_trained"] > 0
    with pytest.raises(ConfigError, match=r"got Remembers.*which has memory.*use a model without states"):
        get_trainer_class("PQN")({"model": model}, env="CartPole-v1")


def test_workers_that_act_in_numpy_cut_their_rows_into_sequences():
    policy = make().get_policy()
    recipe = pickle.loads(pickle.dumps(policy.acting_recipe()))
    assert recipe.learns_sequences
    acting = NumpyPolicy(policy.observation_space, policy.action_space, policy.config, recipe=recipe)
    assert acting.learns_sequences()
    assert not acting.is_recurrent()


@pytest.mark.parametrize(("max_seq_len", "longest"), [(999_999, 8), (3, 3)])
def test_sequences_are_as_long_as_fragments_or_as_the_model_says(max_seq_len, longest):
    trainer = make(num_envs_per_worker=2, model={"fcnet_hiddens": [16], "max_seq_len": max_seq_len})
    rows = trainer.workers.local_worker().sample()
    assert rows["seq_lens"].max() == longest
    assert rows["seq_lens"].sum() == rows.count == 16
    trainer.stop()


def test_the_average_policy_follows_slowly():
    policy = make(ema_alpha=0.75).get_policy()
    before = policy.target_network.get_weights()
    online = {key: array + 1.0 for key, array in policy.get_weights().items()}
    policy.set_weights(online)
    policy.update_target()
    after = policy.target_network.get_weights()
    assert set(after) == {key for key in online if key.startswith("actor.")}
    for key, array in after.items():
        np.testing.assert_allclose(array, 0.25 * online[key] + 0.75 * before[key], rtol=1e-6)


@needs_tf
def test_a_trainer_in_tensorflow_learns_what_one_in_pytorch_does_without_a_new_trace():
    ours, theirs = make(framework="tf", replay_ratio=1.0), make()
    before = ours.get_weights()["default_policy"]
    assert ours.train()["info"]["num_steps_trained"] >= 48
    after = ours.get_weights()["default_policy"]
    assert all(not np.array_equal(array, before[key]) for key, array in after.items())
    policies = [trainer.get_policy() for trainer in (ours, theirs)]
    policies[1].set_state(policies[0].get_state())
    rows = theirs.workers.local_worker().sample()
    stats, wanted = (policy.learn_on_batch(rows)["learner_stats"] for policy in policies)
    assert {key: stats[key] for key in wanted} == pytest.approx(wanted, rel=1e-3, abs=1e-5)
    assert policies[0].trace_count == 1


def test_a_model_of_the_programs_own_is_shared_by_actor_and_critic():
    ModelCatalog.register_custom_model("acer shared", Shared)
    trainer = make(model={"custom_model": "acer shared", "custom_model_config": {"width": 8}})
    weights = trainer.get_weights()["default_policy"]
    assert {key.partition(".")[0] for key in weights} == {"encoder", "actor", "critic"}
    assert weights["actor.output.weight"].shape == (2, 256)
    trainer.train()
    after = trainer.get_weights()["default_policy"]
    assert all(not np.array_equal(array, weights[key]) for key, array in after.items())


def test_each_of_several_agents_learns_with_its_own_policy():
    names = ["even", "odd"]
    multiagent = {
        "policies": {name: PolicySpec(config={"gamma": 0.9 + 0.05 * index}) for index, name in enumerate(names)},
        "policy_mapping_fn": lambda agent_id, episode, worker, **kwargs: names[agent_id % 2],
    }
    trainer = make(MultiAgentCartPole, env_config={"num_agents": 2}, multiagent=multiagent, learning_starts=0)
    before = {name: trainer.get_policy(name).get_weights() for name in names}
    trainer.train()
    for name in names:
        assert any(not np.array_equal(new, before[name][key]) for key, new in trainer.get_weights([name])[name].items())
        assert trainer.get_policy(name).num_updates > 2
