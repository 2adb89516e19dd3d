"""Arguments of Ray 1.x's `tune.run`, before anything is run."""

import collections
import copy
import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import ray.tune
from ray.tune.experiment import Trial
from ray.tune.impl.placeholder import create_resolvers_map, inject_placeholders
from ray.tune.search.sample import Function
from ray.tune.search.variant_generator import generate_variants
from ray.tune.trainable.function_trainable import wrap_function

from rlframe import tune
from rlframe.agents.pg import PGTrainer
from rlframe.trainer.checkpoint_paths import NOTE
from rlframe.tune.functions import as_trainable
from rlframe.tune.logger import (
    DEFAULT_LOGGERS,
    CSVLogger,
    JsonLogger,
    Logger,
    LoggerCallback,
    NoopLogger,
    TBXLogger,
    UnifiedLogger,
)
from rlframe.tune.tracking import CallbackLogger
from rlframe.tune.translate import (
    checkpoint_path,
    loggers_of_experiments,
    reserving,
    translate_experiments,
    translate_run,
)
from rlframe.utils.errors import ConfigError


def test_local_dir_is_an_absolute_storage_path() -> None:
    assert translate_run({"local_dir": "~/here"}) == {"storage_path": os.path.expanduser("~/here")}
    assert translate_run({"local_dir": "here"}) == {"storage_path": os.path.abspath("here")}


def test_functions_that_sample_find_what_stands_beside_the_config() -> None:
    config = {
        "a": tune.grid_search([1, 2]),
        "of_spec": tune.sample_from(lambda spec: spec.config.a * spec.stop["training_iteration"]),
        "model": {"of_config": tune.sample_from(lambda config: config["a"] + 1)},
        "layers": [tune.sample_from(lambda spec: spec["num_samples"]), 5],
        "b": tune.sample_from(lambda spec: spec.config.of_spec + 1),
    }
    given = dict(config)
    translated = translate_run({"config": config, "stop": {"training_iteration": 10}, "num_samples": 3})
    assert config == given
    assert translated["config"]["a"] is config["a"]
    sampled = [spec["config"] for _, spec in generate_variants({"config": translated["config"]})]
    assert [(each["of_spec"], each["b"], each["model"]["of_config"]) for each in sampled] == [(10, 11, 2), (20, 21, 3)]
    assert [each["layers"] for each in sampled] == [[3, 5]] * 2
    by_name = translate_experiments({"one": {"run": "PG", "config": config, "stop": {"training_iteration": 4}}})
    assert [spec["config"]["b"] for _, spec in generate_variants(by_name["one"])] == [5, 9]


def test_what_functions_return_is_known_when_a_trial_is_named() -> None:
    config = {
        "first": tune.sample_from(lambda spec: spec.config.second + 1),  # Ray alone hands it a mark of its own
        "second": tune.sample_from(lambda: 2),
        "model": {"of_object": tune.sample_from(lambda spec: spec.config.made_by.__name__)},
        "made_by": dict,
        "pair": ("text", list),
    }
    translated = translate_run({"config": config})["config"]
    marked = inject_placeholders(copy.deepcopy(translated), create_resolvers_map())  # as Ray does first
    ((resolved, spec),) = generate_variants({"config": marked})
    assert resolved == {("config", "first"): 3, ("config", "second"): 2, ("config", "model", "of_object"): "dict"}
    assert spec["config"]["model"] == {"of_object": "dict"}
    of_search = translate_run({"config": config, "search_alg": "chooses itself"})["config"]
    assert isinstance(of_search["first"], Function)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"resume": "LOCAL"}, "AUTO"),
        ({"resume": "PROMPT"}, "AUTO"),
        ({"resume": "ERRORED_ONLY"}, "AUTO+RESTART_ERRORED"),
        ({"run_errored_only": True}, "AUTO+RESTART_ERRORED"),
        ({"resume": "LOCAL+ERRORED"}, "AUTO+ERRORED"),
        ({"resume": True}, True),
    ],
)
def test_resuming_has_todays_words(given: dict[str, object], wanted: object) -> None:
    assert translate_run(given) == {"resume": wanted}


