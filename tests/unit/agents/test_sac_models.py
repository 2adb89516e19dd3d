"""SAC with a model of the program's own that derives from RLlib's names, `SACTorchModel` and `SACTFModel`."""

import importlib

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rlframe.agents.sac.sac import DEFAULT_CONFIG
from rlframe.agents.sac.sac_model import SACModelMethods
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.catalog import ModelCatalog
from rlframe.models.preprocessors import get_preprocessor
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import TORCH_FIRST

NESTED = Dict({"far": Box(-1, 1, (2,)), "near": Box(-1, 1, (3,))})
BOX = Box(-1.0, 1.0, (2,))


def make(framework, model_class, space=NESTED, action_space=BOX, algorithm="sac", **overrides):
    name = {"torch": "TorchPolicy", "tf": "TFPolicy"}[framework]
    home = importlib.import_module(f"rlframe.agents.sac.{algorithm}_policy")
    policy_class = getattr(home, f"{algorithm.upper()}{name}")
    config = {"framework": framework, "seed": 1, "model": {"custom_model": model_class}, **overrides}
    for section in ("Q_model", "policy_model"):
        config[section] = {**DEFAULT_CONFIG[section], "fcnet_hiddens": [8]}
    return policy_class(get_preprocessor(space)(space).observation_space, action_space, config)


def base_of(framework):
    return importlib.import_module(f"rlframe.agents.sac.sac_{framework}_model").SACModel


def rows(policy, count=6):
    rng = np.random.default_rng(0)
    width = policy.observation_space.shape[0]
    discrete = isinstance(policy.action_space, Discrete)
    actions = rng.integers(2, size=count) if discrete else rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    obs = rng.uniform(-1, 1, (2, count, width)).astype(np.float32)
    return SampleBatch(
        {"obs": obs[0], "new_obs": obs[1], "actions": actions, "rewards": np.ones(count, np.float32),
         "dones": np.zeros(count, bool), "weights": np.ones(count, np.float32)}
    )  # fmt: skip


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("action_space", [BOX, Discrete(2)], ids=["box", "choices"])
def test_networks_of_the_model_learn_act_and_are_followed(framework, action_space):
    base = base_of(framework)

    class Scaled(base):
        def __init__(self, *args, scale, **kwargs):
            super().__init__(*args, **kwargs)
            self.scale = scale

        def get_policy_output(self, model_out):
            assert set(model_out) == {"far", "near"}
            return super().get_policy_output(model_out) * self.scale

    model = {"custom_model": Scaled, "custom_model_config": {"scale": 0.0}}
    policy = make(framework, None, action_space=action_space, model=model, tau=1.0)
    assert type(policy.model) is Scaled
    before, batch = policy.get_weights(), rows(policy)
    policy.learn_on_batch(batch)
    changed = {name.split(".")[0] for name, array in policy.get_weights().items()
               if not np.array_equal(array, before[name])}  # fmt: skip
    assert changed == {"q_net", "twin_q_net", "log_alpha"}  # the actor's outputs are 0 times its weights
    policy.update_target()
    own = policy.to_numpy(policy.model.get_q_values(*seen_by(policy, batch)))
    np.testing.assert_allclose(policy.to_numpy(policy.target_model.get_q_values(*seen_by(policy, batch))), own)
    greedy, _, _ = policy.compute_actions(batch["obs"], explore=False)
    np.testing.assert_allclose(greedy, np.zeros_like(greedy), atol=1e-6)


def seen_by(policy, batch):
    features = policy.model({"obs": policy.to_tensors(batch["obs"])})[0]
    return (features,) if isinstance(policy.action_space, Discrete) else (features, policy.to_tensors(batch["actions"]))


