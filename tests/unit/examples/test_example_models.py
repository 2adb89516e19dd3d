"""Models and policies of RLlib's examples that show one idea each, at RLlib's paths."""

from __future__ import annotations

import importlib
import importlib.util
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.examples.env.toy_envs import DebugCounterEnv
from rlframe.models.catalog import ModelCatalog
from rlframe.offline.json_writer import JsonWriter
from rlframe.utils.spaces.repeated import Repeated
from tests.helpers.frameworks import TORCH_FIRST, gradients_of, needs_tf, to_tensor

SEEN, CHOICES = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
CONFIG = {
    "env": "CartPole-v1", "num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 20,
    "sgd_minibatch_size": 20, "num_sgd_iter": 1, "min_iter_time_s": 0, "seed": 1, "log_sys_usage": False,
}  # fmt: skip


def example(path, name):
    return getattr(importlib.import_module(f"rlframe.examples.{path}"), name)


def model_of(path, name, framework, actions=CHOICES, seen=SEEN, **options):
    cls = example(f"models.{path}", f"Torch{name}" if framework == "torch" else name)
    config = {"custom_model": cls, "custom_model_config": options, "fcnet_hiddens": [4]}
    return ModelCatalog.get_model_v2(seen, actions, int(actions.n), config, framework)


