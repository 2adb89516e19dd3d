"""Models and distributions of the user's own that look at past steps or at their own first choice."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.dqn.q_policy import q_output
from rlframe.agents.ppo import PPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.examples.env.correlated_actions_env import CorrelatedActionsEnv
from rlframe.models.catalog import ModelCatalog
from rlframe.models.past_views import OBS_WINDOW
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import FRAMEWORKS, TORCH_FIRST, needs_tf, to_tensor

CONFIG = {
    "num_workers": 0,
    "num_envs_per_worker": 4,
    "rollout_fragment_length": 50,
    "train_batch_size": 200,
    "sgd_minibatch_size": 50,
    "num_sgd_iter": 8,
    "lr": 3e-3,
    "gamma": 0.5,
    "min_iter_time_s": 0,
    "seed": 2,
    "log_sys_usage": False,
}


def torch_parts():  # noqa: C901 - two small classes
    import torch
    from torch import nn

    from rlframe.models.torch.torch_action_dist import TorchCategorical, TorchDistributionWrapper
    from rlframe.models.torch.torch_modelv2 import TorchModelV2

    class TwoChoices(TorchDistributionWrapper):
        """The second of two bits is drawn with the first one known."""

        def sample(self):
            return self._pick(lambda dist: dist.sample())

        def deterministic_sample(self):
            return self._pick(lambda dist: dist.deterministic_sample())

        def _pick(self, choose):
            first_dist = TorchCategorical(self.inputs)
            first = choose(first_dist)
            second_dist = self._second(first)
            second = choose(second_dist)
            self._logp = first_dist.logp(first) + second_dist.logp(second)
            return first, second

        def _second(self, first):
            return TorchCategorical(self.model.second(torch.cat([self.inputs, first.float().unsqueeze(1)], dim=1)))

        def logp(self, actions):
            # What comes back from batches lies side by side, `[B, 2]`.
            parts = actions if isinstance(actions, tuple) else (actions[:, 0], actions[:, 1])
            return TorchCategorical(self.inputs).logp(parts[0]) + self._second(parts[0]).logp(parts[1])

        def sampled_action_logp(self):
            return self._logp

        def entropy(self):
            first = TorchCategorical(self.inputs)
            return first.entropy() + self._second(first.sample()).entropy()

        def kl(self, other):
            first, theirs = TorchCategorical(self.inputs), TorchCategorical(other.inputs)
            choice = first.sample()
            return first.kl(theirs) + self._second(choice).kl(other._second(choice))

        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 2

    class Net(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            nn.Module.__init__(self)
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.first = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
            self.second = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
            self.value = nn.Linear(2, 1)

        def forward(self, input_dict, state, seq_lens):
            self.obs = input_dict["obs_flat"].float()
            return self.first(self.obs), state

        def value_function(self):
            return self.value(self.obs).squeeze(1)

    return Net, TwoChoices


def tf_parts():  # noqa: C901 - two small classes
    import tensorflow as tf

    from rlframe.models.tf.tf_action_dist import Categorical, TFActionDistribution
    from rlframe.models.tf.tf_modelv2 import TFModelV2

    class TwoChoices(TFActionDistribution):
        """The second of two bits is drawn with the first one known."""

        def sample(self):
            return self._pick(lambda dist: dist.sample())

        def deterministic_sample(self):
            return self._pick(lambda dist: dist.deterministic_sample())

        def _pick(self, choose):
            first_dist = Categorical(self.inputs)
            first = choose(first_dist)
            second_dist = self._second(first)
            second = choose(second_dist)
            self._logp = first_dist.logp(first) + second_dist.logp(second)
            return first, second

        def _second(self, first):
            seen = tf.concat([self.inputs, tf.cast(first, tf.float32)[:, None]], axis=1)
            return Categorical(self.model.second(seen))

        def logp(self, actions):
            parts = actions if isinstance(actions, tuple) else (actions[:, 0], actions[:, 1])
            return Categorical(self.inputs).logp(parts[0]) + self._second(parts[0]).logp(parts[1])

        def sampled_action_logp(self):
            return self._logp

        def entropy(self):
            first = Categorical(self.inputs)
            return first.entropy() + self._second(first.sample()).entropy()

        def kl(self, other):
            first, theirs = Categorical(self.inputs), Categorical(other.inputs)
            choice = first.sample()
            return first.kl(theirs) + self._second(choice).kl(other._second(choice))

        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 2

    class Net(TFModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.first = _keras(tf, 2, 2)
            self.second = _keras(tf, 3, 2)
            self.value = _keras(tf, 2, 1)

        def forward(self, input_dict, state, seq_lens):
            self.obs = tf.cast(input_dict["obs_flat"], tf.float32)
            return self.first(self.obs), state

        def value_function(self):
            return tf.squeeze(self.value(self.obs), axis=1)

    return Net, TwoChoices


def _keras(tf, in_size, out_size):
    layers = [tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(out_size)]
    return tf.keras.Sequential([tf.keras.Input((in_size,)), *layers])


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=[needs_tf, pytest.mark.slow])])
def test_a_distribution_whose_second_choice_knows_the_first_is_learned(framework):
    net, dist = {"torch": torch_parts, "tf": tf_parts}[framework]()
    ModelCatalog.register_custom_model("two choices", net)
    ModelCatalog.register_custom_action_dist("two choices", dist)
    model = {"custom_model": "two choices", "custom_action_dist": "two choices"}
    trainer = PPOTrainer({**CONFIG, "framework": framework, "model": model}, env=CorrelatedActionsEnv)
    first = trainer.train()["episode_reward_mean"]
    for _ in range(14):
        last = trainer.train()["episode_reward_mean"]
    assert first < 120
    # A second choice that does not know the first gets 157.5 at most until the first is certain.
    assert last > 175
    action = trainer.compute_single_action(1, explore=False)
    assert action == (1, 1)


def stacking_models():
    """By framework: a model that acts on the last three observations and the last two actions and rewards."""
    views = {
        "stack": ViewRequirement("obs", shift="-2:0", space=gym.spaces.Box(-9, 9, (4,), np.float32)),
        "last_actions": ViewRequirement("actions", shift="-2:-1", space=gym.spaces.Discrete(2)),
        "last_rewards": ViewRequirement("rewards", shift="-2:-1"),
    }

    def torch_model():
        import torch
        from torch import nn

        from rlframe.models.torch.torch_modelv2 import TorchModelV2

        class Stack(TorchModelV2, nn.Module):
            def __init__(self, obs_space, action_space, num_outputs, model_config, name):
                nn.Module.__init__(self)
                TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
                self.layer, self.value = nn.Linear(16, num_outputs), nn.Linear(16, 1)
                self.view_requirements.update(views)

            def forward(self, input_dict, state, seq_lens):
                parts = [input_dict[key].float().flatten(1) for key in views]
                self.seen = torch.cat(parts, dim=1)
                return self.layer(self.seen), state

            def value_function(self):
                return self.value(self.seen).squeeze(1)

        return Stack

    def tf_model():
        import tensorflow as tf

        from rlframe.models.tf.tf_modelv2 import TFModelV2

        class Stack(TFModelV2):
            def __init__(self, obs_space, action_space, num_outputs, model_config, name):
                super().__init__(obs_space, action_space, num_outputs, model_config, name)
                self.layer, self.value = _keras(tf, 16, num_outputs), _keras(tf, 16, 1)
                self.view_requirements.update(views)

            def forward(self, input_dict, state, seq_lens):
                sizes = {"stack": 12, "last_actions": 2, "last_rewards": 2}
                parts = [tf.reshape(tf.cast(input_dict[key], tf.float32), [-1, sizes[key]]) for key in views]
                self.seen = tf.concat(parts, axis=1)
                return self.layer(self.seen), state

            def value_function(self):
                return tf.squeeze(self.value(self.seen), axis=1)

        return Stack

    return {"torch": torch_model, "tf": tf_model}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_sees_the_past_steps_that_it_asks_for(framework):
    ModelCatalog.register_custom_model("stack", stacking_models()[framework]())
    config = {**CONFIG, "framework": framework, "model": {"custom_model": "stack"}}
    trainer = PPOTrainer(config, env="CartPole-v1")
    batch = trainer.workers.local_worker().sample()
    obs, t = batch["obs"], batch["t"]
    for row in range(1, len(obs)):
        same_episode = batch["eps_id"][row] == batch["eps_id"][row - 1]
        expected = obs[row - 1] if same_episode and t[row] > 0 else np.zeros(4)
        if same_episode or t[row] == 0:
            np.testing.assert_array_equal(batch["stack"][row, 1], expected)
            np.testing.assert_array_equal(batch["stack"][row, 2], obs[row])
            np.testing.assert_array_equal(
                batch["last_actions"][row, 1], batch["actions"][row - 1] if same_episode else 0
            )
            np.testing.assert_array_equal(batch["last_rewards"][row, 1], 1.0 if same_episode else 0.0)
    result = trainer.train()
    assert np.isfinite(result["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
    actor = trainer.make_actor(explore=False)
    actor.reset()
    first = actor.act(obs[0])
    assert first in (0, 1)
    assert actor.act(obs[1], 1.0) in (0, 1)


def models_of_an_obs_window():
    """By framework: a model that asks for the last three observations as `obs`."""

    def torch_model():
        import torch
        from torch import nn

        from rlframe.models.torch.torch_modelv2 import TorchModelV2

        class Window(TorchModelV2, nn.Module):
            def __init__(self, obs_space, action_space, num_outputs, model_config, name):
                nn.Module.__init__(self)
                TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
                self.layer, self.value = nn.Linear(12, num_outputs), nn.Linear(12, 1)
                self.view_requirements[SampleBatch.OBS] = ViewRequirement(shift="-2:0", space=obs_space)

            def forward(self, input_dict, state, seq_lens):
                assert tuple(input_dict["obs"].shape[1:]) == (3, 4)
                self.seen = torch.flatten(input_dict["obs"], 1)
                return self.layer(input_dict["obs_flat"]), state

            def value_function(self):
                return self.value(self.seen).squeeze(1)

        return Window

    def tf_model():
        import tensorflow as tf

        from rlframe.models.tf.tf_modelv2 import TFModelV2

        class Window(TFModelV2):
            def __init__(self, obs_space, action_space, num_outputs, model_config, name):
                super().__init__(obs_space, action_space, num_outputs, model_config, name)
                self.layer, self.value = _keras(tf, 12, num_outputs), _keras(tf, 12, 1)
                self.view_requirements[SampleBatch.OBS] = ViewRequirement(shift="-2:0", space=obs_space)

            def forward(self, input_dict, state, seq_lens):
                self.seen = tf.reshape(tf.ensure_shape(input_dict["obs"], [None, 3, 4]), [-1, 12])
                return self.layer(input_dict["obs_flat"]), state

            def value_function(self):
                return tf.squeeze(self.value(self.seen), axis=1)

        return Window

    return {"torch": torch_model, "tf": tf_model}


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_a_model_that_asks_for_several_steps_as_obs_gets_them_wherever_it_is_called(framework):
    ModelCatalog.register_custom_model("obs window", models_of_an_obs_window()[framework]())
    config = {**CONFIG, "framework": framework, "model": {"custom_model": "obs window"}}
    trainer = PPOTrainer(config, env="CartPole-v1")
    batch = trainer.workers.local_worker().sample()
    assert batch["obs"].shape[1:] == batch["new_obs"].shape[1:] == (4,)
    policy, begins = trainer.get_policy(), np.append(True, np.diff(batch["eps_id"]) != 0)
    window = np.stack([batch["obs"][:3] * 0, batch["obs"][:3] * 0, batch["obs"][:3]], axis=1)
    window[1, 1], window[2, 0], window[2, 1] = batch["obs"][0], batch["obs"][0], batch["obs"][1]
    assert not begins[1:3].any()
    np.testing.assert_array_equal(batch[OBS_WINDOW][:3], window)
    outputs = policy.model({"obs": to_tensor(framework, window)})[0]
    outputs = outputs.detach() if framework == "torch" else outputs
    np.testing.assert_allclose(batch["action_dist_inputs"][:3], outputs.numpy(), atol=1e-5)
    result = trainer.train()
    assert np.isfinite(result["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
    actor = trainer.make_actor(explore=False)
    actor.reset()
    assert actor.act(batch["obs"][0]) in (0, 1)


def test_a_loss_that_has_single_observations_alone_refuses_a_model_that_asks_for_several_as_obs():
    ModelCatalog.register_custom_model("obs window", models_of_an_obs_window()["torch"]())
    config = {"framework": "torch", "num_workers": 0, "learning_starts": 32, "timesteps_per_iteration": 64}
    with pytest.raises(ConfigError, match=r"view_requirements\['obs'\].*not on new_obs, as DQN's"):
        DQNTrainer({**config, "model": {"custom_model": "obs window"}}, env="CartPole-v1").train()


class LooksBack:
    """A model that reads the action before, which it may have asked for."""

    def __init__(self, *views):
        self.view_requirements = dict.fromkeys(("obs", *views))

    def __call__(self, inputs):
        return inputs["prev_actions"], []


def test_q_learning_from_single_steps_refuses_a_model_that_asks_for_past_ones():
    obs = np.zeros((2, 3), np.float32)
    with pytest.raises(ConfigError, match=r"got LooksBack, which reads 'prev_actions'.*R2D2 gives it"):
        q_output(LooksBack("prev_actions"), obs, training=True)
    with pytest.raises(KeyError):
        q_output(LooksBack(), obs, training=True)


def test_a_distribution_may_ask_for_outputs_of_a_shape():
    from torch import nn

    from rlframe.models.torch.torch_action_dist import TorchDiagGaussian
    from rlframe.models.torch.torch_modelv2 import TorchModelV2

    class MeansAndScales(TorchDiagGaussian):
        def __init__(self, inputs, model):
            self.rows = tuple(inputs.shape[1:])
            super().__init__(inputs.reshape(len(inputs), -1), model)

        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 2, action_space.shape[0]

    class TwoRows(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            nn.Module.__init__(self)
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.layer, self.value = nn.Linear(3, 2), nn.Linear(3, 1)
            self.num_outputs = num_outputs or 2  # none are asked for in front of an LSTM

        def forward(self, input_dict, state, seq_lens):
            self.obs = input_dict["obs_flat"].float()
            made = self.layer(self.obs)
            return made.reshape(-1, *self.num_outputs) if np.ndim(self.num_outputs) else made, state

        def value_function(self):
            return self.value(self.obs).squeeze(1)

    def inputs_of(model):
        config = {**CONFIG, "train_batch_size": 200, "model": {**model, "custom_action_dist": MeansAndScales}}
        trainer = PPOTrainer(config, "Pendulum-v1")
        trainer.train()
        return trainer.workers.local_worker().sample()["action_dist_inputs"].shape

    assert inputs_of({"custom_model": TwoRows}) == (200, 2, 1)
    assert inputs_of({"custom_model": TwoRows, "use_lstm": True, "lstm_cell_size": 4}) == (200, 2)
    assert inputs_of({}) == (200, 2)  # the default network's are flat
