"""Trainers that are derived: with_updates, build_trainer, subclasses, plans and hooks."""

import copy
import os

import pytest

from rlframe.agents import dqn, ppo
from rlframe.agents.a3c.a2c import A2C_DEFAULT_CONFIG
from rlframe.agents.dqn import DEFAULT_CONFIG, DQNTorchPolicy, DQNTrainer
from rlframe.agents.dqn.dqn import GenericOffPolicyTrainer
from rlframe.agents.dqn.simple_q import SimpleQTrainer
from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.agents.trainer import Trainer, with_common_config
from rlframe.agents.trainer_template import build_trainer
from rlframe.config.renames import RenamedKeyWarning
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.policy import build_policy_class
from rlframe.utils.errors import ConfigError
from tests.helpers.envs import Bandit
from tests.helpers.q_learners import SMALL, make


class Mine(DQNTorchPolicy):
    pass


def test_with_updates_default_policy_wins():
    trainer = DQNTrainer.with_updates(default_policy=Mine)(copy.deepcopy(SMALL), env=Bandit)
    assert type(trainer.get_policy()) is Mine


def test_with_updates_old_workaround_works_too():
    derived = DQNTrainer.with_updates(default_policy=Mine, get_policy_class=None)
    assert type(derived(copy.deepcopy(SMALL), env=Bandit).get_policy()) is Mine


def test_with_updates_get_policy_class_falls_back_to_default_when_none():
    derived = DQNTrainer.with_updates(get_policy_class=lambda config: Mine if config["noisy"] else None)
    assert type(derived(copy.deepcopy(SMALL), env=Bandit).get_policy()) is DQNTorchPolicy
    assert type(derived({**copy.deepcopy(SMALL), "noisy": True}, env=Bandit).get_policy()) is Mine


def test_with_updates_own_config_keys_are_allowed():
    derived = DQNTrainer.with_updates(default_config={**DEFAULT_CONFIG, "mine": 1})
    assert derived({**copy.deepcopy(SMALL), "mine": 2}, env=Bandit).config["mine"] == 2
    with pytest.raises(ConfigError, match="mine"):
        make(Bandit, mine=2)


class WithASection(PGTrainer):
    _default_config = {**PGTrainer.get_default_config(), "mine": {"depth": 1}}  # noqa: RUF012  as programs write it
    _allow_unknown_subkeys = Trainer._allow_unknown_subkeys + ["mine"]  # noqa: RUF005


def test_a_list_of_sections_that_goes_on_from_rllibs_frees_what_was_added():
    merged = WithASection.merge_trainer_configs(WithASection.get_default_config(), {"mine": {"width": 2}})
    assert merged["mine"] == {"depth": 1, "width": 2}
    with pytest.raises(ConfigError, match="fcnet_hidden"):
        WithASection.merge_trainer_configs(WithASection.get_default_config(), {"model": {"fcnet_hidden": [8]}})
    assert {"model", "evaluation_config"} < set(DQNTrainer.with_updates(name="Mine")._allow_unknown_subkeys)


def test_hooks_of_build_trainer_are_called_in_order():
    order = []

    def note(name, result=None):
        def hook(*args):
            order.append(name)
            return result

        return hook

    def plan(workers, config, *, local_replay_buffer):
        order.append("execution_plan")
        return dqn.dqn.execution_plan(workers, config, local_replay_buffer=local_replay_buffer)

    derived = DQNTrainer.with_updates(
        validate_config=note("validate_config"),
        get_policy_class=note("get_policy_class"),
        before_init=note("before_init"),
        validate_env=note("validate_env"),
        execution_plan=plan,
        after_init=note("after_init"),
        before_evaluate_fn=note("before_evaluate"),
    )
    trainer = derived(copy.deepcopy(SMALL), env=Bandit)
    assert order == [
        "validate_config",
        "get_policy_class",
        "before_init",
        "validate_env",
        "execution_plan",
        "after_init",
    ]
    trainer.evaluate()
    assert order[6] == "before_evaluate"


def reinforce_loss(policy, model, dist_class, batch):
    logits, _ = model(batch)
    return -(dist_class(logits, model).logp(batch["actions"]) * batch["rewards"]).mean()


