"""Copies of whole policy files of RLlib 1.0 to 1.13, with mixins and losses of their own over imported functions."""

import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlframe.agents.a3c.a3c_torch_policy import view_requirements_fn
from rlframe.agents.ddpg import DDPGTorchPolicy, DDPGTrainer, TD3Trainer
from rlframe.agents.ddpg.ddpg_torch_model import DDPGTorchModel
from rlframe.agents.dqn import DQNTrainer, SimpleQTrainer
from rlframe.agents.dqn.dqn_torch_policy import postprocess_nstep_and_prio
from rlframe.agents.dqn.r2d2 import R2D2Trainer
from rlframe.agents.dqn.r2d2_tf_policy import get_distribution_inputs_and_class
from rlframe.agents.dqn.r2d2_torch_policy import build_r2d2_model_and_distribution
from rlframe.agents.dqn.simple_q_torch_policy import build_q_model_and_distribution
from rlframe.agents.ppo import DEFAULT_CONFIG, APPOTrainer, PPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.models import MODEL_DEFAULTS, ModelCatalog
from rlframe.models.torch.torch_action_dist import TorchDeterministic
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.policy_template import build_policy_class
from rlframe.policy.torch_policy import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.utils.torch_utils import concat_multi_gpu_td_errors

SMALL = {
    "framework": "torch", "num_workers": 0, "num_gpus": 0, "rollout_fragment_length": 20, "train_batch_size": 20,
    "seed": 1, "learning_starts": 20, "timesteps_per_iteration": 40, "min_iter_time_s": 0, "log_sys_usage": False,
    "model": {"fcnet_hiddens": [8]},
}  # fmt: skip


def trained(cls, policy, env="CartPole-v1", **config):
    derived = cls.with_updates(name="Copy", default_policy=policy, get_policy_class=lambda config: policy)
    return derived({**SMALL, **config}, env=env)


class Follows:
    """A target network that a copy keeps itself, in the way of one release."""

    def __init__(self):
        self.updates = 0
        self.update_target()

    def update_target(self):
        self.updates += 1
        self.copies()[0].load_state_dict(self.model.state_dict())


class ByModel(Follows):  # RLlib 1.6 to 1.13
    def copies(self):
        return list(self.target_models.values())


class ByName(Follows):  # up to RLlib 1.6
    def copies(self):
        assert self.q_model is self.model
        return [self.target_q_model]


@pytest.mark.parametrize("mixin", [ByModel, ByName])
def test_a_target_that_a_mixin_of_the_copys_own_updates(mixin):
    seen = []

    def loss(policy, model, dist_class, train_batch):
        seen.append(train_batch["weights"])
        q, _ = model({"obs": train_batch["obs"]})
        (target,) = policy.copies()
        with torch.no_grad():
            best = target({"obs": train_batch["new_obs"]})[0].max(1)[0]
        wanted = train_batch["rewards"] + 0.9 * best * (1 - train_batch["dones"].float())
        picked = q.gather(1, train_batch["actions"].long()[:, None])[:, 0]
        return (train_batch["weights"] * (picked - wanted) ** 2).mean()

    policy = build_policy_class(
        "Copy",
        "torch",
        loss_fn=loss,
        make_model_and_action_dist=build_q_model_and_distribution,
        postprocess_fn=postprocess_nstep_and_prio,
        after_init=lambda policy, obs_space, action_space, config: mixin.__init__(policy),
        mixins=[mixin],
    )
    trainer = trained(DQNTrainer, policy, target_network_update_freq=20, prioritized_replay=False)
    trainer.train()
    made = trainer.get_policy()
    assert made.updates > 1
    assert made.copies()[0] is not made.model
    assert set(torch.cat([weights.flatten() for weights in seen]).tolist()) == {1.0}  # rows are drawn uniformly
    trainer.stop()


