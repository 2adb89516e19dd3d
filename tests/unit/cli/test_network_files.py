"""xagents' network files: what becomes of them, and what is said where nothing can."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from rlframe.agents.registry import get_trainer_class
from rlframe.cli.flags import Flag
from rlframe.cli.main import app
from rlframe.cli.network_files import network_config
from rlframe.cli.stop import StopCriterion
from rlframe.cli.train_command import Request, make_spec
from rlframe.utils.errors import ConfigError

#: The form of xagents' own files, by what they are for.
SHARED = """
[dense-0]
units=32
activation=relu
[dense-1]
units=16
activation=relu
common=1
[dense-2]
output=1
[dense-3]
output=1
"""
IMAGES = """
[convolutional-0]
filters=8
size=8
stride=4
activation=relu
[convolutional-1]
filters=16
size=4
stride=2
activation=relu
[flatten-0]
[dense-0]
units=24
activation=relu
common=1
[dense-1]
output=1
"""
ACTOR = (
    "[dense-0]\nunits=40\nactivation=relu\n[dense-1]\nunits=30\nactivation=relu\n[dense-2]\nactivation=tanh\noutput=1\n"
)


@pytest.fixture
def write(tmp_path):
    def written(text: str, name: str = "net.cfg") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def keys_of(algorithm: str) -> set[str]:
    return get_trainer_class(algorithm)._config_class.known_keys()


def test_layers_become_keys_of_the_algorithm(write):
    shared, images, actor = write(SHARED), write(IMAGES, "i.cfg"), write(ACTOR, "a.cfg")
    dense = {"fcnet_hiddens": [32, 16], "fcnet_activation": "relu"}
    convs = {
        "conv_filters": [[8, [8, 8], 4, "valid"], [16, [4, 4], 2, "valid"]],
        "conv_activation": "relu", "post_fcnet_hiddens": [24], "post_fcnet_activation": "relu",
    }  # fmt: skip
    assert network_config(shared, "model", keys_of("PPO")) == ({"model": {**dense, "vf_share_layers": True}}, [])
    # What is left of DQN's heads is the output.
    assert network_config(images, "model", keys_of("DQN"))[0] == {"model": convs, "hiddens": [], "dueling": False}
    assert network_config(actor, "critic", keys_of("TD3"))[0] == {
        "critic_hiddens": [40, 30],
        "critic_hidden_activation": "relu",
    }
    assert set(network_config(actor, "actor", keys_of("SAC"))[0]) == {"policy_model"}


def test_two_activations_in_a_row_are_said_and_initial_weights_remarked_on(write):
    text = (
        "[dense-0]\nunits=8\nactivation=relu\n[dense-1]\nunits=4\nactivation=tanh\ninitializer=orthogonal\n[dense-2]\n"
    )
    config, remarks = network_config(write(text), "model", keys_of("PPO"))
    assert config["model"] == {
        "fcnet_hiddens": [8], "fcnet_activation": "relu", "post_fcnet_hiddens": [4], "post_fcnet_activation": "tanh",
    }  # fmt: skip
    assert len(remarks) == 1
    assert "initializer" in remarks[0]


class Frames(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (42, 42, 4), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return np.zeros((42, 42, 4), np.uint8), {}

    def step(self, action):
        return np.zeros((42, 42, 4), np.uint8), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("algorithm", "env", "flags", "text", "shapes"),
    [
        ("ppo", "CartPole-v1", ["model"], SHARED, {(32, 4), (16, 32), (2, 16), (1, 16)}),
        ("dqn", Frames, ["model"], IMAGES, {(8, 4, 8, 8), (16, 8, 4, 4), (24, 144), (3, 24)}),
        ("td3", "Pendulum-v1", ["actor-model", "critic-model"], ACTOR, {(40, 3), (40, 4), (30, 40), (1, 30)}),
    ],
    ids=["vectors", "images", "actor and critic"],
)
def test_trainers_have_the_networks_of_the_files(write, algorithm, env, flags, text, shapes):
    path = str(write(text))
    name = env if isinstance(env, str) else "CartPole-v1"
    request = Request(algorithm, name, None, [Flag(flag, path) for flag in flags], StopCriterion())
    spec = make_spec(request)
    trainer = get_trainer_class(spec.algorithm)({**spec.config, "num_workers": 0, "preprocessor_pref": None}, env=env)
    found = {array.shape for array in trainer.get_weights()["default_policy"].values() if array.ndim > 1}
    assert found == shapes
    trainer.stop()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[lstm-0]\nunits=4\n[dense-0]\n", r"\[lstm-0\].*no counterpart.*custom_model"),
        ("[dense-0]\nunits=4\ndropout=0.5\n[dense-1]\n", r"\[dense-0\] has dropout; wanted activation, "),
        ("[dense-0]\nunits=many\n[dense-1]\n", r"units=many; wanted a whole number"),
        ("[dense-0]\nunits=4\nactivation=mish\n[dense-1]\n", r"activation=mish; wanted one of "),
        ("[dense-0]\nunits=4\nactivation=softmax\n[dense-1]\n", r"activation=softmax; wanted one of "),
        ("[dense-0]\nunits=4\n[convolutional-0]\n[dense-1]\n", r"wanted convolutions first"),
        ("[dense-0]\nunits=4\n", r"has 0 outputs"),
        ("[dense-0]\nunits=4\n[dense-1]\n[dense-2]\n", r"wanted common=1 in \[dense-0\]"),
        ("[dense-0]\nunits=4\ncommon=1\n[dense-1]\nunits=4\n[dense-2]\n", r"common=1 stands in \[dense-0\]"),
        ("[dense-0]\n[dense-1]\nunits=4\n", r"hidden layers stand behind \[dense-0\]"),
        ("", "holds no layers"),
        ("units=4\n", "cannot read the network file"),
        (
            "".join(f"[dense-{i}]\nunits=4\nactivation={name}\n" for i, name in enumerate(("relu", "tanh", "relu")))
            + "[dense-3]\n",
            "relu, tanh, relu; wanted at most two",
        ),
    ],
)
def test_files_that_say_what_cannot_be_are_answered_in_a_sentence(write, text, said):
    with pytest.raises(ConfigError, match=said) as raised:
        network_config(write(text), "model", keys_of("PPO"))
    assert "\n" not in str(raised.value)


def test_files_of_windows_editors_are_read(tmp_path):
    path = tmp_path / "net.cfg"
    path.write_bytes(SHARED.lstrip().replace("\n", "\r\n").encode("utf-8-sig"))
    assert network_config(path, "model", keys_of("PPO"))[0]["model"]["fcnet_hiddens"] == [32, 16]


def test_files_for_another_kind_of_algorithm_are_refused(write):
    path = write(SHARED)
    for role, algorithm, said in (
        ("model", "DQN", "has 2 outputs; wanted one, of Q-values"),
        ("model", "TD3", "wanted --actor-model FILE, --critic-model FILE"),
    ):
        with pytest.raises(ConfigError, match=said):
            network_config(path, role, keys_of(algorithm))
    with pytest.raises(ConfigError, match="has convolutions, which networks of observation and action do not take"):
        network_config(write(IMAGES), "critic", keys_of("DDPG"))


def test_convert_writes_keys_that_config_takes(write):
    path = write(SHARED)
    result = CliRunner().invoke(app, ["convert", str(path)])
    assert result.exit_code == 0, result.stderr
    written = path.with_suffix(".yaml")
    assert yaml.safe_load(written.read_text()) == network_config(path, "model", keys_of("PPO"))[0]
    spec = make_spec(Request("ppo", "CartPole-v1", written, (), StopCriterion()))
    assert spec.config["model"]["fcnet_hiddens"] == [32, 16]
    for arguments, said in (
        (["convert", str(path)], "exists; wanted a new file"),
        (["convert", str(path), "--framework", "tf"], "--framework is for checkpoints"),
        (["convert", str(path), "--role", "head", "--output", "x.yaml"], "--role: got 'head'"),
        (["convert", str(path.parent)], "a checkpoint is converted by --framework"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert said in result.stderr
