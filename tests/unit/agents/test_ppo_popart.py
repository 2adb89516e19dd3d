"""PPO and A2C learn normalised values (PopArt); everybody else sees them in reward units."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.a3c import A2CTrainer, A3CTrainer
from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.ppo import DDPPOTrainer, PPOTrainer
from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.execution.rollout_ops import UpdateValueNormalizer
from rlframe.models import ModelCatalog
from rlframe.models.tf.fcnet import FullyConnectedNetwork as TFNetwork
from rlframe.models.torch.fcnet import FullyConnectedNetwork as TorchNetwork
from rlframe.policy import build_policy_class
from rlframe.policy.value_network import ValueNetworkMixin
from rlframe.rllib1x.ppo import KLCoeffMixin, setup_mixins
from rlframe.rllib1x.schedules import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.trainer.setup import import_path
from rlframe.utils.errors import CheckpointError, ConfigError, NonFiniteError
from tests.contract.test_policies import make, make_batch, same
from tests.helpers.frameworks import FRAMEWORKS, TORCH_FIRST

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
torch_first = pytest.mark.parametrize("framework", TORCH_FIRST)
SMALL = {"train_batch_size": 64, "rollout_fragment_length": 32, "sgd_minibatch_size": 32, "num_sgd_iter": 2}
MODELS = {
    "separate": {},
    "shared": {"vf_share_layers": True},
    "lstm": {"use_lstm": True, "lstm_cell_size": 6},
    "attention": {"use_attention": True, "attention_dim": 8, "attention_head_dim": 4},
}


def normalizing(framework, **overrides):
    return make(framework, "PPO", {"normalize_values": True, **overrides})


def train_batch(targets, seed=0):
    batch = make_batch(len(targets), seed)
    batch["rewards"] = batch["value_targets"] = np.asarray(targets, np.float32)
    return batch


@torch_first
@pytest.mark.parametrize("model", MODELS)
def test_other_units_change_no_value(framework, model):
    policy = normalizing(framework, model=MODELS[model])
    obs = make_batch(9)["obs"]
    before = policy.values(obs)
    policy.update_value_normalizer(train_batch([-700.0, -900.0] * 4))
    assert policy.value_mean == pytest.approx(-800.0)
    assert policy.value_std == pytest.approx(100.0)
    np.testing.assert_allclose(policy.values(obs), before, atol=1e-3)
    policy.update_value_normalizer(train_batch([3.0, 5.0] * 4))
    np.testing.assert_allclose(policy.values(obs), before, atol=1e-3)
    units = [array for name, array in policy.get_weights().items() if "popart" in name]
    assert sorted(float(array.item()) for array in units) == pytest.approx(
        sorted([policy.value_mean, policy.value_std])
    )


@every_framework
def test_moments_are_those_of_all_targets(framework):
    policy = normalizing(framework)
    policy.update_value_normalizer(train_batch([-10.0, -30.0] * 8))
    policy.update_value_normalizer(train_batch([0.0, 0.0] * 8))
    # Half of the rows at 0, the other half at -10 and -30: mean -10, mean square 250.
    assert policy.value_mean == pytest.approx(-10.0)
    assert policy.value_std == pytest.approx((250 - 100) ** 0.5)


@torch_first
@pytest.mark.parametrize("network", ["default", "custom"])
def test_loss_is_the_squared_error_in_units(framework, network):
    """By hand: σ is 100, so that clipped squared errors count a ten thousandth."""
    ModelCatalog.register_custom_model("other_torch", _wrapped(TorchNetwork))
    ModelCatalog.register_custom_model("other_tf", _wrapped(TFNetwork))
    model = {} if network == "default" else {"custom_model": f"other_{framework}"}
    policy = normalizing(framework, model=model, vf_clip_param=3.0)
    batch = train_batch([-700.0, -900.0] * 6)
    policy.update_value_normalizer(batch)
    batch["vf_preds"] = policy.values(batch["obs"]) + np.linspace(-5.0, 5.0, 12).astype(np.float32)
    values = policy.values(batch["obs"]).astype(np.float64)
    clipped = batch["vf_preds"] + np.clip(values - batch["vf_preds"], -3.0, 3.0)
    errors = np.maximum((values - batch["value_targets"]) ** 2, (clipped - batch["value_targets"]) ** 2)
    stats = policy.learn_on_batch(batch)["learner_stats"]
    assert stats["vf_loss"] == pytest.approx(errors.mean() / 100.0**2, rel=1e-3)


@every_framework
@pytest.mark.parametrize("model", MODELS)
def test_a2c_has_them_too(framework, model):
    """By hand: half the squared error in units of σ, 100; values move with the moments only as the step does."""
    policy = make(framework, "A2C", {"normalize_values": True, "model": MODELS[model]})
    batch = train_batch([-700.0, -900.0] * 6)
    before = policy.values(batch["obs"])
    policy.update_value_normalizer(batch)
    values = policy.values(batch["obs"]).astype(np.float64)
    np.testing.assert_allclose(values, before, atol=1e-3)
    assert (policy.value_mean, policy.value_std) == (pytest.approx(-800.0), pytest.approx(100.0))
    if not policy.is_recurrent():
        stats = policy.learn_on_batch(batch)["learner_stats"]
        half_errors = 0.5 * (values - batch["value_targets"]) ** 2
        assert stats["vf_loss"] == pytest.approx(half_errors.mean() / 100.0**2, rel=1e-3)


@torch_first
def test_a2cs_plan_moves_the_moments_and_resumes_with_them(framework, tmp_path):
    config = {
        "normalize_values": True,
        "framework": framework,
        "num_workers": 0,
        "timesteps_per_iteration": 200,
        "seed": 0,
    }
    trainer, resumed = A2CTrainer(config, env="CartPole-v1"), A2CTrainer(config, env="CartPole-v1")
    try:
        trainer.train()
        moments = trainer.get_policy().value_mean, trainer.get_policy().value_std
        assert moments[0] > 1.0
        assert trainer.get_weights()["default_policy"]["popart.bias"] == pytest.approx(moments[0])
        resumed.restore(trainer.save(tmp_path))
        assert (resumed.get_policy().value_mean, resumed.get_policy().value_std) == moments
        trainer.train()
        resumed.train()
        same(trainer.get_weights()["default_policy"], resumed.get_weights()["default_policy"], rtol=0, atol=0)
    finally:
        trainer.stop()
        resumed.stop()


@pytest.mark.parametrize(
    ("trainer", "config"),
    [
        (A2CTrainer, {"microbatch_size": 10}),
        (A2CTrainer, {"use_critic": False, "use_gae": False, "batch_mode": "complete_episodes"}),
        (A3CTrainer, {"sample_async": False}),
        (ImpalaTrainer, {"vtrace": False}),
    ],
    ids=["microbatches", "no critic", "A3C", "IMPALA"],
)
def test_a_policys_own_config_cannot_ask_for_moments_that_nothing_moves(trainer, config):
    players = {"policies": {"one": (None, None, None, {"normalize_values": True})}}
    with pytest.raises(ConfigError, match=r"normalize_values=True in a policy's own config: .* Leave the key out"):
        trainer({"num_workers": 0, "multiagent": players, **config}, env="CartPole-v1")


def test_a_policys_own_config_may_ask_for_moments_in_a2c():
    players = {"policies": {"one": (None, None, None, {"normalize_values": True})}}
    trainer = A2CTrainer({"num_workers": 0, "multiagent": players, "timesteps_per_iteration": 200}, env="CartPole-v1")
    trainer.train()
    assert trainer.get_policy("one").value_mean > 1.0
    trainer.stop()


def test_a2c_without_the_key_has_no_layer_of_popart():
    policy = make("torch", "A2C", {})
    assert not [name for name in policy.get_weights() if "popart" in name]
    assert (policy.value_mean, policy.value_std) == (0.0, 1.0)


def _wrapped(network):
    """A model of the user's own around the default one, which acts by its framework."""

    class Wrapped(network):
        def value_function(self):
            return super().value_function()

    return Wrapped


