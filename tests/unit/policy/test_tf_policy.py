"""TensorFlow policies: hooks, Keras models, tracing, optimisers of other makes, export."""

import copy
import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from rlframe.agents.dqn.dqn_tf_policy import DQNTFPolicy
from rlframe.agents.ppo import DEFAULT_CONFIG as PPO_CONFIG
from rlframe.agents.ppo.ppo_tf_policy import PPOTFPolicy, ppo_surrogate_loss
from rlframe.config.common import CommonConfig
from rlframe.data.sample_batch import SampleBatch
from rlframe.exploration import EpsilonGreedy, Exploration
from rlframe.models.catalog import ModelCatalog
from rlframe.models.tf.tf_action_dist import Categorical
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.policy import build_policy_class, build_tf_policy
from rlframe.policy.dynamic_tf_policy import DynamicTFPolicy
from rlframe.policy.tf import runtime
from rlframe.policy.tf.adam import Adam
from rlframe.policy.tf_policy import EntropyCoeffSchedule, LearningRateSchedule, TFPolicy
from rlframe.utils.errors import ConfigError, NonFiniteError
from tests.contract.test_policies import make, make_batch, same
from tests.helpers.workers import dqn_config

OBS_SPACE = gym.spaces.Box(-10, 10, (4,), np.float32)
ACTIONS = gym.spaces.Discrete(3)


def policy_gradient_loss(policy, model, dist_class, train_batch):
    logits, _ = model(train_batch)
    return -tf.reduce_mean(dist_class(logits, model).logp(train_batch["actions"]) * train_batch["rewards"])


def common_config(**overrides):
    config = CommonConfig.defaults()
    config["model"].update(fcnet_hiddens=[16])
    return {**config, "framework": "tf", "seed": 3, **overrides}