def test_networks_may_be_plain_modules():
    torch = pytest.importorskip("torch")

    class Plain(base_of("torch")):
        def build_policy_model(self, obs_space, num_outputs, policy_model_config, name):
            return torch.nn.Linear(obs_space.shape[0], num_outputs)

        def get_policy_output(self, model_out):
            return self.action_model(model_out)

    policy = make("torch", Plain, space=Box(-1, 1, (3,)), twin_q=False)
    before = policy.get_weights()
    policy.learn_on_batch(rows(policy))
    after = policy.get_weights()
    assert not np.array_equal(before["action_model.weight"], after["action_model.weight"])
    assert policy.model.twin_q_net is None


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("own", [False, True], ids=["networks", "own model"])
def test_the_loss_aims_at_the_target_entropy_that_a_program_sets_in_the_model(framework, own):
    policy = make(framework, base_of(framework) if own else None, space=BOX)
    batch = rows(policy)

    def alpha_loss():
        stats = policy.learn_on_batch(batch.copy())["learner_stats"]
        return stats["alpha_loss"], np.ravel(stats["target_entropy"])[0], stats["log_alpha_value"]

    assert alpha_loss()[1] == -2
    policy.model.target_entropy = policy.to_tensors(np.array([-50], np.float32))
    first, told, log_alpha = alpha_loss()
    assert told == -50
    assert first / log_alpha > 40
    saved = policy.get_state()
    policy.model.target_entropy = policy.to_tensors(np.array([7], np.float32))
    assert alpha_loss()[1] == 7
    again = make(framework, base_of(framework) if own else None, space=BOX)
    again.set_state(saved)
    assert again.target_entropy == -50
    again.target_entropy = 3.0  # by the policy's own name
    assert np.ravel(again.learn_on_batch(batch.copy())["learner_stats"]["target_entropy"])[0] == 3
    again.set_state(policy.get_state())
    assert again.target_entropy == 7


def test_target_entropy_of_the_torch_model_is_a_tensor_beside_the_weights():
    torch = pytest.importorskip("torch")
    model = base_of("torch")(Box(-1, 1, (3,)), BOX, None, {}, "sac")
    assert model.target_entropy.to("cpu").tolist() == [-2.0]
    assert "target_entropy" not in model.state_dict()
    assert (torch.ones(3) + model.target_entropy).shape == (3,)


def test_images_stand_beside_actions_in_a_tuple():
    pytest.importorskip("torch")
    image = Box(0, 255, (12, 12, 1), np.uint8)
    layers = {"conv_filters": [[4, [3, 3], 2], [4, [6, 6], 6]]}
    model = ModelCatalog.get_model_v2(
        image, BOX, None, {}, "torch", default_model=base_of("torch"),
        policy_model_config=layers, q_model_config=layers,
    )  # fmt: skip
    import torch

    features = model({"obs": torch.zeros((2, 12, 12, 1), dtype=torch.uint8)})[0]
    assert model.get_policy_output(features).shape == (2, 4)
    assert model.get_q_values(features, torch.zeros(2, 2)).shape == (2, 1)
    assert isinstance(model.q_net.obs_space.original_space, gym.spaces.Tuple)


@pytest.mark.parametrize(
    ("algorithm", "overrides", "says"),
    [("sac", {"n_critics": 5}, "n_critics: got 5"), ("cql", {}, "CQLTorchPolicy does not learn with")],
)
def test_what_only_built_in_networks_have_is_refused(algorithm, overrides, says):
    pytest.importorskip("torch")
    with pytest.raises(ConfigError, match=says):
        make("torch", base_of("torch"), algorithm=algorithm, **overrides)


def test_other_models_make_features_of_nested_observations_for_the_built_in_networks():
    pytest.importorskip("torch")
    from rlframe.models.torch.fcnet import FullyConnectedNetwork

    class Sees(FullyConnectedNetwork):
        def forward(self, input_dict, state, seq_lens):
            assert set(input_dict["obs"]) == {"far", "near"}
            return super().forward(input_dict, state, seq_lens)  # which reads obs_flat

    policy = make("torch", Sees)
    assert not isinstance(policy.model, SACModelMethods)
    actions, _, _ = policy.compute_actions(rows(policy)["obs"])
    assert actions.shape == (6, 2)