def array(tensor):
    return tensor.detach().numpy() if hasattr(tensor, "detach") else tensor.numpy()


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_two_dependent_bits_have_the_product_of_their_probabilities(framework):
    """P(a1 = 1) = 3/4; P(a2 = 1 | a1) = 1/2 after 0, 4/5 after 1."""
    first = np.log([[1.0, 3.0]] * 4).astype(np.float32)

    def after(bit):
        row = np.log([[1.0, 1.0], [1.0, 4.0]]).astype(np.float32)
        return to_tensor(framework, first), to_tensor(framework, row[array(bit).astype(int).reshape(-1)])

    if framework == "torch":
        model = SimpleNamespace(action_module=lambda features, bit: after(bit))
    else:
        model = SimpleNamespace(action_model=lambda given: after(given[1]))
    name = "TorchBinaryAutoregressiveDistribution" if framework == "torch" else "BinaryAutoregressiveDistribution"
    make = example("models.autoregressive_action_dist", name)
    dist = make(to_tensor(framework, np.zeros((4, 16), np.float32)), model)
    bits = to_tensor(framework, np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))
    assert np.exp(array(dist.logp(bits))) == pytest.approx([1 / 8, 1 / 8, 3 / 20, 3 / 5])
    best = dist.deterministic_sample()
    assert [array(bit).tolist() for bit in best] == [[1] * 4] * 2
    assert np.exp(array(dist.sampled_action_logp())) == pytest.approx([3 / 5] * 4)
    drawn = dist.sample()
    assert array(dist.sampled_action_logp()) == pytest.approx(array(dist.logp(drawn)))
    bit_entropy = -(3 / 4 * np.log(3 / 4) + 1 / 4 * np.log(1 / 4))
    fair, biased = np.log(2), -(4 / 5 * np.log(4 / 5) + 1 / 5 * np.log(1 / 5))
    for entropy in array(dist.entropy()) - bit_entropy:
        assert min(abs(entropy - fair), abs(entropy - biased)) < 1e-5
    assert array(dist.kl(dist)) == pytest.approx([0] * 4)
    assert make.required_model_output_shape(None, None) == 16


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_a_model_of_two_bits_refuses_others(framework):
    name = "TorchAutoregressiveActionModel" if framework == "torch" else "AutoregressiveActionModel"
    with pytest.raises(ValueError, match="AutoregressiveActionModel got the action space Discrete"):
        example("models.autoregressive_action_model", name)(SEEN, CHOICES, 16, {}, "bits")


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_batches_are_normalised_by_their_own_statistics_in_training_alone(framework):
    model = model_of("batch_norm_model", "BatchNormModel", framework)
    rows = to_tensor(framework, np.repeat([[0.5, -0.5, 1.0]], 4, axis=0).astype(np.float32))
    alike = array(model({"obs": rows, "is_training": True})[0])
    biases = array(model({"obs": -rows, "is_training": True})[0])
    assert alike == pytest.approx(biases, abs=1e-5)  # equal rows have nothing but their mean
    acting = [array(model({"obs": obs, "is_training": False})[0]) for obs in (rows, -rows)]
    assert np.abs(acting[0] - acting[1]).max() > 1e-4
    assert array(model.value_function()).shape == (4,)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_a_model_may_be_one_weight(framework):
    model = model_of("fast_model", "FastModel", framework)
    obs = to_tensor(framework, np.ones((5, 3), np.float32))
    assert array(model({"obs": obs})[0]).tolist() == [[0.0, 0.0]] * 5
    assert array(model.value_function()).tolist() == [0.0] * 5
    assert len(model.trainable_variables()) == 1


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_heads_give_q_values_of_another_models_features(framework):
    prefix, features = ("Torch" if framework == "torch" else ""), np.random.default_rng(0).normal(size=(5, 8))
    features = to_tensor(framework, features.astype(np.float32))

    def headed(name, actions):
        return ModelCatalog.get_model_v2(
            SEEN, actions, 3, {"fcnet_hiddens": [8], "fcnet_activation": "tanh"}, framework,
            model_interface=example("models.custom_model_api", f"{prefix}{name}"),
        )  # fmt: skip

    dueling = headed("DuelingQModel", gym.spaces.Discrete(3))
    made, _ = dueling({"obs": to_tensor(framework, np.ones((5, 3), np.float32))})
    assert tuple(made.shape) == (5, 8)
    q_values, values = array(dueling.get_q_values(features)), array(dueling.V(features))
    assert q_values.mean(axis=1) == pytest.approx(values[:, 0], abs=1e-6)
    advantages = array(dueling.A(features))
    assert q_values[:, 0] - q_values[:, 1] == pytest.approx(advantages[:, 0] - advantages[:, 1], abs=1e-6)
    continuous = headed("ContActionQModel", gym.spaces.Box(-1.0, 1.0, (2,)))
    actions = [to_tensor(framework, np.full((5, 2), value, np.float32)) for value in (-1, 1)]
    low, high = (array(continuous.get_single_q_value(features, action)) for action in actions)
    assert low.shape == (5, 1)
    assert (low != high).all()


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_recorded_actions_are_imitated_beside_the_algorithm(framework, tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    JsonWriter(str(tmp_path)).write(SampleBatch({"obs": rows, "actions": np.ones(30, np.int64)}))
    name = "TorchCustomLossModel" if framework == "torch" else "CustomLossModel"
    custom = example("models.custom_loss_model", name)
    model = {"custom_model": custom, "custom_model_config": {"input_files": str(tmp_path)}, "fcnet_hiddens": [8]}
    trainer = PPOTrainer({**CONFIG, "lr": 0.05, "num_sgd_iter": 8, "framework": framework, "model": model})
    first, *_, last = [trainer.train()["info"]["learner"]["default_policy"]["model"] for _ in range(2)]
    assert last["imitation_loss"] < first["imitation_loss"] < np.log(2)
    assert np.isfinite(last["policy_loss"])


@needs_tf
@pytest.mark.slow
def test_an_eager_function_is_in_the_way_of_outputs_and_gradients():
    model = model_of("eager_model", "EagerModel", "tf")
    obs = np.ones((4, 3), np.float32)

    def outputs(rows):
        return model({"obs": rows})[0]

    assert array(outputs(to_tensor("tf", obs))) == pytest.approx(array(model.fcnet({"obs": to_tensor("tf", obs)})[0]))
    assert np.abs(gradients_of("tf", outputs, [obs])[0]).max() > 0
    assert array(model.value_function()).shape == (4,)


@needs_tf
@pytest.mark.slow
def test_embeddings_of_actions_are_learned_and_masked():
    count = 3
    space = gym.spaces.Dict(valid_avail_actions_mask=gym.spaces.Box(0, 1, (count,)), cart=gym.spaces.Box(-9, 9, (4,)))
    seen = ModelCatalog.get_preprocessor_for_space(space).observation_space
    name = "ParametricActionsModelThatLearnsEmbeddings"
    model = model_of("parametric_actions_model", name, "tf", gym.spaces.Discrete(count), seen)
    rows = [{"valid_avail_actions_mask": [1.0, 0.0, 1.0], "cart": np.full(4, value)} for value in (-1.0, 1.0)]
    flat = np.stack([ModelCatalog.get_preprocessor_for_space(space).transform(row) for row in rows])
    scores = array(model({"obs": to_tensor("tf", flat)})[0])
    assert (scores[:, 1] < -1e30).all()
    assert (scores[:, [0, 2]] > -1e3).all()
    vectors = array(model.action_embed_matrix.embeddings)
    intents = array(model.pred_action_embed_model({"obs": to_tensor("tf", flat[:, :4])})[0])
    assert vectors.shape == (count + 1, 2)
    assert intents.shape == (2, 2)


@needs_tf
@pytest.mark.slow
def test_a_keras_model_of_sequences_passes_over_the_padding():
    model = example("models.modelv3", "RNNModel")(SEEN, CHOICES, 2, hiddens_size=4, cell_size=3)
    assert [state.tolist() for state in model.get_initial_state()] == [[0.0] * 3] * 2
    obs = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    states = {f"state_in_{index}": np.zeros((2, 3), np.float32) for index in range(2)}
    batch = {"obs": obs.reshape(8, 3), "seq_lens": np.array([4, 2], np.int32), **states}
    outputs, after, views = model(batch)
    assert (tuple(outputs.shape), tuple(views["vf_preds"].shape)) == ((8, 2), (8,))
    obs[1, 2:] = 9.0
    again = model({**batch, "obs": obs.reshape(8, 3)})[1]
    for before, now in zip(after, again, strict=True):
        assert array(now) == pytest.approx(array(before))


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_lists_reach_a_model_as_such(framework):
    space = Repeated(gym.spaces.Box(-1.0, 1.0, (2,)), max_len=3)
    preprocessor = ModelCatalog.get_preprocessor_for_space(space)
    cls = example("models.simple_rpg_model", "CustomTorchRPGModel" if framework == "torch" else "CustomTFRPGModel")

    class Looking(cls):
        def forward(self, input_dict, state, seq_lens):
            self.lists = [len(items) for items in input_dict["obs"].unbatch_all()]
            return super().forward(input_dict, state, seq_lens)

    config = {"custom_model": Looking, "fcnet_hiddens": [4]}
    model = ModelCatalog.get_model_v2(preprocessor.observation_space, CHOICES, 2, config, framework)
    rows = np.stack([preprocessor.transform([np.ones(2)] * count) for count in (1, 3)]).astype(np.float32)
    assert tuple(model({"obs": to_tensor(framework, rows)})[0].shape) == (2, 2)
    assert model.lists == [1, 3]


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("TORCH_GLOBAL_SHARED_LAYER", "torch_models"),
        pytest.param("TF2_GLOBAL_SHARED_LAYER", "tf_models", marks=[needs_tf, pytest.mark.slow]),
    ],
)
def test_the_shared_layer_has_rllibs_name(name, maker):
    assert example("models.shared_weights_model", name) is example(f"models.{maker}", "shared_layer")()


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is not None, reason="torchvision is installed")
def test_a_network_of_torchvisions_says_what_it_needs():
    images, config = gym.spaces.Box(0.0, 1.0, (12,)), {}
    with pytest.raises(ImportError, match=r"needs torchvision.*pip install torchvision"):
        example("models.mobilenet_v2_with_lstm_models", "TorchMobileV2PlusRNNModel")(
            images, CHOICES, 2, config, "mobile", cnn_shape=[3, 2, 2]
        )


