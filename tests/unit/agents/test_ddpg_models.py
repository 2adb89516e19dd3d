"""DDPG and TD3 with a model of the program's own, of RLlib's names: `DDPGTorchModel` and `DDPGTFModel`."""

import importlib

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from rlframe.agents.ddpg import ddpg_policy
from rlframe.agents.ddpg.ddpg import DEFAULT_CONFIG
from rlframe.agents.ddpg.td3 import TD3_DEFAULT_CONFIG
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.preprocessors import get_preprocessor
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import TORCH_FIRST

VECTOR, BOX = Box(-1, 1, (3,)), Box(0.0, 4.0, (2,))
frameworks = pytest.mark.parametrize("framework", TORCH_FIRST)


def base_of(framework):
    home = importlib.import_module(f"rlframe.agents.ddpg.ddpg_{framework}_model")
    return getattr(home, {"torch": "DDPGTorchModel", "tf": "DDPGTFModel"}[framework])


def make(framework, model_class, space=VECTOR, defaults=DEFAULT_CONFIG, home=ddpg_policy, name="DDPG", **overrides):
    policy_class = getattr(home, f"{name}{'Torch' if framework == 'torch' else 'TF'}Policy")
    hiddens = {"actor_hiddens": [8], "critic_hiddens": [8]}
    model = {**defaults["model"], "custom_model": model_class}
    config = {**defaults, **hiddens, "framework": framework, "seed": 1, "model": model, **overrides}
    return policy_class(get_preprocessor(space)(space).observation_space, BOX, config)


def rows(policy, count=6):
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (2, count, policy.observation_space.shape[0])).astype(np.float32)
    return SampleBatch(
        {"obs": obs[0], "new_obs": obs[1], "actions": rng.uniform(-1, 1, (count, 2)).astype(np.float32),
         "rewards": np.ones(count, np.float32), "dones": np.zeros(count, bool), "weights": np.ones(count, np.float32)}
    )  # fmt: skip


def seen_by(policy, model, batch):
    return model({"obs": policy.to_tensors(batch["obs"])})[0]


@frameworks
def test_networks_of_the_model_learn_act_and_are_followed(framework):
    class Scaled(base_of(framework)):
        def __init__(self, *args, scale, **kwargs):
            super().__init__(*args, **kwargs)
            self.scale = scale

        def get_policy_output(self, model_out):
            return super().get_policy_output(model_out) * self.scale

    model = {"custom_model": Scaled, "custom_model_config": {"scale": 0.0}}
    policy = make(framework, None, model=model, tau=1.0, twin_q=True, l2_reg=0.0)
    before, batch = policy.get_weights(), rows(policy)
    policy.learn_on_batch(batch)
    after = policy.get_weights()
    actor = set(policy.weights_of(("actor",)))
    changed = {name for name in after if not np.array_equal(after[name], before[name])}
    assert changed
    assert not changed & actor  # its outputs are 0 times its weights
    policy.update_target()
    values = [
        policy.to_numpy(one.get_twin_q_values(seen_by(policy, one, batch), policy.to_tensors(batch["actions"])))
        for one in (policy.model, policy.target_model)
    ]
    assert values[0].shape == (6, 1)
    np.testing.assert_allclose(*values)
    np.testing.assert_allclose(policy.compute_actions(batch["obs"], explore=False)[0], np.zeros((6, 2)), atol=1e-6)
    assert set(policy.model.policy_variables(as_dict=True)) == actor
    assert len(policy.model.q_variables()) == len(policy.model.q_variables(as_dict=True)) == 8


@frameworks
def test_the_actor_goes_up_the_critic(framework):
    policy = make(framework, base_of(framework), actor_lr=0.05, critic_lr=1e-9, l2_reg=0.0)
    batch = rows(policy)

    def value():
        seen = seen_by(policy, policy.model, batch)
        return policy.to_numpy(policy.model.get_q_values(seen, policy.model.get_policy_output(seen))).mean()

    start = value()
    for _ in range(20):
        policy.learn_on_batch(batch)
    assert value() > start
    actions = policy.to_numpy(policy.model.get_policy_output(seen_by(policy, policy.model, batch)))
    assert (np.abs(actions) <= 1.0).all()  # of the space [0, 4] normalised