def test_sync_config_that_says_nothing_is_dropped() -> None:
    assert translate_run({"sync_config": {"upload_dir": None, "sync_on_checkpoint": True}}) == {}
    assert translate_run({"sync_config": {"sync_period": 5}}) == {"sync_config": {"sync_period": 5}}
    with pytest.raises(ConfigError, match=r"sync_config\['upload_dir'\]: got 's3://a'.* give storage_path"):
        translate_run({"sync_config": {"upload_dir": "s3://a"}})


def test_local_dir_beside_storage_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="old name of storage_path"):
        translate_run({"local_dir": "a", "storage_path": "b"})


@pytest.mark.parametrize(("attribute", "wanted"), [("episode_reward_mean", "max"), ("min-loss", "min")])
def test_checkpoint_arguments_become_a_checkpoint_config(attribute: str, wanted: str) -> None:
    translated = translate_run(
        {
            "checkpoint_freq": 3,
            "checkpoint_at_end": True,
            "keep_checkpoints_num": 2,
            "checkpoint_score_attr": attribute,
            "num_samples": 4,
        }
    )
    made = translated.pop("checkpoint_config")
    assert translated == {"num_samples": 4}
    assert (made.checkpoint_frequency, made.checkpoint_at_end, made.num_to_keep) == (3, True, 2)
    assert (made.checkpoint_score_attribute, made.checkpoint_score_order) == (attribute.removeprefix("min-"), wanted)


def test_arguments_of_their_default_value_set_nothing() -> None:
    assert translate_run({"checkpoint_freq": 0, "loggers": None, "upload_dir": None, "restore": None}) == {
        "restore": None
    }


def test_what_has_no_meaning_is_dropped() -> None:
    assert translate_run({"queue_trials": True, "ray_auto_init": False, "with_server": False}) == {}


@pytest.mark.parametrize("name", ["trial_executor", "upload_dir", "sync_to_driver"])
def test_what_would_change_the_run_is_refused_with_the_alternative(name: str) -> None:
    with pytest.raises(ConfigError, match=r"storage_path|resources_per_trial"):
        translate_run({name: "x"})


def test_default_loggers_are_left_out_and_own_ones_become_a_callback() -> None:
    assert translate_run({"loggers": [*DEFAULT_LOGGERS, NoopLogger, UnifiedLogger]}) == {}

    class Mine(Logger):
        pass

    before = object()
    callbacks = translate_run({"loggers": [*DEFAULT_LOGGERS, Mine], "callbacks": [before]})["callbacks"]
    assert callbacks[0] is before
    assert len(callbacks) == 2


def test_experiments_of_rllib_files_are_translated() -> None:
    spec = {"run": "DQN", "env": "CartPole-v1", "config": {"lr": 1}, "local_dir": "/x", "checkpoint_freq": 1}
    made = translate_experiments([{"a": spec}])[0]["a"]
    assert made["config"] == {"lr": 1, "env": "CartPole-v1"}
    assert made["storage_path"] == "/x"
    assert made["checkpoint_config"].checkpoint_frequency == 1
    assert "env" in spec, "what the user wrote is not changed"


def test_loggers_of_an_experiment_log_its_trials_alone() -> None:
    made: list[tuple[object, ...]] = []
    experiments = {"a": {"run": "DQN", "loggers": [TBXLogger, lambda *given: made.append(given)]}, "b": {"run": "DQN"}}
    assert translate_experiments(experiments)["a"] == {"run": "DQN"}
    (callback,) = loggers_of_experiments([experiments])
    for name in "ab":
        storage = SimpleNamespace(experiment_dir_name=name)
        callback.log_trial_start(SimpleNamespace(trial_id=name, config={}, local_path=name, storage=storage))
    assert [logdir for _, logdir, _ in made] == ["a"]


class Filtered(TBXLogger):
    """Shows some results, and a curve that it draws itself, as programs for Ray 1.x do."""

    def on_result(self, result):
        self._file_writer.add_scalar("ray/tune/twice", 2 * result["reward"], global_step=result["timesteps_total"])
        super().on_result({name: value for name, value in result.items() if name != "noise"})