@torch_first
def test_step_does_not_depend_on_the_size_of_rewards(framework):
    steps = []
    for scale in (1.0, 1000.0):
        policy = normalizing(framework, vf_clip_param=1e9, grad_clip=0.5)
        batch = train_batch(scale * np.random.default_rng(2).normal(-3.0, 2.0, 32), seed=3)
        policy.update_value_normalizer(batch)
        before = policy.get_weights()
        # Units leave values as they were, which differ between the scales: both begin with the same head.
        before |= {
            "value.bias": np.zeros_like(before["value.bias"]),
            "value.weight": 0.1 + 0.0 * before["value.weight"],
        }
        policy.set_weights(before)
        batch["vf_preds"] = policy.values(batch["obs"])
        policy.learn_on_batch(batch)
        after = policy.get_weights()
        steps.append({name: after[name] - before[name] for name in after if "units" not in name})
    same(*steps, rtol=1e-3, atol=1e-7)


@torch_first
def test_learned_values_are_near_the_targets_however_large(framework):
    policy = normalizing(framework, lr=3e-3, vf_clip_param=1e9)
    plain = make(framework, "PPO", {"normalize_values": False, "lr": 3e-3, "vf_clip_param": 1e9})
    batch = train_batch(5000.0 + 800.0 * make_batch(64)["obs"][:, 0])
    policy.update_value_normalizer(batch)
    for _ in range(300):
        policy.learn_on_batch(batch)
        plain.learn_on_batch(batch)
    error = np.abs(policy.values(batch["obs"]) - batch["value_targets"]).mean()
    assert error < 400.0
    assert np.abs(plain.values(batch["obs"]) - batch["value_targets"]).mean() > 4000.0


