"""What policies give code of a user's own: one trajectory with its episode, all columns, the originals of others."""

import copy
import importlib
import logging
import operator
import pickle
from types import SimpleNamespace
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.dqn.dqn import DQNConfig
from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from rlframe.agents.ppo.ppo import PPOConfig, PPOTrainer
from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy, ppo_surrogate_loss
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.evaluation.sampling.multi_agent_postprocessing import MultiAgentPostprocessing
from rlframe.evaluation.sampling.single_agent import Hooks
from rlframe.models.modelv2 import ModelV2
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.policy.loss_phases import with_custom_loss
from rlframe.policy.policy import Policy, PolicySpec
from rlframe.policy.torch_policy import LearningRateSchedule, TorchPolicy
from rlframe.policy.users_code import Losses
from rlframe.tensor import ops
from rlframe.trainer.describing import epsilons_of
from tests.contract.test_policies import ACTIONS, OBS_SPACE, make, make_batch, same
from tests.helpers.envs import Counting
from tests.helpers.frameworks import FRAMEWORKS
from tests.helpers.workers import make_worker

#: Columns that RLlib gave every loss and every postprocessing function.
ALL = {"obs", "new_obs", "actions", "rewards", "dones", "infos", "eps_id", "unroll_id", "agent_index", "t"}


def ppo_worker(policy_class, **overrides):
    config = PPOConfig.defaults()
    config["model"].update(fcnet_hiddens=[8])
    config |= {"seed": 3, "rollout_fragment_length": 20, "num_envs_per_worker": 2, **overrides}
    worker = RolloutWorker(env_creator=Counting, policy_config=config)
    worker.add_policies(PolicySpec(policy_class=policy_class))
    return worker


class Looking:
    """A mixin, as postprocessing of a user's own often is."""

    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        self.__dict__.setdefault("seen", []).append((sample_batch, episode, self.loss_initialized()))
        sample_batch["twice"] = 2 * sample_batch["rewards"]
        return super().postprocess_trajectory(sample_batch, other_agent_batches, episode)


class LookingPPO(Looking, PPOTorchPolicy):
    def loss(self, model, dist_class, train_batch):
        self.columns = set(train_batch)
        return super().loss(model, dist_class, train_batch) + 0.0 * train_batch["twice"].mean()


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_postprocessing_of_a_subclass_gets_one_trajectory_its_episode_and_all_columns(mode):
    worker = ppo_worker(LookingPPO, batch_mode=mode)
    worker.sample()
    first, *real = worker.get_policy().seen
    assert not first[2]
    assert all(initialized for _, _, initialized in real)
    assert len(real) >= 4
    for trajectory, episode, _ in real:
        assert trajectory.keys() >= ALL
        assert len(set(trajectory["eps_id"].tolist())) == 1
        assert episode is not None
        assert not trajectory["dones"][:-1].any()


def test_loss_of_a_subclass_sees_what_its_postprocessing_wrote():
    worker = ppo_worker(LookingPPO)
    policy = worker.get_policy()
    policy.learn_on_batch(worker.sample())
    of_acting = {"vf_preds", "action_dist_inputs", "action_logp", "action_prob"}
    assert policy.columns >= ALL | {"twice", "advantages"} | of_acting


def test_stats_function_alone_sees_all_columns():
    seen = {}
    made = PPOTorchPolicy.with_updates(
        stats_fn=lambda policy, batch: {"infos": seen.setdefault("infos", batch["infos"])}
    )
    worker = ppo_worker(made)
    worker.learn_on_batch(worker.sample())
    assert len(seen["infos"]) == 40


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_stats_function_finds_what_a_built_in_loss_computed_where_rllib_left_it(framework):
    def stats(policy, batch):
        left = policy.model.tower_stats["mean_policy_loss"]
        return {"kl": policy._mean_kl, "policy_loss": left, "all": policy._total_loss}

    module = importlib.import_module(f"rlframe.agents.ppo.ppo_{framework}_policy")
    built_in = getattr(module, "PPOTorchPolicy" if framework == "torch" else "PPOTFPolicy")
    own = built_in.with_updates(stats_fn=stats)
    results = []
    for made in (built_in, own):
        worker = ppo_worker(made, framework=framework)
        results.append(worker.learn_on_batch(worker.sample())["default_policy"]["learner_stats"])
    for mine, its in (("kl", "kl"), ("policy_loss", "policy_loss"), ("all", "total_loss")):
        assert results[1][mine] == pytest.approx(results[0][its], abs=1e-6)