def test_memories_move_on_where_a_function_gives_the_distribution():
    def loss(policy, model, dist_class, train_batch):
        q, _ = model({"obs": train_batch["obs"]}, [train_batch["state_in_0"], train_batch["state_in_1"]],
                     train_batch["seq_lens"])  # fmt: skip
        return q.square().mean()

    policy = build_policy_class(
        "Copy",
        "torch",
        loss_fn=loss,
        make_model_and_action_dist=build_r2d2_model_and_distribution,
        action_distribution_fn=get_distribution_inputs_and_class,
    )
    trainer = trained(R2D2Trainer, policy, model={"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5})
    made = trainer.get_policy()
    _, states, _ = made.compute_actions([[0.1, 0.2, 0.3, 0.4]], [[state] for state in made.get_initial_state()])
    assert [state.shape for state in states] == [(1, 4), (1, 4)]
    assert all((state != 0).any() for state in states)
    trainer.train()
    trainer.stop()


def test_default_configs_of_another_exploration_give_it_no_keys():
    policy = build_policy_class(
        "Copy",
        "torch",
        loss_fn=lambda policy, model, dist_class, train_batch: model(train_batch)[0].mean() * 0,
        get_default_config=lambda: {"exploration_config": {"type": "OrnsteinUhlenbeckNoise", "ou_base_scale": 0.1}},
        action_distribution_fn=lambda policy, model, input_dict, **kwargs: (
            model(input_dict)[0][:, :1], TorchDeterministic, [],
        ),
    )  # fmt: skip
    trainer = trained(TD3Trainer, policy, env="Pendulum-v1")
    assert type(trainer.get_policy().exploration).__name__ == "GaussianNoise"
    assert "ou_base_scale" not in trainer.get_policy().config["exploration_config"]
    trainer.stop()


def test_schedules_are_none_where_there_are_none():
    class Scheduled(LearningRateSchedule, EntropyCoeffSchedule):
        def __init__(self, schedule):
            LearningRateSchedule.__init__(self, 0.5, schedule)
            EntropyCoeffSchedule.__init__(self, 0.5, schedule)

    still, falling = Scheduled(None), Scheduled([[0, 0.5], [10, 0.0]])
    assert (still._lr_schedule, still._entropy_coeff_schedule) == (None, None)
    assert (falling._lr_schedule.value(5), falling._entropy_coeff_schedule.value(5)) == (0.25, 0.25)


def test_errors_are_found_where_rllib_16_left_them():
    class Policy:
        device = "cpu"
        model_gpu_towers = (nn.Linear(1, 1),)

    (model,) = Policy.model_gpu_towers
    model.tower_stats, model.td_error = {}, torch.tensor([1.0, 3.0])
    assert concat_multi_gpu_td_errors(Policy())["td_error"].tolist() == [1.0, 3.0]
    model.tower_stats["td_error"] = torch.tensor([2.0])
    assert concat_multi_gpu_td_errors(Policy())["mean_td_error"] == 2.0


def test_appos_model_is_of_the_policys_framework_where_its_function_stands_with_tensorflows():
    make = pytest.importorskip("rlframe.agents.ppo.appo_tf_policy").make_appo_model
    policy = build_policy_class(
        "Copy", "torch", make_model=make, loss_fn=lambda policy, model, dist, batch: model(batch)[0].mean() * 0
    )
    config = {**APPOTrainer.get_default_config(), "framework": "torch"}
    made = policy(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), config)
    assert isinstance(made.model, nn.Module)
    assert made.target_models == {made.model: made.target_model}
    assert len(made.model_variables) == len(made.target_model_variables) > 0


def test_gradients_are_applied_by_a_function_of_the_policy_alone():
    applied = []

    def apply(policy):
        applied.append(policy)
        for optimizer in policy._optimizers:
            optimizer.step()

    policy = build_policy_class(
        "Copy",
        "torch",
        loss_fn=lambda policy, model, dist_class, train_batch: model(train_batch)[0].square().mean(),
        apply_gradients_fn=apply,
    )
    trainer = trained(SimpleQTrainer, policy)
    before = trainer.get_policy().get_weights()
    trainer.train()
    assert applied
    after = trainer.get_policy().get_weights()
    assert any((before[name] != after[name]).any() for name in before)
    trainer.stop()


def test_losses_in_tensorflow_make_batches_of_any_number_of_rows():
    tf = pytest.importorskip("tensorflow")

    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None])])
    def total(obs, rewards):
        batch = SampleBatch(obs=obs, rewards=rewards, _is_training=True)
        return tf.reduce_sum(batch["obs"]) + tf.reduce_sum(batch["rewards"])

    assert total(tf.ones([3, 2]), tf.ones([3])) == 9.0
    with pytest.raises(ValueError, match="different numbers of rows"):
        SampleBatch(obs=tf.ones([3, 2]), rewards=tf.ones([2]))


