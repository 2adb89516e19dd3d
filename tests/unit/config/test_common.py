import logging
import math
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlframe.config.common import CommonConfig, honoured_keys
from rlframe.config.merge import merge_configs
from rlframe.config.nested_dict import assign, lookup
from rlframe.config.unsupported import UNSUPPORTED
from rlframe.trainer.evaluating import evaluation_config
from rlframe.utils.errors import ConfigError

NEW_KEYS = {
    "recreate_failed_workers",
    "always_attach_evaluation_results",
    "sample_in_numpy",
    "jit_compile",
    "learner_threads",
    "share_memory",
    "vectorized_env",
    "output_config",
    "evaluation_duration_unit",  # of RLlib 1.10
    "keep_per_episode_custom_metrics",  # of RLlib 1.12
}


def merged(**overrides: Any) -> dict[str, Any]:
    return merge_configs(CommonConfig.defaults(), overrides, CommonConfig)


def fault_lines(**overrides: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        merged(**overrides)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_common_config_has_the_79_keys_and_our_new_ones() -> None:
    assert len(set(CommonConfig.defaults()) - NEW_KEYS - {"_disable_execution_plan_api"}) == 79
    assert set(CommonConfig.defaults()) >= NEW_KEYS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_workers", 2), ("rollout_fragment_length", 200), ("train_batch_size", 200), ("gamma", 0.99), ("lr", 1e-4),
        ("framework", "torch"), ("evaluation_num_episodes", 10), ("input_evaluation", ["is", "wis"]),
        ("model.fcnet_hiddens", [256, 256]), ("model.fcnet_activation", "tanh"), ("model.max_seq_len", 20),
        ("model.custom_model_config", {}), ("multiagent.count_steps_by", "env_steps"), ("simple_optimizer", -1),
        ("exploration_config", {"type": "StochasticSampling"}), ("output_max_file_size", 67108864),
    ],
)  # fmt: skip
def test_common_config_default_is_that_of_the_reference(key: str, value: Any) -> None:
    assert lookup(CommonConfig.defaults(), key) == value