REINFORCE = build_policy_class("Reinforce", framework="torch", loss_fn=reinforce_loss)


ON_POLICY = {"num_workers": 0, "train_batch_size": 40, "rollout_fragment_length": 20, "seed": 0, "lr": 1e-2}


def test_default_plan_is_synchronous_on_policy():
    trainer = build_trainer(name="Reinforce", default_policy=REINFORCE)(ON_POLICY, env=Bandit)
    result = trainer.train()
    assert result["timesteps_total"] == 40
    assert result["info"]["num_steps_trained"] == 40
    for _ in range(60):
        result = trainer.train()
    assert result["episode_reward_mean"] > 0.9


def test_plans_of_two_arguments_and_of_keywords_are_both_called():
    def short(workers, config):
        return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    def long(workers, config, **kwargs):
        assert "local_replay_buffer" in kwargs
        return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    def of_a_trainer(trainer, workers, config, **kwargs):  # RLlib 1.6 to 1.8
        assert trainer.workers is workers
        return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    def with_buffer(workers, config, local_replay_buffer):
        assert local_replay_buffer.num_added == 0
        return short(workers, config)

    for plan in (short, long, of_a_trainer, with_buffer):
        assert (
            DQNTrainer.with_updates(execution_plan=plan)(copy.deepcopy(SMALL), env=Bandit).train()["timesteps_total"]
            >= 60
        )


def test_a_plan_of_ones_own_makes_its_buffer_where_no_config_says_replay_buffer_config():
    class Mine(SimpleQTrainer):
        @classmethod
        def get_default_config(cls):
            return with_common_config({"buffer_size": 100, "target_network_update_freq": 10, "learning_starts": 0})

        @staticmethod
        def execution_plan(workers, config, **kwargs):
            assert not kwargs
            assert config["buffer_size"] == 50
            return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    with pytest.warns(RenamedKeyWarning):
        assert Mine({"num_workers": 0, "buffer_size": 50}, env=Bandit).config["replay_buffer_config"]["capacity"] == 50


def test_unknown_keys_are_allowed_by_trainer_itself_for_all(monkeypatch):
    monkeypatch.setattr(Trainer, "_allow_unknown_configs", True)
    assert PGTrainer.merge_trainer_configs(PGTrainer.get_default_config(), {"mine": 1})["mine"] == 1
    strict = PGTrainer.with_updates(allow_unknown_configs=False)
    with pytest.raises(ConfigError, match="mine"):
        strict.merge_trainer_configs(strict.get_default_config(), {"mine": 1})


def test_defaults_of_algorithms_whose_iterations_say_no_time_can_be_build_trainers():
    made = build_trainer(name="Mine", default_config=A2C_DEFAULT_CONFIG, default_policy=PGTorchPolicy)
    assert made.merge_trainer_configs(made.get_default_config(), {})["min_iter_time_s"] is None


def test_keys_of_a_plan_of_ones_own_are_those_of_the_algorithm_whose_defaults_it_takes():
    from rlframe.agents.qmix.qmix import DEFAULT_CONFIG

    def plan(workers, config):
        assert (config["optimizer"], config["mixer"], config["mine"]) == ("rmsprop", None, 3)
        return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    defaults = {**DEFAULT_CONFIG, "optimizer": "rmsprop", "mixer": None, "mine": 3}
    made = GenericOffPolicyTrainer.with_updates(
        name="Own", default_config=defaults, default_policy=REINFORCE, execution_plan=plan
    )
    made({"num_workers": 0, "seed": 0}, env=Bandit).stop()
    with pytest.raises(ConfigError, match="mixer: got 'sum'"):
        made({"num_workers": 0, "mixer": "sum"}, env=Bandit)