def test_custom_loss_of_a_model_sees_all_columns():
    class Imitating(FullyConnectedNetwork):
        def custom_loss(self, policy_loss, loss_inputs):
            self.columns = set(loss_inputs)
            return policy_loss

    config = PPOConfig.defaults()
    worker = ppo_worker(PPOTorchPolicy, model={**config["model"], "custom_model": Imitating})
    worker.learn_on_batch(worker.sample())
    assert worker.get_policy().model.columns >= ALL


@pytest.mark.parametrize(
    "change",
    [
        lambda losses: [loss + 3.0 for loss in losses],
        lambda losses: [losses[0] + 3.0],
        lambda losses: losses + torch.tensor(3.0),
        lambda losses: 3.0 + 1.0 * losses,
        lambda losses: losses.mean() - -3.0,
        lambda losses: operator.iadd(losses, torch.tensor(3.0)),
        lambda losses: operator.imul(losses, 2.5),
    ],
)
def test_custom_loss_gets_a_list_that_one_loss_alone_does_arithmetic_for(change):
    model = SimpleNamespace(custom_loss=lambda losses, batch: change(losses))
    assert [float(loss) for loss in with_custom_loss(model, torch.tensor(2.0), {})] == [5.0]


def test_models_without_a_custom_loss_leave_losses_as_they_are():
    model, loss = ModelV2.__new__(ModelV2), torch.tensor(2.0)
    for given in (loss, [loss], (loss,)):
        made = with_custom_loss(model, given, {})
        assert type(made) is list
        assert made[0] is loss


def test_arithmetic_on_several_losses_at_once_is_refused():
    losses = Losses([torch.tensor(1.0), torch.tensor(2.0)])
    third = [torch.tensor(3.0)]
    assert [float(loss) for loss in losses + third] == [1.0, 2.0, 3.0]
    with pytest.raises(TypeError, match="on 2 losses at once; wanted policy_loss"):
        losses * 2.0


def test_columns_that_a_class_declares_for_its_own_loss_hold():
    class Knowing(PPOTorchPolicy):
        learn_columns = ("obs", "rewards")

        def loss(self, model, dist_class, train_batch):
            return model.value_function().mean()

    class Further(Knowing):
        pass

    assert Further.learn_columns == ("obs", "rewards")
    assert Further.train_columns is None
    assert PPOTorchPolicy.with_updates(optimizer_fn=None).learn_columns == PPOTorchPolicy.learn_columns


def test_callbacks_that_are_given_rows_find_all_columns():
    from rlframe.evaluation.callbacks import DefaultCallbacks

    seen = []

    class Callbacks(DefaultCallbacks):
        def on_sample_end(self, *, worker, samples, **kwargs):
            seen.append(set(samples))

    ppo_worker(PPOTorchPolicy, callbacks=Callbacks).sample()
    assert seen[0] >= ALL


def test_postprocessing_without_a_batch_says_whose_it_is():
    class Forgetful(DQNTorchPolicy):
        def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
            if self.loss_initialized():
                return None
            return sample_batch

    with pytest.raises(TypeError, match=r"Forgetful.postprocess_trajectory returned NoneType, wanted the SampleBatch"):
        make_worker(Counting, Forgetful).sample()


# --- the first run ----------------------------------------------------------------------------------------------


def central_critic(base, surrogate):
    """A policy as in RLlib's example of a central critic: its loss installs what its postprocessing then calls."""

    def postprocess(policy, batch, other_agent_batches=None, episode=None):
        if policy.loss_initialized():
            batch["others"] = policy.compute_others(batch["obs"])
        else:
            batch["others"] = np.zeros_like(batch["rewards"])
        return compute_gae_for_sample_batch(policy, batch, other_agent_batches, episode)

    def loss(policy, model, dist_class, train_batch):
        policy.compute_others = lambda obs: np.ones(len(obs), np.float32)
        policy.loss_calls = getattr(policy, "loss_calls", 0) + 1
        assert train_batch["others"].shape == train_batch["rewards"].shape
        return surrogate(policy, model, dist_class, train_batch)

    return base.with_updates(name="Central", loss_fn=loss, postprocess_fn=postprocess)


def parts(framework):
    if framework == "torch":
        return PPOTorchPolicy, ppo_surrogate_loss
    from rlframe.agents.ppo import ppo_tf_policy

    return ppo_tf_policy.PPOTFPolicy, ppo_tf_policy.ppo_surrogate_loss


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_first_sample_is_postprocessed_with_what_the_loss_left(framework):
    base, surrogate = parts(framework)
    worker = ppo_worker(central_critic(base, surrogate), framework=framework)
    assert worker.get_policy().loss_calls == 1
    batch = worker.sample()
    assert batch["others"].min() == 1.0
    worker.learn_on_batch(batch)