@needs_tf
@pytest.mark.slow
def test_keras_network_for_images_has_a_memory_behind_it():
    images = gym.spaces.Box(0.0, 1.0, (4, 4, 3))
    cls = example("models.mobilenet_v2_with_lstm_models", "MobileV2PlusRNNModel")
    model = cls(images, CHOICES, 2, {}, "mobile", cnn_shape=[4, 4, 3])
    obs, states = np.zeros((2, 4, 4, 3), np.float32), [np.zeros((1, 16), np.float32)] * 2
    outputs, after = model({"obs": to_tensor("tf", obs)}, [to_tensor("tf", state) for state in states], np.array([2]))
    assert (tuple(outputs.shape), tuple(after[0].shape)) == ((2, 2), (1, 16))
    assert array(model.value_function()).shape == (2,)


@needs_tf
@pytest.mark.slow
def test_batches_that_a_memory_learned_from_can_be_looked_at(ray_runtime):
    import pickle

    from ray.experimental.internal_kv import _internal_kv_get

    config = {
        **CONFIG, "env": DebugCounterEnv, "framework": "tf", "rollout_fragment_length": 10, "train_batch_size": 10,
        "sgd_minibatch_size": 10, "shuffle_sequences": False,
        "model": {"custom_model": example("models.rnn_spy_model", "RNNSpyModel"), "max_seq_len": 4},
    }  # fmt: skip
    trainer = PPOTrainer(config)
    trainer.train()
    trainer.train()
    first, second = (pickle.loads(_internal_kv_get(f"rnn_spy_in_{index}")) for index in range(2))
    assert first["sequences"][..., 0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 0]]
    assert first["seq_lens"].tolist() == [4, 4, 2]
    assert first["state_in"][0][1:] == pytest.approx(first["state_out"][0][:-1], abs=1e-6)
    assert (first["state_in"][0][0] == 0).all()
    assert second["seq_lens"].tolist() == [4, 1, 4, 1]


