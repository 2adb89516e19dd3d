from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import ValidationError

from rlframe.config.common import CommonConfig
from rlframe.config.merge import merge_configs
from rlframe.config.options import AlgorithmConfig, option
from rlframe.utils.errors import ConfigError
from tests.unit.config.declarations import ToyConfig


def test_defaults_called_twice_share_nothing() -> None:
    one, other = ToyConfig.defaults(), ToyConfig.defaults()
    one["model"]["fcnet_hiddens"].append(1)
    one["exploration_config"]["type"] = "changed"
    one["tf_session_args"]["gpu_options"]["allow_growth"] = "changed"
    assert other == ToyConfig.defaults()
    assert other["model"]["fcnet_hiddens"] == [256, 256]


def test_defaults_are_plain_containers_at_every_depth() -> None:
    def containers(value: Any) -> set[type]:
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {type(value)}.union(*map(containers, items))

    assert containers(ToyConfig.defaults()) <= {dict, list, int, float, bool, str, type(None)}


def test_defaults_of_subclass_take_changes_and_keep_the_rest() -> None:
    defaults = ToyConfig.defaults()
    assert defaults["num_workers"] == 0
    assert defaults["model"] == {**CommonConfig.defaults()["model"], "vf_share_layers": False}
    assert defaults["exploration_config"] == {
        "type": "EpsilonGreedy",
        "final_epsilon": 0.02,
        "epsilon_timesteps": 10_000,
    }
    assert defaults["Q_model"]["fcnet_activation"] == "relu"
    assert CommonConfig.defaults()["num_workers"] == 2


def test_defaults_redeclared_key_wins_over_change_of_parent() -> None:
    class Grandchild(ToyConfig):
        num_workers: int = option(7, "Redeclared.", low=0)

    assert Grandchild.defaults()["num_workers"] == 7


def test_keys_reserved_and_private_are_spelled_as_in_configs() -> None:
    assert {"lambda", "_separate", "Q_model"} <= set(ToyConfig.defaults())
    assert not {"lambda_", "separate", "q_model"} & set(ToyConfig.defaults())
    ToyConfig.check({"lambda": 0.5, "_separate": True})
    with pytest.raises(ConfigError, match="lambda_: unknown key; did you mean lambda"):
        ToyConfig.check({"lambda_": 0.5})


def test_new_defaults_with_undeclared_key_raise_when_class_is_made() -> None:
    with pytest.raises(TypeError, match="num_wrokers"):
        type("Typo", (CommonConfig,), {"new_defaults": {"num_wrokers": 1}, "__module__": __name__})


def test_check_of_partial_config_accepts_missing_keys() -> None:
    ToyConfig.check({})
    ToyConfig.check({"n_step": 3})


def test_sequence_given_as_tuples_or_array_becomes_lists() -> None:
    for given in (((0, 1), (10, 0.5)), np.array([[0, 1], [10, 0.5]])):
        config = merge_configs(ToyConfig.defaults(), {"lr_schedule": given}, ToyConfig)
        assert config["lr_schedule"] == [[0.0, 1.0], [10.0, 0.5]]
    with pytest.raises(ConfigError, match=r"lr_schedule: got 'fast' \(str\), wanted a list of lists or None"):
        ToyConfig.check({"lr_schedule": "fast"})


def test_check_collects_all_faults_in_one_error() -> None:
    config = {"n_step": 0, "lambda": 2.0, "hiddens": [8, 0], "temperature": 0, "lrr": 1, "env_config": 3}
    with pytest.raises(ConfigError) as caught:
        ToyConfig.check(config)
    lines = str(caught.value).splitlines()
    assert lines[0] == "6 faults in the config:"
    assert sorted(line.strip() for line in lines[1:]) == [
        "env_config: got 3 (int), wanted a dict",
        "hiddens: got [8, 0] (list), wanted a list of integers >= 1",
        "lambda: got 2.0 (float), wanted a number in [0, 1]",
        "lrr: unknown key; did you mean lr?",
        "n_step: got 0 (int), wanted an integer >= 1 (env steps)",
        "temperature: got 0.0 (float), wanted a number > 0",
    ]


def test_check_cross_field_fault_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="worker_side_prioritization needs prioritized_replay=True"):
        ToyConfig.check({"worker_side_prioritization": True, "prioritized_replay": False})


def test_check_cross_field_fault_about_a_faulty_value_is_left_out() -> None:
    with pytest.raises(ConfigError, match=r"^1 fault") as caught:
        ToyConfig.check({"worker_side_prioritization": True, "prioritized_replay": "no"})
    assert "needs" not in str(caught.value)


def test_check_extra_keys_are_left_alone() -> None:
    ToyConfig.check({"mine": object()}, extra_keys={"mine"})
    ToyConfig.check({"mine": object()}, allow_unknown=True)
    ToyConfig.check({"model": {"mine": 1}}, allow_unknown_subkeys=["model"])
    with pytest.raises(ConfigError, match=r"model\.mine: unknown key"):
        ToyConfig.check({"model": {"mine": 1}}, allow_unknown=True)


def test_check_does_not_change_its_argument() -> None:
    config = {"train_batch_size": 4e3, "evaluation_config": {"n_step": 3.0}}
    ToyConfig.check(config)
    assert type(config["train_batch_size"]) is float
    assert config["evaluation_config"] == {"n_step": 3.0}


def test_from_dict_gives_frozen_typed_view() -> None:
    view = ToyConfig.from_dict({"n_step": 3, "model": {"fcnet_hiddens": (32,)}})
    assert (view.n_step, view.gamma, view.model.fcnet_hiddens, view.model.vf_share_layers) == (3, 0.99, [32], False)
    with pytest.raises(ValidationError, match="frozen"):
        view.n_step = 4


def test_from_dict_with_fault_raises() -> None:
    with pytest.raises(ConfigError, match="n_step"):
        ToyConfig.from_dict({"n_step": -1})


def test_unsupported_value_of_subclass_is_refused() -> None:
    from rlframe.config.options import UnsupportedValue

    class Strict(AlgorithmConfig):
        switch: bool = option(False, "A switch.")
        unsupported: ClassVar = {"switch": UnsupportedValue(bool, "turn the other one")}

    Strict.check({"switch": False})
    with pytest.raises(ConfigError, match="switch: got True, not available in this version: turn the other one"):
        Strict.check({"switch": True})