class KerasModel(TFModelV2):
    """As programs write them: one Keras model with two outputs."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        inputs = tf.keras.layers.Input(shape=obs_space.shape, name="observations")
        hidden = tf.keras.layers.Dense(8, activation="tanh", name="hidden")(inputs)
        out = tf.keras.layers.Dense(num_outputs, name="out")(hidden)
        value = tf.keras.layers.Dense(1, name="value")(hidden)
        self.base_model = tf.keras.Model(inputs, [out, value])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        out, self._value = self.base_model(input_dict["obs"])
        return out, state

    def value_function(self):
        return tf.reshape(self._value, [-1])

    def metrics(self):
        return {"foo": tf.constant(42.0)}


# --- hooks ------------------------------------------------------------------------------------------------------


def test_hooks_are_called_in_the_documented_order_and_once_for_any_number_of_steps():
    order = []

    def note(name, result=None):
        def hook(*args, **kwargs):
            order.append(name)
            return result() if callable(result) else result

        return hook

    def loss(policy, model, dist_class, batch):
        order.append("loss")
        return policy_gradient_loss(policy, model, dist_class, batch)

    def gradients(policy, optimizer, loss):
        order.append("gradients")
        return optimizer.compute_gradients(loss, policy.model.trainable_variables())

    def apply(policy, optimizer, grads_and_vars):
        order.append("apply")
        optimizer.apply_gradients(grads_and_vars)

    cls = build_tf_policy(
        "Noting",
        loss_fn=loss,
        validate_spaces=note("validate_spaces"),
        before_init=note("before_init"),
        before_loss_init=note("before_loss_init"),
        after_init=note("after_init"),
        gradients_fn=gradients,
        apply_gradients_fn=apply,
        stats_fn=note("stats", dict),
        grad_stats_fn=note("grad_stats", dict),
        extra_learn_fetches_fn=note("fetches", dict),
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    assert order == ["validate_spaces", "before_init", "before_loss_init", "loss", "after_init"]
    order.clear()
    for rows in (12, 5, 12):
        policy.learn_on_batch(make_batch(rows))
    assert order == ["loss", "gradients", "apply", "stats", "grad_stats", "fetches"]


@pytest.mark.parametrize("clip", [None, 0.1])
def test_gradients_fn_may_clip_as_rllibs_documentation_does(clip):
    def gradients(policy, optimizer, loss):
        variables = policy.model.trainable_variables()
        if clip is None:
            return optimizer.compute_gradients(loss, variables, colocate_gradients_with_ops=True)
        return list(zip(tf.clip_by_global_norm(tf.gradients(loss, variables), clip)[0], variables, strict=True))

    def norm(policy, train_batch, grads):
        return {"norm": tf.linalg.global_norm(grads)}

    cls = build_tf_policy("Clips", loss_fn=policy_gradient_loss, gradients_fn=gradients, grad_stats_fn=norm)
    found = cls(OBS_SPACE, ACTIONS, common_config()).learn_on_batch(make_batch(12))["learner_stats"]["norm"]
    assert found > 0.1 if clip is None else found == pytest.approx(clip, rel=1e-5)


def test_stats_and_fetches_are_fresh_at_every_step():
    def stats(policy, train_batch):
        return {"mean_reward": tf.reduce_mean(train_batch["rewards"]), "rows": tf.shape(train_batch["rewards"])[0]}

    def grad_stats(policy, train_batch, grads):
        return {"norm": tf.linalg.global_norm(grads)}

    cls = build_tf_policy(
        "Stats",
        loss_fn=policy_gradient_loss,
        stats_fn=stats,
        grad_stats_fn=grad_stats,
        extra_learn_fetches_fn=lambda policy: {"learner_stats": {"fetched": tf.constant(2.0)}, "plain": "text"},
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    for seed, rows in ((0, 12), (1, 7)):
        batch = make_batch(rows, seed)
        result = policy.learn_on_batch(batch)
        assert result["learner_stats"]["mean_reward"] == pytest.approx(float(batch["rewards"].mean()), abs=1e-6)
        assert result["learner_stats"]["rows"] == rows
        assert result["learner_stats"]["norm"] > 0
        assert result["learner_stats"]["fetched"] == 2.0
        assert result["plain"] == "text"
    gradients, info = policy.compute_gradients(batch)
    norm = np.sqrt(sum(np.square(gradient).sum() for gradient in gradients if gradient is not None))
    assert info["learner_stats"]["norm"] == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("flags", ["dones", "terminateds"])
@pytest.mark.parametrize(("framework", "kind"), [("tf", "float32"), ("tf2", "bool")])
def test_dones_are_of_the_kind_that_losses_for_rllib_count_on(framework, kind, flags):
    kinds = set()

    def loss(policy, model, dist_class, train_batch):
        dones = train_batch["dones"]
        kinds.add(dones.dtype.name)
        logp = dist_class(model(train_batch)[0], model).logp(train_batch["actions"])
        return tf.reduce_mean((1.0 - (dones if framework == "tf" else tf.cast(dones, tf.float32))) * logp)

    policy = build_tf_policy("Dones", loss_fn=loss)(OBS_SPACE, ACTIONS, common_config(framework=framework))
    batch = make_batch(5)
    batch[flags] = np.array([False, True, False, False, True])
    policy.learn_on_batch(batch)
    policy.compute_gradients(batch)
    assert kinds == {kind}


def test_losses_that_are_called_by_hand_take_batches_of_arrays():
    def loss(policy, model, dist_class, train_batch):
        scale = model(train_batch)[0][:, 0] * train_batch["rewards"]
        assert train_batch["rewards"].shape.rank == 1  # a tensor's
        return policy_gradient_loss(policy, model, dist_class, train_batch) + tf.reduce_mean(scale)

    policy = build_tf_policy("ByHand", loss_fn=loss)(OBS_SPACE, ACTIONS, common_config(lr=1e-3))
    arrays = make_batch()
    arrays["rewards"] = np.asarray(arrays["rewards"], np.float64)  # as Python's numbers
    tensors = policy._lazy_tensor_dict(arrays)
    for batch in (arrays, dict(arrays)):
        by_hand = policy.loss(policy.model, policy.dist_class, batch)
        assert float(by_hand) == pytest.approx(float(policy.loss(policy.model, policy.dist_class, tensors)))


def test_ppos_loss_of_rllib_takes_batches_of_arrays():
    policy = PPOTFPolicy(OBS_SPACE, ACTIONS, {**PPO_CONFIG, "framework": "tf2"})
    rows = np.random.RandomState(0)
    more = {"advantages": rows.randn(8), "value_targets": rows.randn(8), "vf_preds": rows.randn(8)}
    zeros = {"action_logp": np.full(8, -1.0), "action_dist_inputs": np.zeros((8, 3), np.float32)}
    arrays = SampleBatch({"obs": rows.randn(8, 4), "actions": rows.randint(3, size=8), **more, **zeros})
    tensors = policy._lazy_tensor_dict(arrays)
    made = [ppo_surrogate_loss(policy, policy.model, Categorical, batch) for batch in (tensors, arrays)]
    made.append(policy._loss(policy, policy.model, policy.dist_class, arrays))
    np.testing.assert_allclose(made, float(made[0]), rtol=1e-6)


@pytest.mark.parametrize("name", ["cur_lr", "entropy_coeff", "kl_coeff"])
def test_numbers_of_a_policy_can_be_read_and_set_as_variables(name):
    numbers = {"lr": 0.25, "entropy_coeff": 0.5, "kl_coeff": 0.25}
    policy = PPOTFPolicy(OBS_SPACE, ACTIONS, {**PPO_CONFIG, "framework": "tf2", **numbers})
    number = getattr(policy, name)
    assert isinstance(number, float)
    assert number == vars(policy)[name] == number.numpy() == policy.get_session().run(number) == float(number)
    assert float(tf.cast(number, tf.float64) + number) == 2 * number
    assert type(pickle.loads(pickle.dumps(number))) is type(copy.deepcopy({"x": number})["x"]) is float
    number.assign(tf.constant(0.125))
    assert getattr(policy, name) == 0.125
    assert type(vars(policy)[name]) is float
    if name == "cur_lr":
        assert float(policy._optimizers[0].learning_rate) == 0.125
    with pytest.raises(AttributeError, match="kl_coeff"):
        build_tf_policy("Bare", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, common_config()).kl_coeff  # noqa: B018


def test_schedules_change_numbers_inside_the_traced_step():
    def loss(policy, model, dist_class, train_batch):
        return policy.entropy_coeff * tf.reduce_mean(model(train_batch)[0] ** 2)

    def schedules(policy, obs_space, action_space, config):
        LearningRateSchedule.__init__(policy, 0.0, None)
        EntropyCoeffSchedule.__init__(policy, 1.0, [[0, 1.0], [100, 0.0]])

    cls = build_tf_policy(
        "Scheduled",
        loss_fn=loss,
        before_loss_init=schedules,
        mixins=[LearningRateSchedule, EntropyCoeffSchedule],
        stats_fn=lambda policy, batch: {"coeff": policy.entropy_coeff, "lr": policy.cur_lr},
        grad_stats_fn=lambda policy, batch, grads: {"norm": tf.linalg.global_norm(grads)},
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    policy.on_global_var_update({"timestep": 0})
    one = policy.learn_on_batch(make_batch())["learner_stats"]
    policy.on_global_var_update({"timestep": 75})
    other = policy.learn_on_batch(make_batch())["learner_stats"]
    assert (one["coeff"], other["coeff"]) == (1.0, 0.25)
    assert other["norm"] == pytest.approx(0.25 * one["norm"], rel=1e-4)
    assert policy.trace_count == 1
    assert policy.entropy_coeff == 0.25


@pytest.mark.parametrize("arity", ["one argument", "torch's five"])
def test_extra_action_columns(arity):
    def of_policy(policy):
        return {"vf_preds": policy.model.value_function(), "twice": 2 * policy.model.last_output()}

    def of_five(policy, input_dict, state_batches, model, action_dist):
        return {"vf_preds": model.value_function(), "twice": 2 * action_dist.inputs}

    function = of_policy if arity == "one argument" else of_five
    cls = build_tf_policy("Extra", loss_fn=policy_gradient_loss, extra_action_fetches_fn=function)
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    _, _, extra = policy.compute_actions(make_batch(5)["obs"])
    assert extra["vf_preds"].shape == (5,)
    np.testing.assert_allclose(extra["twice"], 2 * extra["action_dist_inputs"], rtol=1e-6)


@pytest.mark.parametrize("form", ["keywords of RLlib's", "keywords alone", "defaults", "torch's six"])
def test_action_sampler_takes_the_place_of_model_and_distribution(form):
    def by_keyword(policy, model, obs_batch, explore, **others):
        assert {"state_batches", "timestep"} <= set(others)
        policy.threes = tf.fill([tf.shape(obs_batch)[0]], 3)
        return tf.zeros([tf.shape(obs_batch)[0]], tf.int64), tf.zeros([tf.shape(obs_batch)[0]])

    def by_keyword_alone(policy, model, obs_batch, *, explore, timestep):
        policy.threes = tf.fill([tf.shape(obs_batch)[0]], 3)
        return tf.zeros([tf.shape(obs_batch)[0]], tf.int64), tf.zeros([tf.shape(obs_batch)[0]])

    def by_default(policy, model, obs_batch=None, state_batches=None, explore=None, timestep=None):
        return by_keyword_alone(policy, model, obs_batch, explore=explore, timestep=timestep)

    def by_position(policy, model, input_dict, state_batches, explore, timestep):
        policy.threes = tf.fill([tf.shape(input_dict["obs"])[0]], 3)
        return tf.zeros([tf.shape(input_dict["obs"])[0]], tf.int64), tf.zeros([tf.shape(input_dict["obs"])[0]])

    def make_model(policy, obs_space, action_space, config):
        return ModelCatalog.get_model_v2(obs_space, action_space, 3, config["model"], framework="tf")

    named = {"keywords of RLlib's": by_keyword, "keywords alone": by_keyword_alone, "defaults": by_default}
    sampler = named.get(form, by_position)
    cls = build_tf_policy("Zero", loss_fn=policy_gradient_loss, action_sampler_fn=sampler, make_model=make_model,
                          extra_action_fetches_fn=lambda policy: {"threes": policy.threes})  # fmt: skip
    actions, _, extra = cls(OBS_SPACE, ACTIONS, common_config()).compute_actions(make_batch(5)["obs"])
    assert actions.tolist() == [0] * 5
    assert extra["action_logp"].tolist() == [0.0] * 5
    assert extra["threes"].tolist() == [3] * 5


class Masked(Exploration):
    def get_exploration_action(self, *, action_distribution, timestep, explore=True):
        assert isinstance(action_distribution, Categorical)
        chosen = tf.minimum(action_distribution.sample(), 1)
        return chosen, tf.zeros_like(chosen, tf.float32)


class MaskedByValue(EpsilonGreedy):
    def _get_tf_exploration_action_op(self, q_values, explore, timestep):
        chosen = tf.ones(tf.shape(q_values)[0], tf.int64)
        return chosen, tf.zeros_like(chosen, tf.float32)


class MaskedBySuper(EpsilonGreedy):
    def _get_tf_exploration_action_op(self, q_values, explore, timestep):
        actions, logp = super()._get_tf_exploration_action_op(q_values[:, :2], explore, timestep)
        return tf.minimum(actions, 1), logp


@pytest.mark.parametrize("kind", [Masked, MaskedByValue, MaskedBySuper])
def test_explorations_of_a_users_own_choose_by_tensorflows_tensors(kind):
    config = {**common_config(), "exploration_config": {"type": kind}}
    policy = build_tf_policy("Masked", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, config)
    actions, _, _ = policy.compute_actions(make_batch(50)["obs"])
    assert actions.max() == 1
    assert policy.acting_recipe() is None, "workers need the framework, too"


def test_action_distribution_fn_replaces_the_forward_pass():
    from rlframe.models.tf.tf_action_dist import Deterministic

    def distribution(policy, model, *, input_dict, explore, **others):
        return 3.0 * input_dict["obs"][:, :1], Deterministic, []

    def make_model(policy, obs_space, action_space, config):
        return ModelCatalog.get_model_v2(obs_space, action_space, 2, config["model"], framework="tf")

    cls = build_tf_policy("Three", loss_fn=policy_gradient_loss, action_distribution_fn=distribution,
                          make_model=make_model)  # fmt: skip
    obs = make_batch(5)["obs"]
    policy = cls(OBS_SPACE, gym.spaces.Box(-1, 1, (1,), np.float32), common_config())
    np.testing.assert_allclose(policy.compute_actions(obs, explore=False)[0], 3 * obs[:, :1], rtol=1e-6)


@pytest.mark.parametrize(
    ("hooks", "error", "message"),
    [
        ({"los_fn": print}, TypeError, "got the policy hook 'los_fn', wanted one of loss_fn"),
        ({"action_sampler_fn": print}, ValueError, "action_sampler_fn needs make_model"),
        ({"update_ops_fn": print}, ValueError, "update_ops_fn: has no meaning without static graphs"),
        ({"session_creator": print}, ValueError, "session_creator: .* tf_session_args"),
        ({"extra_grad_process_fn": print}, ValueError, "clip in gradients_fn"),
        ({"gradients_fn": print, "compute_gradients_fn": print}, ValueError, "wanted one of them"),
        ({"make_model": print, "make_model_and_action_dist": print}, ValueError, "wanted one of them"),
    ],
)
def test_wrong_hooks_are_refused(hooks, error, message):
    with pytest.raises(error, match=message):
        build_tf_policy("Wrong", **hooks)


def test_wrong_model_is_refused_by_name():
    cls = build_tf_policy("Wrong", loss_fn=policy_gradient_loss, make_model=lambda *args: "a model")
    with pytest.raises(ValueError, match="make_model returned str, wanted a TFModelV2"):
        cls(OBS_SPACE, ACTIONS, common_config())


def test_with_updates_and_the_other_names_of_the_builder():
    cls = build_policy_class("One", framework="tf2", loss_fn=policy_gradient_loss)
    derived = cls.with_updates(name="Two", stats_fn=lambda policy, batch: {"two": tf.constant(2.0)})
    assert derived.__name__ == "Two"
    assert issubclass(derived, TFPolicy)
    assert DynamicTFPolicy is TFPolicy
    assert derived.as_eager() is derived.with_tracing() is derived
    policy = derived(OBS_SPACE, ACTIONS, common_config())
    assert policy.learn_on_batch(make_batch())["learner_stats"]["two"] == 2.0

    def squares(policy, model, dist_class, batch):
        return tf.reduce_mean(policy.online(batch["obs"]).q ** 2)

    dqn = DQNTFPolicy.with_updates(
        name="Heavier", loss_fn=lambda p, m, d, batch: tf.reduce_mean(p.online(batch["obs"]).q ** 2)
    )
    made = dqn(OBS_SPACE, ACTIONS, dqn_config(framework="tf"))
    assert "td_error" not in made.learn_on_batch(make_batch())


def test_mixins_come_before_the_policy():
    class Value:
        def __init__(self, number):
            self.number = number

        def extra_grad_info(self, batch):
            return {"number": tf.constant(float(self.number))}

    cls = build_tf_policy(
        "Mixed", loss_fn=policy_gradient_loss, mixins=[Value], before_loss_init=lambda p, o, a, c: Value.__init__(p, 4)
    )
    assert cls(OBS_SPACE, ACTIONS, common_config()).learn_on_batch(make_batch())["learner_stats"]["number"] == 4.0


# --- models and optimisers ----------------------------------------------------------------------------------------


def keras_config(**overrides):
    config = common_config(**overrides)
    config["model"]["custom_model"] = KerasModel
    return config


def test_keras_model_acts_learns_and_has_the_same_names_in_every_instance():
    cls = build_tf_policy("Keras", loss_fn=policy_gradient_loss)
    one, other = cls(OBS_SPACE, ACTIONS, keras_config()), cls(OBS_SPACE, ACTIONS, keras_config())
    same(one.get_weights(), other.get_weights())
    assert list(one.get_weights())[:2] == ["base_model.0.kernel", "base_model.1.bias"]
    assert len(one.get_weights()) == 6
    before = one.get_weights()
    info = one.learn_on_batch(make_batch())
    assert info["model"] == info["learner_stats"]["model"] == {"foo": 42}
    assert any(not np.array_equal(before[key], array) for key, array in one.get_weights().items())
    other.set_state(one.get_state())
    one.learn_on_batch(make_batch(seed=1))
    other.learn_on_batch(make_batch(seed=1))
    same(one.get_weights(), other.get_weights())
    assert one.compute_actions(make_batch(4)["obs"], explore=False)[0].shape == (4,)
    assert one.values(make_batch(4)["obs"]).shape == (4,)


def test_keras_model_under_dqn_has_a_target_of_its_own():
    config = dqn_config(framework="tf")
    config["model"]["custom_model"] = KerasModel
    policy = DQNTFPolicy(OBS_SPACE, ACTIONS, config)
    target = policy.target_network.get_weights()
    same(policy.get_weights(), target)
    policy.learn_on_batch(make_batch())
    same(policy.target_network.get_weights(), target)
    policy.update_target()
    same(policy.target_network.get_weights(), policy.get_weights())


@pytest.mark.parametrize(
    ("maker", "model"),
    [
        (lambda: tf.keras.optimizers.Adam(1e-2), "built-in"),
        (lambda: tf.keras.optimizers.SGD(1e-1, momentum=0.9), "keras"),
        (lambda: tf.compat.v1.train.AdamOptimizer(1e-2), "keras"),
        (lambda: tf.compat.v1.train.RMSPropOptimizer(1e-2), "built-in"),
    ],
    ids=["keras Adam", "keras SGD", "v1 Adam", "v1 RMSProp"],
)
def test_optimisers_of_other_makes_learn_and_resume(maker, model):
    cls = build_tf_policy("Other", loss_fn=policy_gradient_loss, optimizer_fn=lambda policy, config: maker())
    config = common_config if model == "built-in" else keras_config
    one, other = cls(OBS_SPACE, ACTIONS, config()), cls(OBS_SPACE, ACTIONS, config(seed=8))
    before = one.get_weights()
    for step in range(3):
        one.learn_on_batch(make_batch(seed=step))
    assert any(not np.array_equal(before[key], array) for key, array in one.get_weights().items())
    other.set_state(one.get_state())
    one.learn_on_batch(make_batch(seed=5))
    other.learn_on_batch(make_batch(seed=5))
    same(one.get_weights(), other.get_weights())


@pytest.mark.parametrize("kind", ["AdamOptimizer", "RMSPropOptimizer", "MomentumOptimizer", "GradientDescentOptimizer"])
def test_optimisers_of_tensorflow_1_follow_a_schedule(kind):
    more = (0.9,) if kind == "MomentumOptimizer" else ()
    cls = build_tf_policy(
        "Scheduled",
        loss_fn=policy_gradient_loss,
        before_init=lambda policy, *spaces_and_config: LearningRateSchedule.__init__(policy, 0.5, [[0, 0.5], [100, 0]]),
        optimizer_fn=lambda policy, config: getattr(tf.compat.v1.train, kind)(policy.cur_lr, *more),
        mixins=[LearningRateSchedule],
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    start = policy.get_weights()
    policy.learn_on_batch(make_batch())
    before = policy.get_weights()
    assert any(not np.array_equal(array, start[key]) for key, array in before.items())
    policy.on_global_var_update({"timestep": 100})
    policy.learn_on_batch(make_batch())
    same(policy.get_weights(), before)


@pytest.mark.parametrize("optimizer_fn", [None, lambda policy, config: tf.compat.v1.train.AdamOptimizer(0.1)])
def test_the_global_step_counts_in_traced_steps(optimizer_fn):
    def apply(policy, optimizer, grads_and_vars):
        return optimizer.apply_gradients(grads_and_vars, global_step=tf.compat.v1.train.get_or_create_global_step())

    cls = build_tf_policy("Counted", loss_fn=policy_gradient_loss, optimizer_fn=optimizer_fn, apply_gradients_fn=apply)
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    step = tf.compat.v1.train.get_or_create_global_step()
    before = int(step)
    policy.learn_on_batch(make_batch())
    policy.learn_on_batch(make_batch())
    assert int(step) == before + 2


def test_state_of_another_optimiser_is_refused():
    ours = build_tf_policy("Ours", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, common_config())
    sgd = build_tf_policy(
        "Sgd", loss_fn=policy_gradient_loss, optimizer_fn=lambda policy, config: tf.keras.optimizers.SGD(0.1)
    )(OBS_SPACE, ACTIONS, common_config())
    with pytest.raises(ValueError, match="the saved optimiser is adam, this policy's is SGD"):
        sgd.set_state(ours.get_state())


def test_several_losses_and_optimisers():
    def losses(policy, model, dist_class, train_batch):
        logits, _ = model(train_batch)
        return [tf.reduce_mean(logits**2), tf.reduce_mean((model.value_function() - train_batch["rewards"]) ** 2)]

    cls = build_tf_policy(
        "Two", loss_fn=losses, optimizer_fn=lambda policy, config: [policy.adam(lr=1e-2), policy.adam(lr=1e-3)]
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    before = policy.get_weights()
    policy.learn_on_batch(make_batch())
    changed = {key for key, array in policy.get_weights().items() if not np.array_equal(array, before[key])}
    assert {"output.weight", "value.weight"} <= changed
    one = build_tf_policy("One", loss_fn=losses)(OBS_SPACE, ACTIONS, common_config())
    with pytest.raises(ValueError, match="got 2 losses for 1 optimisers"):
        one.learn_on_batch(make_batch())


def test_a_loss_of_each_row_counts_as_their_sum():
    def by_row(policy, model, dist_class, train_batch):
        logits, _ = model(train_batch)
        return -dist_class(logits, model).logp(train_batch["actions"]) * train_batch["rewards"]

    batch = make_batch()
    policy = build_tf_policy("Rows", loss_fn=by_row)(OBS_SPACE, ACTIONS, common_config())
    made, _ = policy.compute_gradients(batch)
    tensors = SampleBatch({key: tf.convert_to_tensor(batch[key]) for key in ("obs", "actions", "rewards")})
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(by_row(policy, policy.model, policy.dist_class, tensors))
    weights = policy.model.trainable_variables()
    for gradient, wanted in zip(made, tape.gradient(loss, weights), strict=True):
        if wanted is not None:  # values have no part in this loss
            np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_a_part_of_the_loss_may_come_from_python_code_in_the_traced_step():
    seen = []

    def penalty(actions):
        seen.append(actions.numpy().tolist())
        return tf.reduce_sum(tf.cast(actions, tf.float32))

    def penalised(policy, model, dist_class, train_batch):
        logits, _ = model(train_batch)
        return tf.py_function(penalty, [train_batch["actions"]], Tout=tf.float32) + tf.reduce_mean(logits**2)

    batch = make_batch()
    policy = build_tf_policy("Penalised", loss_fn=penalised)(OBS_SPACE, ACTIONS, common_config())
    before = policy.get_weights()
    policy.learn_on_batch(batch)
    assert seen[-1] == batch["actions"].tolist()  # before, a loss is tried on zeros
    assert any((weight != before[name]).any() for name, weight in policy.get_weights().items())


def test_likelihoods_are_those_of_a_users_distribution():
    class Cold(Categorical):
        def __init__(self, inputs, model):
            super().__init__(inputs * 100.0, model)

    ModelCatalog.register_custom_action_dist("cold", Cold)
    config = common_config(model={"custom_action_dist": "cold"})
    policy = build_tf_policy("X", loss_fn=lambda *_: tf.constant(0.0))(OBS_SPACE, ACTIONS, config)
    obs = np.eye(4, dtype=np.float32)
    actions, columns = policy.act_on_rows(obs)
    np.testing.assert_allclose(policy.compute_log_likelihoods(actions, obs), columns["action_logp"], rtol=1e-4)


def test_the_loss_that_is_no_number_is_named_and_nothing_is_learned():
    def losses(policy, model, dist_class, train_batch):
        logits, _ = model(train_batch)
        return [tf.reduce_mean(logits**2), tf.reduce_mean(logits) / tf.zeros([]) * policy.cur_lr]

    cls = build_tf_policy(
        "Two",
        loss_fn=losses,
        optimizer_fn=lambda policy, config: [policy.adam(lr=1e-2), policy.adam(lr=1e-3)],
        after_init=lambda policy, *others: setattr(policy, "cur_lr", 1.0),
    )
    policy = cls(OBS_SPACE, ACTIONS, common_config())
    before = policy.get_weights()
    with pytest.raises(NonFiniteError, match=r"loss number 1 is (inf|nan) though weights and batch are finite"):
        policy.learn_on_batch(make_batch())
    same(policy.get_weights(), before)


def test_adam_by_hand():
    variable = tf.Variable([1.0, -2.0])
    adam = Adam({"w": variable}, lr=0.1, eps=1e-8)
    for gradient in ([0.5, -1.0], [0.25, 3.0]):
        tf.function(adam.apply_gradients)([(tf.constant(gradient), variable)])
    # Step 1 moves by lr·sign(g). Step 2: m̂ = (0.9·0.1·g1 + 0.1·g2)/0.19, v̂ = (0.999·0.001·g1² + 0.001·g2²)/0.001999.
    g1, g2 = np.array([0.5, -1.0]), np.array([0.25, 3.0])
    m, v = (0.09 * g1 + 0.1 * g2) / 0.19, (0.000999 * g1**2 + 0.001 * g2**2) / 0.001999
    expected = np.array([1.0, -2.0]) - 0.1 * np.sign(g1) - 0.1 * m / np.sqrt(v)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)
    assert adam.get_state()["step"] == 2


def test_custom_loss_of_the_model_is_minimised():
    class Regularised(KerasModel):
        def custom_loss(self, policy_loss, loss_inputs):
            return 0.0 * policy_loss + tf.reduce_sum(self.trainable_variables()[0] ** 2)

    config = common_config(lr=1e-2)
    config["model"]["custom_model"] = Regularised
    policy = build_tf_policy("Reg", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, config)
    before = np.abs(policy.get_weights()["base_model.0.kernel"]).sum()
    for _ in range(20):
        policy.learn_on_batch(make_batch())
    assert np.abs(policy.get_weights()["base_model.0.kernel"]).sum() < 0.9 * before


def test_metrics_of_a_model_are_those_of_the_step():
    class Tells(KerasModel):
        def custom_loss(self, policy_loss, loss_inputs):
            self.kept = tf.reduce_mean(loss_inputs["rewards"])
            return policy_loss + 0.0 * self.kept

        def metrics(self):
            return {"kept": self.kept, "twice": 2.0 * self.kept}

    config = common_config()
    config["model"]["custom_model"] = Tells
    policy, batch = build_tf_policy("Tells", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, config), make_batch()
    for reward in (1.0, 3.0):
        batch["rewards"] = np.full_like(batch["rewards"], reward)
        info = policy.learn_on_batch(batch)
        assert info["model"] == info["learner_stats"]["model"] == {"kept": reward, "twice": 2 * reward}
        assert policy.compute_gradients(batch)[1]["model"] == {"kept": reward, "twice": 2 * reward}


def test_metrics_of_a_model_beside_those_of_the_step_are_asked_for_anew():
    class Tells(KerasModel):
        steps = 0

        def custom_loss(self, policy_loss, loss_inputs):
            self.kept = policy_loss
            return policy_loss

        def metrics(self):
            self.steps += 1
            return {"kept": self.kept, "steps": self.steps}

    config = common_config()
    config["model"]["custom_model"] = Tells
    policy = build_tf_policy("Tells", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, config)
    first, second = (policy.learn_on_batch(make_batch())["model"] for _ in range(2))
    assert isinstance(first["kept"], float)
    assert second["steps"] == first["steps"] + 1


# --- tracing ------------------------------------------------------------------------------------------------------


def test_batches_of_ever_new_kinds_end_in_an_error_that_shows_them():
    policy = make("tf", "SimpleQ", {}, eager_max_retraces=2)
    batch = make_batch()
    policy.learn_on_batch(batch)
    batch["actions"] = batch["actions"].astype(np.int32)
    policy.learn_on_batch(batch)
    batch = make_batch()
    batch["actions"] = batch["actions"].astype(np.uint8)
    with pytest.raises(ValueError, match=r"traced 2 times, .* raise eager_max_retraces"):
        policy.learn_on_batch(batch)


@pytest.mark.slow
def test_compiled_by_xla_it_learns_the_same():
    plain, compiled = make("tf", "DQN", {}), make("tf", "DQN", {}, jit_compile=True)
    for step in range(3):
        plain.learn_on_batch(make_batch(seed=step))
        compiled.learn_on_batch(make_batch(seed=step))
    same(plain.get_weights(), compiled.get_weights(), atol=1e-5, rtol=0)
    batch = make_batch()
    batch["rewards"][3] = np.inf
    before = compiled.get_weights()
    with pytest.raises(NonFiniteError, match="column 'rewards'"):
        compiled.learn_on_batch(batch)
    same(compiled.get_weights(), before)


def test_a_debugger_may_run_the_step_line_by_line():
    plain, stepped = make("tf", "DQN", {}), make("tf", "DQN", {})
    eagerly, loss = [], stepped.loss

    def noting(*arguments):
        eagerly.append(tf.executing_eagerly())
        return loss(*arguments)

    stepped.loss = noting
    for step in range(3):
        plain.learn_on_batch(make_batch(seed=step))
        tf.config.run_functions_eagerly(True)
        try:
            stepped.learn_on_batch(make_batch(seed=step))
        finally:
            tf.config.run_functions_eagerly(False)
    assert eagerly == [False, True, True, True]  # the first is the trace
    same(plain.get_weights(), stepped.get_weights(), atol=1e-6, rtol=0)


def test_a_variable_that_took_a_column_keeps_it():
    from rlframe.policy.tf.traced import staged

    first, second = np.arange(4, dtype=np.float32), np.full(4, 9.0, np.float32)
    variable = tf.Variable(np.zeros(4, np.float32))
    keep = tf.function(variable.assign, input_signature=[tf.TensorSpec([4])])
    keep(staged(first))
    first[:] = -1.0
    staged(second)
    assert variable.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
    for array in (second.astype(np.uint8).reshape(2, 2), np.zeros((0, 3), np.float32), second.astype(np.float64)):
        np.testing.assert_array_equal(staged(array).numpy(), array)


def test_objects_in_a_batch_stay_out_of_the_traced_step():
    policy = build_tf_policy("Plain", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, common_config())
    batch = make_batch()
    batch["infos"] = np.array([{"a": 1}] * 12, dtype=object)
    policy.learn_on_batch(batch)


def test_a_policy_without_a_loss_says_so():
    policy = TFPolicy(OBS_SPACE, ACTIONS, common_config())
    with pytest.raises(NotImplementedError, match="TFPolicy has no loss: pass loss_fn"):
        policy.learn_on_batch(make_batch())


# --- the rest -----------------------------------------------------------------------------------------------------


def rllib_inputs(obs, **more):
    """Returns what clients of RLlib's exported models send for each row."""
    past = {"prev_action": np.zeros(len(obs), np.int64), "prev_reward": np.zeros(len(obs), np.float32)}
    inputs = {"observations": obs, **past, "is_training": False, "timestep": np.int64(0), **more}
    return {name: tf.constant(value) for name, value in inputs.items()}


