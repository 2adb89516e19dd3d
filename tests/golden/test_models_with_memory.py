"""LSTM, attention and users' recurrent models: acting and learning compute the same, in both frameworks."""

import importlib

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.data.sequences import padded_sequences
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.catalog import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.inference import NumpyInference
from tests.helpers.frameworks import TORCH_FIRST, needs_tf

LSTM = {"use_lstm": True, "lstm_cell_size": 12, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
ATTENTION = {
    "use_attention": True,
    "attention_num_transformer_units": 2,
    "attention_dim": 8,
    "attention_num_heads": 2,
    "attention_head_dim": 4,
    "attention_memory_inference": 6,
    "attention_memory_training": 6,
    "attention_use_n_prev_actions": 2,
    "attention_use_n_prev_rewards": 3,
}
MODELS = [pytest.param(LSTM, id="LSTM"), pytest.param(ATTENTION, id="attention")]


def trainer(framework, model, **overrides):
    config = {
        "framework": framework,
        "num_workers": 0,
        "num_envs_per_worker": 3,
        "rollout_fragment_length": 40,
        "train_batch_size": 120,
        "sgd_minibatch_size": 50,
        "num_sgd_iter": 2,
        "seed": 4,
        "model": {"fcnet_hiddens": [9], "max_seq_len": 7, **model},
        "log_sys_usage": False,
        "min_iter_time_s": 0,
        **overrides,
    }
    return PPOTrainer(config, env="CartPole-v1")


def outputs_and_values(policy, batch):
    """What the model computes in training for a padded batch, as arrays."""
    columns = {key: value for key, value in batch.items() if value.dtype != object}
    if policy.framework == "torch":
        torch = importlib.import_module("torch")
        with torch.no_grad():
            outputs, _ = policy.model({key: torch.as_tensor(value) for key, value in columns.items()})
            return outputs.numpy(), policy.model.value_function().numpy()
    tf = importlib.import_module("tensorflow")
    outputs, _ = policy.model({key: tf.constant(value) for key, value in columns.items()})
    return outputs.numpy(), policy.model.value_function().numpy()


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("model", MODELS)
def test_outputs_and_values_behind_a_memory_begin_xavier_uniform_not_near_zero(model, framework):
    weights = trainer(framework, model).get_policy().get_weights()
    for name in ("heads.output.weight", "heads.value.weight"):
        largest = np.sqrt(6 / sum(weights[name].shape))
        assert 0.5 * largest < np.abs(weights[name]).max() <= largest


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("model", MODELS)
def test_learning_sees_what_acting_saw(framework, model):
    made = trainer(framework, model)
    made.train()
    policy, batch = made.get_policy(), made.workers.local_worker().sample()
    padded = padded_sequences(batch)
    outputs, values = outputs_and_values(policy, padded)
    valid = padded["valid_mask"]
    np.testing.assert_allclose(outputs[valid], batch["action_dist_inputs"], atol=2e-5)
    np.testing.assert_allclose(values[valid], batch["vf_preds"], atol=2e-5)


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("model", MODELS)
def test_what_stands_in_padding_rows_does_not_matter(framework, model):
    policy, batch = trainer(framework, model).get_policy(), trainer(framework, model).workers.local_worker().sample()
    padded = padded_sequences(batch)
    other = padded.copy()
    for name in ("advantages", "value_targets", "action_logp", "vf_preds"):
        other[name][~other["valid_mask"]] = 1e3
    assert (~padded["valid_mask"]).any()
    gradients, info = policy.compute_gradients(padded)
    for mine, theirs in zip(gradients, policy.compute_gradients(other)[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    assert np.isfinite(info["learner_stats"]["total_loss"])


@needs_tf
@pytest.mark.parametrize("model", [MODELS[0], pytest.param(ATTENTION, id="attention", marks=pytest.mark.slow)])
def test_the_same_weights_compute_alike_in_both_frameworks(model):
    one, other = trainer("torch", model).get_policy(), trainer("tf", model).get_policy()
    batch = padded_sequences(trainer("torch", model).workers.local_worker().sample())
    # Initial biases are zeros: other numbers show that each is where it belongs.
    rng = np.random.default_rng(1)
    weights = {name: rng.normal(0, 0.3, array.shape).astype(np.float32) for name, array in one.get_weights().items()}
    assert set(weights) == set(other.get_weights())
    one.set_weights(weights)
    other.set_weights(weights)
    for mine, theirs in zip(outputs_and_values(one, batch), outputs_and_values(other, batch), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    for _ in range(10):
        one.learn_on_batch(batch)
        other.learn_on_batch(batch)
    for name, array in one.get_weights().items():
        np.testing.assert_allclose(array, other.get_weights()[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("model", MODELS)
def test_cut_trajectories_bootstrap_with_the_memory_they_had(framework, model):
    made = trainer(framework, model, **{"lambda": 1.0, "gamma": 0.9, "num_envs_per_worker": 1})
    worker, policy = made.workers.local_worker(), made.get_policy()
    batch = worker.sample()
    last = ~(batch["terminateds"] | batch["truncateds"])
    assert last[-1]
    runner = worker.runner
    inputs = runner._memory.inputs(runner._obs)
    _, value, _ = policy.forward_with_memory(runner._obs, inputs, False)
    # With λ = 1 the last row's target is its reward and the discounted value of what follows.
    np.testing.assert_allclose(batch["value_targets"][-1], batch["rewards"][-1] + 0.9 * value[0], rtol=1e-5)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_the_lstm_acts_in_numpy_as_it_does_in_the_framework(framework):
    policy = trainer(framework, LSTM).get_policy()
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(5, 4)).astype(np.float32)
    inputs = {
        "state_in_0": rng.normal(size=(5, 12)).astype(np.float32),
        "state_in_1": rng.normal(size=(5, 12)).astype(np.float32),
        "prev_actions": np.array([0, 1, 1, 0, 1]),
        "prev_rewards": rng.normal(size=5).astype(np.float32),
    }
    assert isinstance(policy.inference, NumpyInference)
    in_numpy = policy.forward_with_memory(obs, inputs, False)
    in_framework = policy.forward_in_framework({"obs": obs, **inputs}, False)
    for mine, theirs in zip([*in_numpy[:2], *in_numpy[2]], [*in_framework[:2], *in_framework[2]], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_an_lstm_step_worked_by_hand():
    from rlframe.models.recurrent_actor import LSTMActor

    linear = {"kind": "dense", "name": "heads.output", "activation": "linear"}
    spec = {
        "inner": [],
        "lstm": {"name": "lstm", "cell_size": 1, "prev_actions": [2], "prev_rewards": False},
        "outputs": [linear],
        "values": [{**linear, "name": "heads.value"}],
    }
    weights = {
        "lstm.weight_ih": np.array([[1, 0, 0], [0, 0, 1], [0, 2, 0], [0, 0, 0]], np.float32),
        "lstm.weight_hh": np.array([[0.5], [0], [0], [1]], np.float32),
        "lstm.bias": np.array([0, 1, 0, 0], np.float32),
        "heads.output.weight": np.array([[10.0]], np.float32),
        "heads.output.bias": np.array([1.0], np.float32),
        "heads.value.weight": np.array([[-1.0]], np.float32),
        "heads.value.bias": np.array([0.0], np.float32),
    }
    given = {"state_in_0": np.array([[0.2]]), "state_in_1": np.array([[0.4]]), "prev_actions": np.array([0])}
    outputs, values, (h, c) = LSTMActor(spec, weights).step(np.array([[0.3]], np.float32), given)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731 - a formula
    # gates: i = 0.3 + 0.5·0.2, f = 1 (action 0 is seen in column 1, not 2), g = 2·1, o = 0.2
    cell = sigmoid(1.0) * 0.4 + sigmoid(0.4) * np.tanh(2.0)
    hidden = sigmoid(0.2) * np.tanh(cell)
    np.testing.assert_allclose([c[0, 0], h[0, 0]], [cell, hidden], rtol=1e-6)
    np.testing.assert_allclose([outputs[0, 0], values[0]], [10 * hidden + 1, -hidden], rtol=1e-6)


class _Custom:
    """Counts steps in its state, from 5 on: what it computes tells which state it was given."""

    @staticmethod
    def torch_class():
        torch = importlib.import_module("torch")
        base = importlib.import_module("rlframe.models.torch.recurrent_net").RecurrentNetwork

        class Counter(base, torch.nn.Module):
            def __init__(self, *args, **kwargs):
                torch.nn.Module.__init__(self)
                base.__init__(self, *args, **kwargs)
                self.num_outputs = self.num_outputs or 4  # None where a memory follows
                self.layer = torch.nn.Linear(5, self.num_outputs)

            def get_initial_state(self):
                return [np.full(1, 5.0, np.float32)]

            def forward_rnn(self, inputs, state, seq_lens):
                steps = torch.arange(inputs.shape[1], dtype=torch.float32).reshape(1, -1, 1)
                self.count = state[0].reshape(-1, 1, 1) + steps
                return self.layer(torch.cat([inputs, self.count], dim=2)), [state[0] + inputs.shape[1]]

            def value_function(self):
                return self.count.reshape(-1)

        return Counter

    @staticmethod
    def tf_class():
        tf = importlib.import_module("tensorflow")
        base = importlib.import_module("rlframe.models.tf.recurrent_net").RecurrentNetwork

        class Counter(base):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.layer = tf.keras.layers.Dense(self.num_outputs)

            def get_initial_state(self):
                return [np.full(1, 5.0, np.float32)]

            def forward_rnn(self, inputs, state, seq_lens):
                length = tf.shape(inputs)[1]
                steps = tf.reshape(tf.range(tf.cast(length, tf.float32)), [1, -1, 1])
                self.count = tf.reshape(state[0], [-1, 1, 1]) + steps
                return self.layer(tf.concat([inputs, self.count], axis=2)), [state[0] + tf.cast(length, tf.float32)]

            def value_function(self):
                return tf.reshape(self.count, [-1])

        return Counter


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_an_initial_state_of_the_users_own_is_honoured_in_sampling_and_learning(framework):
    ModelCatalog.register_custom_model("counter", getattr(_Custom, f"{framework}_class")())
    made = trainer(framework, {"custom_model": "counter"})
    batch = made.workers.local_worker().sample()
    # The model's values are its counts: 5 at the first step of an episode, one more at each step.
    np.testing.assert_array_equal(batch["vf_preds"], batch["t"] + 5.0)
    starts = np.cumsum(batch["seq_lens"]) - batch["seq_lens"]
    np.testing.assert_array_equal(batch["state_in_0"][:, 0], batch["t"][starts] + 5.0)
    padded = padded_sequences(batch)
    _, values = outputs_and_values(made.get_policy(), padded)
    np.testing.assert_array_equal(values[padded["valid_mask"]], batch["vf_preds"])
    made.train()


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_a_run_with_an_lstm_resumes_exactly(framework, tmp_path):
    one = trainer(framework, LSTM, rollout_fragment_length=20, train_batch_size=60, observation_filter="MeanStdFilter")
    one.train()
    path = one.save(str(tmp_path))
    expected = [one.train() for _ in range(2)]
    other = trainer(
        framework, LSTM, rollout_fragment_length=20, train_batch_size=60, observation_filter="MeanStdFilter", seed=99
    )
    other.restore(path)
    for result in expected:
        again = other.train()
        assert again["hist_stats"] == result["hist_stats"]
        assert again["info"]["learner"]["default_policy"]["learner_stats"] == pytest.approx(
            result["info"]["learner"]["default_policy"]["learner_stats"]
        )


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_an_actor_keeps_what_the_policy_needs(framework):
    made = trainer(framework, LSTM)
    policy, actor = made.get_policy(), made.make_actor(explore=False)
    env = gym.make("CartPole-v1")
    state, action, reward = policy.get_initial_state(), None, None
    obs, _ = env.reset(seed=3)
    actor.reset()
    for step in range(6):
        mine = actor.act(obs, reward)
        kwargs = {} if step == 0 else {"prev_action": action, "prev_reward": reward}
        if step == 0:
            action, state, _ = made.compute_single_action(obs, full_fetch=True, explore=False)
        else:
            action, state, _ = made.compute_single_action(obs, state, explore=False, **kwargs)
        assert mine == action
        for kept, returned in zip(actor.state, state, strict=True):
            np.testing.assert_allclose(kept, returned, atol=1e-6)
        obs, reward, *_ = env.step(int(action))
    with pytest.raises(ValueError, match=r"act\(obs, reward\)"):
        actor.act(obs)
    with pytest.raises(ValueError, match="make_actor"):
        made.compute_single_action(obs, state)
    actor.reset()
    assert all(not part.any() for part in actor.state)
    actor.act(obs)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_an_actor_clips_rewards_as_workers_do(framework):
    made = trainer(framework, LSTM, clip_rewards=True)
    large, clipped = made.make_actor(explore=False), made.make_actor(explore=False)
    obs = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    for actor, reward in ((large, 50.0), (clipped, 1.0)):
        actor.reset()
        actor.act(obs)
        actor.act(obs, reward)
    for one, other in zip(large.state, clipped.state, strict=True):
        np.testing.assert_array_equal(one, other)


def test_algorithms_that_learn_from_single_rows_refuse_a_memory():
    from rlframe.agents.dqn import PQNTrainer
    from rlframe.utils.errors import ConfigError

    with pytest.raises(ConfigError, match="use_lstm"):
        PQNTrainer({"model": {"use_lstm": True}}, env="CartPole-v1")


def test_an_lstm_behind_a_model_with_memory_is_refused():
    from rlframe.utils.errors import ConfigError

    ModelCatalog.register_custom_model("counter", _Custom.torch_class())
    with pytest.raises(ConfigError, match="memory of its own"):
        trainer("torch", {**LSTM, "custom_model": "counter"})


def sums_of_four(framework):
    """A user's model: its state is the observation of a step, and it sees the last three, as attention declares it."""
    views = {"state_in_0": ViewRequirement("state_out_0", shift="-3:-1", space=gym.spaces.Box(-1, 1, (4,)))}
    if framework == "torch":
        torch = importlib.import_module("torch")
        torch.manual_seed(0)
        layer, bases = torch.nn.Linear(4, 3), (TorchModelV2, torch.nn.Module)
        join = torch.cat
    else:
        tf, base = importlib.import_module("tensorflow"), importlib.import_module("rlframe.models.tf.tf_modelv2")
        layer, bases = tf.keras.layers.Dense(3), (base.TFModelV2,)
        join = tf.concat

    class SumsOfFour(*bases):
        def __init__(self, *args):
            if framework == "torch":
                torch.nn.Module.__init__(self)
            bases[0].__init__(self, *args)
            self.layer = layer
            self.view_requirements.update(views)

        def forward(self, input_dict, state, seq_lens):
            rows, width = input_dict["obs"], state[0].shape[2]
            steps = rows.reshape(len(seq_lens), -1, width) if framework == "torch" else None
            if steps is None:
                steps = tf.reshape(rows, (tf.shape(seq_lens)[0], -1, width))
            seen = join([state[0], steps], 1)
            ahead = [seen[:, start : start - 3 or None] for start in range(4)]
            made = self.layer(sum(ahead))
            made = made.reshape(-1, 3) if framework == "torch" else tf.reshape(made, (-1, 3))
            self._values = made[:, 2]
            return made[:, :2], [rows]

        def value_function(self):
            return self._values

    return SumsOfFour


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_a_state_that_is_a_window_over_past_steps_moves_on(framework):
    config = {"lambda": 1.0, "gamma": 0.9, "num_envs_per_worker": 1, "num_sgd_iter": 1}
    made = trainer(framework, {"custom_model": sums_of_four(framework)}, **config)
    made.train()
    policy, batch = made.get_policy(), made.workers.local_worker().sample()
    assert [state.shape for state in policy.get_initial_state()] == [(3, 4)]
    padded = padded_sequences(batch)
    outputs, values = outputs_and_values(policy, padded)
    np.testing.assert_allclose(outputs[padded["valid_mask"]], batch["action_dist_inputs"], atol=2e-5)
    np.testing.assert_allclose(values[padded["valid_mask"]], batch["vf_preds"], atol=2e-5)
    window = batch["obs"][None, -3:]  # of one episode, or zeros would stand before it
    assert not (batch["terminateds"] | batch["truncateds"])[-4:].any()
    _, value, _ = policy.forward_with_memory(batch["new_obs"][-1:], {"state_in_0": window}, False)
    np.testing.assert_allclose(batch["value_targets"][-1], batch["rewards"][-1] + 0.9 * value[0], rtol=1e-5)
