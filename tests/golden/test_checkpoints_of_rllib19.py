"""Checkpoints of RLlib 1.9.2's trainers, read without executing anything, act here as they did there.

`rllib19_checkpoints.zip` is what `rllib19_checkpoints.py` wrote beside RLlib: for each case the files of a checkpoint,
rows of observations, and the actions that RLlib's trainer computed of them.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import zipfile
from functools import cache
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rlframe.agents.registry import get_trainer_class
from rlframe.cli.commands import app
from rlframe.cli.evaluating import loaded_trainer
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.rllib1x.checkpoints import load_rllib_checkpoint, read_checkpoint
from rlframe.utils.errors import CheckpointError
from tests.helpers.frameworks import needs_tf

ARCHIVE = pathlib.Path(__file__).with_name("rllib19_checkpoints.zip")
ENVS = {"CartPole-v0": "CartPole-v1", "Pendulum-v0": "Pendulum-v1", "two agents": MultiAgentCartPole}

pytestmark = pytest.mark.filterwarnings("ignore")  # keys of RLlib 1.9 that have other names here


@cache
def recorded() -> dict[str, Any]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {name[:-5]: json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    made = tmp_path_factory.mktemp("rllib19")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(made)
    return made


def make_trainer(case: str, framework: str = "torch", **keys: Any) -> Any:
    about = recorded()[case]
    config = {key: value for key, value in about["config"].items() if key != "min_iter_time_s"}
    config |= {"framework": framework, "num_workers": 0}
    if case == "ppo_pendulum":
        config["model"] = {**config["model"], "free_log_std": False}
    if case == "pg_two":
        policies = {"policies": {"policy_0", "policy_1"}, "policy_mapping_fn": lambda agent, **_: f"policy_{agent}"}
        config |= {"multiagent": policies, "env_config": {"num_agents": 2}}
    if about["algorithm"] in ("DDPG", "TD3"):
        config["normalize_actions"] = False
    return get_trainer_class(about["algorithm"])({**config, **keys}, env=ENVS[about["env"]])


CASES = ["ppo_torch", "ppo_tf", "ppo_tf2", "ppo_pendulum", "ppo_lstm", "a2c_tf", "pg_torch", "impala_torch", "appo_tf",
         "dqn_torch", "dqn_tf", "dqn_buffer", "simple_q_torch", "sac_torch", "sac_tf", "sac_discrete", "td3_torch",
         "td3_tf", "ddpg_torch", "pg_two"]  # fmt: skip


@pytest.mark.parametrize("case", ["ppo_torch", "dqn_torch", "sac_torch"])
def test_checkpoints_of_rllib_113_are_read(case: str, tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(ARCHIVE.with_name("rllib113_checkpoints.zip")) as archive:
        archive.extractall(tmp_path)
    about, trainer = json.loads((tmp_path / f"{case}.json").read_text()), make_trainer(case)
    read = load_rllib_checkpoint(trainer, tmp_path / case)
    rows = np.array(about["rows"], np.float32)
    actions = [trainer.compute_single_action(row, explore=False) for row in rows]
    trainer.cleanup()
    np.testing.assert_allclose(np.ravel(actions), np.ravel(about["actions"]), atol=1e-6)
    assert (read.iteration, trainer._timesteps_total) == (2, about["timesteps"])


def test_every_checkpoint_recorded_is_a_case() -> None:
    assert sorted(CASES) == sorted(recorded())


@pytest.mark.parametrize(
    ("case", "framework"),
    [(case, "torch") for case in CASES]
    + [pytest.param(case, "tf", marks=needs_tf) for case in ("ppo_tf", "sac_tf", "td3_torch")],
)
def test_actions_are_those_of_rllib(case: str, framework: str, folder: pathlib.Path) -> None:
    about, trainer = recorded()[case], make_trainer(case, framework)
    read = load_rllib_checkpoint(trainer, folder / case)
    pid = "policy_1" if case == "pg_two" else "default_policy"
    policy, actions = trainer.get_policy(pid), []
    assert policy.global_timestep == read.timesteps[pid] > 0
    for row in np.array(about["rows"], np.float32):
        state = policy.get_initial_state() or None
        action = trainer.compute_single_action(row, state=state, explore=False, policy_id=pid)
        actions.append(action[0] if policy.is_recurrent() else action)
    trainer.cleanup()
    np.testing.assert_allclose(np.reshape(actions, (12, -1)), np.reshape(about["actions"], (12, -1)), atol=1e-6)
    assert trainer.iteration == read.iteration == 2
    assert trainer._timesteps_total == read.counters["num_steps_sampled"] >= 64
    assert any(name.startswith("ray.rllib") for name in read.not_run)


@pytest.mark.parametrize("case", ["sac_torch", "td3_torch", "ddpg_torch"])
def test_critics_are_those_of_rllib(case: str, folder: pathlib.Path) -> None:
    trainer = make_trainer(case)
    load_rllib_checkpoint(trainer, folder / case)
    weights, rows = trainer.get_policy().get_weights(), np.array(recorded()[case]["rows"], np.float32)
    trainer.cleanup()
    for critic, wanted in zip(("q", "twin_q"), recorded()[case]["values"], strict=False):
        x = np.concatenate([rows, np.full((12, 1), 0.5, np.float32)], 1)
        x = np.maximum(x @ weights[f"{critic}.hidden_0.weight"].T + weights[f"{critic}.hidden_0.bias"], 0)
        x = x @ weights[f"{critic}.output.weight"].T + weights[f"{critic}.output.bias"]
        np.testing.assert_allclose(x.ravel(), wanted, atol=1e-5)


def test_training_goes_on_with_the_counters_and_a_checkpoint_is_written(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    trainer = make_trainer("dqn_torch")
    load_rllib_checkpoint(trainer, folder / "dqn_torch" / "checkpoint-2")
    online, target = (dict(part.named_parameters()) for part in (trainer.get_policy().model, target_of(trainer)))
    assert all(np.array_equal(online[name].detach(), target[name].detach()) for name in target)
    path = trainer.save(str(tmp_path))
    result = trainer.train()
    trainer.cleanup()
    assert (result["training_iteration"], result["timesteps_total"]) == (3, 96 + result["timesteps_this_iter"])
    again = make_trainer("dqn_torch")
    again.restore(path)
    again.cleanup()
    assert again.iteration == 2


def target_of(trainer: Any) -> Any:
    return trainer.get_policy().target_network.model


@pytest.mark.parametrize(
    ("case", "keys", "into", "says"),
    [
        ("ppo_torch", {"observation_filter": "NoFilter"}, "ppo_torch", "set observation_filter='MeanStdFilter'"),
        ("dqn_torch", {"observation_filter": "MeanStdFilter"}, "dqn_torch", "set observation_filter='NoFilter'"),
        (
            "ppo_torch",
            {"model": {"fcnet_hiddens": [6, 4]}},
            "ppo_torch",
            r"hidden_0.weight is \(5, 4\), wanted \(6, 4\)",
        ),
        ("td3_torch", {"normalize_actions": True}, "td3_torch", "set normalize_actions=False"),
        ("td3_tf", {"normalize_actions": True}, "td3_tf", "set normalize_actions=False"),
        ("sac_torch", {}, "sac_discrete", "wanted"),
        ("sac_torch", {}, "ddpg_torch", "unknown"),
        ("pg_torch", {"observation_filter": "NoFilter"}, "pg_two", "has no policy 'policy_0', only"),
    ],
)
def test_what_does_not_fit_is_told_and_nothing_is_changed(
    case: str, keys: dict[str, Any], into: str, says: str, folder: pathlib.Path
) -> None:
    trainer = make_trainer(into, **keys)
    pid = next(iter(trainer.get_weights()))
    before = trainer.get_weights()[pid]
    with pytest.raises(CheckpointError, match=says):
        load_rllib_checkpoint(trainer, folder / case)
    after = trainer.get_weights()[pid]
    trainer.cleanup()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert (trainer.iteration, trainer.get_policy(pid).global_timestep) == (0, 0)


def test_a_trainer_that_has_trained_and_restore_say_what_to_do(folder: pathlib.Path) -> None:
    trainer = make_trainer("pg_torch")
    with pytest.raises(CheckpointError, match="load_rllib_checkpoint"):
        trainer.restore(str(folder / "pg_torch" / "checkpoint-2"))
    trainer.train()
    with pytest.raises(CheckpointError, match="wanted a new trainer"):
        load_rllib_checkpoint(trainer, folder / "pg_torch")
    trainer.cleanup()


def test_filter_and_counts_are_read_without_the_file_beside(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    alone = tmp_path / "checkpoint-2"
    alone.write_bytes((folder / "ppo_torch" / "checkpoint-2").read_bytes())
    read, whole = read_checkpoint(tmp_path), read_checkpoint(folder / "ppo_torch")
    assert (read.iteration, read.episodes, whole.episodes > 0) == (2, 0, True)
    stats = read.filters["default_policy"]
    assert stats is not None
    assert stats["rs"]["n"] >= 64
    assert stats["rs"]["mean"].shape == (4,)


def test_the_command_line_makes_a_run_of_a_checkpoint_beside_its_config(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(folder / "ppo_torch", old / "checkpoint_000002")
    config = {**recorded()["ppo_torch"]["config"], "env": "CartPole-v1", "num_workers": 2}
    (old / "params.json").write_text(json.dumps(config))
    command = ["migrate-checkpoint", "PPO", str(old / "checkpoint_000002"), "--run-dir", str(new)]
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0, made.output
    with loaded_trainer(new) as (trainer, spec, _):
        assert (trainer.iteration, spec.config["num_workers"]) == (2, 2)
        assert np.isin(trainer.compute_single_action(np.zeros(4, np.float32), explore=False), (0, 1))
    for other in (["migrate", command[2]], ["evaluate", command[2]]):
        told = CliRunner().invoke(app, other)
        assert (told.exit_code, "migrate-checkpoint" in told.output) == (2, True)
    refused = CliRunner().invoke(app, [*command[:-1], str(tmp_path / "third"), "--model.fcnet-hiddens", "[6, 6]"])
    assert refused.exit_code == 2
    assert "does not fit this trainer" in refused.output
    assert not (tmp_path / "third").exists()
