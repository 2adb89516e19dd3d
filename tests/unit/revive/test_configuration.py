"""Parameters of a run: where they come from, what goes before what, and what is refused."""

import json

import pytest

from rlframe.revive.configuration import Configuration, every_parameter, read_configuration
from rlframe.utils.errors import ConfigError


def entry(name, default, **search):
    return {"name": name, "abbreviation": name, "type": "float", "default": default, **search}


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(content))
        return path

    return write


def test_command_line_goes_before_file_and_file_before_defaults(file):
    path = file({
        "base_config": [entry("test_horizon", 50), entry("venv_rollout_horizon", 60)],
        "policy_algo_config": {"ppo": [entry("ppo_epoch", 7), entry("g_lr", 1e-4)]},
    })  # fmt: skip
    made = read_configuration(path, {"venv_rollout_horizon": 20, "pep": 5})
    assert (made.base.test_horizon, made.base.venv_rollout_horizon, made.base.global_seed) == (50, 20, 42)
    assert (made.policy.ppo_epoch, made.policy.g_lr) == (5, 1e-4)
    assert made.venv.g_lr == read_configuration().venv.g_lr


def test_names_of_other_algorithms_are_known_and_said_to_have_no_effect():
    made = read_configuration(None, {"sac_epoch": 3, "policy_algo": "td3"})
    assert made.remarks == ("sac_epoch has no effect: neither bc nor td3 reads it",)
    assert read_configuration(None, {"d_steps": 5}).remarks[0].startswith("d_steps has no effect")
    made = read_configuration(None, {"revive_epoch": 5})
    assert made.venv.bc_epoch == 5
    assert made.remarks == ("revive_epoch is taken for bc_epoch: environments are learned supervised",)
    assert read_configuration(None, {"td3_epoch": 3, "pa": "td3"}).policy.epoch == 3


def test_adversarial_learning_has_its_own_parameters_under_both_names(file):
    made = read_configuration(None, {"venv_algo": "revive_p", "rep": 7, "revive_batch_size": 9, "d_steps": 3})
    assert (made.venv.revive_epoch, made.venv.revive_batch_size, made.venv.d_steps) == (7, 9, 3)
    assert (made.venv.bc_epoch, made.venv.bc_lr, made.venv.g_lr) == (150, 1e-3, 4e-5)
    assert made.remarks == ()
    assert set(made.search_space("venv")) == {
        "g_lr", "d_lr", "g_steps", "d_steps", "transition_hidden_features", "policy_hidden_layers", "weight_decay",
    }  # fmt: skip
    assert made.with_values("venv", {"d_lr": 1e-3}).venv.d_lr == 1e-3
    assert Configuration.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    path = file({"base_config": [entry("venv_algo", "revive")], "venv_algo_config": {
        "revive_p": [
            entry("g_lr", 1e-5, search_mode="continuous", search_values=[1e-6, 1e-5]), entry("d_lr", 1e-4, tune=False),
        ],
    }})  # fmt: skip
    made = read_configuration(path)
    assert made.venv.g_lr == 1e-5
    space = made.search_space("venv")
    assert space["g_lr"].values == (1e-6, 1e-5)
    assert "d_lr" not in space
    renamed = read_configuration(None, {"bc_weight_decay": 0.1})
    assert renamed.venv.weight_decay == 0.1
    assert renamed.remarks == ("bc_weight_decay is taken for weight_decay, which it is called here",)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"history_matcher_num": 2}, "history_matcher_num: discriminators see single steps; leave it out"),
        ({"bc_epochs": 5}, "bc_epochs: no such parameter; did you mean bc_epoch"),
        ({"use_gpu": True}, "use_gpu: networks of this size learn on CPUs"),
        ({"framework": "tf"}, "framework: networks are learned with PyTorch, and run without a framework; leave it"),
        ({"ppo_epoch": 0}, "ppo_epoch: got 0 .*wanted an integer >= 1"),
        ({"venv_algo": "revive_t"}, "venv_algo: got 'revive_t'"),
    ],
)
def test_what_no_parameter_takes_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        read_configuration(None, overrides)


def test_file_with_several_faults_names_all(file):
    path = file({
        "base_config": [entry("test_horizn", 5)], "venv_algo_config": {"gan": []},
        "policy_algo_config": {"ppo": [
            entry("g_lr", 1e-3, search_mode="continuous", search_values=[1]),
            entry("epsilon", 0.2), entry("epsilon", 0.3),
            entry("ppo_runs", 2, search_mode="grid", search_values=[2, "many"]),
        ]},
    })  # fmt: skip
    with pytest.raises(ConfigError) as error:
        read_configuration(path)
    said = str(error.value)
    assert "test_horizn: no such parameter; did you mean test_horizon" in said
    assert "gan: no such algorithm; there are bc" in said
    assert "got search_mode 'continuous' with search_values [1]" in said
    assert "ppo: epsilon is there twice; write it once" in said
    assert "ppo: search_values: ppo_runs: got 'many' (str), wanted an integer >= 1" in said


def test_file_says_what_a_search_varies(file):
    entries = [
        entry("g_lr", 1e-3, search_mode="continuous", search_values=[1e-4, 1e-2]),
        entry("w_kl", 0.5, tune=False),
        entry("ppo_runs", 4, search_mode="grid", search_values=[2, 4]),
    ]
    made = read_configuration(file({"policy_algo_config": {"ppo": entries}}))
    space = made.search_space("policy")
    assert set(space) == {"g_lr", "ppo_runs"}
    assert space["g_lr"].values == (1e-4, 1e-2)
    tried = made.with_values("policy", {"g_lr": 5e-3})
    assert (tried.policy.g_lr, tried.policy.ppo_runs, made.policy.g_lr) == (5e-3, 4, 1e-3)
    assert Configuration.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_names_and_abbreviations_mean_one_parameter():
    seen = {}
    for name, form, key in every_parameter():
        for spelled in (name, form.trait(key, "alias")):
            assert spelled is None or seen.setdefault(spelled, name) == name, spelled
