"""The tables of RLlib's paths: what they name exists, what they answer is a sentence, and how both are met."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
from types import SimpleNamespace

import gymnasium
import pytest
from ray import cloudpickle

from rlframe.rllib1x import finder, tables
from rlframe.utils.errors import ConfigError

FILES = sorted(path.stem for path in tables.FOLDER.glob("*.ini"))


def rows(file):
    """Yields module, name and entry of one table."""
    for module, entries in tables._table(tables.FOLDER / f"{file}.ini").items():
        assert file in (tables._file_of(module).stem, "imported"), (
            f"{module} stands in {file}.ini, where nobody looks for it"
        )
        yield from ((module, name, entry) for name, entry in entries.items())


@pytest.mark.parametrize("file", FILES)
def test_no_name_stands_in_two_rows(file):
    parser = tables._parser(tables.FOLDER / f"{file}.ini")
    for module in parser.sections():
        names = [name.strip() for row in parser[module] for name in row.split(",")]
        assert len(names) == len(set(names)), (module, sorted(name for name in names if names.count(name) > 1))


@pytest.mark.parametrize("file", FILES)
def test_every_target_is_there(file):
    pytest.importorskip("tensorflow")
    pytest.importorskip("torch")
    for module, name, entry in rows(file):
        if tables.is_sentence(entry):
            continue
        if name == tables.EVERYTHING:
            importlib.import_module(entry)
        assert name == tables.EVERYTHING or hasattr(importlib.import_module(module), name), (module, name, entry)


@pytest.mark.parametrize("file", FILES)
def test_every_answer_is_a_sentence_that_says_what_there_is(file):
    for module, name, entry in rows(file):
        if tables.is_sentence(entry):
            sentence = tables.sentence_of(entry)
            assert sentence.endswith("."), (module, name, sentence)
            assert any(word in sentence.lower() for word in (" use ", "instead", "is called", "there is")), sentence
            with pytest.raises(ImportError) as raised:
                getattr(importlib.import_module(module), name)
            assert sentence in str(raised.value)


@pytest.mark.parametrize(
    "code",
    [
        "from rlframe.agents.alpha_star import AlphaStarTrainer",
        "from rlframe.agents import alpha_star",
        "import rlframe.agents.alpha_star.league_builder",
        "import rlframe.agents\nrlframe.agents.alpha_star",
    ],
)
def test_the_path_of_an_algorithm_that_is_not_built_says_what_there_is(code):
    with pytest.raises(ImportError, match=r"^No rlframe\.agents\.alpha_star\S* here: AlphaStar exists .*; use PPO"):
        exec(code, {})


def test_old_paths_are_modules():
    from rlframe.exploration import EpsilonGreedy

    module = importlib.import_module("rlframe.utils.exploration.epsilon_greedy")
    assert module.EpsilonGreedy is EpsilonGreedy
    assert dir(module) == module.__all__
    assert "EpsilonGreedy" in module.__all__
    names = {}
    exec("from rlframe.utils.exploration import *", names)
    assert names["EpsilonGreedy"] is EpsilonGreedy
    assert pickle.loads(pickle.dumps(module.EpsilonGreedy)) is EpsilonGreedy
    assert importlib.util.find_spec("rlframe.utils.exploration.no_such_module") is None


def test_names_that_nobody_had_are_missing_in_pythons_words():
    with pytest.raises(AttributeError, match=r"module 'rlframe.agents.trainer' has no attribute 'no_such_name'"):
        importlib.import_module("rlframe.agents.trainer").no_such_name  # noqa: B018
    with pytest.raises(ImportError, match=r"cannot import name 'no_such_name' from 'rlframe.agents'"):
        exec("from rlframe.agents import no_such_name", {})
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'rlframe.no_such_module'"):
        importlib.import_module("rlframe.no_such_module")


def test_modules_that_are_imported_first_of_all_know_rllibs_names_too():
    code = "import sys, rlframe; print({type(sys.modules[name]).__name__ for name in sys.modules if name[:3] == 'rlf'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'Room'}"


def test_a_room_that_finds_names_itself_keeps_its_own_words():
    room = finder.Room("rlframe.own_words")

    def find(name):
        raise AttributeError(f"own words on {name}")

    room.__dict__["__getattr__"] = find
    with pytest.raises(AttributeError, match="own words on anything"):
        room.anything  # noqa: B018


def test_a_folder_without_code_hides_no_path(tmp_path, monkeypatch):
    (tmp_path / "exploration" / "__pycache__").mkdir(parents=True)
    package = importlib.import_module("rlframe.utils")
    monkeypatch.setattr(package, "__path__", [str(tmp_path)])
    spec = finder.Finder().find_spec("rlframe.utils.exploration", package.__path__)
    assert spec.origin == "rlframe.rllib1x"


def test_nothing_is_read_before_a_name_is_missing():
    code = "import sys, rlframe, rlframe.agents; print('rlframe.rllib1x.tables' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_registry_answers_under_all_its_names():
    from rlframe.agents.agent import get_agent_class
    from rlframe.agents.registry import get_trainer_class

    with pytest.raises(ConfigError, match=r"AlphaStar.*use PPO"):
        get_agent_class("AlphaStar")
    with pytest.raises(ConfigError, match="LinUCB is contrib/LinUCB"):
        get_trainer_class("LinUCB")


@pytest.mark.parametrize("module", ["rlframe", "rlframe.tune", "rlframe.agents.agent"])
def test_functions_that_use_a_module_go_to_other_processes(module):
    held = importlib.import_module(module)

    def use():
        return held

    assert pickle.loads(cloudpickle.dumps(use))() is held


def test_functions_without_a_name_are_sent_from_modules_with_names_of_rllib():
    nameless = lambda: 3  # noqa: E731
    nameless.__module__ = "rlframe.examples.env.multi_agent"
    nameless.__qualname__ = nameless.__name__
    assert pickle.loads(cloudpickle.dumps(nameless))() == 3


def test_names_that_rllibs_modules_had_by_importing_them_are_found_there_too():
    from rlframe.agents.dqn.dqn import LEARNER_STATS_KEY, Concurrently, StandardMetricsReporting
    from rlframe.execution import concurrency_ops, metric_ops

    assert (Concurrently, StandardMetricsReporting) == (
        concurrency_ops.Concurrently,
        metric_ops.StandardMetricsReporting,
    )
    assert LEARNER_STATS_KEY == "learner_stats"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("dqn.r2d2", "R2D2TorchPolicy"), ("cql.cql", "CQLTorchPolicy"), ("sac.rnnsac", "RNNSACTorchPolicy"),
        ("marwil.bc", "MARWILTrainer"), ("trainer_template", "Trainer"), ("ppo.ppo_torch_policy", "TorchPolicy"),
    ],
)  # fmt: skip
def test_classes_of_policies_and_trainers_are_found_beside_what_uses_them(path, name):
    found = getattr(importlib.import_module(f"rlframe.agents.{path}"), name)
    assert name in (found.__name__, f"{found.__name__}Trainer")


def test_old_names_of_tune_and_of_the_agents_are_found():
    from rlframe.agents.dqn import DQNAgent, DQNTrainer
    from rlframe.agents.ppo import PPOAgent, PPOTrainer
    from rlframe.tune.progress_reporter import CLIReporter
    from rlframe.tune.suggest import ConcurrencyLimiter

    assert (DQNAgent, PPOAgent) == (DQNTrainer, PPOTrainer)
    assert CLIReporter.__module__.startswith("ray.tune")
    assert ConcurrencyLimiter.__module__.startswith("ray.tune")
    with pytest.raises(ImportError, match=r"There is setup_wandb\(config\) instead"):
        from rlframe.tune.integration.wandb import wandb_mixin  # noqa: F401


@pytest.mark.parametrize("name", ["dqn", "simple_q"])
def test_what_q_learning_was_made_of_is_found_where_rllib_0_had_it(name):
    old = importlib.import_module(f"rlframe.agents.dqn.{name}_policy")
    new = importlib.import_module(f"rlframe.agents.dqn.{name}_tf_policy")
    own = {"dqn": ["build_q_model", "setup_early_mixins", "setup_mid_mixins", "QLoss", "clip_gradients"]}
    for each in own.get(name, ["build_q_models", "setup_late_mixins", "Q_SCOPE"]):
        assert getattr(old, each) is getattr(new, each)
    if name == "dqn":
        assert old.postprocess_trajectory is new.postprocess_nstep_and_prio
    with pytest.raises(ImportError, match=r"explore by config\[.exploration_config.\].*with_updates"):
        exec(f"from rlframe.agents.dqn.{name}_policy import ExplorationStateMixin")


def test_schedulers_and_results_are_found_by_the_modules_that_ray_1_had_them_in():
    from ray.tune.schedulers import ASHAScheduler

    from rlframe.tune.analysis.experiment_analysis import ExperimentAnalysis
    from rlframe.tune.schedulers.async_hyperband import ASHAScheduler as Found

    assert Found is ASHAScheduler
    assert ExperimentAnalysis is importlib.import_module("rlframe.tune").ExperimentAnalysis


def test_the_plan_of_trainers_without_one_has_its_name():
    from rlframe.agents.trainer import Trainer
    from rlframe.agents.trainer_template import default_execution_plan

    assert default_execution_plan is Trainer.execution_plan


@pytest.mark.slow
def test_modules_are_attributes_of_their_packages_before_anybody_imported_them():
    code = (
        "import sys, rlframe\n"
        "assert rlframe.agents.pg.pg.DEFAULT_CONFIG['lr'] > 0\n"
        "assert rlframe.evaluation.postprocessing.Postprocessing.ADVANTAGES == 'advantages'\n"
        "assert not hasattr(rlframe.agents, 'no_such_thing')\n"
        "assert 'torch' not in sys.modules and 'tensorflow' not in sys.modules\n"
        "from rlframe.agents.ppo.ppo import *\n"
        "from rlframe.agents.ppo import *\n"
        "assert PPOTrainer and PPOTorchPolicy and 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_star_takes_what_rllibs_module_had():
    taken = {}
    for module in (
        "execution.replay_buffer",
        "agents.ppo.ppo_torch_policy",
        "agents.qmix.qmix_policy",
        "agents.ppo.ppo",
    ):
        exec(f"from rlframe.{module} import *", taken)  # a star stands at the top of a module only
    wanted = {"LocalReplayBuffer", "Any", "DEPRECATED_VALUE", "SampleBatch", "np", "List", "logger", "torch", "nn"}
    wanted |= {"ppo_surrogate_loss", "KLCoeffMixin", "QMixTorchPolicy", "VDNMixer", "PPOTrainer", "DEFAULT_CONFIG"}
    assert wanted <= taken.keys()
    assert taken["torch"].__name__ == "torch"
    for module, names in {
        "evaluation.postprocessing": {"np", "SampleBatch"},
        "policy.policy": {"gym", "np", "tree", "ViewRequirement"},
        "utils.torch_utils": {"np"},
        "offline.json_writer": {"os", "Any", "OutputWriter"},
    }.items():
        imported = {}
        exec(f"from rlframe.{module} import *", imported)  # what the module itself imports, too, where RLlib's did
        assert names <= imported.keys()
    assert importlib.import_module("rlframe.agents.ppo.ppo").DEFAULT_CONFIG is taken["DEFAULT_CONFIG"]


def test_a_star_takes_modules_and_handles_that_losses_of_rllib_had():
    for module in ("ppo.appo_torch_policy", "impala.vtrace_torch_policy"):
        taken = {}
        exec(f"from rlframe.agents.{module} import *", taken)
        assert taken["vtrace"] is importlib.import_module("rlframe.agents.impala.vtrace_torch")
    pytest.importorskip("tensorflow")
    for module in ("agents.sac.sac_tf_policy", "models.tf.tf_action_dist"):
        taken = {}
        exec(f"from rlframe.{module} import *", taken)
        assert taken["tfv"] in (1, 2)
        assert hasattr(taken["tf1"], "placeholder")


def test_modes_of_replay_have_the_names_of_rllib_113():
    from rlframe.execution.replay_buffer import _ALL_POLICIES
    from rlframe.utils.replay_buffers import MultiAgentReplayBuffer, ReplayMode
    from rlframe.utils.replay_buffers.multi_agent_replay_buffer import ReplayMode as SameMode

    assert MultiAgentReplayBuffer(replay_mode=ReplayMode.LOCKSTEP, prioritized=False).lockstep
    assert (_ALL_POLICIES, SameMode) == ("__all__", ReplayMode)


def test_names_of_impala_for_rllib_08_are_found_or_answered():
    from rlframe.agents.impala import impala

    assert impala.make_aggregators_and_optimizer is impala.execution_plan
    assert impala.choose_policy({"vtrace": True}) is None  # the trainer's default_policy
    with pytest.raises(ImportError, match="use build_trainer without make_workers"):
        exec("from rlframe.agents.impala.impala import defer_make_workers")


def test_log_once_is_rays():
    from ray.util.debug import log_once as rays

    from rlframe.utils.debug import log_once

    assert log_once is rays


class ActorElsewhere:
    """An actor class whose every other actor is on another machine."""

    count = 0
    ended = 0

    def __init__(self, *args, **kwargs):
        self.made_with = args, kwargs
        host = "here" if ActorElsewhere.count % 2 else "there"
        ActorElsewhere.count += 1
        self.get_host = SimpleNamespace(remote=lambda: host)
        self.__ray_terminate__ = SimpleNamespace(remote=lambda: setattr(ActorElsewhere, "ended", self.ended + 1))

    remote = classmethod(lambda cls, *args, **kwargs: cls(*args, **kwargs))


@pytest.mark.parametrize(("node", "host"), [("here", "here"), (None, "there")])
def test_actors_of_several_kinds_are_made_on_one_machine(monkeypatch, node, host):
    import ray

    from rlframe.utils.actors import create_colocated_actors

    monkeypatch.setattr(ray, "get", list)
    monkeypatch.setattr(ActorElsewhere, "count", 0)
    monkeypatch.setattr(ActorElsewhere, "ended", 0)
    first, second = create_colocated_actors(
        [(ActorElsewhere, (1,), None, 2), (ActorElsewhere, None, {"b": 2}, 1)], node
    )
    assert [actor.get_host.remote() for actor in (*first, *second)] == [host] * 3
    assert (first[0].made_with, second[0].made_with) == (((1,), {}), ((), {"b": 2}))
    assert ActorElsewhere.ended == ActorElsewhere.count - 3
    with pytest.raises(RuntimeError, match=r"Got \[0\] actors on nowhere; wanted \[1\]"):
        create_colocated_actors([(ActorElsewhere, None, None, 1)], "nowhere", max_attempts=2)


def test_names_that_rllibs_modules_imported_in_some_version_are_there_from_all_of_them():
    names = {}
    exec("from rlframe.agents.ppo.ppo_tf_policy import Policy, compute_advantages, MultiAgentEpisode", names)
    exec("from rlframe.execution.learner_thread import get_learner_stats, _NextValueNotReady", names)
    exec("from rlframe.models.torch.torch_modelv2 import Discrete, TensorType as Kind", names)
    assert names["Policy"] is importlib.import_module("rlframe.policy.policy").Policy
    assert names["Discrete"] is importlib.import_module("gymnasium").spaces.Discrete
    exec("from rlframe.agents.ppo.appo_tf_policy import *", names)
    assert names["gym"] is importlib.import_module("gymnasium")
    assert "compute_advantages" not in importlib.import_module("rlframe.agents.ppo.ppo_tf_policy").__all__
    with pytest.raises(ImportError, match="cannot import name 'Discrete' from 'rlframe'"):
        exec("from rlframe import Discrete", names)


def test_paths_and_names_of_rllib_08_to_12():
    names = {}
    exec("from rlframe.agents.impala import ImpalaAgent\nfrom rlframe.agents.sac import SACAgent", names)
    exec("from rlframe.evaluation.rollout_metrics import RolloutMetrics", names)
    exec("from rlframe.evaluation.sampler import _get_or_raise", names)
    exec("from rlframe.models.torch.misc import valid_padding, _get_activation_fn", names)
    assert names["ImpalaAgent"] is importlib.import_module("rlframe.agents.impala").ImpalaTrainer
    assert names["RolloutMetrics"] is importlib.import_module("rlframe.evaluation.metrics").RolloutMetrics
    assert names["_get_activation_fn"]("tanh") is importlib.import_module("torch").nn.Tanh
    assert names["_get_or_raise"]({"one": 1}, "one") == 1
    with pytest.raises(ValueError, match=r"got the policy id 'two'; wanted one of \['one'\]"):
        names["_get_or_raise"]({"one": 1}, "two")
    with pytest.raises(ImportError, match="ParallelPettingZooEnv around UnityParallelEnv"):
        exec("from rlframe.env.unity3d_env import Unity3DEnv", names)


def test_environments_of_rllibs_tests_and_older_examples_have_their_paths():
    from rlframe.examples.twostep_game import TwoStepGame
    from rlframe.tests.test_multi_agent_env import MultiCartpole

    assert list(MultiCartpole(3).reset()[0]) == [0, 1, 2]  # a number alone, as in RLlib 0.8
    assert list(TwoStepGame({}).reset()) == [0, 1]


@pytest.mark.parametrize(
    "module", ["agents.sac.sac_torch_model", "agents.mbmpo.mbmpo_torch_policy", "models.torch.recurrent_net"]
)
def test_a_star_gives_the_spaces_that_rllibs_module_had_imported(module):
    names: dict[str, object] = {}
    exec(f"from rlframe.{module} import *", names)
    assert names["Discrete"] is gymnasium.spaces.Discrete


def test_a_star_of_the_rollout_script_gives_what_copies_of_it_need():
    names: dict[str, object] = {}
    exec("from rlframe.rollout import *\nfrom rlframe.evaluate import _DUMMY_AGENT_ID", names)
    assert {"copy", "cloudpickle", "os", "shelve", "Path", "WorkerSet", "merge_dicts", "RolloutSaver"} <= names.keys()