@pytest.mark.parametrize(
    ("key", "bad", "wanted"),
    [
        ("lr", "1e-4", "lr: got '1e-4' (str), wanted a number >= 0; write it without quotes"),
        ("lr", math.nan, "lr: got nan (float), wanted a number >= 0"),
        ("lr", math.inf, "lr: got inf (float), wanted a number >= 0"),
        ("lr", None, "lr: got None, wanted a number >= 0"),
        ("lr", -1e-4, "lr: got -0.0001 (float), wanted a number >= 0"),
        ("lr", True, "lr: got True, wanted a number >= 0"),
        ("gamma", 1.01, "gamma: got 1.01 (float), wanted a number in [0, 1]"),
        ("num_workers", True, "num_workers: got True, wanted an integer >= 0 (processes)"),
        ("num_workers", 1.5, "num_workers: got 1.5 (float), wanted an integer >= 0 (processes)"),
        ("num_workers", np.float32(1.5), "num_workers: got 1.5 (float), wanted an integer >= 0 (processes)"),
        ("num_workers", "2", "num_workers: got '2' (str), wanted an integer >= 0 (processes); write it without quotes"),
        ("num_workers", [2], "num_workers: got [2] (list), wanted an integer >= 0 (processes)"),
        ("num_envs_per_worker", 0, "num_envs_per_worker: got 0 (int), wanted an integer >= 1 (environments)"),
        ("horizon", -1, "horizon: got -1 (int), wanted an integer >= 0 or None (env steps)"),
        ("explore", 2, "explore: got 2 (int), wanted True or False"),
        ("explore", "yes", "explore: got 'yes' (str), wanted True or False"),
        ("seed", -3, "seed: got -3 (int), wanted an integer >= 0 or None"),
        ("framework", "pytorch", "framework: got 'pytorch' (str), wanted one of 'torch', 'tf', 'tf2', 'tfe'"),
        ("log_level", "Warn", "log_level: got 'Warn' (str), wanted an integer in [0, 50] or one of 'DEBUG', "),
        ("batch_mode", "truncated_episodes", "did you mean 'truncate_episodes'?"),
        ("placement_strategy", "PAC", "did you mean 'PACK'?"),
        ("clip_rewards", "yes", "clip_rewards: got 'yes' (str), wanted a number >= 0 or True or False or None"),
        ("evaluation_num_episodes", "atuo", "got 'atuo' (str), wanted an integer >= 1 or 'auto'"),
        ("evaluation_num_episodes", 0, "evaluation_num_episodes: got 0 (int)"),
        ("env", gymnasium.make("CartPole-v1"), "this is an instance: give its class"),
        ("env", 3, "env: got 3 (int), wanted a registered name, a Gymnasium id, a class, a function or None"),
        ("observation_space", (4,), "observation_space: got (4,) (tuple), wanted a space"),
        ("observation_filter", "MeanStdFiler", "did you mean 'MeanStdFilter'?"),
        ("env_task_fn", "curriculum", "env_task_fn: got 'curriculum' (str), wanted a callable or None"),
        ("callbacks", "MyCallbacks", "callbacks: got 'MyCallbacks' (str), wanted a DefaultCallbacks subclass"),
        ("callbacks", {"on_epsode_end": print}, "there is no hook 'on_epsode_end'; did you mean 'on_episode_end'?"),
        ("callbacks", {"on_episode_end": 3}, "a function for every hook; that of on_episode_end is a int"),
        ("custom_resources_per_worker", {"tpu": -1}, "wanted a number >= 0 for every resource, not tpu=-1"),
        ("extra_python_environs_for_worker", {"A": [1]}, "wanted text or numbers as values, not A=[1]"),
        ("simple_optimizer", 2, "simple_optimizer: got 2 (int), wanted True or False or -1"),
        ("input_evaluation", "is", "input_evaluation: got 'is' (str), wanted a list of strings"),
        ("model", "big", "model: got 'big' (str), wanted a dict"),
        ("model", {"fcnet_hiddens": 256}, "model.fcnet_hiddens: got 256 (int), wanted a list of integers >= 1"),
        ("model", {"fcnet_hiddens": [256, "a"]}, "model.fcnet_hiddens: got [256, 'a'] (list), wanted a list"),
        ("model", {"fcnet_activation": "relv"}, "did you mean 'relu'?"),
        ("model", {"conv_filters": [[16, 8]]}, "wanted a list of [out_channels, kernel, stride], for example"),
        ("model", {"conv_filters": [16, 8, 4]}, "model.conv_filters: got [16, 8, 4] (list), wanted a list of"),
        ("model", {"conv_filters": [[16, [8, 8], 0]]}, "wanted a list of [out_channels, kernel, stride]"),
        ("model", {"conv_filters": [[16, 8, 4, "full"]]}, 'wanted "same" or "valid" as the padding, a filter'),
        ("model", {"custom_model": 3}, "model.custom_model: got 3 (int), wanted a registered name, a class or None"),
        ("model", {"custom_model_config": None}, "model.custom_model_config: got None, wanted a dict"),
        ("model", {"use_lstm": True, "use_attention": True}, "model: use_lstm and use_attention are both on"),
        ("multiagent", {"count_steps_by": "steps"}, "multiagent.count_steps_by: got 'steps' (str), wanted one of"),
        ("multiagent", {"policies": "default_policy"}, "wanted {policy id: PolicySpec}, a set of policy ids or None"),
        ("multiagent", {"policies": {1}}, "multiagent: policies: a policy id must be a string, got 1 (int)"),
        ("multiagent", {"policies": {"p": (None, None)}}, "multiagent: policies.p: got 2 parts, wanted 4"),
        ("multiagent", {"policies": {"p": (None, None, None, 3)}}, "multiagent: policies.p: config: got 3 (int)"),
        ("multiagent", {"policies": {"p": 3}}, "multiagent: policies.p: got 3 (int), wanted a PolicySpec"),
        ("multiagent", {"policies_to_train": 3}, "multiagent.policies_to_train: got 3 (int), wanted a list of"),
    ],
)  # fmt: skip
def test_bad_value_is_named_with_what_is_wanted(key: str, bad: Any, wanted: str) -> None:
    assert any(wanted in line for line in fault_lines(**{key: bad}))