def test_layers_in_front_learn_with_the_critics_and_positional_arguments_are_rllibs():
    torch = pytest.importorskip("torch")

    class Adapted(base_of("torch")):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, actor_hiddens=(256, 256),
                     actor_hidden_activation="relu", critic_hiddens=(256, 256), critic_hidden_activation="relu",
                     twin_q=False, add_layer_norm=False):  # fmt: skip
            torch.nn.Module.__init__(self)
            assert num_outputs == 5
            super().__init__(obs_space, action_space, 4, model_config, name, actor_hiddens, actor_hidden_activation,
                             critic_hiddens, critic_hidden_activation, twin_q, add_layer_norm)  # fmt: skip
            self.front = torch.nn.Linear(5, 4)

        def forward(self, input_dict, state, seq_lens):
            assert set(input_dict["obs"]) == {"far", "near"}
            return self.front(torch.cat([input_dict["obs"]["far"], input_dict["obs"]["near"]], 1)), state

    nested = Dict({"far": Box(-1, 1, (2,)), "near": Box(-1, 1, (3,))})
    policy = make("torch", Adapted, nested, TD3_DEFAULT_CONFIG)
    before = policy.get_weights()
    for _ in range(2):  # the actor is due at the second
        policy.learn_on_batch(rows(policy))
    after = policy.get_weights()
    still = {name for name, array in before.items() if np.array_equal(after[name], array)}
    assert {name.rpartition(".")[2] for name in still} == {"low", "high"}
    assert "front.weight" in policy.weights_of(("q",))


@frameworks
def test_kernels_are_what_l2_regularisation_holds_small(framework):
    def norm(l2_reg):
        policy = make(framework, base_of(framework), l2_reg=l2_reg, critic_lr=0.01)
        for _ in range(50):
            policy.learn_on_batch(rows(policy))
        return sum(np.square(array).sum() for array in policy.get_weights().values() if array.ndim > 1)

    assert norm(1.0) < 0.9 * norm(0.0)


def test_trainers_take_it_and_resume(tmp_path):
    pytest.importorskip("torch")
    from rlframe.agents.ddpg import TD3Trainer
    from rlframe.models import ModelCatalog

    ModelCatalog.register_custom_model("own_ddpg", base_of("torch"))
    config = {
        "framework": "torch", "num_workers": 0, "seed": 3, "learning_starts": 32, "train_batch_size": 16,
        "timesteps_per_iteration": 64, "model": {"custom_model": "own_ddpg"}, "actor_hiddens": [8],
        "critic_hiddens": [8], "min_iter_time_s": 0,
    }  # fmt: skip
    trainer = TD3Trainer(config, env="Pendulum-v1")
    trainer.train()
    path = trainer.save(str(tmp_path))
    again = TD3Trainer(config, env="Pendulum-v1")
    again.restore(path)
    for one in (trainer, again):
        one.train()
    mine, theirs = trainer.get_policy().get_weights(), again.get_policy().get_weights()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    assert -2.0 <= trainer.compute_single_action(np.zeros(3, np.float32), explore=False)[0] <= 2.0


def test_what_only_built_in_networks_have_is_refused():
    pytest.importorskip("torch")
    with pytest.raises(ConfigError, match="use_state_preprocessor: got True with the custom model DDPGTorchModel"):
        make("torch", base_of("torch"), use_state_preprocessor=True)


@frameworks
def test_built_in_networks_have_the_names_of_rllib(framework):
    policy = make(framework, None, twin_q=True)
    batch = rows(policy, 3)
    obs, actions = policy.to_tensors((batch["obs"], batch["actions"]))
    model, told = policy.model, [obs, actions]
    np.testing.assert_allclose(
        policy.to_numpy(model.policy_model(obs)), policy.to_numpy(model.get_policy_output(obs)), atol=1e-6
    )
    values = model.twin_q_model(told) if framework == "tf" else model.twin_q_model(*told)
    np.testing.assert_allclose(policy.to_numpy(values), policy.to_numpy(model.get_twin_q_values(*told)), atol=1e-6)
    assert make(framework, None, twin_q=False).model.twin_q_net is None
    if framework == "tf":
        layers = {variable.path.partition("/")[0] for variable in model.policy_model.variables}
        assert layers == {"actor_hidden_0", "actor_out"}


def test_a_policys_own_way_of_acting_and_loss_come_before_those_of_whole_models():
    torch = pytest.importorskip("torch")

    class Told(base_of("torch")):
        def get_policy_output(self, model_out, told):
            return super().get_policy_output(model_out) * told

    def act(policy, model, input_dict, *, explore=True, state_batches=None, seq_lens=None, **kwargs):
        features, states = model(input_dict, state_batches, seq_lens)
        return model.get_policy_output(features, 0.0), policy.dist_class, states

    def loss(policy, model, dist_class, train_batch):
        error = model.get_q_values(model(train_batch)[0], train_batch["actions"]).squeeze(1) * train_batch["weights"]
        return [error.mean(), torch.square(error).mean()]

    policy_class = ddpg_policy.DDPGTorchPolicy.with_updates(action_distribution_fn=act, loss_fn=loss)
    config = {**DEFAULT_CONFIG, "actor_hiddens": [8], "critic_hiddens": [8]}
    config["model"] = {**config["model"], "custom_model": Told}
    policy = policy_class(VECTOR, BOX, config)
    batch = rows(policy)
    np.testing.assert_array_equal(policy.compute_actions(batch["obs"], explore=False)[0], np.zeros((6, 2)))
    del batch["weights"]
    policy.learn_on_batch(batch)
