"""Runs: an environment and a policy from files, what is on disk, going on, stopping, failing, searching, the page."""

import json
import os
import shutil
import signal
import threading

import numpy as np
import pytest
import ray
from typer.testing import CliRunner

from rlframe.cli.commands import app
from rlframe.report.statistics import Interval
from rlframe.revive import policy_training
from rlframe.revive.configuration import Searched, read_configuration
from rlframe.revive.examples import write_example
from rlframe.revive.policy_training import PolicyResult
from rlframe.revive.report import write_report
from rlframe.revive.searching import Sampler, Search, run_trial
from rlframe.revive.server import ReviveServer
from rlframe.revive.stages import Inputs, RunFiles
from rlframe.revive.verdict import Verdict, verdict_of
from rlframe.revive.workspace import StageRecord, Workspace
from rlframe.trainer.checkpoint_paths import is_pointer
from rlframe.tune.trial_pool import Finished, TrialPool
from rlframe.utils.errors import CheckpointError, ConfigError, DataError

SHORT = {
    "bc_epoch": 2, "ppo_epoch": 2, "policy_bc_epoch": 2, "test_rollouts": 8, "test_horizon": 10, "ppo_batch_size": 8,
    "ppo_rollout_horizon": 10, "policy_hidden_features": 16, "transition_hidden_features": 16, "bc_batch_size": 64,
    "venv_rollout_horizon": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    paths, _ = write_example("mixed", tmp_path_factory.mktemp("mixed"), trajectories=6)
    return paths


def serve(files, log_dir, run_id="run", **changed):
    given = {
        "dataset_file_path": str(files["data"]), "dataset_desc_file_path": str(files["graph"]),
        "reward_file_path": str(files["reward"]), "log_dir": str(log_dir), "run_id": run_id, "venv_mode": "once",
        "policy_mode": "once", **SHORT, **changed,
    }  # fmt: skip
    return ReviveServer(**given)


@pytest.fixture(scope="module")
def done(files, tmp_path_factory):
    before = sorted(path.name for path in files["data"].parent.iterdir())
    server = serve(files, tmp_path_factory.mktemp("logs"))
    assert server.get_virtualenv_env()[1]["task_state"] == "Wait"
    server.train()
    assert server.wait()
    assert sorted(path.name for path in files["data"].parent.iterdir()) == before
    return server


def test_run_leaves_environments_and_policies_that_can_be_used(done):
    venv, said = done.get_virtualenv_env()
    assert said["task_state"] == "End"
    assert said["least_metric"] > 0
    step = venv.infer_one_step({"level": np.ones((3, 1)), "feed": np.array([[1.0, 0.0]] * 3)})
    grid = np.linspace(0, 100, 11)
    assert np.isin(step["valve"], grid).all()
    policy, said = done.get_policy_model()
    assert said["task_state"] == "End"
    actions = policy.infer({name: step[name] for name in policy.inputs})
    assert np.isin(actions, grid).all()
    assert set(said["verdict"]) == {"use", "reasons"}
    files = [path for path in done.workspace.directory.rglob("*") if path.is_file() and not is_pointer(path)]
    found = {path.suffix for path in files}
    assert found <= {".json", ".npy", ".safetensors", ".log"}


def test_run_goes_on_with_other_data_or_another_graph_under_another_name_only(done, files, tmp_path):
    log_dir = done.workspace.directory.parent
    other, _ = write_example("mixed", tmp_path, trajectories=6, seed=1)
    with pytest.raises(ConfigError, match="this run began with other data"):
        serve({**files, "data": other["data"]}, log_dir)
    other["graph"].write_text(files["graph"].read_text() + "  nodes:\n    valve: {freeze: true}\n")
    with pytest.raises(ConfigError, match="was learned along another graph"):
        serve({**files, "graph": other["graph"]}, log_dir)


def test_expert_function_that_changed_is_told_by_its_file(done, files, tmp_path):
    log_dir = done.workspace.directory.parent
    place = shutil.copytree(files["graph"].parent, tmp_path / "files")
    function = next(path for path in place.glob("*.py") if "reward" not in path.name)
    function.write_text(function.read_text() + "# another\n")
    with pytest.raises(ConfigError, match=rf"{function.name}: the file with .* has changed since training"):
        serve({**files, "graph": place / files["graph"].name}, log_dir)


def test_contest_of_frozen_networks_is_refused_before_anything_is_written(files, tmp_path):
    graph = tmp_path / "files" / "graph.yaml"
    shutil.copytree(files["graph"].parent, graph.parent)
    frozen = "  nodes:\n    valve: {freeze: true}\n    next_level: {freeze: true}\n"
    graph.write_text(files["graph"].read_text() + frozen)
    with pytest.raises(
        ConfigError, match="valve, next_level: all networks have freeze, so there is nothing for revive"
    ):
        serve({**files, "graph": graph}, tmp_path / "logs", venv_algo="revive_p").train()
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"g_lr": 0.01, "bc_epoch": 3},
            r"other parameters \(g_lr was 0.001, is 0.01; g_lr was .*; choose another run_id",
        ),
        ({"venv_mode": "None", "ppo_runs": 3}, r"other parameters \(ppo_runs was 8, is 3\)"),
        ({"venv_mode": "None", "val_split_ratio": 0.25}, r"val_split_ratio was 0.5, is 0.25"),
        ({"reward_file_path": None}, "reward_file_path: got none"),
        ({"venv_mode": "once", "env_save_path": "there"}, "env_save_path: got 'there' with venv_mode 'once'"),
        ({"venv_mode": "None", "env_save_path": "there"}, "there/train: there is no learned environment yet"),
    ],
)
def test_run_that_is_refused_stays_as_it_was(done, files, changed, message):
    before = {path: path.stat().st_mtime_ns for path in done.workspace.directory.rglob("*")}
    with pytest.raises(ConfigError, match=message):
        serve(files, done.workspace.directory.parent, **changed).train()
    assert {path: path.stat().st_mtime_ns for path in done.workspace.directory.rglob("*")} == before