@needs_tf
@pytest.mark.slow
def test_a_model_that_keeps_its_batches_in_ray_needs_ray():
    import ray

    if ray.is_initialized():
        pytest.skip("Ray runs in this process")
    with pytest.raises(RuntimeError, match="Ray does not run"):
        example("models.rnn_spy_model", "RNNSpyModel")(SEEN, CHOICES, 2, {}, "spy")


def test_a_neural_computer_writes_to_what_is_free_and_reads_by_content():
    import torch

    computer = importlib.import_module("rlframe.examples.models.neural_computer_torch")
    # In the order of use 1, 0, 2: 1 − 0.2, (1 − 0.5) · 0.2, (1 − 1) · 0.2 · 0.5.
    assert computer.allocation(torch.tensor([[0.5, 0.2, 1.0]]))[0].tolist() == pytest.approx([0.1, 0.8, 0.0])
    cells = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    weights = computer.content_weights(cells, torch.tensor([[[2.0, 0.0]]]), torch.zeros(1, 1))
    strength = 1 + np.log(2)
    assert weights[0, 0, 0].item() == pytest.approx(1 / (1 + np.exp(-strength)))
    assert weights.sum().item() == pytest.approx(1)


def test_a_neural_computer_remembers_the_order_of_writing():
    """Three steps that write to the next free cell, by gates set wide open: each cell is linked to the next."""
    import torch

    computer = importlib.import_module("rlframe.examples.models.neural_computer_torch")
    dnc = computer.DNC(2, 4, read_heads=1, cell_size=2, nr_cells=4)
    with torch.no_grad():
        dnc.interface.weight.zero_()
        dnc.interface.bias.zero_()
        free, alloc, write = 2 + 1 + 2 + 1 + 2 + 2, 11, 12
        dnc.interface.bias[8:10] = 1.0  # what is written
        dnc.interface.bias[free] = -50.0
        dnc.interface.bias[[alloc, write]] = 50.0
    _, (_, memory, read) = dnc(torch.zeros(1, 3, 2))
    used = memory["usage_vector"][0].sort(descending=True).values  # the last writing counts in the next step
    assert used.tolist() == pytest.approx([1, 1, 0, 0], abs=1e-4)
    assert memory["memory"][0].sum(dim=1).sort().values.tolist() == pytest.approx([0, 2, 2, 2], abs=1e-4)
    last = int(memory["write_weights"][0, 0].argmax())
    links = memory["link_matrix"][0, 0]
    assert links.sum().item() == pytest.approx(2, abs=1e-3)  # second after first, third after second
    assert links[last].sum().item() == pytest.approx(1, abs=1e-3)
    assert read.shape == (1, 2)


def test_the_states_of_a_neural_computer_go_there_and_back():
    import torch

    make = example("models.neural_computer", "DNCMemory")
    model = make(gym.spaces.Discrete(1), gym.spaces.Discrete(1), 1, {}, "")
    states = [torch.rand(1, *state.shape) for state in model.get_initial_state()]
    packed = model.pack_state(*model.unpack_state(states))
    assert [torch.equal(before, after) for before, after in zip(states, packed, strict=True)] == [True] * 9
    with pytest.raises(ValueError, match="got states of the shapes"):
        model.validate_unpack(model.unpack_state(states), model.unpack_state([*states[:8], torch.zeros(1, 3)]))
    with pytest.raises(ValueError, match=r"got the options \['cells'\]"):
        make(SEEN, CHOICES, 2, {}, "", cells=3)


