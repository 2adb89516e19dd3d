"""Parts that RLlib's algorithms were made of: their numbers, by hand, and trainers of older releases."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.trainer_template import build_trainer
from tests.helpers.frameworks import FRAMEWORKS

PPO = {
    "num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 40, "sgd_minibatch_size": 20,
    "num_sgd_iter": 1, "min_iter_time_s": 0, "seed": 3, "log_sys_usage": False, "model": {"fcnet_hiddens": [4]},
}  # fmt: skip


def tensor(framework, values, dtype=np.float32):
    array = np.asarray(values, dtype)
    if framework == "torch":
        return importlib.import_module("torch").from_numpy(array)
    return importlib.import_module("tensorflow").constant(array)


def part(path, name, framework):
    return getattr(importlib.import_module(f"rlframe.agents.{path}".format(framework)), name)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_q_loss_of_selected_values(framework):
    q_loss = part("dqn.dqn_{}_policy", "QLoss", framework)
    one = lambda *values: tensor(framework, values)  # noqa: E731 - short
    loss = q_loss(one(1.0, 2.0), None, one(3.0, 9.0), None, one(1.0, 0.5), one(1.0, 0.0), one(0.0, 1.0), 0.5, 2)
    np.testing.assert_allclose(np.asarray(loss.td_error), [1.0 - (1.0 + 0.25 * 3.0), 2.0])
    assert float(loss.loss) == pytest.approx((0.5 * 0.75**2 + 0.5 * 1.5) / 2)
    assert float(loss.stats["mean_q"]) == 1.5
    # Two atoms at 0 and 1: all of the target's mass comes to lie on the second.
    logits, probs = tensor(framework, [[0.0, 0.0]]), tensor(framework, [[0.5, 0.5]])
    loss = q_loss(one(0.0), logits, one(0.0), probs, one(2.0), one(1.0), one(1.0), 0.9, 1, 2, 0.0, 1.0)
    assert float(loss.loss) == pytest.approx(2.0 * np.log(2.0))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_v_trace_takes_arrays(framework):
    path = "impala.vtrace_{}"
    rewards, values = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])
    # γ = 1/2, ratios 2 and 1/2: δ = 1 + ½·4 − 2 = 1 and ½·(2 + ½·6 − 4) = ½, whose trace ½·1 makes 2 + 1 + ½·½ = 3¼.
    columns = (np.full((2, 1), 0.5), rewards, values, np.array([6.0]))
    made = part(path, "from_importance_weights", framework)(np.log([[2.0], [0.5]]), *columns)
    np.testing.assert_allclose(np.asarray(made.vs), [[3.25], [4.5]], rtol=1e-6)
    # π = softmax(log 2, log 1), μ = (1/3, 2/3): the ratio of the first action is 2, of the second ½.
    ours, theirs = np.tile(np.log([2.0, 1.0]), (2, 1, 1)), np.tile(np.log([1.0, 2.0]), (2, 1, 1))
    actions = np.array([[0], [1]])
    logp = part(path, "log_probs_from_logits_and_actions", framework)(ours, actions)
    np.testing.assert_allclose(np.asarray(logp), np.log([[2 / 3], [1 / 3]]), rtol=1e-5)
    made = part(path, "from_logits", framework)(theirs, ours, actions, *columns)
    np.testing.assert_allclose(np.asarray(made.vs), [[3.25], [4.5]], rtol=1e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_v_trace_loss_sums_over_rows(framework):
    path = "impala.vtrace_{}_policy"
    dist = importlib.import_module(f"rlframe.models.{framework}.{framework}_action_dist")
    dist_class = dist.TorchCategorical if framework == "torch" else dist.Categorical
    steps, rows = 3, 2
    rng = np.random.default_rng(1)
    logits = tensor(framework, rng.normal(size=(steps, rows, 2)))
    actions = tensor(framework, np.zeros((steps, rows, 1)), np.int64)
    logp = part("impala.vtrace_{}", "log_probs_from_logits_and_actions", framework)(
        logits, actions[:, :, 0], dist_class, None
    )
    values, rewards = (tensor(framework, rng.normal(size=(steps, rows))) for _ in range(2))
    ended = tensor(framework, np.zeros((steps, rows)), bool)
    bootstrap, entropy = tensor(framework, [0.5, -0.5]), tensor(framework, np.full((steps, rows), 0.3))
    mask = tensor(framework, [[1, 1], [1, 1], [1, 0]], bool)
    loss = part(path, "VTraceLoss", framework)(
        actions, logp, entropy, ended, logp, [logits], [logits], 0.9, rewards, values, bootstrap, dist_class, None,
        mask, {}, 0.5, 0.1,
    )  # fmt: skip
    r, v, b = np.asarray(rewards), np.asarray(values), np.asarray(bootstrap)
    returns = np.zeros((steps + 1, rows))
    returns[steps] = b
    for t in reversed(range(steps)):  # on-policy, V-trace is the discounted return
        returns[t] = r[t] + 0.9 * returns[t + 1]
    counts = np.asarray(mask, np.float64)
    np.testing.assert_allclose(np.asarray(loss.value_targets), returns[:-1], rtol=1e-5)
    pi_loss = -(np.asarray(logp) * (returns[:-1] - v) * counts).sum()
    vf_loss = 0.5 * (((v - returns[:-1]) * counts) ** 2).sum()
    assert float(loss.pi_loss) == pytest.approx(pi_loss, rel=1e-4)
    assert float(loss.vf_loss) == pytest.approx(vf_loss, rel=1e-4)
    assert float(loss.entropy) == pytest.approx(0.3 * 5)
    assert float(loss.total_loss) == pytest.approx(pi_loss + 0.5 * vf_loss - 0.1 * 0.3 * 5, rel=1e-4)


def test_a3c_loss_sums_over_valid_rows():
    pytest.importorskip("tensorflow")
    from rlframe.agents.a3c.a3c_tf_policy import A3CLoss
    from rlframe.models.tf.tf_action_dist import Categorical

    dist = Categorical(tensor("tf", np.zeros((3, 2))))
    advantages, targets, values = (tensor("tf", x) for x in ([1.0, 2.0, 9.0], [1.0, 1.0, 9.0], [0.0, 3.0, 0.0]))
    valid = tensor("tf", [True, True, False], bool)
    loss = A3CLoss(dist, tensor("tf", [0, 1, 0], np.int64), advantages, targets, values, valid, 0.5, 0.01)
    assert float(loss.pi_loss) == pytest.approx(3.0 * np.log(2.0))
    assert float(loss.vf_loss) == pytest.approx(2.5)
    assert float(loss.total_loss) == pytest.approx(3.0 * np.log(2.0) + 1.25 - 0.02 * np.log(2.0))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_time_comes_first_where_fragments_were_rows(framework):
    class FeedForward:
        config = {"rollout_fragment_length": 3}  # noqa: RUF012 - a fake

        def is_recurrent(self):
            return False

    path = "impala.vtrace_{}_policy"
    make = part(path, "make_time_major" if framework == "torch" else "_make_time_major", framework)
    rows = tensor(framework, np.arange(6))
    assert np.asarray(make(FeedForward(), None, rows)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert np.asarray(make(FeedForward(), None, [rows], drop_last=True)[0]).tolist() == [[0, 3], [1, 4]]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_heads_of_ones_own_make_the_q_values(framework):
    model = importlib.import_module(f"rlframe.agents.dqn.dqn_{framework}_model")
    interface = model.DQNTorchModel if framework == "torch" else model.DQNTFModel

    class Second(interface):
        """Prefers action 1, whatever it sees."""

        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs_flat"], state

        def get_state_value(self, model_out):
            return 0.0 * model_out[:, :1] + 7.0

        def get_q_value_distributions(self, model_out):
            return 0.0 * model_out[:, :2] + tensor(framework, [[-1.0, 1.0]]), None, None

    config = {
        "num_workers": 0,
        "seed": 1,
        "framework": framework,
        "model": {"custom_model": Second, "fcnet_hiddens": [4]},
    }
    trainer = DQNTrainer(config, env="CartPole-v1")
    obs = np.zeros(4, np.float32)
    action, _, extra = trainer.compute_single_action(obs, explore=False, full_fetch=True)
    assert action == 1
    np.testing.assert_allclose(extra["q_values"], [6.0, 8.0])
    np.testing.assert_allclose(trainer.get_policy().q_values, [[6.0, 8.0]])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_below_the_interface_may_give_the_heads_features_of_a_width_of_its_own(framework):
    model = importlib.import_module(f"rlframe.agents.dqn.dqn_{framework}_model")

    class Wide(model.DQNModel):
        """Hands its four observations on to the heads, whatever width the config speaks of."""

        def __init__(self, obs_space, action_space, num_outputs, model_config, name, **heads):
            super().__init__(obs_space, action_space, 4, model_config, name, **heads)

        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs_flat"], state

    config = {"num_workers": 0, "framework": framework, "model": {"custom_model": Wide, "fcnet_hiddens": [16]}}
    trainer = DQNTrainer(config | {"hiddens": [8]}, env="CartPole-v1")
    _, _, extra = trainer.compute_single_action(np.zeros(4, np.float32), full_fetch=True)
    assert extra["q_values"].shape == (2,)
    trainer.stop()


def test_a_trainer_of_release_0_8_adapts_its_penalty_behind_the_optimiser_step():
    from rlframe.agents.ppo.ppo import (
        DEFAULT_CONFIG,
        choose_policy_optimizer,
        get_policy_class,
        update_kl,
        validate_config,
        warn_about_bad_reward_scales,
    )
    from rlframe.agents.ppo.ppo_policy import PPOTFPolicy

    seen = []

    def after(trainer, result):
        seen.append(trainer.get_policy().kl_coeff)
        result["noted"] = len(seen)
        warn_about_bad_reward_scales(trainer, result)

    old = build_trainer(
        name="OldPPO",
        default_config=DEFAULT_CONFIG,
        default_policy=PPOTFPolicy,
        get_policy_class=get_policy_class,
        make_policy_optimizer=choose_policy_optimizer,
        validate_config=validate_config,
        before_train_step=lambda trainer: seen.append(trainer.get_policy().kl_coeff),
        after_optimizer_step=update_kl,
        after_train_result=after,
    )
    trainer, built_in = old({**PPO, "framework": "torch"}, env="CartPole-v1"), PPOTrainer(PPO, env="CartPole-v1")
    for _ in range(2):
        result, expected = (
            each.train()["info"]["learner"]["default_policy"]["learner_stats"] for each in (trainer, built_in)
        )
        assert result == pytest.approx(expected)
    assert seen == [0.2, 0.1, 0.1, 0.05]  # before and after each iteration: the policy hardly moves
    assert old.with_updates(name="Derived", after_train_result=None)._step_hooks.keys() == {
        "before_train_step",
        "after_optimizer_step",
    }


def test_values_of_single_rows_are_those_of_the_policy():
    trainer = PPOTrainer(PPO, env="CartPole-v1")
    policy, batch = trainer.get_policy(), trainer.workers.local_worker().sample()
    last = batch.get_single_step_input_dict(policy.view_requirements, index="last")
    value = pytest.approx(float(policy.values(batch["new_obs"][-1:])[0]))
    assert policy._value(**last) == value
    assert policy._value(batch["new_obs"][-1], batch["actions"][-1], batch["rewards"][-1]) == value  # as in RLlib 0.8
    assert policy._value(batch["new_obs"][-1]) == value


def test_values_of_single_rows_with_memory_are_those_of_the_states_that_are_given():
    model = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "fcnet_hiddens": [8]}
    policy = PPOTrainer({**PPO, "model": model}, env="CartPole-v1").get_policy()
    obs, states = np.full(4, 0.1, np.float32), [np.full((1, 4), 0.5, np.float32) for _ in range(2)]
    columns = {"obs": obs[None], "prev_actions": np.array([1]), "state_in_0": states[0], "state_in_1": states[1]}
    assert policy._value(obs, 1, 0.0, *states) == policy._value(**columns) != policy._value(obs, 0, 0.0, *states)


def test_appos_target_is_updated_by_default():
    from rlframe.agents.ppo.appo import DEFAULT_CONFIG, UpdateTargetAndKL, add_target_callback

    config = {**DEFAULT_CONFIG}
    add_target_callback(config)
    assert config["after_train_step"] is UpdateTargetAndKL


def test_a_plan_around_a_learner_thread_that_the_program_starts():
    from rlframe.agents.impala import ImpalaTrainer
    from rlframe.agents.impala.impala import (
        gather_experiences_directly,
        make_learner_thread,
        record_steps_trained,
        validate_config,
    )
    from rlframe.execution import Concurrently, Dequeue, Enqueue, StandardMetricsReporting
    from rlframe.utils.errors import ConfigError

    threads = []

    def plan(workers, config):
        validate_config(config)
        with pytest.raises(ConfigError, match="num_aggregation_workers=3 must be at most"):
            validate_config({**config, "num_aggregation_workers": 3})
        learner = make_learner_thread(workers.local_worker(), config)
        learner.start()
        threads.append(learner)
        fed = gather_experiences_directly(workers, config).for_each(Enqueue(learner.inqueue))
        learned = Dequeue(learner.outqueue, check=learner.is_alive).for_each(record_steps_trained)
        both = Concurrently([fed, learned], mode="async", output_indexes=[1])
        return StandardMetricsReporting(both, workers, config).for_each(learner.add_learner_metrics)

    config = {"num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 40, "min_iter_time_s": 0, "seed": 1}
    trainer = ImpalaTrainer.with_updates(name="Mine", execution_plan=plan)(config, env="CartPole-v1")
    before = trainer.get_weights()["default_policy"]
    info = trainer.train()["info"]
    after = trainer.get_weights()["default_policy"]
    threads[0].stop()
    assert info["num_steps_trained"] >= 40
    assert np.isfinite(info["learner"]["default_policy"]["learner_stats"]["total_loss"])
    assert any(np.abs(after[key] - before[key]).max() > 0 for key in before)


@pytest.mark.slow
def test_a_copy_of_appos_plan_learns_sends_and_updates_the_target():
    """It takes pairs from the thread, asks it whether weights are new, and finds in the config what updates."""
    from rlframe.agents.impala.impala import gather_experiences_directly
    from rlframe.agents.ppo.appo import APPOTrainer
    from rlframe.execution import Concurrently, Dequeue, Enqueue, StandardMetricsReporting
    from rlframe.execution.common import STEPS_TRAINED_COUNTER, _get_shared_metrics
    from rlframe.execution.learner_thread import LearnerThread

    threads, sent = [], []

    def plan(workers, config):
        learner = LearnerThread(workers.local_worker(), minibatch_buffer_size=1, num_sgd_iter=1)
        learner.start()
        threads.append(learner)

        def broadcast(batch):
            if learner.weights_updated:
                learner.weights_updated = False
                sent.append(learner.num_steps)
            return batch

        def count(item):
            env_steps, fetches = item
            _get_shared_metrics().counters[STEPS_TRAINED_COUNTER] += env_steps
            return fetches

        fed = gather_experiences_directly(workers, config).for_each(Enqueue(learner.inqueue)).for_each(broadcast)
        learned = Dequeue(learner.outqueue, check=learner.is_alive).for_each(count)
        both = Concurrently([fed, learned], mode="async", output_indexes=[1])
        both = both.for_each(config["after_train_step"](workers, config))
        return StandardMetricsReporting(both, workers, config).for_each(learner.add_learner_metrics)

    config = {"rollout_fragment_length": 20, "train_batch_size": 40, "timesteps_per_iteration": 400, "seed": 1}
    mine = APPOTrainer.with_updates(name="Mine", execution_plan=plan)
    trainer = mine({**config, "min_iter_time_s": 0, "use_kl_loss": True, "framework": "torch"}, env="CartPole-v1")
    info = trainer.train()["info"]
    threads[0].stop()
    assert info["num_target_updates"] * 40 == info["num_steps_trained"] == info["last_target_update_ts"] >= 40
    assert np.isfinite(info["learner"]["default_policy"]["learner_stats"]["total_loss"])
    assert sent
    assert trainer.get_policy().kl_coeff != 1.0
    trainer.stop()


def test_appos_plan_updates_the_target_of_a_trainer_that_builds_its_own_parts():
    from rlframe.agents.ppo.appo import APPOTrainer

    class Mine(APPOTrainer):
        def _init(self, config, env_creator):
            self.workers = self._make_workers(
                env_creator=env_creator,
                validate_env=None,
                policy_class=self._policy_class,
                config=config,
                num_workers=0,
            )
            self.train_exec_impl = APPOTrainer.execution_plan(self.workers, config)

    config = {"rollout_fragment_length": 20, "train_batch_size": 40, "min_iter_time_s": 0, "num_workers": 0}
    trainer = Mine(config, env="CartPole-v1")
    assert trainer.train()["info"]["num_target_updates"] >= 1
    trainer.stop()


def test_q_values_of_observations_alone_as_up_to_rllib_1_2():
    from rlframe.agents.dqn.dqn_torch_policy import compute_q_values

    policy = DQNTrainer({"num_workers": 0, "framework": "torch", "num_atoms": 3}, env="CartPole-v1").get_policy()
    obs = tensor("torch", np.ones((2, 4)))
    values, logits, probabilities = compute_q_values(policy, policy.model, obs, explore=False)
    assert (values.shape, logits.shape, probabilities.shape) == ((2, 2), (2, 2, 3), (2, 2, 3))
    assert (values == compute_q_values(policy, policy.model, {"obs": obs})[0]).all()