def test_repeated_policy_stage_keeps_the_better_policy_and_begins_without_a_verdict(files, done, tmp_path, monkeypatch):
    server = serve(files, tmp_path, venv_mode="None")
    shutil.copytree(done.workspace.directory, server.workspace.directory, dirs_exist_ok=True)
    before = done.get_policy_model()[0].network

    def judged(make_env, half, network, config):
        same = all(np.array_equal(network.weights[name], array) for name, array in before.weights.items())
        return np.full(4, 9.0 if same else 1.0)

    monkeypatch.setattr(policy_training, "judge", judged)
    verdicts = []
    server.on_progress(lambda _: verdicts.append(server.get_policy_model()[1]["verdict"]))
    server.train()
    server.wait()
    model, said = server.get_policy_model()
    assert not any(verdicts[:-1])
    assert said["policy_acc"] == 9.0
    for name, array in before.weights.items():
        np.testing.assert_array_equal(model.network.weights[name], array)


def test_environment_of_another_run_is_taken(done, files, tmp_path):
    server = serve(files, tmp_path, venv_mode="None", policy_mode="None")
    server.train(env_save_path=str(done.workspace.directory))
    server.wait()
    theirs, _ = done.get_virtualenv_env()
    mine, said = server.get_virtualenv_env()
    assert said["task_state"] == "End"
    assert said["least_metric"] == done.get_virtualenv_env()[1]["least_metric"]
    assert server.workspace.stage("venv").details["taken_from"] == str(done.workspace.venv)
    state = {"level": np.ones((1, 1)), "feed": np.array([[1.0, 0.0]])}
    np.testing.assert_array_equal(mine.infer_one_step(state)["next_level"], theirs.infer_one_step(state)["next_level"])