@torch_first
@pytest.mark.parametrize(
    ("overrides", "normalizes"),
    [
        ({}, True),
        ({"normalize_values": False}, False),
        ({"use_critic": False}, False),
        ({"model": MODELS["shared"]}, False),
        ({"model": MODELS["lstm"]}, False),
        ({"model": MODELS["attention"]}, False),
    ],
)
def test_default_is_on_where_values_have_layers_of_their_own(framework, overrides, normalizes):
    policy = make(framework, "PPO", overrides)
    assert policy.popart.normalizes is normalizes
    assert any("popart" in name for name in policy.get_weights()) is normalizes
    before = policy.get_weights()
    if not normalizes:
        policy.update_value_normalizer(train_batch([5.0, -700.0]))
        same(policy.get_weights(), before)


@torch_first
def test_images_have_no_units(framework):
    space = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
    assert not make(framework, "PPO", {}, obs_space=space).popart.normalizes
    with pytest.raises(ConfigError, match="normalize_values=True: got VisionNetwork, which has no layer of PopArt"):
        make(framework, "PPO", {"normalize_values": True}, obs_space=space)


@torch_first
def test_custom_models_have_them_where_they_are_asked_for(framework):
    network = TorchNetwork if framework == "torch" else TFNetwork
    ModelCatalog.register_custom_model("mine", _wrapped(network))
    custom = {"model": {"custom_model": "mine"}}
    assert not make(framework, "PPO", custom).popart.normalizes
    assert normalizing(framework, **custom).popart.normalizes


@torch_first
def test_a_model_of_a_hook_has_none(framework):
    cls = type(make(framework, "PPO", {}))
    made = {}

    def make_model(policy, obs_space, action_space, config):
        made["model"] = ModelCatalog.get_model_v2(
            obs_space, action_space, action_space.n, config["model"], framework=framework
        )
        return made["model"]

    plain = make(framework, "PPO", {})
    policy = cls.with_updates("Mine", make_model=make_model)(plain.observation_space, plain.action_space, plain.config)
    assert policy.model is made["model"]
    assert not policy.popart.normalizes
    policy.update_value_normalizer(train_batch([5.0, -700.0]))
    assert policy.value_std == 1.0