def test_first_run_of_a_subclass_comes_before_what_it_sets_behind_its_parents_constructor():
    class Critic(PPOTorchPolicy):
        def __init__(self, *args):
            super().__init__(*args)
            self.compute_others = lambda obs: np.ones(len(obs), np.float32)

        def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
            if hasattr(self, "compute_others"):  # as in RLlib's example of a central critic
                assert other_agent_batches is not None
            return super().postprocess_trajectory(sample_batch, other_agent_batches, episode)

    class Later(PPOTorchPolicy):
        calls: ClassVar = []

        def __init__(self, *args):
            super().__init__(*args)
            self.scale = 2.0

        def loss(self, model, dist_class, train_batch):
            self.calls.append(vars(self).setdefault("left", len(self.calls)))
            return self.scale * super().loss(model, dist_class, train_batch)

    class Wrong(Later):
        def loss(self, model, dist_class, train_batch):
            return self.never_set

    ppo_worker(Critic).sample()
    ppo_worker(Later)
    assert Later.calls == [0, 1]  # again, when the attribute is there, and what was left is not
    with pytest.raises(AttributeError, match="never_set"):
        ppo_worker(Wrong)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_first_run_leaves_streams_counters_and_weights_alone(framework):
    base, surrogate = parts(framework)
    plain, own = ppo_worker(base, framework=framework), ppo_worker(central_critic(base, surrogate), framework=framework)
    one, other = plain.sample(), own.sample()
    assert plain.get_policy().global_timestep == own.get_policy().global_timestep
    for name in ("obs", "actions", "action_dist_inputs", "advantages"):
        np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("memory", ["use_lstm", "use_attention"])