class WithFile(CSVLogger):
    """Opens a file of its own in place of what the base class opens."""

    def _init(self):
        self.opened = os.path.join(self.logdir, "own.csv")
        Path(self.opened).write_text("")


def test_loggers_that_derive_from_those_of_ray_1_write_in_trials(tmp_path: Path) -> None:
    trial = Trial("PG", stub=True, evaluated_params={"lr": 1.0})
    loggers = [make({}, str(tmp_path), trial) for make in (Filtered, WithFile)]
    for steps in (10, 20):
        result = {"timesteps_total": steps, "training_iteration": 1, "reward": 3.0, "noise": 1.0, "info": {"x": 2}}
        for logger in loggers:
            logger.on_result(result)
    for logger in loggers:
        logger.flush()
        logger.close()
    written = b"".join(path.read_bytes() for path in tmp_path.glob("events.out.tfevents.*"))
    assert written.count(b"ray/tune/twice") == 2
    assert written.count(b"ray/tune/info/x") >= 2
    assert b"ray/tune/noise" not in written
    assert (tmp_path / "own.csv").is_file()


class Recorder(LoggerCallback):
    """Keeps what it is told."""

    told: list[tuple[object, ...]] = []  # noqa: RUF012  of all, since the logger makes its own

    def __init__(self, project: str) -> None:
        self.project = project

    def setup(self, *args: object, **kwargs: object) -> None:
        self.told.append(("setup", self.project))

    def log_trial_start(self, trial: Trial) -> None:
        self.told.append(("start", trial))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, object]) -> None:
        self.told.append((iteration, trial, result))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self.told.append(("end", trial, failed))

    def on_experiment_end(self, trials: list[Trial], **info: object) -> None:
        self.told.append(("waited", trials))


class RecordingLogger(CallbackLogger):
    section = "wandb"
    callback_class = Recorder


@pytest.mark.parametrize("config", [{"logger_config": {"wandb": {"project": "p"}}}, {"wandb": {"project": "p"}}])
def test_loggers_of_services_are_callbacks_of_the_trials_own_config(config: dict[str, object], tmp_path: Path) -> None:
    Recorder.told.clear()
    trial = Trial("PG", stub=True)
    logger = RecordingLogger(config, str(tmp_path), trial)
    result = {"training_iteration": 3, "reward": 2.0}
    logger.on_result(result)
    logger.flush()
    logger.close()
    assert Recorder.told == [
        ("setup", "p"), ("start", trial), (3, trial, result), ("end", trial, False), ("waited", [trial]),
    ]  # fmt: skip


def test_loggers_of_services_say_what_they_lack(tmp_path: Path) -> None:
    from rlframe.tune.integration.mlflow import MLFlowLogger, MLflowLogger
    from rlframe.tune.integration.wandb import _VALID_ITERABLE_TYPES, _VALID_TYPES, WandbLogger

    assert isinstance(np.float32(1), _VALID_TYPES)
    assert not isinstance("text", (*_VALID_TYPES, *_VALID_ITERABLE_TYPES))
    assert MLFlowLogger is MLflowLogger
    trial = Trial("PG", stub=True)
    with pytest.raises(ConfigError, match=r"logger_config\.wandb: got None, wanted a dict of WandbLoggerCallback's"):
        WandbLogger({"lr": 1.0}, str(tmp_path), trial)
    with pytest.raises(ConfigError, match=r"MLflowLogger: got no trial.*loggers=\[MLflowLogger\]"):
        MLflowLogger({"mlflow": {}}, str(tmp_path))