@torch_first
def test_state_has_the_units(framework):
    policy, other = normalizing(framework), normalizing(framework, seed=8)
    batch = train_batch([-10.0, -30.0] * 8)
    policy.update_value_normalizer(batch)
    policy.learn_on_batch(batch)
    other.set_state(policy.get_state())
    for one in (policy, other):
        one.update_value_normalizer(train_batch([7.0, 9.0] * 8))
        one.learn_on_batch(batch)
    same(policy.get_weights(), other.get_weights())
    assert (policy.value_mean, policy.value_std) == (other.value_mean, other.value_std)


@torch_first
def test_state_in_other_units_is_refused(framework):
    policy, plain = normalizing(framework), make(framework, "PPO", {"normalize_values": False})
    with pytest.raises(CheckpointError, match="set normalize_values=False"):
        policy.set_state(plain.get_state())
    with pytest.raises(CheckpointError, match="set normalize_values=True"):
        plain.set_state(policy.get_state())


@torch_first
def test_several_devices_learn_as_one_does(framework):
    single, several = normalizing(framework), normalizing(framework, num_gpus=2, _fake_gpus=True)
    for seed in range(3):
        batch = train_batch(np.linspace(-900.0, -700.0, 12), seed)
        for policy in (single, several):
            policy.update_value_normalizer(batch)
            policy.learn_on_batch(batch)
    same(several.get_weights(), single.get_weights(), rtol=1e-4, atol=1e-6)


def test_gradients_by_hand_are_those_of_autograd():
    by_hand, by_autograd = normalizing("torch", grad_clip=0.2), normalizing("torch", grad_clip=0.2)
    assert by_hand.without_autograd is not None
    by_autograd.without_autograd = None
    for seed in range(4):
        batch = train_batch(np.random.default_rng(seed).normal(50.0, 20.0, 32), seed)
        for policy in (by_hand, by_autograd):
            policy.update_value_normalizer(batch)
            info = policy.learn_on_batch(batch)["learner_stats"]
            batch["vf_preds"] = np.asarray(batch["value_targets"]) + 3.0
        assert info["vf_loss"] > 0
    same(by_hand.get_weights(), by_autograd.get_weights(), rtol=1e-4, atol=1e-6)


@torch_first
def test_a_plan_without_the_operator_learns_in_reward_units(framework):
    policy = make(framework, "PPO", {})
    plain = make(framework, "PPO", {"normalize_values": False})
    for one in (policy, plain):
        one.learn_on_batch(make_batch(32))
    weights = {name: array for name, array in policy.get_weights().items() if "popart" not in name}
    same(weights, plain.get_weights(), rtol=1e-5, atol=1e-7)


@torch_first
def test_units_of_policies_that_do_not_learn_stay(framework):
    class Local:
        def __init__(self):
            self.policy_map = {"a": normalizing(framework), "b": normalizing(framework), "none": object()}

        def is_policy_to_train(self, policy_id, batch):
            return policy_id != "b"

    class Workers:
        def __init__(self):
            self.local = Local()

        def local_worker(self):
            return self.local

    workers = Workers()
    rows = train_batch([-10.0, -30.0] * 8)
    batch = MultiAgentBatch({"a": rows, "b": rows, "none": rows, "removed": rows}, 16)
    assert UpdateValueNormalizer(workers)(batch) is batch
    assert workers.local.policy_map["a"].value_std == pytest.approx(10.0)
    assert workers.local.policy_map["b"].value_std == 1.0


@torch_first
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_targets_that_are_not_finite_leave_the_weights(framework, bad):
    policy = normalizing(framework)
    before = policy.get_weights()
    batch = train_batch([-10.0, -30.0, bad, 3.0] * 3)
    policy.update_value_normalizer(batch)
    with pytest.raises(NonFiniteError, match="column 'rewards'"):
        policy.learn_on_batch(batch)
    same(policy.get_weights(), before)


@torch_first
def test_rows_without_targets_pass(framework):
    policy = normalizing(framework)
    batch = make_batch(8)
    del batch["value_targets"]
    policy.update_value_normalizer(batch)
    assert policy.value_std == 1.0