def test_a_neural_computer_learns():
    options = {"nr_cells": 4, "cell_size": 3, "read_heads": 2, "hidden_size": 8}
    model = {"custom_model": example("models.neural_computer", "DNCMemory"), "custom_model_config": options}
    trainer = PPOTrainer({**CONFIG, "model": {**model, "max_seq_len": 5}})
    before = trainer.get_weights()["default_policy"]
    trainer.train()
    after = trainer.get_weights()["default_policy"]
    moved = {key for key in before if np.abs(after[key] - before[key]).max() > 0}
    assert {"dnc.interface.weight", "dnc.controller.weight_ih_l0", "logit_branch.weight"} <= moved


class Counted(DebugCounterEnv):
    """Shows the number of steps, four times, and takes three numbers."""

    def __init__(self, config=None):
        super().__init__(config)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (3,))

    def reset(self, *, seed=None, options=None):
        obs, infos = super().reset(seed=seed, options=options)
        return np.repeat(obs, 4), infos

    def step(self, action):
        obs, *rest = super().step(action)
        return (np.repeat(obs, 4), *rest)


def aware(name, agents):
    env, policy = make_multi_agent(Counted), example("policy.episode_env_aware_policy", name)
    config = {
        "rollout_fragment_length": 20, "normalize_actions": False, "batch_mode": "truncate_episodes",
        "multiagent": {"policies": {"pol0": (policy, None, None, {})}, "policy_mapping_fn": lambda agent: "pol0"},
    }  # fmt: skip
    spec = config["multiagent"]["policies"]
    worker = RolloutWorker(env_creator=lambda _: env({"num_agents": agents}), policy_config=config, policy_spec=spec)
    return worker.sample().policy_batches["pol0"]


def test_policies_that_know_whose_row_it_is_get_it_in_sampling():
    batch = aware("EpisodeEnvAwareLSTMPolicy", 2)
    assert batch["actions"][:, 0].tolist() == batch["agent_index"].tolist()
    assert batch["actions"][:, 1].tolist() == (batch["eps_id"] % 2**24).tolist()
    assert len(set(batch["actions"][:, 1])) == 2
    assert set(batch["agent_index"]) == {0, 1}
    assert batch["state_out_0"][:, 0].tolist() == batch["t"].tolist()
    assert (batch["2xobs"] == 2 * batch["obs"]).all()
    starts = np.append(0, np.cumsum(batch["seq_lens"])[:-1])
    assert (batch["seq_lens"] <= 20).all()
    assert batch["state_in_1"][:, 0].tolist() == np.maximum(batch["t"][starts] - 1, 0).tolist()
    later = batch["t"] > 0
    assert (batch["prev_actions"][later] == np.roll(batch["actions"], 1, axis=0)[later]).all()


def test_a_policy_that_knows_whose_row_it_is_has_its_last_states():
    batch = aware("EpisodeEnvAwareAttentionPolicy", 1)
    assert (batch["3xobs"] == 3 * batch["obs"]).all()
    assert batch["state_out_0"][:, 0].tolist() == batch["t"].tolist()


def test_a_bare_policy_is_given_its_last_two_states_and_the_infos():
    policy = example("policy.bare_metal_policy_with_custom_view_reqs", "BareMetalPolicyWithCustomViewReqs")
    given = []

    class Noting(policy):
        def compute_actions(self, obs_batch=None, state_batches=None, *args, **kwargs):
            given.append((np.shape(state_batches[0]), len(args[2])))
            return super().compute_actions(obs_batch, state_batches, *args, **kwargs)

    worker = RolloutWorker(
        env_creator=lambda _: gym.make("CartPole-v1"), policy_spec=Noting, policy_config={"rollout_fragment_length": 5}
    )
    assert worker.sample().count == 5
    assert given == [((1, 2, 10), 1)] * 5
    with pytest.raises(ValueError, match=r"wanted infos, and state_in_0 \[B, 2, 10\]"):
        worker.policy_map["default_policy"].compute_actions_from_input_dict({"obs": np.zeros((1, 4))})