def test_checkpoints_are_found_by_any_spelling(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint_000010"
    directory.mkdir()
    assert checkpoint_path(str(directory)) == str(directory)
    assert checkpoint_path(directory / "checkpoint-10") == str(directory)
    (directory / NOTE).write_text(json.dumps({"file": "deep/model", "counters": {}}))  # of a program's own trainable
    assert checkpoint_path(directory / "deep" / "model") == str(directory)


def test_unified_logger_writes_a_run_directory(tmp_path: Path) -> None:
    logger = UnifiedLogger({"lr": 1}, str(tmp_path), loggers=None)
    logger.on_result({"training_iteration": 1, "timesteps_total": 5})
    logger.close()
    assert json.loads((tmp_path / "result.json").read_text()) == {"training_iteration": 1, "timesteps_total": 5}


def test_unified_logger_hands_results_to_loggers_of_a_programs_own(tmp_path: Path) -> None:
    class Kept(Logger):
        def _init(self) -> None:
            self.results: list[object] = []

        def on_result(self, result: object) -> None:
            self.results.append(result)

    class Sparse(UnifiedLogger):
        def on_result(self, result: object) -> None:
            for logger in self._loggers:
                logger.on_result(result)

    logger = Sparse(config={"lr": 1}, logdir=str(tmp_path), trial=None, loggers=[Kept, TBXLogger], sync_function=None)
    logger.on_result({"training_iteration": 1})
    logger.flush()
    logger.close()
    (kept,) = (each for each in logger._loggers if isinstance(each, Kept))
    assert kept.results == [{"training_iteration": 1}]
    assert (kept.logdir, kept.config, kept.trial) == (str(tmp_path), {"lr": 1}, None)
    assert json.loads((tmp_path / "result.json").read_text()) == {"training_iteration": 1}


def test_loggers_of_tunes_files_write_them_outside_of_tune_alone(tmp_path: Path) -> None:
    JsonLogger({}, str(tmp_path / "alone")).on_result({"training_iteration": 1})
    assert (tmp_path / "alone" / "result.json").exists()
    UnifiedLogger({}, str(tmp_path / "trial"), trial=object()).on_result({"training_iteration": 1})
    assert not (tmp_path / "trial").exists()


@pytest.mark.parametrize(
    ("given", "bundles"),
    [
        ({"cpu": 1, "extra_cpu": 2}, [{"CPU": 1.0}, {"CPU": 2.0}]),
        ({"cpu": 1, "gpu": 0, "extra_cpu": 2, "extra_gpu": 1}, [{"CPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}]),
        ({"cpu": 1, "extra_cpu": 0}, [{"CPU": 1.0}]),
        ({"extra_cpu": 1, "custom_resources": {"arm": 2}, "lidar": 1}, [{"arm": 2.0, "lidar": 1.0}, {"CPU": 1.0}]),
        ({"cpu": 1, "extra_memory": 8}, [{"CPU": 1.0}, {"memory": 8.0}]),
    ],
)
def test_extra_resources_are_bundles_for_what_a_trial_starts(given: dict[str, float], bundles: list[object]) -> None:
    own, *extra = translate_run({"resources_per_trial": given})["resources_per_trial"].bundles
    assert [own, *_summed(extra)] == bundles  # one bundle, or one for each CPU, as nodes are


def test_misspelt_extra_resources_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"got \['extra_cpus'\], wanted of workers' resources \['extra_cpu', "):
        translate_run({"resources_per_trial": {"cpu": 1, "extra_cpus": 2}})


def _summed(bundles: list[dict[str, float]]) -> list[dict[str, float]]:
    total = collections.Counter[str]()
    for bundle in bundles:
        total.update(bundle)  # type: ignore[arg-type]
    return [dict(total)] if total else []


def test_before_ray_is_started_extra_cpus_are_bundles_that_fit_into_any_node() -> None:
    program = "from rlframe.tune.resources import Resources; print(Resources(cpu=1, extra_cpu=3).bundles)"
    told = subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True, text=True)
    assert told.stdout.splitlines()[-1] == str([{"CPU": 1.0}] * 4)


def test_functions_of_the_spec_say_what_a_function_reserves() -> None:
    def train(config, reporter):  # type: ignore[no-untyped-def]
        reporter(done=True)

    given = {"cpu": 1, "gpu": lambda spec: spec.config.num_gpus, "extra_cpu": lambda spec: spec.config["num_workers"]}
    arguments = translate_run({"resources_per_trial": given})
    trainable = reserving(train, arguments)
    assert arguments == {}
    assert _summed(trainable._resources({"num_gpus": 0, "num_workers": 2}).bundles) == [{"CPU": 3.0}]
    assert trainable._resources({"num_gpus": 1, "num_workers": 0}).bundles == [{"CPU": 1.0, "GPU": 1.0}]
    one = translate_run({"resources_per_trial": {"cpu": lambda spec: spec.config.cores}})
    assert reserving(train, one)._resources({"cores": 3}).bundles == [{"CPU": 3.0}]


def test_functions_of_the_spec_are_for_functions() -> None:
    arguments = translate_run({"resources_per_trial": {"cpu": lambda spec: 1}})
    with pytest.raises(ConfigError, match="got functions, for 'PPO', which reserves what its config needs"):
        reserving("PPO", arguments)


def test_resources_of_today_stay() -> None:
    given = {"cpu": 2}
    assert translate_run({"resources_per_trial": given}) == {"resources_per_trial": given}


def test_functions_reserve_for_the_trainer_they_make() -> None:
    def train(config, reporter):  # type: ignore[no-untyped-def]
        reporter(done=True)

    reserve = as_trainable(train)._resources
    assert len(reserve({"env": "CartPole-v1", "num_workers": 2}).bundles) == 3
    assert reserve({"num_workers": 8, "batch_size": 32}) is None  # of another program's data loader
    assert list(inspect.signature(as_trainable(train)).parameters) == ["config"]


def test_what_a_program_reserves_for_a_function_goes_before_what_its_trainer_needs() -> None:
    def train(config):  # type: ignore[no-untyped-def]
        ray.tune.report({"done": True})

    given = PGTrainer.default_resource_request({"num_workers": 1})
    for resources, reserved in [(None, 3), (given, None), (None, 3)]:  # also of a function that was run before
        trial = wrap_function(as_trainable(train, resources)).default_resource_request({"env": "e", "num_workers": 2})
        assert (trial and len(trial.bundles)) == reserved


def test_outside_of_a_trial_there_is_nothing_to_say_of_one() -> None:
    told = (tune.get_trial_dir(), tune.get_trial_id(), tune.get_trial_name(), tune.get_trial_resources())
    assert told == (None,) * 4
    assert not tune.is_session_enabled()


class Study:
    def method(self, config: object, reporter: object) -> None: ...


def with_data(config: object, reporter: object, data: object) -> None: ...


@pytest.mark.parametrize("trainable", [Study().method, functools.partial(with_data, data=1)])
def test_methods_and_partials_are_called_as_they_declare(trainable: object) -> None:
    made = as_trainable(trainable)
    assert list(inspect.signature(made).parameters) == ["config"]
    wrap_function(made)  # Ray's, which refuses a reporter
    assert made.__name__ in ("method", "with_data")


@pytest.mark.parametrize("trainable", ["DQN", dict, lambda config, other: None])
def test_what_ray_takes_or_refuses_itself_stays(trainable: object) -> None:
    assert as_trainable(trainable) is trainable


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("util", ["merge_dicts"]),
        ("utils", ["merge_dicts"]),
        ("trial", ["Trial"]),
        ("tune", ["run", "run_experiments"]),
        ("result", ["DEFAULT_RESULTS_DIR", "TRAINING_ITERATION"]),
        ("registry", ["ENV_CREATOR", "_global_registry", "get_trainable_cls", "register_env"]),
    ],
)
def test_modules_of_ray_1_are_found(module: str, names: list[str]) -> None:
    found = importlib.import_module(f"rlframe.tune.{module}")
    assert all(hasattr(found, name) for name in names)


def test_names_that_loggers_and_operators_of_a_programs_own_import() -> None:
    from rlframe.execution.common import GradientType
    from rlframe.tune.logger import VALID_SUMMARY_TYPES

    assert GradientType is not None
    assert {int, float} <= set(VALID_SUMMARY_TYPES)
