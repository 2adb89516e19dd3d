"""Configs that are set group by group are the dicts that trainers take, and say at once what no key is."""

import copy
import pickle
import warnings

import pytest

from rlframe.agents.dqn import DQNConfig
from rlframe.agents.pg import PGTrainer
from rlframe.agents.pg.pg import PGConfig
from rlframe.agents.ppo import PPOConfig
from rlframe.config.builder import ConfigBuilder
from rlframe.config.merge import RenamedKeyWarning
from rlframe.config.options import AlgorithmConfig, option
from rlframe.utils.errors import ConfigError


def test_groups_set_the_keys_of_a_whole_config():
    config = (
        PPOConfig()
        .environment("CartPole-v1", env_config={"size": 3})
        .framework("tf")
        .training(lr=1e-3, lambda_=0.9, model={"fcnet_hiddens": [8]})
        .training(model={"use_lstm": True})
        .rollouts(num_workers=0)
        .multi_agent(policies={"a"}, policies_to_train=["a"])
        .callbacks(dict)
        .offline_data(input_="data")
        .evaluation(evaluation_config=PPOConfig.overrides(explore=False))
    )
    made = config.to_dict()
    wanted = {"env": "CartPole-v1", "env_config": {"size": 3}, "framework": "tf", "lr": 1e-3, "lambda": 0.9}
    wanted |= {"num_workers": 0, "callbacks": dict, "input": "data", "evaluation_config": {"explore": False}}
    assert {key: made[key] for key in wanted} == wanted
    assert made["model"] == {**PPOConfig.defaults()["model"], "fcnet_hiddens": [8], "use_lstm": True}
    assert made["multiagent"]["policies"] == {"a"}
    assert made.keys() == PPOConfig.defaults().keys() | {"env"}
    assert made["clip_param"] == PPOConfig.defaults()["clip_param"]


def test_it_is_read_and_set_as_a_mapping_and_by_attributes():
    config = DQNConfig()
    config.lr = 0.25
    config["gamma"] = 0.5
    assert (config.lr, config["gamma"], config.get("n_step"), dict(config)["lr"]) == (0.25, 0.5, 1, 0.25)
    for other in (config.copy(), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        other.training(lr=1.0, exploration_config={"final_epsilon": 0.5})
        assert config.lr == 0.25
        assert other.exploration_config["initial_epsilon"] == 1.0
        assert other.exploration_config["final_epsilon"] == 0.5
    assert config.to_dict()["exploration_config"] == DQNConfig.defaults()["exploration_config"]


def test_later_names_of_rllib_are_understood_where_they_are_written():
    with pytest.warns(RenamedKeyWarning, match="num_rollout_workers is called num_workers") as caught:
        config = PPOConfig().rollouts(num_rollout_workers=3)
    assert config.num_workers == 3
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PPOConfig().api_stack(enable_rl_module_and_learner=False).learners(num_learners=0)


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda: PPOConfig().training(lrr=1), ConfigError, "lrr: unknown key; did you mean lr?"),
        (lambda: PPOConfig(learning_rate=1), ConfigError, "learning_rate: unknown key; here it is called lr"),
        (lambda: PPOConfig().api_stack(enable_rl_module_and_learner=True), ConfigError, "custom_model in model"),
        (lambda: PPOConfig().rl_module(), AttributeError, r"use training\(model="),
        (lambda: PPOConfig().train_ing, AttributeError, "no key and no group 'train_ing'"),
        (lambda: PPOConfig().training(lr="fast").build(), ConfigError, "lr: got 'fast'"),
        (lambda: type("OwnConfig", (PGConfig,), {})().build(), ConfigError, "no trainer is made of"),
    ],
)
def test_what_is_wrong_is_one_sentence(act, error, said):
    with pytest.raises(error, match=said):
        act()


def test_search_spaces_pass_through_to_tune():
    assert PPOConfig().training(lr={"grid_search": [1, 2]}).to_dict()["lr"] == {"grid_search": [1, 2]}


def test_it_builds_the_algorithms_trainer_or_another_one():
    config = PGConfig().rollouts(num_workers=0).debugging(log_sys_usage=False).training(model={"fcnet_hiddens": [4]})
    trainer = config.build("CartPole-v1")
    assert type(trainer) is PGTrainer
    assert trainer.config["model"]["fcnet_hiddens"] == [4]
    trainer.stop()
    given = PGTrainer(config, env="CartPole-v1")
    assert given.config == trainer.config
    given.stop()


def test_a_trainer_with_keys_of_its_own_is_built_from_them():
    own = PGTrainer.with_updates(name="Own", default_config={**PGConfig.defaults(), "mine": 1})
    config = PGConfig(algo_class=own).training(mine=2)
    assert config.to_dict()["mine"] == 2
    trainer = config.rollouts(num_workers=0).build("CartPole-v1")
    assert trainer.config["mine"] == 2
    trainer.stop()
    with pytest.raises(ConfigError, match="mine: unknown key"):
        PGConfig().training(mine=2)


def test_a_declaration_of_a_programs_own_begins_one_too():
    class OwnConfig(AlgorithmConfig):
        size: int = option(3, "How large.")

    config = OwnConfig(size=5)
    assert isinstance(config, ConfigBuilder)
    assert dict(config) == {"size": 5}
    assert OwnConfig.from_dict(config).size == 5


class OwnTrainer(PGTrainer):
    @classmethod
    def get_default_config(cls):
        return OwnConfig().to_dict()


class OwnConfig(PGConfig):
    """A config class of a program's own, as those of RLlib 1.13 were."""

    def __init__(self, trainer_class=None):
        super().__init__(trainer_class=trainer_class or OwnTrainer)
        self.rounds = 1
        self.lr = 0.5

    def training(self, *, rounds=None, **kwargs):
        super().training(**kwargs)
        if rounds is not None:
            self.rounds = rounds
        return self


def test_a_class_with_a_constructor_of_its_own_sets_keys_and_adds_some():
    config = OwnConfig().training(rounds=3, gamma=0.25).environment("CartPole-v1")
    assert isinstance(config, OwnConfig)
    assert (config.rounds, config.lr, config.gamma, OwnConfig().rounds) == (3, 0.5, 0.25, 1)
    assert config.copy().training(rounds=4).rounds == 4
    assert pickle.loads(pickle.dumps(config)).to_dict() == config.to_dict()
    with pytest.raises(ConfigError, match="did you mean gamma"):
        OwnConfig().training(gama=0.5)
    trainer = config.training(num_workers=0).build()
    assert isinstance(trainer, OwnTrainer)
    assert (trainer.config["rounds"], trainer.config["lr"], trainer.config["gamma"]) == (3, 0.5, 0.25)
    trainer.stop()


def test_the_base_of_rllibs_config_classes_has_the_keys_that_all_algorithms_have():
    from rlframe.agents.trainer_config import TrainerConfig

    config = TrainerConfig(trainer_class=PGTrainer).training(lr=0.5)
    assert config.to_dict()["lr"] == 0.5