def test_first_run_of_a_policy_with_memory_is_of_sequences(memory):
    shapes = []

    def loss(policy, model, dist_class, train_batch):
        shapes.append((len(train_batch["seq_lens"]), len(train_batch["obs"]) // len(train_batch["seq_lens"])))
        return ppo_surrogate_loss(policy, model, dist_class, train_batch)

    model = {**PPOConfig.defaults()["model"], memory: True, "max_seq_len": 8}
    model |= {"fcnet_hiddens": [8], "lstm_cell_size": 8, "attention_dim": 8, "attention_head_dim": 4}
    worker = ppo_worker(PPOTorchPolicy.with_updates(loss_fn=loss), model=model)
    worker.learn_on_batch(worker.sample())
    assert shapes[0] == (4, 8)


def test_classes_straight_below_torch_policy_say_when_the_first_run_is():
    calls = []

    class Own(TorchPolicy):
        def __init__(self, obs_space, action_space, config):
            super().__init__(obs_space, action_space, config)
            self.scale = 2.0
            if config.get("own_first_run"):
                self._initialize_loss_from_dummy_batch()

        def loss(self, model, dist_class, train_batch):
            calls.append(len(train_batch["obs"]))
            return self.scale * model(train_batch)[0].mean()

    ppo_worker(Own)
    assert calls == []
    ppo_worker(Own, own_first_run=True)
    assert calls == [32]


def test_error_in_the_first_run_says_what_it_was():
    def loss(policy, model, dist_class, train_batch):
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing") as caught:
        ppo_worker(PPOTorchPolicy.with_updates(loss_fn=loss))
    assert "first run" in "".join(getattr(caught.value, "__notes__", ["first run"]))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("read", "fault"),
    [
        (lambda batch, others, episode: [{**info} for info in batch["infos"]], "TypeError"),
        (lambda batch, others, episode: batch["infos"][0].get("step"), "AttributeError"),
        (lambda batch, others, episode: episode.user_data.get("a"), "AttributeError"),
        (lambda batch, others, episode: operator.truth(batch["dones"][-1]) or batch.nothing_of_the_kind(), None),
    ],
)
def test_postprocessing_that_takes_real_rows_only_is_not_tried_with_zeros(read, fault, framework, caplog):
    base, surrogate = parts(framework)
    seen = []

    def postprocess(policy, batch, other_agent_batches=None, episode=None):
        seen.append(read(batch, other_agent_batches, episode))
        return compute_gae_for_sample_batch(policy, batch, other_agent_batches, episode)

    own = base.with_updates(name="Real", loss_fn=surrogate, postprocess_fn=postprocess)
    logging.getLogger("rlframe").propagate = True
    if fault is None:  # an attribute that a batch never has is a mistake
        with pytest.raises(AttributeError, match="nothing_of_the_kind"):
            ppo_worker(own, framework=framework)
        return
    with caplog.at_level(logging.WARNING):
        worker = ppo_worker(own, framework=framework)
    assert f"Real postprocesses no rows of zeros ({fault}: " in caplog.text
    assert seen == []
    worker.learn_on_batch(worker.sample())
    assert seen


# --- Q-learning ---------------------------------------------------------------------------------------------------


def test_stats_are_made_without_gradients():
    def stats(policy, batch):
        return {"mean_value": policy.model.value_function().clone().numpy().mean()}  # refused of what has a gradient

    worker = ppo_worker(PPOTorchPolicy.with_updates(loss_fn=ppo_surrogate_loss, stats_fn=stats))
    learned = worker.learn_on_batch(worker.sample())
    assert np.isfinite(learned["learner_stats"]["mean_value"])


def test_workers_call_compute_actions_of_a_learning_policy_where_its_class_says_so(caplog):
    class Marked(PPOTorchPolicy):
        def compute_actions(self, obs_batch, *args, **kwargs):
            actions, states, extras = super().compute_actions(obs_batch, *args, **kwargs)
            return actions, states, {**extras, "marked": np.ones(len(actions))}

    class Called(Marked):
        samples_by_compute_actions = True

    logging.getLogger("rlframe").propagate = True
    with caplog.at_level(logging.WARNING):
        assert "marked" not in ppo_worker(Marked).sample()
    assert "Marked.compute_actions is called where a program calls it, and not by workers" in caplog.text
    assert "samples_by_compute_actions = True in the class" in caplog.text
    worker = ppo_worker(Called)
    batch = worker.sample()
    assert batch["marked"].all()
    worker.learn_on_batch(batch)


def test_q_learning_has_rllibs_older_names_which_optimizers_read():
    def optimizer(policy, config):
        return torch.optim.SGD(policy.q_func_vars, lr=policy.cur_lr)

    own = DQNTorchPolicy.with_updates(name="Plain", optimizer_fn=optimizer)
    policy = own(OBS_SPACE, ACTIONS, DQNConfig.defaults() | {"lr_schedule": [[0, 0.25], [10, 0.0]]})
    assert [type(each).__name__ for each in policy.optimizer()] == ["SGD"]  # a list, as RLlib's templates gave it
    assert policy.optimizer()[0].param_groups[0]["lr"] == 0.25
    assert policy.q_model is policy.model
    assert policy.target_q_model is policy.target_model
    assert [variable.shape for variable in policy.target_q_func_vars] == [each.shape for each in policy.q_func_vars]
    policy.q_model = "a program's own"
    assert policy.q_model == "a program's own"
    assert not hasattr(PPOTorchPolicy(OBS_SPACE, ACTIONS, PPOConfig.defaults()), "q_model")


def test_q_learning_takes_batches_of_rllibs_columns():
    worker = make_worker(Counting)
    policy, batch = worker.get_policy(), worker.sample()
    given = {name: batch[name] for name in ("obs", "actions", "rewards", "new_obs", "dones")}
    learned = policy.learn_on_batch(SampleBatch(given))
    same = make_worker(Counting).get_policy()
    expected = same.learn_on_batch(SampleBatch({**given, "discounts": np.float32(0.99) * ~batch["dones"],
                                                "weights": np.ones(len(batch), np.float32)}))  # fmt: skip
    np.testing.assert_array_equal(learned["td_error"], expected["td_error"])


def test_q_learning_with_postprocessing_of_a_users_own_discounts_by_its_dones():
    class Ending(DQNTorchPolicy):
        """Ends trajectories where RLlib's columns say so."""

        def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
            sample_batch["dones"] = np.arange(len(sample_batch)) % 2 == 0
            return sample_batch

    batch = make_worker(Counting, Ending).sample()
    np.testing.assert_array_equal(batch["discounts"], np.float32(0.99) * ~batch["dones"])
    assert batch["dones"].any()


# --- several agents -------------------------------------------------------------------------------------------------


class Noting(Policy):
    """Notes what it is given, and spoils it in place."""

    notes: list
    exploration = SimpleNamespace(has_postprocessing=False)
    view_requirements: ClassVar = {}

    def __init__(self, notes):
        self.notes = notes

    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        others = {agent: batch["rewards"].tolist() for agent, (_, batch) in other_agent_batches.items()}
        self.notes.append((sample_batch["rewards"].tolist(), others, episode))
        sample_batch["rewards"][:] = -1.0
        return sample_batch


def test_agents_are_postprocessed_in_order_and_see_the_originals_of_the_others():
    notes = []
    policies = {f"policy {letter}": Noting(notes) for letter in "dacb"}
    built_in = Policy.__new__(Policy)
    built_in.exploration, built_in.view_requirements = Noting.exploration, {}
    policies["built in"] = built_in
    batches = {
        pid: SampleBatch(
            {"rewards": np.array([agent, 10.0 + agent]), "eps_id": np.array([7, 8]), "agent_index": np.full(2, agent)}
        )
        for agent, pid in enumerate(policies)
    }
    names = {(episode, agent): f"agent {agent}" for episode in (7, 8) for agent in range(5)}
    made = MultiAgentPostprocessing(policies, Hooks())(batches, names, {7: "seven", 8: "eight"})
    assert [(rewards[0], episode) for rewards, _, episode in notes] == [
        (agent + ten, episode) for ten, episode in ((0.0, "seven"), (10.0, "eight")) for agent in range(4)
    ]
    for rewards, others, _ in notes:
        ten = 10.0 if rewards[0] >= 10.0 else 0.0
        assert others == {f"agent {a}": [ten + a] for a in range(5) if ten + a != rewards[0]}
    assert all(made[pid]["rewards"].tolist() == [-1.0, -1.0] for pid in list(policies)[:4])


# --- states and keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_in_evaluation_is_a_value_of_a_trainers_config(framework):
    base, _ = parts(framework)
    worker = ppo_worker(base, framework=framework, in_evaluation=True)
    before = worker.get_policy().get_weights()
    worker.learn_on_batch(worker.sample())
    assert any((before[name] != array).any() for name, array in worker.get_policy().get_weights().items())


def test_states_that_forward_changes_in_place_stay_the_callers():
    import torch

    from rlframe.models.torch.torch_modelv2 import TorchModelV2

    class Own(TorchModelV2, torch.nn.Module):
        def __init__(self, *args, **kwargs):
            TorchModelV2.__init__(self, *args, **kwargs)
            torch.nn.Module.__init__(self)
            self.layer = torch.nn.Linear(2, self.num_outputs)

        def get_initial_state(self):
            return [np.zeros(4, np.float32)]

        def forward(self, input_dict, state, seq_lens):
            state[0] = state[0].unsqueeze(0)
            self.out = self.layer(input_dict["obs_flat"])
            return self.out, [state[0].squeeze(0)]

        def value_function(self):
            return self.out[:, 0]

    model = {**PPOConfig.defaults()["model"], "custom_model": Own, "max_seq_len": 4}
    worker = ppo_worker(PPOTorchPolicy, model=model)
    worker.learn_on_batch(worker.sample())


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_attributes_and_methods_of_a_users_class_meet_none_of_ours(framework):
    base, _ = parts(framework)

    class Own(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.rng = np.random.RandomState(0)
            self.exploration_rng = self.seed = self.actor = self.critic = self.memory = self.kept = self.flat = None
            self.noisy = self.preprocessor = self.obs_filter = self.learn_hook = "mine"
            self.loss = self.values = self.gradients = self.distribution = 0.5

        def act(self, observation):
            raise AssertionError

        def observe(self, everything, at, once):
            raise AssertionError

    worker = ppo_worker(Own, framework=framework, observation_filter="MeanStdFilter")
    policy = worker.get_policy()
    worker.learn_on_batch(worker.sample())
    policy.compute_single_action(np.zeros(2, np.float32))
    policy.set_state(policy.get_state())
    worker.set_state(worker.get_state())
    assert (policy.rng.randint(1), policy.seed, policy.noisy, policy.values) == (0, None, "mine", 0.5)


@pytest.mark.parametrize("name", ["PPO", "DQN", "PG"])
def test_a_policy_made_by_hand_has_its_algorithms_defaults_for_keys_that_it_was_not_given(name):
    cls = {
        "PPO": "rlframe.agents.ppo.ppo_torch_policy:PPOTorchPolicy",
        "DQN": "rlframe.agents.dqn.dqn_torch_policy:DQNTorchPolicy",
        "PG": "rlframe.agents.pg.pg_torch_policy:PGTorchPolicy",
    }[name]
    module, _, attribute = cls.partition(":")
    made = getattr(importlib.import_module(module), attribute)
    spaces = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
    given = {"lr": 0.125, "model": {"fcnet_hiddens": [7]}}
    policy = made(*spaces, given)
    assert (policy.config["lr"], policy.config["gamma"]) == (0.125, 0.99)
    assert policy.config["model"]["fcnet_hiddens"] == [7]
    assert policy.config["model"]["fcnet_activation"] == "tanh"
    assert given == {"lr": 0.125, "model": {"fcnet_hiddens": [7]}}
    assert policy.compute_actions(np.zeros((2, 3), np.float32))[0].shape == (2,)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_loss_over_ops_gets_native_tensors_and_serves_both_frameworks(framework):
    seen = set()

    def reinforce(policy, model, dist_class, train_batch):
        seen.add(type(train_batch["advantages"]).__module__.partition(".")[0])
        logp = dist_class(model(train_batch)[0], model).logp(train_batch["actions"])
        return -ops.mean(logp * train_batch["advantages"])

    plain = make(framework, "PG", {})
    mine = type(plain).with_updates(name="Mine", loss_fn=reinforce)(OBS_SPACE, ACTIONS, plain.config)
    mine.set_weights(plain.get_weights())
    for policy in (plain, mine):
        policy.learn_on_batch(make_batch())
    same(mine.get_weights(), plain.get_weights(), rtol=0, atol=1e-6)
    assert seen == {{"torch": "torch", "tf": "tensorflow"}[framework]}


def test_what_hooks_write_into_a_config_is_what_the_policy_reads():
    def before_init(policy, obs_space, action_space, config):
        config["clip_param"], policy.config["mine"] = 0.5, 1

    given = {"model": {"fcnet_hiddens": [4]}, "clip_param": 0.1}
    cls = PPOTorchPolicy.with_updates(name="Writes", before_init=before_init)
    policy = cls(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2), given)
    config = policy.config
    assert (config["clip_param"], config.clip_param, config["mine"], config.vf_loss_coeff) == (0.5, 0.5, 1, 1.0)
    assert given == {"model": {"fcnet_hiddens": [4]}, "clip_param": 0.1}
    config["model"]["max_seq_len"] = 7
    assert (config.model.max_seq_len, config["model"]["max_seq_len"], config.model.fcnet_hiddens) == (7, 7, [4])
    policy.config = {**config, "clip_param": 0.2}
    assert policy.config.clip_param == 0.2


def test_a_first_run_that_is_done_again_finds_what_the_first_has_found():
    def loss(policy, model, dist_class, train_batch):
        policy.compute_central_vf = model.value_function  # RLlib's example tells its first run by this
        return ppo_surrogate_loss(policy, model, dist_class, train_batch) + 0.0 * train_batch["prev_rewards"].mean()

    def postprocess(policy, sample_batch, other_agent_batches=None, episode=None):
        assert not hasattr(policy, "compute_central_vf") or other_agent_batches is not None
        return compute_gae_for_sample_batch(policy, sample_batch, other_agent_batches, episode)

    worker = ppo_worker(PPOTorchPolicy.with_updates(loss_fn=loss, postprocess_fn=postprocess))
    worker.learn_on_batch(worker.sample())


def test_tensors_that_a_postprocessing_leaves_in_a_batch_are_arrays_for_plans_and_buffers():
    def postprocess(policy, sample_batch, other_agent_batches=None, episode=None):
        sample_batch["logp_again"] = policy.compute_log_likelihoods(sample_batch["actions"], sample_batch["obs"])
        assert isinstance(sample_batch["logp_again"], torch.Tensor)
        return compute_gae_for_sample_batch(policy, sample_batch, other_agent_batches, episode)

    worker = ppo_worker(
        PPOTorchPolicy.with_updates(loss_fn=ppo_surrogate_loss, postprocess_fn=postprocess),
        num_envs_per_worker=1,
        rollout_fragment_length=3,  # rows of one trajectory: several are joined to arrays anyway
    )
    worker.foreach_policy(lambda policy, _: policy.collect_all_columns())
    batch = worker.sample()
    assert isinstance(batch["logp_again"], np.ndarray)  # of a tensor np.mean() is an error
    np.testing.assert_allclose(batch["logp_again"], batch["action_logp"], rtol=1e-4)
    worker.learn_on_batch(batch)


def test_values_that_users_code_alone_reads_have_any_shape():
    class Wide(FullyConnectedNetwork):
        def value_function(self):
            return super().value_function().unsqueeze(1).repeat(1, 3)

    def postprocess(policy, sample_batch, other_agent_batches=None, episode=None):
        assert sample_batch["vf_preds"].shape[1:] == (3,)
        return sample_batch

    hooks = {
        "loss_fn": lambda policy, model, dist_class, batch: model(batch)[0].mean() + model.value_function().mean(),
        "postprocess_fn": postprocess,
        "stats_fn": lambda policy, batch: {},
    }
    values = {"extra_action_out_fn": lambda policy, inputs, states, model, dist: {"vf_preds": model.value_function()}}
    model = {**PPOConfig.defaults()["model"], "custom_model": Wide, "fcnet_hiddens": [8]}
    worker = ppo_worker(PPOTorchPolicy.with_updates(**hooks, **values), model=model)
    worker.learn_on_batch(worker.sample())
    plain = ppo_worker(PPOTorchPolicy.with_updates(**hooks), model=model)  # RLlib's own columns: one value per agent
    plain.learn_on_batch(plain.sample())
    without = {name: hook for name, hook in hooks.items() if name != "postprocess_fn"}
    with pytest.raises(ValueError, match="must return one value per row"):  # the built-in policy reads them
        ppo_worker(PPOTorchPolicy.with_updates(**without), model=model)

    class Column(FullyConnectedNetwork):
        def value_function(self):
            return super().value_function().unsqueeze(1)

    with pytest.raises(ValueError, match=r"shape \[2\] here; got \[2, 1\]"):  # which would be broadcast to [B, B]
        ppo_worker(PPOTorchPolicy.with_updates(**hooks), model={**model, "custom_model": Column})


def test_values_that_users_code_does_not_give_are_no_column():
    class Central(FullyConnectedNetwork):
        def value_function(self):
            return torch.zeros(1)  # central_value_function() of others' observations, too, takes its place

    def postprocess(policy, sample_batch, other_agent_batches=None, episode=None):
        assert "vf_preds" not in sample_batch
        return sample_batch

    hooks = {
        "loss_fn": lambda policy, model, dist_class, batch: model(batch)[0].mean(),
        "postprocess_fn": postprocess,
        "stats_fn": lambda policy, batch: {},
        "extra_action_out_fn": lambda policy, inputs, states, model, dist: {},
    }
    model = {**PPOConfig.defaults()["model"], "custom_model": Central, "fcnet_hiddens": [8]}
    worker = ppo_worker(PPOTorchPolicy.with_updates(**hooks), model=model)
    worker.learn_on_batch(worker.sample())

    class Derived(PPOTorchPolicy):
        def loss(self, model, dist_class, train_batch):
            return model(train_batch)[0].mean()

        def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
            assert sample_batch["vf_preds"].shape == sample_batch["more"].shape == (sample_batch.count,)
            return sample_batch

        def extra_action_out(self, *given):
            values = super().extra_action_out(*given)
            return {**values, "more": values["vf_preds"]}

    ppo_worker(Derived, model={**model, "custom_model": None}).sample()


def test_statistics_of_a_built_in_loss_are_found_under_rllibs_names():
    def loss(policy, model, dist_class, train_batch):
        total = ppo_surrogate_loss(policy, model, dist_class, train_batch)
        assert model.tower_stats["mean_kl_loss"] is policy._mean_kl
        return total - 0.1 * policy._mean_entropy  # with its gradient

    def stats(policy, batch):
        (entropy,) = policy.get_tower_stats("mean_entropy")
        return {"entropy": entropy, "kl": policy.get_tower_stats("mean_kl_loss")[0]}

    def stats_of_attributes(policy, batch):
        return {"kl": policy._mean_kl, "entropy": policy._mean_entropy, "total": policy._total_loss}

    for hooks in ({"stats_fn": stats}, {"loss_fn": loss, "stats_fn": stats_of_attributes}):
        worker = ppo_worker(PPOTorchPolicy.with_updates(**hooks))
        learned = worker.learn_on_batch(worker.sample())["learner_stats"]
        assert 0 < learned["entropy"] < 1
        assert learned["kl"] < 1e-3


def test_memory_of_attention_is_kept_by_the_program_or_handed_back():
    model = {"use_attention": True, "attention_num_transformer_units": 2, "attention_dim": 6, "attention_num_heads": 1,
             "attention_head_dim": 3, "attention_memory_inference": 4, "attention_memory_training": 4,
             "attention_position_wise_mlp_dim": 6, "attention_use_n_prev_actions": 2, "fcnet_hiddens": [8],
             "max_seq_len": 4}  # fmt: skip
    policy = PPOTrainer({"num_workers": 0, "model": model, "framework": "torch"}, env="CartPole-v1").get_policy()
    windows, handed_back = policy.get_initial_state(), policy.get_initial_state()
    actions = np.zeros(2, np.int64)
    for step in range(6):
        obs = np.full(4, step / 10, np.float32)
        given = {"prev_action": actions, "explore": False}
        action, rows, extra = policy.compute_single_action(obs, windows, **given)
        _, handed_back, same = policy.compute_single_action(obs, handed_back, **given)
        assert [row.shape for row in rows] == [(6,), (6,)]
        assert extra["vf_preds"] == pytest.approx(same["vf_preds"])
        windows = [np.concatenate([window, [row]])[1:] for window, row in zip(windows, rows, strict=True)]
        actions = np.concatenate([actions, [action]])[1:]
    assert all(np.array_equal(window, row.window) for window, row in zip(windows, handed_back, strict=True))
    for copied in (copy.deepcopy, lambda rows: pickle.loads(pickle.dumps(rows)), lambda rows: [r.copy() for r in rows]):
        again = copied(handed_back)
        again[0][0] *= 2  # a copy of its own; halving brings back every bit
        again[0][0] /= 2
        _, _, there = policy.compute_single_action(obs, again, **given)
        _, _, here = policy.compute_single_action(obs, handed_back, **given)
        assert there["vf_preds"] == here["vf_preds"]
    for computed in (handed_back[0] + 1, handed_back[0][:2], copy.copy(handed_back[0][:2]), np.array(handed_back[0])):
        assert not hasattr(copy.deepcopy(computed), "window")
    with pytest.raises(ValueError, match=r"prev_reward=; the latest 2 for prev_n_actions\), leave out"):
        policy.compute_single_action(obs, handed_back, prev_action=0)
    with pytest.raises(ValueError, match="got recurrent states of shapes"):
        policy.compute_single_action(obs, [row * 1 for row in handed_back], **given)


def test_policy_acts_by_an_exploration_and_a_space_of_its_own():
    told = []

    class Nine:  # derives from nothing: RLlib's samplers called its methods alone
        def on_episode_start(self, policy, *, environment=None, episode=None, tf_sess=None):
            told.append("start")

        epsilon_schedule, last_timestep = "of its own", None

        def get_state(self):
            return {}

    class Grouped(LearningRateSchedule, Policy):
        def __init__(self, observation_space, action_space, config):
            self.framework = "torch"  # copies of RLlib's QMIX say so
            space = gym.spaces.Box(observation_space.low, observation_space.high)
            space.original_space = gym.spaces.Tuple([observation_space.original_space])
            Policy.__init__(self, space, action_space, config)
            LearningRateSchedule.__init__(self, 0.5, [[0, 0.5], [4, 0.1]])
            self._optimizers = [torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)]
            self.exploration = Nine()
            self._update_model_view_requirements_from_init_state()

        def get_initial_state(self):
            return [np.zeros(3, np.float32)]

        def compute_actions(self, obs_batch, state_batches=None, *args, **kwargs):
            return np.zeros(len(obs_batch), np.int64), state_batches, {}

        def learn_on_batch(self, samples):
            return {}

    class Dicts(gym.Env):
        observation_space = gym.spaces.Dict({"a": gym.spaces.Box(-1.0, 1.0, (2,))})
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return {"a": np.zeros(2, np.float32)}, {}

        def step(self, action):
            return {"a": np.ones(2, np.float32)}, 1.0, False, False, {}

    def two(config):
        return make_multi_agent(lambda config: Dicts())({"num_agents": 2})

    worker = RolloutWorker(
        env_creator=two, policy_spec={"mine": PolicySpec(Grouped)}, policy_mapping_fn=lambda agent_id, *_, **__: "mine",
        rollout_fragment_length=4,
    )  # fmt: skip
    batch = worker.sample().policy_batches["mine"]
    assert batch["obs"].shape[1:] == (2,)
    assert "prev_actions" in batch
    worker.set_global_vars({"timestep": 2})
    assert worker.policy_map["mine"]._optimizers[0].param_groups[0]["lr"] == pytest.approx(0.3)
    assert told == ["start"]
    assert epsilons_of(SimpleNamespace(local_worker=lambda: worker)) == {}
    views = worker.policy_map["mine"].view_requirements
    assert views["state_in_0"].data_col == "state_out_0"
    assert views["state_out_0"].space.shape == (3,)


def test_actions_are_asked_for_with_the_arguments_of_rllib_08_to_12():
    policy = PPOTorchPolicy(OBS_SPACE, gym.spaces.Discrete(2), {"framework": "torch", "model": {"fcnet_hiddens": [4]}})
    obs = np.zeros(OBS_SPACE.shape, np.float32)
    by_place = policy.compute_single_action(obs, [], None, None, None, None, True, False, 3)
    by_name = policy.compute_single_action(obs, explore=False, clip_action=True, timestep=3)
    assert by_place[0] == by_name[0] == policy.compute_single_action(obs, explore=False)[0]
    assert by_place[2]["vf_preds"] == by_name[2]["vf_preds"]


def test_callbacks_find_the_trainers_directory_behind_their_worker(tmp_path):
    worker = RolloutWorker(env_creator=Counting, policy=PPOTorchPolicy, log_dir=str(tmp_path))
    assert (worker.io_context.log_dir, worker.io_context.worker_index) == (str(tmp_path), 0)
    worker.stop()
