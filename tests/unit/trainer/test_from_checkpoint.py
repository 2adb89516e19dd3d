"""`Trainer.from_checkpoint`: a trainer from its checkpoint alone."""

import math
import os

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.agents.ppo import PPOConfig
from rlframe.agents.trainer import Trainer
from rlframe.env import register_env
from rlframe.trainer.rebuilding import _with_infinities
from rlframe.utils.errors import CheckpointError
from rlframe.utils.state_files import read_state, write_state
from tests.helpers.envs import Counting

SMALL = {"seed": 3, "num_workers": 0, "train_batch_size": 20, "rollout_fragment_length": 10, "gamma": 0.5}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    trainer = PGTrainer({**SMALL, "model": {"fcnet_hiddens": [8]}}, env="CartPole-v1")
    trainer.train()
    path = trainer.save(str(tmp_path_factory.mktemp("run") / "checkpoints"))
    trainer.train()
    return path, trainer


@pytest.mark.parametrize("cls", [Trainer, PGTrainer])
@pytest.mark.parametrize("run_directory", [True, False])
def test_it_goes_on_as_the_one_that_was_saved(saved, cls, run_directory):
    path, original = saved
    again = cls.from_checkpoint(path.partition("/checkpoints")[0] if run_directory else path)
    assert type(again) is PGTrainer
    assert (again.iteration, again.config["gamma"]) == (1, 0.5)
    assert again.config == original.config
    again.train()
    for name, array in original.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, again.get_weights()["default_policy"][name])
    again.stop()


def test_what_is_given_differs_from_the_checkpoints(saved):
    again = PGTrainer.from_checkpoint(saved[0], {"gamma": 0.9, "evaluation_config": {"explore": False}})
    assert again.config["gamma"] == 0.9
    assert again.config["lr"] == saved[1].config["lr"]
    again.stop()


def test_another_algorithms_class_is_refused(saved):
    with pytest.raises(CheckpointError, match="of algorithm 'PG', wanted 'DQN'"):
        DQNTrainer.from_checkpoint(saved[0])


def test_an_environment_of_the_programs_own_is_given_or_registered(tmp_path):
    trainer = PGTrainer({**SMALL, "callbacks": DefaultCallbacks}, env=Counting)
    path = trainer.save(str(tmp_path))
    with pytest.raises(ValueError, match="Unknown environment 'Counting'"):
        Trainer.from_checkpoint(path)
    assert Trainer.from_checkpoint(path, env=Counting)._env_id == "Counting"
    register_env("Counting", Counting)
    Trainer.from_checkpoint(path).stop()


def test_callbacks_are_left_out_with_a_word_unless_given(tmp_path, caplog):
    class Mine(DefaultCallbacks):
        pass

    path = PGTrainer({**SMALL, "callbacks": Mine}, env="CartPole-v1").save(str(tmp_path))
    assert type(Trainer.from_checkpoint(path).callbacks) is DefaultCallbacks
    assert "a checkpoint holds no code" in caplog.text
    assert type(Trainer.from_checkpoint(path, {"callbacks": Mine}).callbacks) is Mine


def test_code_that_a_checkpoint_names_is_imported_with_trust_alone(saved, tmp_path, monkeypatch):
    (tmp_path / "their_env.py").write_text("from tests.helpers.envs import Counting as Theirs\nopen('ran', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    trainer = PGTrainer(SMALL, env=Counting)
    trainer._env_id = "their_env:Theirs"
    path = trainer.save(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"'their_env:Theirs'.*trust=True"):
        Trainer.from_checkpoint(path)
    assert not (tmp_path / "ran").exists()
    Trainer.from_checkpoint(path, trust=True).stop()
    assert (tmp_path / "ran").exists()


def test_policies_classes_and_spaces_are_found_again(tmp_path):
    box, discrete = CartPoleEnv().observation_space, CartPoleEnv().action_space
    table = {"default_policy": (PGTorchPolicy, box, discrete, {"gamma": 0.9})}
    path = PGTrainer({**SMALL, "multiagent": {"policies": table}}, env="CartPole-v1").save(str(tmp_path))
    again = Trainer.from_checkpoint(path)
    assert (type(again.get_policy()), again.get_policy().config["gamma"]) == (PGTorchPolicy, 0.9)

    table["default_policy"] = (PGTorchPolicy.with_updates(name="Mine"), None, None, {})
    path = PGTrainer({**SMALL, "multiagent": {"policies": table}}, env="CartPole-v1").save(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"(?s)multiagent.policies.default_policy: got '\S+:Mine'.*config={...}"):
        Trainer.from_checkpoint(path)
    Trainer.from_checkpoint(path, {"multiagent": {"policies": table}}).stop()


def test_infinite_limits_are_infinite_again():
    saved = _with_infinities({"vf_clip_param": None, "seed": None, "grad_clip": None}, PPOConfig)
    assert saved == {"vf_clip_param": math.inf, "seed": None, "grad_clip": None}


def test_what_is_no_checkpoint_is_said(tmp_path, saved):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(CheckpointError, match="no checkpoint"):
            Trainer.from_checkpoint(path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        Trainer.from_checkpoint(tmp_path)


def test_what_is_only_made_when_it_is_asked_for_is_still_the_files_word(saved, tmp_path):
    state, meta = read_state(os.path.dirname(saved[0]))
    meta["config"]["evaluation_config"] = {"exploration_config": {"type": "os.system", "command": "true"}}
    write_state(tmp_path / "hostile", state, meta)
    again = Trainer.from_checkpoint(tmp_path / "hostile")
    with pytest.raises(CheckpointError, match=r"names the Exploration 'os.system'"):
        again.evaluate()
    again.stop()