@torch_first
def test_set_up_again_by_a_hook_nothing_changes(framework):
    """RLlib's `before_loss_init=setup_mixins` is called when the policy is ready."""
    space = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
    plain = make(framework, "PPO", {}, obs_space=space)
    cls = type(plain).with_updates("Mine", before_loss_init=setup_mixins)
    assert not cls(space, plain.action_space, plain.config).popart.normalizes


@torch_first
def test_mixins_on_other_policies(framework):
    plain = make(framework, "PPO", {})
    cls = build_policy_class(
        "Mine",
        framework,
        loss_fn=import_path(f"rlframe.agents.ppo.ppo_{framework}_policy:ppo_surrogate_loss"),
        postprocess_fn=compute_gae_for_sample_batch,
        extra_action_out_fn=import_path(f"rlframe.agents.ppo.ppo_{framework}_policy:vf_preds_fetches"),
        mixins=[KLCoeffMixin, ValueNetworkMixin, EntropyCoeffSchedule, LearningRateSchedule, Keeping],
        before_loss_init=setup_mixins,
        get_default_config=lambda: plain.config,
    )
    policy = cls(plain.observation_space, plain.action_space, plain.config)
    before = policy.get_weights()
    policy.learn_on_batch(make_batch(12))
    assert any((policy.get_weights()[name] != before[name]).any() for name in before)


class Keeping:
    def keep(self, **stats):
        """The loss calls it."""


@torch_first
def test_a_loss_of_ones_own_sees_errors_in_reward_units(framework):
    plain = make(framework, "PPO", {})

    def loss(policy, model, dist_class, train_batch):
        model(train_batch)
        return ((model.value_function() - train_batch["value_targets"]) ** 2)[0]

    policy = type(plain).with_updates("Mine", loss_fn=loss)(plain.observation_space, plain.action_space, plain.config)
    assert not policy.popart.normalizes


def test_gradients_by_hand_after_the_weights_of_another():
    other = normalizing("torch")
    other.update_value_normalizer(train_batch([-700.0, -900.0] * 6))
    gradients = []
    for by_hand in (True, False):
        policy = normalizing("torch", grad_clip=None)
        policy.set_weights(other.get_weights())
        if not by_hand:
            policy.without_autograd = None
        gradients.append(policy.compute_gradients(train_batch([-700.0, -900.0] * 6))[0])
    for mine, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


def test_a_critic_beside_the_network_has_no_units():
    class OwnCritic(TorchNetwork):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.critic = torch.nn.Linear(self.obs_space.shape[0], 1)

        def forward(self, input_dict, state, seq_lens):
            self.flat = input_dict["obs_flat"]
            return super().forward(input_dict, state, seq_lens)

        def value_function(self):
            return self.critic(self.flat).squeeze(1)

    ModelCatalog.register_custom_model("own_critic", OwnCritic)
    with pytest.raises(ConfigError, match="got OwnCritic, which has no layer of PopArt"):
        normalizing("torch", model={"custom_model": "own_critic"})


@pytest.mark.parametrize(
    ("trainer", "config", "said"),
    [
        (PPOTrainer, {"normalize_values": True, "use_critic": False, "use_gae": False}, "needs use_critic=True"),
        (A2CTrainer, {"normalize_values": True, "use_critic": False, "use_gae": False}, "needs use_critic=True"),
        (A2CTrainer, {"normalize_values": True, "microbatch_size": 10}, "set microbatch_size to None"),
        (A3CTrainer, {"normalize_values": True}, "normalize_values"),
        (DDPPOTrainer, {"normalize_values": True}, "DD-PPO learns values in reward units"),
        (DDPPOTrainer, {"normalize_values": None}, "DD-PPO learns values in reward units"),
    ],
)
def test_where_it_cannot_be_the_config_says_so(trainer, config, said):
    if trainer is DDPPOTrainer:
        config = {**config, "num_workers": 2}
    else:
        config = {**config, "batch_mode": "complete_episodes"}
    with pytest.raises(ConfigError, match=said):
        trainer(config, env="CartPole-v1")