def test_own_models_of_actor_and_critics_get_images_as_they_are_and_options_of_their_own():
    torch = pytest.importorskip("torch")
    from rlframe.agents.sac import SACTrainer
    from rlframe.models.torch.torch_modelv2 import TorchModelV2

    class Convolutions(TorchModelV2, torch.nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            torch.nn.Module.__init__(self)
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            assert obs_space.shape == (9, 9, 4)
            filters = model_config["map_filters"]
            self.body = torch.nn.Sequential(
                torch.nn.Conv2d(4, filters, 3), torch.nn.Flatten(), torch.nn.Linear(filters * 49, num_outputs)
            )

        def forward(self, input_dict, state, seq_lens):
            assert input_dict["obs"].shape[1:] == (9, 9, 4)
            return self.body(input_dict["obs"].float().permute(0, 3, 1, 2)), state

    class Map(gym.Env):
        observation_space, action_space = Box(0, 2, (9, 9, 4), np.uint8), Discrete(3)

        def __init__(self, config):
            self.t = 0

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.ones((9, 9, 4), np.uint8), {}

        def step(self, action):
            self.t += 1
            return np.ones((9, 9, 4), np.uint8), 1.0, self.t == 5, False, {}

    section = {"custom_model": Convolutions, "map_filters": 2}
    trainer = SACTrainer(
        env=Map,
        config={
            "framework": "torch", "seed": 1, "Q_model": section, "policy_model": section, "learning_starts": 8,
            "train_batch_size": 8, "timesteps_per_iteration": 16, "min_iter_time_s": 0,
        },
    )  # fmt: skip
    weights = {name: value.copy() for name, value in trainer.get_policy().get_weights().items()}
    assert "encoder" not in str(sorted(weights))
    trainer.train()
    after = trainer.get_policy().get_weights()
    assert all(not np.array_equal(after[name], value) for name, value in weights.items() if "body" in name)
    assert trainer.compute_single_action(np.ones((9, 9, 4), np.uint8)) in range(3)


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("action_space", [BOX, Discrete(2)], ids=["box", "choices"])
def test_built_in_networks_tell_the_values_of_actions(framework, action_space):
    policy = make(framework, None, action_space=action_space, twin_q=True)
    batch = rows(policy, 3)
    obs, actions = policy.to_tensors((batch["obs"], batch["actions"]))
    model_out, _ = policy.model({"obs": obs})
    seen = (obs,) if isinstance(action_space, Discrete) else (obs, actions)
    for method, critic in (
        (policy.model.get_q_values, policy.model.q),
        (policy.model.get_twin_q_values, policy.model.twin_q),
    ):
        wanted = policy.to_numpy(critic(*seen))
        assert wanted.shape == (3, 2 if len(seen) == 1 else 1)
        for given in (model_out, obs):
            np.testing.assert_array_equal(policy.to_numpy(method(given, *seen[1:])), wanted)
    if len(seen) == 2:
        np.testing.assert_array_equal(policy.to_numpy(policy.model.get_twin_q_values(obs, batch["actions"])), wanted)
    np.testing.assert_array_equal(
        policy.to_numpy(policy.model.get_policy_output(model_out)), policy.to_numpy(model_out)
    )
    assert policy.model.action_model is policy.model.actor
    assert (policy.model.q_net, policy.model.twin_q_net) == (policy.model.q, policy.model.twin_q)
    assert all(name.startswith("actor.") for name in policy.model.policy_variables(as_dict=True))
    assert len(policy.model.q_variables()) == 2 * len(policy.model.policy_variables())


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_names_of_rllib_113_say_what_to_write(framework):
    base = base_of(framework)
    with pytest.raises(NotImplementedError, match=r"get_policy_output\(model_out\).* without `, _`"):
        base.get_action_model_outputs(object.__new__(base), None)
    with pytest.raises(TypeError, match=r"Later\.get_action_model_outputs would never be called: .*get_policy_output"):
        type("Later", (base,), {"get_action_model_outputs": lambda self, model_out: (None, [])})