def test_optimizer_is_said_to_have_no_effect_where_all_code_is_built_in():

    class Own(PGTorchPolicy):
        pass

    table = {"multiagent": {"policies": {"one": (Own, None, None, {}), "other": (None, None, None, {})}}}
    for trainer in (PGTrainer, PGTrainer.with_updates(name="Mine", default_policy=PGTorchPolicy)):
        with pytest.warns(UserWarning, match="optimizer='rmsprop' has no effect: only Ape-X and code of your own read"):
            trainer.merge_trainer_configs(trainer.get_default_config(), {"optimizer": "rmsprop"})
    own = [
        (PGTrainer.with_updates(name="Mine", default_policy=Own), {}),
        (PGTrainer.with_updates(name="Mine", get_policy_class=lambda config: Own), {}),
        (PGTrainer, table),
        (type("Mine", (PGTrainer,), {"get_default_policy_class": lambda self, config: Own}), {}),
    ]
    for trainer, more in own:  # warnings are errors here
        trainer.merge_trainer_configs(trainer.get_default_config(), {"optimizer": "rmsprop", **more})


@pytest.mark.filterwarnings("ignore::rlframe.config.renames.RenamedKeyWarning")
def test_hooks_read_and_change_a_config_by_the_names_that_it_was_written_with():
    def validate(config):
        assert config["model"]["custom_options"] == {"cell_size": 8}
        config["model"]["custom_options"]["checked"] = True

    written = {**DEFAULT_CONFIG, "model": {**DEFAULT_CONFIG["model"], "custom_options": {"cell_size": 8}}}
    made = build_trainer(name="Own", default_config=written, default_policy=REINFORCE, validate_config=validate)
    trainer = made({**written, "num_workers": 0}, env=Bandit)
    assert trainer.config["model"]["custom_model_config"] == {"cell_size": 8, "checked": True}
    assert "custom_options" not in trainer.config["model"]
    trainer.stop()


@pytest.mark.filterwarnings("ignore::rlframe.config.renames.RenamedKeyWarning")
def test_a_config_that_is_its_trainers_own_defaults_once_more_is_no_conflict():
    from rlframe.agents.ppo import DEFAULT_CONFIG as PPO_CONFIG

    written = {**PPO_CONFIG, "vf_share_layers": True, "num_workers": 0}  # model.vf_share_layers is False there
    trainer = build_trainer(name="Own", default_config=written, default_policy=REINFORCE)(written, env=Bandit)
    assert trainer.config["model"]["vf_share_layers"] is True
    trainer.stop()


def test_subclass_may_override_everything():
    class Own(Trainer):
        @classmethod
        def get_default_config(cls):
            return with_common_config({"mine": 3, **ON_POLICY})

        def get_default_policy_class(self, config):
            assert config["mine"] == 3
            return REINFORCE

        @staticmethod
        def execution_plan(workers, config):
            return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    assert Own(env=Bandit).train()["timesteps_total"] == 20


def test_subclass_of_a_built_trainer_may_override_its_plan():
    called = []

    class Own(DQNTrainer):
        @staticmethod
        def execution_plan(workers, config, **kwargs):
            called.append(1)
            return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    Own(copy.deepcopy(SMALL), env=Bandit).train()
    assert called == [1]


def test_plan_may_end_in_a_generator():
    def plan(workers, config):
        for result in StandardMetricsReporting(ParallelRollouts(workers), workers, config):
            yield {**result, "mine": 1}

    trainer = DQNTrainer.with_updates(execution_plan=plan)(copy.deepcopy(SMALL), env=Bandit)
    assert [trainer.train()["mine"] for _ in range(2)] == [1, 1]
    assert trainer.train()["timesteps_total"] > 0
    trainer.restore(trainer.save())


def test_plan_that_returns_something_else_is_named():
    with pytest.raises(ConfigError, match="wanted an iterator"):
        DQNTrainer.with_updates(execution_plan=lambda workers, config: [1])(copy.deepcopy(SMALL), env=Bandit)


def test_unknown_argument_of_build_trainer_is_named():
    with pytest.raises(TypeError, match="default_polcy"):
        build_trainer(name="X", default_polcy=None)