def test_a_policy_that_acts_within_its_loss_acts():
    shapes = set()

    def loss(policy, model, dist_class, train_batch):
        shapes.add(policy.compute_actions(train_batch["obs"].numpy(), explore=False)[0].shape[1:])
        features, _ = model({"obs": train_batch["obs"]})
        shapes.add(tuple(features.shape[1:]))
        return DDPGTorchPolicy.loss(policy, model, dist_class, train_batch)

    policy = DDPGTorchPolicy.with_updates(name="Acting", loss_fn=loss)
    trainer = trained(DDPGTrainer, policy, env="Pendulum-v1", use_state_preprocessor=True)
    trainer.train()
    trainer.stop()
    assert (1,) in shapes
    assert len(shapes) == 2  # actions, and behind them features again


@pytest.mark.parametrize("bases", [(TorchModelV2, nn.Module), (nn.Module, TorchModelV2)])
def test_ddpgs_model_stands_before_models_of_either_order(bases):
    class Mine(*bases):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            nn.Module.__init__(self)
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.layer = nn.Linear(3, num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs_flat"].float()), state

    obs_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))
    config = {**MODEL_DEFAULTS, "custom_model": Mine}
    model = ModelCatalog.get_model_v2(
        obs_space, action_space, 4, config, "torch", "mine", model_interface=DDPGTorchModel
    )
    features, _ = model({"obs": torch.ones(1, 3), "obs_flat": torch.ones(1, 3)})
    assert features.shape == (1, 4)
    assert model.get_policy_output(features).shape == (1, 2)


def test_views_of_10s_actor_critics_are_those_of_their_postprocessing_and_losses():
    class Recurrent:
        def num_state_tensors(self):
            return 1

    views = view_requirements_fn(Recurrent())
    assert (views["new_obs"].data_col, views["new_obs"].shift) == ("obs", 1)
    assert [name for name, view in views.items() if not view.used_for_training] == ["new_obs", "state_out_0"]
    assert {"advantages", "value_targets", "action_dist_inputs", "action_logp", "vf_preds"} < views.keys()


@pytest.mark.parametrize("shared", [False, True])
def test_copies_of_ppos_setup_leave_shared_layers_as_the_config_says(shared):
    def setup(policy, obs_space, action_space, config):
        config["model"]["vf_share_layers"] = config["vf_share_layers"]

    policy = build_policy_class(
        "Copy",
        "torch",
        loss_fn=lambda policy, model, dist_class, train_batch: model(train_batch)[0].mean(),
        get_default_config=lambda: DEFAULT_CONFIG,
        before_init=setup,
    )
    config = {"framework": "torch", "num_workers": 0, "model": {"fcnet_hiddens": [8], "vf_share_layers": shared}}
    trainer = PPOTrainer.with_updates(name="Copy", default_policy=policy)(config, env="CartPole-v1")
    made = trainer.get_policy()
    assert made.model.vf_share_layers is shared
    assert made.config["model"]["vf_share_layers"] is shared
    trainer.stop()