def test_exported_model_with_memory_is_given_states_and_gives_the_next(tmp_path):
    model = {**common_config()["model"], "use_lstm": True, "lstm_cell_size": 5, "lstm_use_prev_action": True}
    policy = make("tf", "PPO", {}, model=model)
    policy.export_model(str(tmp_path))
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    obs, states = make_batch(6)["obs"], [np.full((6, 5), 0.2, np.float32), np.full((6, 5), -0.3, np.float32)]
    given = {f"state_in_{index}": state for index, state in enumerate(states)}
    made = serve(**rllib_inputs(obs, seq_lens=np.ones(6, np.int32), **given))
    before = {"prev_action_batch": np.zeros(6, np.int64), "prev_reward_batch": np.zeros(6, np.float32)}
    actions, after, extra = policy.compute_actions(obs, states, **before, explore=False)
    np.testing.assert_array_equal(made["actions_0"].numpy(), actions)
    np.testing.assert_allclose(made["vf_preds"].numpy(), extra["vf_preds"], atol=1e-5)
    for index, state in enumerate(after):
        np.testing.assert_allclose(made[f"state_out_{index}"].numpy(), state, atol=1e-5)


def test_exported_model_computes_what_the_policy_does(tmp_path):
    policy = make("tf", "DQN", {})
    policy.export_model(str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    obs = make_batch(6)["obs"]
    made = next(iter(loaded.signatures["dist_inputs"](obs=tf.constant(obs)).values()))
    np.testing.assert_allclose(made.numpy(), policy.forward(obs, False)[0], atol=1e-5)
    served = loaded.signatures["serving_default"](**rllib_inputs(obs))
    np.testing.assert_allclose(served["action_dist_inputs"].numpy(), made.numpy(), atol=1e-6)
    np.testing.assert_array_equal(served["actions_0"].numpy(), policy.compute_actions(obs, explore=False)[0])
    with pytest.raises(ValueError, match="convert --framework torch"):
        policy.export_model(str(tmp_path / "onnx"), onnx=13)


def test_a_gpu_that_is_not_there_is_an_error():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is one")
    with pytest.raises(ConfigError, match="num_gpus: got 1, but TensorFlow sees no GPU\\(s\\) here"):
        make("tf", "DQN", {}, num_gpus=1)


def test_other_random_streams_go_on_as_if_no_model_had_been_made():
    import random

    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global stream is what this is about
    build_tf_policy("Keras", loss_fn=policy_gradient_loss)(OBS_SPACE, ACTIONS, keras_config())
    drawn = random.random(), np.random.rand()  # noqa: NPY002
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    assert drawn == (random.random(), np.random.rand())  # noqa: NPY002


@pytest.mark.slow
def test_tensorflow_starts_without_torch_and_writes_nothing_to_stderr():
    code = (
        "import sys\n"
        "from rlframe.agents.dqn import DQNTFPolicy\n"
        "from rlframe.data.sample_batch import SampleBatch\n"
        "import gymnasium as gym, numpy as np\n"
        "config = {'framework': 'tf', 'seed': 3, 'hiddens': [8], 'model': {'fcnet_hiddens': [8]}}\n"
        "policy = DQNTFPolicy(gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2), config)\n"
        "ones = np.ones(6, np.float32)\n"
        "batch = {'obs': np.ones((6, 4), np.float32), 'new_obs': np.zeros((6, 4), np.float32), 'rewards': ones}\n"
        "batch |= {'actions': np.array([0, 1] * 3), 'discounts': ones, 'weights': ones}\n"
        "policy.learn_on_batch(SampleBatch(batch))\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_batch_that_a_hook_changes_is_what_is_learned_on():
    policy = make("tf", "SimpleQ", {})
    seen = []

    def hook(policy, train_batch, result):
        train_batch["rewards"] = train_batch["rewards"] + 100.0
        result["seen"] = 1
        seen.append(len(train_batch))

    policy._learn_hook = hook
    result = policy.learn_on_batch(SampleBatch(make_batch()))
    assert seen == [12]
    assert result["custom_metrics"] == {"seen": 1}
    assert np.abs(result["td_error"]).mean() > 50


def test_distribution_class_may_depend_on_exploring():
    from rlframe.models.tf.tf_action_dist import Deterministic, DiagGaussian

    def distribution(policy, model, *, input_dict, explore, **others):
        one = input_dict["obs"][:, :1]
        return (tf.concat([one, one - 30.0], 1), DiagGaussian, []) if explore else (one, Deterministic, [])

    def make_model(policy, obs_space, action_space, config):
        return ModelCatalog.get_model_v2(obs_space, action_space, 2, config["model"], framework="tf")

    cls = build_tf_policy("Two", loss_fn=policy_gradient_loss, action_distribution_fn=distribution,
                          make_model=make_model)  # fmt: skip
    policy, obs = cls(OBS_SPACE, gym.spaces.Box(-1, 1, (1,), np.float32), common_config()), make_batch(5)["obs"]
    for explore in (False, True, False):
        actions, _, extra = policy.compute_actions(obs, explore=explore)
        np.testing.assert_allclose(actions, obs[:, :1], rtol=1e-4, atol=1e-4)
        assert extra["action_dist_inputs"].shape == (5, 2 if explore else 1)


def test_session_arguments_that_sessions_alone_had_are_refused():
    with pytest.raises(ConfigError, match="got 'allow_soft', wanted only intra_op_parallelism_threads"):
        make("tf", "DQN", {}, tf_session_args={"allow_soft": 1})
    devices = {"CPU": 4, "GPU": 0}  # num_gpus says that here
    make("tf", "DQN", {}, tf_session_args={"intra_op_parallelism_threads": 1, "device_count": devices})


def test_session_arguments_on_devices_are_tensorflow_s_own_settings():
    asked = {
        "log_device_placement": True,
        "allow_soft_placement": False,
        "gpu_options": {"per_process_gpu_memory_fraction": 0.5},  # without a GPU this says nothing
    }
    before = tf.config.get_soft_device_placement(), tf.debugging.get_log_device_placement()
    try:
        make("tf", "DQN", {}, tf_session_args=asked)
        assert not tf.config.get_soft_device_placement()
        assert tf.debugging.get_log_device_placement()
    finally:
        tf.config.set_soft_device_placement(before[0])
        tf.debugging.set_log_device_placement(before[1])


def test_compiling_torch_is_refused():
    from rlframe.agents.dqn import DQNTrainer

    with pytest.raises(ConfigError, match="jit_compile=True compiles TensorFlow's learner step"):
        DQNTrainer({"jit_compile": True}, env="CartPole-v1")


@pytest.mark.parametrize(
    ("config", "threads"),
    [
        ({}, "1 1"),
        ({"train_batch_size": 2000, "model": {"fcnet_hiddens": [512, 512]}}, "several"),
        ({"local_tf_session_args": {"intra_op_parallelism_threads": 3}}, "several"),
        ({"learner_threads": 2}, "several"),
    ],
)
def test_small_networks_have_one_thread_unless_somebody_says_a_number(config, threads, monkeypatch):
    set_to = {}
    for name in ("intra", "inter"):
        monkeypatch.setattr(
            f"tensorflow.config.threading.set_{name}_op_parallelism_threads",
            lambda number, name=name: set_to.update({name: number}),
        )
    monkeypatch.setattr(runtime, "usable_cpus", lambda: 4)
    monkeypatch.setattr("rlframe.utils.cpus.usable_cpus", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    base = {"train_batch_size": 32, "model": {"fcnet_hiddens": [256, 256]}, "tf_session_args": {}}
    runtime.prepare({**base, **config}, gym.spaces.Box(-1, 1, (4,)))
    assert (f"{set_to['intra']} {set_to['inter']}" == "1 1") == (threads == "1 1")
    assert set_to["intra"] <= 4


def test_a_policy_within_a_graph_of_the_programs_own_is_told_to_leave_it_out():
    with tf.compat.v1.Session(graph=tf.Graph()), pytest.raises(RuntimeError, match=r"leave out tf\.Session"):
        DQNTFPolicy(OBS_SPACE, ACTIONS, dqn_config())
    DQNTFPolicy(OBS_SPACE, ACTIONS, dqn_config())  # behind it policies are made as ever
