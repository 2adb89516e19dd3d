"""The configs of policies of their own: what of them is checked, and by what."""

import pytest

from rlframe.agents.dqn.dqn import DEFAULT_CONFIG as DQN
from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from rlframe.agents.maddpg.maddpg import DEFAULT_CONFIG as MADDPG
from rlframe.agents.maddpg.maddpg_policy import MADDPGTorchPolicy
from rlframe.agents.pg import PGTrainer
from rlframe.agents.pg.pg import DEFAULT_CONFIG as PG
from rlframe.agents.pg.pg_torch_policy import PGTorchPolicy
from rlframe.agents.ppo.ppo import DEFAULT_CONFIG as PPO
from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from rlframe.agents.qmix.qmix import DEFAULT_CONFIG as QMIX
from rlframe.agents.qmix.qmix_policy import QMixTorchPolicy
from rlframe.config.renames import RenamedKeyWarning
from rlframe.evaluation.policy_table import policy_config
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.policy import Policy, PolicySpec
from rlframe.utils.errors import ConfigError


class Mine(PGTorchPolicy):
    """Reads keys of its own."""


class Heuristic(Policy):
    """Has nothing to do with any algorithm."""


def made(base, policy_class, config):
    return policy_config(base, PolicySpec(policy_class, None, None, config))


@pytest.mark.parametrize(
    ("base", "policy_class", "config", "fault"),
    [
        (
            PG,
            PGTorchPolicy,
            {"gama": 0.5},
            r"PolicySpec.config.gama: unknown key; did you mean PolicySpec.config.gamma",
        ),
        (PG, PGTorchPolicy, {"gamma": "x"}, r"PolicySpec.config.gamma: got 'x' \(str\), wanted a number in \[0, 1\]"),
        (PG, PGTorchPolicy, {"gama": 0.5, "gamma": 2.0}, "2 faults"),
        (PG, PGTorchPolicy, {"lr": None}, "lr: got None"),
        (PG, PGTorchPolicy, {"model": {"fcnet_hidens": [4]}}, "model.fcnet_hidens: unknown key; did you mean"),
        (PPO, DQNTorchPolicy, {"double_q": 3}, "double_q: got 3"),
        (PPO, DQNTorchPolicy, {"exploration_config": {"type": "EpsilonGredy"}}, "did you mean 'EpsilonGreedy'"),
        (DQN, DQNTorchPolicy, {"exploration_config": {"final_epsilon": 7}}, "exploration_config.final_epsilon: got 7"),
        (PG, PGTorchPolicy, {"exploration_config": "x"}, "exploration_config: got 'x'"),
        (MADDPG, MADDPGTorchPolicy, {"agentid": 0}, "did you mean PolicySpec.config.agent_id"),
        (PG, Mine, {"gamma": "x"}, "gamma: got 'x'"),
        (PG, Heuristic, {"gamma": "x"}, "gamma: got 'x'"),
    ],
)
def test_unknown_keys_and_wrong_values_are_named(base, policy_class, config, fault):
    with pytest.raises(ConfigError, match=fault):
        made(base, policy_class, config)


@pytest.mark.parametrize(
    ("base", "policy_class", "config"),
    [
        (PG, PGTorchPolicy, {"gamma": 0.5, "env_config": {"any": 1}, "model": {"custom_model_config": {"any": 1}}}),
        (PG, PGTorchPolicy, PG),
        (PPO, DQNTorchPolicy, DQN),
        (PPO, DQNTorchPolicy, {"double_q": False, "exploration_config": {"type": "EpsilonGreedy"}}),
        (DQN, PPOTorchPolicy, {"clip_param": 0.2, "double_q": False}),
        (MADDPG, MADDPGTorchPolicy, {"agent_id": 1, "use_local_critic": True, "grad_norm_clipping": 0.5}),
        (QMIX, QMixTorchPolicy, {"mixer": "vdn"}),
        ({**PG, "mine": 1}, PGTorchPolicy, {"mine": 2}),
        (PG, Mine, {"mine": 2}),
        (PG, PGTorchPolicy.with_updates(name="Mine"), {"mine": 2}),
        (PG, Heuristic, {"mine": 2}),
        (PG, PGTorchPolicy, {"clip_param": 0.1, "agent_id": 3, "obs_space_dict": {"a": 1}}),
        (PG, PGTorchPolicy, {"model": None}),
    ],
)
def test_declared_keys_and_those_of_users_classes_are_taken(base, policy_class, config):
    config = {key: value for key, value in config.items() if key not in ("exploration_config", "model")} or config
    found = made(base, policy_class, config)
    assert {key: found[key] for key in config} == config


def test_values_take_their_declared_form():
    found = made(PG, PGTorchPolicy, {"lr": 1, "model": {"fcnet_hiddens": (5,)}})
    assert isinstance(found["lr"], float)
    assert found["model"] == {**PG["model"], "fcnet_hiddens": [5]}


def test_what_the_trainer_allows_in_a_section_is_no_fault_of_a_policy():
    base = {**PG, "model": {**PG["model"], "mine": 1}}
    assert made(base, PGTorchPolicy, {"model": {"fcnet_hiddens": [5]}})["model"]["mine"] == 1


def test_other_names_are_understood():
    with pytest.warns(RenamedKeyWarning, match="lambda_ is called lambda"):
        assert made(PPO, PPOTorchPolicy, {"lambda_": 0.3})["lambda"] == 0.3


def test_a_trainer_refuses_the_table_of_policies():
    table = {"policies": {"p": PolicySpec(config={"gama": 0.5})}, "policy_mapping_fn": lambda agent: "p"}
    with pytest.raises(ConfigError, match=r"did you mean PolicySpec.config.gamma"):
        PGTrainer({"num_workers": 0, "multiagent": table}, env=MultiAgentCartPole)


@pytest.mark.parametrize("own", [{}, {"lr": 0.5}])
def test_policies_of_users_find_options_under_their_old_names_too(own):
    base = {**PG, "model": {**PG["model"], "custom_model_config": {"warmup": 7}}, "record_env": "videos"}
    config = made(base, Mine, own)
    assert config["model"]["custom_options"] == {"warmup": 7}
    assert config["monitor"] == "videos"
    assert "custom_options" not in made(base, PGTorchPolicy, own)["model"]