def test_what_goes_wrong_is_raised_and_noted(files, done, tmp_path):
    shutil.copytree(done.workspace.directory, tmp_path / "run")
    for damaged in (tmp_path / "run/venv/val").rglob("*.json"):
        damaged.write_text("{")
    server = serve(files, tmp_path, venv_mode="None")
    server.train()
    with pytest.raises(CheckpointError, match="venv"):
        server.wait()
    with pytest.raises(CheckpointError, match="venv"):
        server.get_policy_model()
    record = server.workspace.stage("policy")
    assert record.state == "Failed"
    assert "venv" in record.error


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"venv_mode": "twice"}, "venv_mode: got 'twice'; wanted one of 'tune', 'once', 'None'"),
        ({"matcher_reward_file_path": "m.py"}, "matcher_reward_file_path: got 'm.py'; leave it out: discriminators"),
        ({"user_module_file_path": "u.py"}, "user_module_file_path: got 'u.py'; leave it out: losses of nodes"),
        ({"reward_uncertainty_weight": 0.5}, "weight is 0.5, .* one of each half; wanted num_venv_in_use 2 or more"),
        ({"bc_epochs": 3}, "bc_epochs: no such parameter; did you mean bc_epoch"),
        ({"dataset_file_path": "none.npz"}, "none.npz"),
        ({"reward_file_path": None}, "reward_file_path: got none; a policy is trained for a reward"),
        ({"target_policy_name": "valves"}, "'valves' is no policy node; did you mean 'valve'"),
        ({"w_kl": 0.1, "policy_bc_epoch": 0}, "w_kl is 0.1, .* policy_bc_epoch is 0, so none is cloned"),
        ({"tuning_mode": "max"}, "tune_initial_state: got none"),
        ({"venv_mode": "None"}, "there is no learned environment yet; train one: .*, or take that of another run"),
        ({"venv_mode": "tune", "address": "127.0.0.1:1"}, "address: nothing answers at '127.0.0.1:1' .*wanted HOST:P"),
    ],
)
def test_wrong_arguments_are_told_and_nothing_is_written(files, tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        serve(files, tmp_path, **changed).train()
    assert not list(tmp_path.iterdir())


def test_penalty_for_disagreement_is_refused_in_an_environment_that_is_taken_and_alone(done, files, tmp_path):
    taken = {"venv_mode": "None", "env_save_path": str(done.workspace.directory), "num_venv_in_use": 3}
    with pytest.raises(ConfigError, match="there is one of each half"):
        serve(files, tmp_path, reward_uncertainty_weight=1.0, **taken).train()
    assert not list(tmp_path.iterdir())


def test_policy_node_that_sees_the_step_is_refused_before_an_environment_is_learned(files, tmp_path):
    graph = files["graph"].read_text() + "  nodes:\n    valve: {step_input: true}\n"
    for name in ("mixed_flows.py",):
        shutil.copy(files["graph"].parent / name, tmp_path)
    (tmp_path / "graph.yaml").write_text(graph)
    with pytest.raises(ConfigError, match="'valve' has step_input, which nobody tells a deployed policy"):
        serve(files, tmp_path / "logs", dataset_desc_file_path=str(tmp_path / "graph.yaml")).train()
    assert not (tmp_path / "logs").exists()


def test_tunable_factors_may_be_named_after_an_environment_was_learned_and_a_refused_search_writes_nothing(
    done, files, tmp_path
):
    shutil.copy(files["graph"].parent / "mixed_flows.py", tmp_path)
    (tmp_path / "graph.yaml").write_text(files["graph"].read_text() + "  tunable: [feed]\n")
    tuned = {
        "dataset_desc_file_path": str(tmp_path / "graph.yaml"), "venv_mode": "None", "tuning_mode": "max",
        "env_save_path": str(done.workspace.directory), "parameter_tuning_rollout_horizon": 3,
    }  # fmt: skip
    for state, message in (({"levels": [1.0]}, "no array for node 'level'"), ({"level": [1, 2]}, r"wanted \(1,\)")):
        with pytest.raises(ValueError, match=message):
            serve(files, tmp_path / "logs", **tuned, tune_initial_state=state).train()
    with pytest.raises(ConfigError, match=r"name external factors in the graph file, `tunable: \[...\]`, of feed"):
        serve(files, tmp_path / "logs", **{**tuned, "dataset_desc_file_path": str(files["graph"])},
              tune_initial_state={"level": [1.0]}).train()  # fmt: skip
    assert not (tmp_path / "logs").exists()
    server = serve(files, tmp_path / "logs", **tuned, tune_initial_state={"level": [1.0]}, parameter_tuning_budget=8)
    assert "policy_mode 'once' has no effect: tuning_mode 'max' searches parameters instead" in server.config.remarks
    server.train()
    assert server.wait()
    assert server.get_parameter()[0]["feed"].shape == (2,)


def test_data_that_validate_themselves_are_refused(files, tmp_path):
    shutil.copy(files["data"], tmp_path / "copy.npz")
    with pytest.raises(ConfigError, match=r"copy\.npz holds what .* judged by what they learned from; leave it out"):
        serve(files, tmp_path / "logs", val_file_path=str(tmp_path / "copy.npz"))


def test_frozen_networks_are_said_to_stay_random(files, tmp_path):
    shutil.copy(files["graph"].parent / "mixed_flows.py", tmp_path)
    (tmp_path / "graph.yaml").write_text(files["graph"].read_text() + "  nodes:\n    next_level: {freeze: true}\n")
    server = serve(files, tmp_path, dataset_desc_file_path=str(tmp_path / "graph.yaml"))
    assert any("next_level: freeze leaves networks as they are drawn" in remark for remark in server.config.remarks)


def test_flags_of_revive_that_are_none_here_are_answered(files):
    said = ["revive", "train", "-df", str(files["data"]), "-cf", str(files["graph"])]
    for flag, answer in (("-umf", "losses of nodes are named in the graph file"), ("-mrf", "discriminators judge by")):
        found = CliRunner().invoke(app, [*said, flag, "x.py"])
        assert found.exit_code == 2
        assert answer in found.output


def test_models_stay_on_the_cpu_as_programs_for_revive_ask(done):
    venv, policy = done.get_virtualenv_env()[0].env_list[0], done.get_policy_model()[0]
    assert venv.to("cpu") is venv
    assert policy.to("cpu") is policy
    policy.reset()
    with pytest.raises(ConfigError, match="got the device 'cuda'; wanted 'cpu'"):
        policy.to("cuda")


def test_ranges_are_those_of_both_files_where_the_other_half_has_one(tmp_path):
    (tmp_path / "graph.yaml").write_text(
        "metadata:\n  graph: {push: [place], next_place: [place, push]}\n  columns:\n"
        "    - x: {dim: place}\n    - p: {dim: push, type: discrete, num: 3}\n"
    )
    for name, places, pushes in (("data", [0, 1, 2, 3], [0, 1, 0, 1]), ("val", [-5, 1, 9, 2], [1, 2, 2, 1])):
        arrays = {"place": np.array(places, float), "push": np.array(pushes, float), "index": np.array([4])}
        np.savez(
            tmp_path / f"{name}.npz",
            **{key: array if key == "index" else array[:, None] for key, array in arrays.items()},
        )
    paths = {name: str(tmp_path / f"{name}.npz") for name in ("data", "val")}
    inputs = Inputs(RunFiles(paths["data"], str(tmp_path / "graph.yaml"), paths["val"]), read_configuration())
    scaler = inputs.graph.scalers["place"]
    assert (scaler.low.tolist(), scaler.high.tolist()) == ([-5.0], [9.0])
    with np.load(paths["val"]) as given:
        np.savez(paths["val"], **{**given, "push": given["push"] * 1.5})  # 0, 1 and 1.5, 3: no grid of three values
    with pytest.raises(
        DataError, match="column 'p' of node 'push' is 1; wanted one of 3 equally spaced values from 0 to 3"
    ):
        Inputs(RunFiles(paths["data"], str(tmp_path / "graph.yaml"), paths["val"]), read_configuration())


def test_package_has_the_server_and_imports_it_when_asked():
    from rlframe import revive

    assert revive.ReviveServer is ReviveServer
    with pytest.raises(AttributeError, match="no attribute 'Server'"):
        revive.Server  # noqa: B018


def test_address_without_a_search_is_said_to_have_no_effect(files, tmp_path):
    assert "address 10.0.0.1:6379 has no effect" in serve(files, tmp_path, address="10.0.0.1:6379").config.remarks[-1]


def test_stopping_leaves_what_is_best_and_the_same_run_goes_on(files, tmp_path):
    server = serve(files, tmp_path, policy_mode="None", bc_epoch=50)
    server.on_progress(lambda line: server.stop_train() if "epoch 2 of" in line else None)
    server.train()
    server.wait()
    venv, said = server.get_virtualenv_env()
    assert (said["task_state"], venv is not None) == ("Shutdown", True)
    again = serve(files, tmp_path, policy_mode="None", bc_epoch=3)
    lines = []
    again.on_progress(lines.append)
    again.train()
    again.wait()
    assert "epoch 3 of 3" in lines[0]  # two of them were learned before
    assert again.get_virtualenv_env()[1]["task_state"] == "End"


def test_ctrl_c_while_waiting_is_not_taken_for_the_end_of_the_work(files, tmp_path):
    go_on, server = threading.Event(), serve(files, tmp_path, policy_mode="None", bc_epoch=1)
    server.on_progress(lambda line: go_on.wait(60))
    server.train()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            server.wait(60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not server.wait(0.01)
    with pytest.raises(ConfigError, match="a stage of this server is under way"):
        server.train_venv()
    go_on.set()
    assert server.wait()
    assert server.get_virtualenv_env()[1]["task_state"] == "End"


def test_two_servers_do_not_train_in_one_run_at_a_time(done, files):
    server = serve(files, done.workspace.directory.parent)
    other = done.workspace.lock()
    try:
        with pytest.raises(ConfigError, match=r"in use: process \d+ trains there; wait until it ends"):
            server.train()
    finally:
        other.release()
    server.train_venv()
    assert server.wait()
    assert not (done.workspace.directory / "run.lock").exists()


def test_command_line_shows_a_run_and_says_whether_to_use_the_policy(done, tmp_path):
    run, tell = str(done.workspace.directory), CliRunner().invoke
    use = done.get_policy_model()[1]["verdict"]["use"]
    said = json.loads(tell(app, ["revive", "status", run, "--json"]).stdout)
    assert (said["venv"]["state"], said["policy"]["state"]) == ("End", "End")
    evaluated = tell(app, ["revive", "evaluate", run, "--example", "mixed", "--episodes", "1", "--json"])
    assert evaluated.exit_code == (0 if use else 3)
    assert np.isfinite(json.loads(evaluated.stdout)["true_score"])
    states = tmp_path / "states.json"
    states.write_text(json.dumps({"level": [[1.0], [2.0]], "feed": [[1.0, 0], [1.0, 1]]}))
    inferred = json.loads(tell(app, ["revive", "infer", run, str(states)]).stdout)
    assert np.shape(inferred["valve"]) == (2, 1)
    page = tmp_path / "page.html"
    untrusted = tell(app, ["revive", "report", run, "-o", str(page)])
    assert (untrusted.exit_code, "--trust" in untrusted.stderr, page.exists()) == (2, True, False)
    assert tell(app, ["revive", "report", run, "-o", str(page), "--trust"]).exit_code == (0 if use else 3)
    assert page.read_text() == write_report(done.workspace, trust=True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.npz", b"PK\x03\x04", "got no archive of np.savez"),
        ("empty.npz", b"", "got no archive of np.savez"),
        ("text.json", b'{"level": [["high"]], "feed": [[1, 0]]}', "node 'level': got"),
        ("ragged.json", b'{"level": [[1], [1, 2]], "feed": [[1, 0]]}', "node 'level': got"),
        ("words.json", b'{"level": {"a": 1}, "feed": [[1, 0]]}', "node 'level': got"),
    ],
)
def test_states_that_are_none_are_told(done, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    said = CliRunner().invoke(app, ["revive", "infer", str(done.workspace.directory), str(tmp_path / name)])
    assert (said.exit_code, message in said.output) == (2, True), said.output


def test_evaluating_a_run_without_a_policy_says_so(done, files, tmp_path):
    server = serve(files, tmp_path, venv_mode="None", policy_mode="None")
    server.train(env_save_path=str(done.workspace.venv))
    server.wait()
    said = CliRunner().invoke(app, ["revive", "evaluate", str(server.workspace.directory)])
    assert said.exit_code == 2
    assert "the run has no policy yet; train one" in said.stderr


def test_page_has_graph_fits_and_verdict_and_asks_no_network(done):
    page = write_report(done.workspace, trust=True)
    for part in ("Verdict", "Double validation", "Rollouts beside the log", "next_level", "valve on level"):
        assert part in page
    assert "<script" not in page
    assert "http" not in page


def test_page_about_data_that_changed_is_refused(done, tmp_path):
    shutil.copytree(done.workspace.directory, tmp_path / "run")
    said = json.loads((tmp_path / "run/data.json").read_text())
    said["dataset_file"]["sha256"] = "0" * 64
    (tmp_path / "run/data.json").write_text(json.dumps(said))
    with pytest.raises(ConfigError, match=r"mixed.npz: the data have changed since .*put the old file back"):
        write_report(Workspace(tmp_path / "run"), trust=True)


def test_verdict_wants_every_policy_above_the_data_in_every_environment():
    pairs = [(policy, env) for policy in ("train", "val") for env in ("train", "val")]
    result = PolicyResult(
        models=dict.fromkeys(("train", "val")), scores=dict.fromkeys(pairs, Interval(2.0, 1.5, 2.5)),
        data={"train": 1.0, "val": 1.4},
    )  # fmt: skip
    assert verdict_of(result).use
    result.scores["val", "train"] = Interval(1.2, 0.9, 1.5)
    said = verdict_of(result)
    assert not said.use
    assert "Do not use this policy. In the train environment the val policy scores 1.2 [0.9, 1.5]" in str(said)
    assert Verdict.from_dict(json.loads(json.dumps(said.to_dict()))) == said
    result.scores["val", "train"] = Interval(2.0, 1.5, 2.5)
    result.rows = {"train": 400, "val": 3}
    assert verdict_of(result).reasons == ("The val half has 3 rows, too few to judge by; wanted 10 or more.",)
    result.rows = {}
    del result.models["val"]
    assert not verdict_of(result).use


# --- searches -----------------------------------------------------------------------------------------------------


class PoolHere:
    """Carries trials out in this process; refuses those that its `broken` names."""

    cpus = 1

    def __init__(self, broken=()):
        self.broken, self.made, self.keys = broken, [], []

    @property
    def running(self):
        return len(self.made)

    def start(self, key, function, *arguments):
        self.keys.append(key)
        assert function is run_trial
        if key in self.broken:
            self.made.append(Finished(key, None, None, "ValueError: broken"))
        else:
            self.made.append(Finished(key, function(*arguments), "here", None))

    def finished(self, timeout_s):
        made, self.made = self.made, []
        return made


def test_search_keeps_the_best_goes_on_and_survives_trials_that_fail(files, tmp_path):
    server = serve(files, tmp_path, venv_mode="tune", policy_mode="None", train_venv_trials=3)
    workspace, better = server.workspace, []

    def search(pool, trials):
        server.config = serve(files, tmp_path, venv_mode="tune", train_venv_trials=trials).config
        made = Search(workspace, "venv", server._files, server.config, None)
        return made.run(pool, lambda trial, folder: better.append((trial, folder)))

    first = search(PoolHere(broken=("1",)), 2)
    assert set(first.trials) == {"0", "1"}
    assert first.trials["1"]["error"] == "ValueError: broken"
    assert [trial for trial, _ in better] == ["0"]
    assert (better[0][1] / "train").is_dir()
    pool = PoolHere()
    record = search(pool, 3)
    assert pool.keys == ["1", "2"]  # what had ended well is not done again
    assert "error" not in record.trials["1"]
    assert record.best_metric == min(said["metric"] for said in record.trials.values() if said["metric"] is not None)
    assert Workspace(workspace.directory).stage("venv").trials == record.trials


@pytest.mark.parametrize("joined", [False, True])
def test_pool_leaves_ray_as_it_was_also_where_the_search_fails(monkeypatch, joined):
    up = [joined]
    monkeypatch.setattr(ray, "is_initialized", lambda: up[-1])
    monkeypatch.setattr(ray, "init", lambda **_: up.append(True))
    monkeypatch.setattr(ray, "shutdown", lambda: up.append(False))

    def search():
        with TrialPool():
            assert up[-1]
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        search()
    assert up == ([True] if joined else [False, True, False])


@pytest.mark.parametrize("algorithm", ["random", "grid", "optuna"])
def test_samplers_begin_with_the_defaults_and_stay_within_the_space(algorithm):
    if algorithm == "optuna":
        pytest.importorskip("optuna")
    space = {"g_lr": Searched("continuous", (1e-4, 1e-2)), "layers": Searched("discrete", (1, 2))}

    def drawn():
        sampler = Sampler(space, algorithm, 0, False, {"g_lr": 1e-3, "layers": 2})
        made = []
        for trial in range(5):
            made.append(sampler.ask(trial))
            sampler.tell(trial, made[-1], float(trial))
        return made

    first = drawn()
    assert first[0] == {"g_lr": 1e-3, "layers": 2}
    assert all(1e-4 <= one["g_lr"] <= 1e-2 and one["layers"] in {1, 2} for one in first)
    assert len({tuple(one.items()) for one in first[1:]}) == 4
    assert drawn() == first


@pytest.mark.parametrize("algorithm", ["random", "grid", "optuna"])
def test_resumed_search_draws_what_the_whole_one_would(algorithm):
    if algorithm == "optuna":
        pytest.importorskip("optuna")
    space = {"g_lr": Searched("continuous", (1e-4, 1e-2)), "layers": Searched("discrete", (1, 2))}

    def drawn(trials, before=()):
        sampler, made = Sampler(space, algorithm, 0, False, {"g_lr": 1e-3, "layers": 2}), list(before)
        for trial, values in enumerate(made):
            sampler.tell(trial, values, float(trial))
        for trial in range(len(made), trials):
            made.append(sampler.ask(trial))
            sampler.tell(trial, made[-1], float(trial))
        return made

    assert drawn(5, drawn(3)) == drawn(5)


def test_search_begins_anew_where_the_stage_ran_without_one(files, tmp_path):
    server = serve(files, tmp_path, venv_mode="tune", policy_mode="None", train_venv_trials=1)
    once = StageRecord()
    once.add("0", 0.0, larger=False, metrics={})
    server.workspace.set_stage("venv", once)
    pool = PoolHere()
    record = Search(server.workspace, "venv", server._files, server.config, None).run(pool, lambda *_: None)
    assert pool.keys == ["0"]
    assert record.best_metric == record.trials["0"]["metric"] > 0


def test_grid_ends_when_all_was_tried():
    sampler = Sampler({"layers": Searched("grid", (1, 2))}, "grid", 0, False, {"layers": 1})
    assert [sampler.ask(trial) for trial in range(4)] == [{"layers": 1}, {"layers": 1}, {"layers": 2}, None]