def test_a_plan_gets_a_view_with_derived_values_and_may_hand_on_a_dict():
    seen = []

    def mine(workers, config):
        seen.append(config)
        return ppo.ppo.execution_plan(workers, {**config, "train_batch_size": 20})

    small = {"num_workers": 0, "train_batch_size": 30, "sgd_minibatch_size": 10, "my_key": [1]}
    made = ppo.PPOTrainer.with_updates(
        execution_plan=mine, default_config={**ppo.PPOTrainer.get_default_config(), "my_key": 0}
    )
    trainer = made(small, env=Bandit)
    (view,) = seen
    assert (view.train_batch_size, view["my_key"], view.rollout_fragment_length) == (30, [1], 30)
    assert trainer.config["rollout_fragment_length"] == 200  # as it was asked for
    with pytest.raises(TypeError, match="read-only"):
        view["lr"] = 1.0
    trainer.config["lr"] = 1.0


def test_a_subclass_of_trainer_is_called_what_its_class_is(tmp_path):
    class Mine(Trainer):
        def get_default_policy_class(self, config):
            return REINFORCE

    class Later(Mine):
        pass

    config = {"num_workers": 0, "logger_config": {"logdir": str(tmp_path)}}
    one, other = Mine(config, env=Bandit), Later(config, env=Bandit)
    assert (one._name, other._name) == ("Mine", "Later")
    assert os.path.basename(other.logdir).startswith("Later_Bandit_")
    other.restore(one.save(str(tmp_path)))  # no class of either's name is looked for
    assert type(Later.from_checkpoint(one.save(str(tmp_path)), env=Bandit)) is Later


@pytest.mark.parametrize("base", [PGTrainer, DQNTrainer])
def test_a_plan_of_ones_own_finds_all_columns_that_rllib_had(base):
    found = []

    def look(batch):
        found.append({name: len(batch[name]) for name in ("infos", "new_obs", "unroll_id", "agent_index")})
        return batch

    def plan(workers, config, **_):
        return StandardMetricsReporting(ParallelRollouts(workers).for_each(look), workers, config)

    base.with_updates(execution_plan=plan)({"rollout_fragment_length": 4, "num_workers": 0}, env=Bandit).train()
    assert found[0] == {"infos": 4, "new_obs": 4, "unroll_id": 4, "agent_index": 4}


def test_workers_of_ones_own_collect_all_columns_and_those_of_a_built_in_plan_what_it_reads():
    config = {"rollout_fragment_length": 4, "num_workers": 0}
    worker = RolloutWorker(env_creator=Bandit, policy_spec=PGTorchPolicy, policy_config=config)
    assert {"infos", "unroll_id", "agent_index"} <= worker.sample().keys()
    trainer = PGTrainer(config, env=Bandit)
    with pytest.raises(KeyError, match=r"no column 'infos'.*call trainer\.workers\.foreach_policy"):
        trainer.workers.local_worker().sample()["infos"]
    trainer.workers.foreach_policy(lambda policy, _: policy.collect_all_columns())
    assert len(trainer.workers.local_worker().sample()["infos"]) == 4


def test_none_takes_a_hook_away_that_the_base_has():
    called = []

    def note(name):
        return lambda *arguments: called.append(name)

    base = PGTrainer.with_updates(
        name="Noting", before_init=note("before_init"), after_init=note("after_init"),
        validate_config=note("validate_config"), before_train_step=note("before_train_step"),
    )  # fmt: skip
    config = {"num_workers": 0, "train_batch_size": 20, "min_iter_time_s": 0, "log_sys_usage": False}
    base(config, env="CartPole-v1").train()
    assert set(called) == {"before_init", "after_init", "validate_config", "before_train_step"}
    called.clear()
    without = base.with_updates(before_init=None, after_init=None, validate_config=None, before_train_step=None)
    without(config, env="CartPole-v1").train()
    assert called == []
    base.with_updates(name="Named")(config, env="CartPole-v1")
    assert "after_init" in called


def test_none_takes_a_bases_hook_away_and_leaves_a_mixins():
    called = []

    class Mixin:
        def before_init(self):
            called.append("before_init")
            super().before_init()

    made = PGTrainer.with_updates(name="Mixed", mixins=[Mixin], before_init=None)
    made({"num_workers": 0}, env="CartPole-v1").stop()
    assert called == ["before_init"]