@pytest.mark.parametrize(
    ("key", "given", "kept"),
    [
        ("explore", 0, False), ("explore", "true", True), ("explore", None, False),
        ("lr", 1, 1.0), ("lr", np.float32(0.5), 0.5), ("lr", np.float64(0.5), 0.5), ("lr", np.array(0.5), 0.5),
        ("train_batch_size", 1e4, 10_000), ("train_batch_size", np.int64(7), 7), ("num_workers", np.float64(2.0), 2),
        ("explore", np.bool_(False), False), ("framework", np.str_("torch"), "torch"), ("clip_rewards", 1, 1.0),
        ("clip_rewards", True, True), ("clip_rewards", None, None), ("horizon", 100.0, 100), ("seed", 0, 0),
        ("num_gpus", 0.5, 0.5), ("num_gpus", 1, 1), ("evaluation_interval", 0, 0), ("input_evaluation", [], []),
        ("simple_optimizer", np.int64(-1), -1), ("custom_resources_per_worker", {"tpu": np.int64(1)}, {"tpu": 1}),
    ],
)  # fmt: skip
def test_good_value_is_kept_in_its_declared_type(key: str, given: Any, kept: Any) -> None:
    result = merged(**{key: given})[key]
    assert result == kept
    assert type(result) is type(kept)


def test_model_lists_given_as_tuples_and_arrays_become_lists() -> None:
    filters = ((16, (8, 8), 4, "valid"), (32, 4, np.int64(2)))
    model = merged(model={"fcnet_hiddens": np.array([8, 16]), "conv_filters": filters})["model"]
    assert model["fcnet_hiddens"] == [8, 16]
    assert model["conv_filters"] == [[16, [8, 8], 4, "valid"], [32, 4, 2]]
    assert all(type(size) is int for size in model["fcnet_hiddens"])


def test_free_form_sections_take_any_key() -> None:
    environment = object()
    config = merged(
        env_config={"map": "4x4", 3: 4, "deep": {"object": environment}},
        model={"custom_model_config": {"anything": 1}},
        logger_config={"logdir": "/tmp"},
        custom_resources_per_worker={"tpu": 1},
        extra_python_environs_for_worker={"A": "b"},
    )
    assert config["env_config"]["deep"]["object"] is environment
    assert config["env_config"][3] == 4
    assert config["model"]["custom_model_config"] == {"anything": 1}


def test_classes_functions_and_spaces_are_accepted_and_kept() -> None:
    class Env(gymnasium.Env[Any, Any]): ...

    space = gymnasium.spaces.Discrete(2)
    config = merged(
        env=Env, observation_space=space, action_space=space, callbacks=Env, observation_filter=len, env_task_fn=len
    )
    assert config["env"] is Env
    assert config["observation_space"] is space
    assert merged(callbacks={"on_episode_end": print})["callbacks"] == {"on_episode_end": print}


REFUSED = [("sample_collector", object)]
HARMLESS = ["remote_worker_envs", "remote_env_batch_wait_ms", "model._use_default_native_models", "optimizer"]


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_unsupported_value_is_refused_with_advice(key: str, value: Any) -> None:
    overrides: dict[str, Any] = {}
    assign(overrides, key, value)
    assert any(
        line.startswith(f"{key}: got") and "not available in this version" in line for line in fault_lines(**overrides)
    )


@pytest.mark.parametrize("key", HARMLESS)
def test_value_that_the_run_is_the_same_without_is_a_warning(key: str) -> None:
    overrides: dict[str, Any] = {}
    assign(overrides, key, {"optimizer": {"debug": True}, "remote_env_batch_wait_ms": 1}.get(key, True))
    with pytest.warns(UserWarning, match=f"{key}=.* has no effect: "):
        merged(**overrides)


def test_unsupported_table_is_tested_completely_and_refuses_no_default() -> None:
    assert {*(key for key, _ in REFUSED), *HARMLESS} == set(UNSUPPORTED)
    defaults = CommonConfig.defaults()
    assert not [key for key, refusal in UNSUPPORTED.items() if refusal.refuses(lookup(defaults, key))]


def test_honoured_keys_leave_out_refused_and_deprecated_ones() -> None:
    honoured = honoured_keys()
    assert {"num_gpus", "framework", "model.use_lstm", "exploration_config.epsilon_timesteps"} <= honoured
    assert not {"remote_worker_envs", "monitor", "model.lstm_use_prev_action_reward"} & honoured


def test_evaluation_parallel_without_workers_is_accepted() -> None:
    assert merged(evaluation_parallel_to_training=True)["evaluation_parallel_to_training"] is True


def test_evaluation_auto_without_parallel_is_refused() -> None:
    assert "needs evaluation_parallel_to_training=True" in fault_lines(evaluation_num_episodes="auto")[0]


def test_evaluation_auto_with_parallel_is_accepted() -> None:
    config = merged(
        evaluation_num_episodes="auto",
        evaluation_parallel_to_training=True,
        evaluation_num_workers=1,
        evaluation_interval=1,
    )
    assert config["evaluation_num_episodes"] == "auto"


def test_evaluation_workers_without_interval_are_remarked() -> None:
    with pytest.warns(UserWarning, match="without evaluation_interval"):
        merged(evaluation_num_workers=1)


def test_fragments_of_evaluation_are_remarked() -> None:
    with pytest.warns(UserWarning, match="evaluation runs whole episodes"):
        merged(evaluation_config={"rollout_fragment_length": 1})


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ({"num_workers": 5}, "evaluation_config.num_workers: got 5 (int); set evaluation_num_workers"),
        ({"batch_mode": "complete_episodes"}, "evaluation runs whole episodes"),
        ({"in_evaluation": True}, "rlframe sets it"),
        ({"evaluation_interval": 5}, "evaluation_config.evaluation_interval has no effect there"),
    ],
)
def test_evaluation_config_key_without_effect_is_refused(override: dict[str, Any], advice: str) -> None:
    assert any(advice in line for line in fault_lines(evaluation_config=override))


def test_evaluation_config_has_room_for_what_a_program_reads_there() -> None:
    with pytest.warns(UserWarning, match="evaluation_config.out_dir: unknown key, kept for the program's own code"):
        config = merged(evaluation_config={"out_dir": "wins", "explore": False})
    assert config["evaluation_config"] == {"out_dir": "wins", "explore": False}
    again = evaluation_config(config, lambda base, over: merge_configs(base, over, CommonConfig), seed=0)
    assert (again["out_dir"], again["explore"]) == ("wins", False)
    for slip in ("explor", "learning_rate", "fcnet_hiddens"):
        assert fault_lines(evaluation_config={slip: 1})


@pytest.mark.parametrize("level", [logging.INFO, np.int64(10), "ERROR"])
def test_log_level_is_a_name_or_a_number(level: Any) -> None:
    assert merged(log_level=level)["log_level"] == level
    assert fault_lines(log_level=51)
    assert fault_lines(log_level="info")


def test_evaluation_config_copied_from_the_config_is_accepted() -> None:
    whole = {**CommonConfig.defaults(), "evaluation_config": {"gamma": 0.5}}
    evaluation = merged(evaluation_config={**whole, "explore": False})["evaluation_config"]
    assert evaluation["explore"] is False
    assert "evaluation_config" not in evaluation


def test_evaluation_config_faults_are_named_with_their_section() -> None:
    lines = fault_lines(
        evaluation_config={
            "explor": False,
            "gamma": 2,
            "framework": "jax",
            "model": {"dimm": 3},
            "exploration_config": {"type": "EpsilonGreedy", "final_epsilo": 0.1},
        }
    )
    assert {line.split(": ")[0] for line in lines} == {
        "evaluation_config.explor",
        "evaluation_config.model.dimm",
        "evaluation_config.exploration_config.final_epsilo",
        "evaluation_config.gamma",
        "evaluation_config.framework",
    }
    assert "evaluation_config.explor: unknown key; did you mean evaluation_config.explore?" in lines


def test_evaluation_config_fault_of_the_config_itself_is_reported_once() -> None:
    assert len(fault_lines(gamma=2, evaluation_config={"explore": False})) == 1


def test_import_of_rlframe_loads_no_pydantic() -> None:
    code = "import rlframe, sys; sys.exit('pydantic' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_fragment_of_no_steps_is_for_whole_episodes_only():
    whole = {"rollout_fragment_length": 0, "batch_mode": "complete_episodes"}
    assert merge_configs(CommonConfig.defaults(), whole, CommonConfig)["rollout_fragment_length"] == 0
    with pytest.raises(ConfigError, match="rollout_fragment_length=0: wanted an integer >= 1"):
        merge_configs(CommonConfig.defaults(), {"rollout_fragment_length": 0}, CommonConfig)
