"""Exported policies act as the policy does, and what cannot be exported is refused before anything is written."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
import typer

from rlframe.agents.ppo import PPOTrainer
from rlframe.cli.export_command import export
from rlframe.models.torch.action_mask import ActionMaskModel
from rlframe.serving.export import exporting
from rlframe.serving.protocol import loads
from rlframe.utils.errors import ConfigError

LINE = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)
MOVES = gym.spaces.Box(np.array([-2.0, -np.inf], np.float32), np.array([5.0, np.inf], np.float32))
TURN = gym.spaces.Discrete(3, start=2)
PARTS = gym.spaces.Dict(
    {
        "place": gym.spaces.Box(-9.0, 9.0, (2,), np.float64),
        "kind": gym.spaces.Discrete(3),
        "pair": gym.spaces.Tuple([gym.spaces.MultiBinary(2), gym.spaces.Box(0, 255, (1,), np.uint8)]),
    }
)
BOTH = gym.spaces.Dict({"turn": TURN, "move": gym.spaces.Tuple([MOVES, gym.spaces.MultiDiscrete([2, 3])])})
MASKED = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(3), "observations": LINE})
IMAGE = gym.spaces.Box(0, 255, (9, 8, 3), np.uint8)
SCREEN = gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)
SCALED_SCREEN = gym.spaces.Box(-1.0, 1.0, (210, 160, 3), np.float32)
CONVS = {"conv_filters": [[4, [3, 3], 2], [8, [5, 4], 1]], "post_fcnet_hiddens": [4]}
MEMORY = {"use_lstm": True, "lstm_use_prev_action": True, "lstm_use_prev_reward": True, "lstm_cell_size": 4}
FILTERED = {"observation_filter": "MeanStdFilter"}


def trainer_of(observed, acted, **config):
    small = {"num_workers": 0, "seed": 3, "log_sys_usage": False, "framework": "torch", "env": None}
    model = {"fcnet_hiddens": [4], **config.pop("model", {})}
    made = PPOTrainer({**small, "observation_space": observed, "action_space": acted, "model": model, **config})
    worker, rng = made.workers.local_worker(), np.random.default_rng(0)
    if "observation_filter" in config:
        for row in rng.normal(2.0, 3.0, (20, *observed.shape)):
            next(iter(worker.filters.values()))(row)
    weights = worker.get_policy().get_weights()  # outputs of fresh networks are next to zero, and all alike
    drawn = {name: rng.normal(0.0, 0.4, array.shape).astype(array.dtype) for name, array in weights.items()}
    worker.get_policy().set_weights(drawn)
    return made


CASES = {
    "choice": (LINE, TURN, {"model": {"fcnet_activation": "gelu"}}),
    "filter and bounds": (LINE, MOVES, {**FILTERED, "model": {"fcnet_activation": "swish", "free_log_std": True}}),
    "clipped": (LINE, MOVES, {"normalize_actions": False, "clip_actions": True}),
    "parts and memory": (PARTS, BOTH, {"model": MEMORY, "clip_rewards": True}),
    "images": (IMAGE, TURN, {"model": CONVS}),
    "screens": (SCREEN, TURN, {"model": {**CONVS, "dim": 9}}),
    "scaled screens": (SCALED_SCREEN, TURN, {"model": {**CONVS, "dim": 9, "grayscale": True}}),
    "mask": (MASKED, gym.spaces.Discrete(3), {"model": {"custom_model": ActionMaskModel}}),
}


@pytest.mark.parametrize("to", ["numpy", "onnx", "torchscript"])
@pytest.mark.parametrize("case", CASES)
def test_files_act_as_the_policy(case, to, tmp_path):
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    observed, acted, config = CASES[case]
    trainer = trainer_of(observed, acted, **dict(config))
    path = trainer.export_policy(to, tmp_path / "out")
    contract = json.loads((tmp_path / "out" / "contract.json").read_text())
    assert path.exists()
    assert contract["verified"]["observations"] == 120
    assert contract["verified"]["difference"] < 1e-5
    assert loads(json.dumps(contract["observation_space"]).encode()) == observed
    assert loads(json.dumps(contract["action_space"]).encode()) == acted
    trainer.stop()


@pytest.mark.parametrize("case", ["parts and memory", "filter and bounds"])
def test_saved_models_act_as_the_policy_and_tensorflows_policies_are_written(case, tmp_path):
    pytest.importorskip("tensorflow")
    observed, acted, config = CASES[case]
    trainer = trainer_of(observed, acted, **{**config, "framework": "tf"})
    for to in ("savedmodel", "numpy"):
        trainer.export_policy(to, tmp_path / to)
        assert json.loads((tmp_path / to / "contract.json").read_text())["verified"]["difference"] < 1e-5
    trainer.stop()


ALONE = """
import importlib.abc, json, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("rlframe", "torch", "tensorflow", "gymnasium", "ray", "onnxruntime"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
from policy import Policy
import numpy as np

policy = Policy()
answers = []
for episode in json.load(open(sys.argv[1])):
    policy.reset()
    for seen, reward in episode:
        action = policy.act({"place": seen[0], "kind": seen[1], "pair": (seen[2], seen[3])}, reward)
        answers.append([int(action["turn"]), [float(x) for x in action["move"][0]], action["move"][1].tolist()])
print(json.dumps(answers))
"""


def test_the_numpy_file_acts_where_there_is_only_numpy(tmp_path):
    observed, acted, config = CASES["parts and memory"]
    trainer = trainer_of(observed, acted, **dict(config))
    path = trainer.export_policy("numpy", tmp_path / "out")
    observed.seed(5)
    episodes, wanted = [], []
    for _ in range(2):
        actor, episode = trainer.make_actor(explore=False), []
        for step in range(4):
            seen, reward = observed.sample(), None if step == 0 else 0.5 * step
            action = actor.act(seen, reward)
            wanted.append([int(action["turn"]), action["move"][0].tolist(), action["move"][1].tolist()])
            pair = [part.tolist() for part in seen["pair"]]
            episode.append([[seen["place"].tolist(), int(seen["kind"]), *pair], reward])
        episodes.append(episode)
    trainer.stop()
    given = tmp_path / "given.json"
    given.write_text(json.dumps(episodes))
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(given)], cwd=path.parent, capture_output=True, text=True, check=True
    )
    for got, action in zip(json.loads(done.stdout), wanted, strict=True):
        assert got[0] == action[0]
        np.testing.assert_allclose(got[1], action[1], rtol=1e-5)
        assert got[2] == action[2]


def test_the_numpy_file_names_what_is_wrong_with_an_observation(tmp_path):
    trainer = trainer_of(LINE, TURN)
    path = trainer.export_policy("numpy", tmp_path / "out")
    trainer.stop()
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    policy = scope["Policy"]()
    assert len(policy.act_many(np.zeros((4, 3), np.float32))) == 4
    with pytest.raises(ValueError, match=r"obs: got an array of shape \(2,\), wanted \(3,\)"):
        policy.act([0.0, 1.0])
    with pytest.raises(ValueError, match="NaN"):
        policy.act([0.0, 1.0, np.nan])


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    trainer = trainer_of(LINE, TURN)
    with pytest.raises(ConfigError, match="got the format 'tflite', wanted one of numpy, onnx"):
        trainer.export_policy("tflite", tmp_path / "out")
    with pytest.raises(ConfigError, match="got the policy 'other', wanted one of default_policy"):
        trainer.export_policy("numpy", tmp_path / "out", policy_id="other")
    truth = exporting.policy_program

    def otherwise(policy, clip_rewards=None):
        program = truth(policy, clip_rewards)
        for name, array in program.constants.items():
            program.constants[name] = -array if array.dtype == np.float32 else array
        return program

    monkeypatch.setattr(exporting, "policy_program", otherwise)
    with pytest.raises(ConfigError, match=r"the file gives action [0-9], the policy [0-9]; not written"):
        trainer.export_policy("numpy", tmp_path / "out")
    trainer.stop()
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".py", ".json") or "out" in path.name]


def test_what_is_there_is_only_replaced_by_force_and_only_if_it_is_an_export(tmp_path):
    trainer = trainer_of(LINE, TURN)
    trainer.export_policy("torchscript", tmp_path / "out")
    with pytest.raises(ConfigError, match="is there already"):
        trainer.export_policy("numpy", tmp_path / "out")
    trainer.export_policy("numpy", tmp_path / "out", force=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["contract.json", "policy.py"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="holds no export"):
        trainer.export_policy("numpy", tmp_path / "mine", force=True)
    trainer.stop()


@pytest.mark.filterwarnings("ignore:.torch.jit.load. is deprecated:DeprecationWarning")
def test_torchscript_is_loaded_without_rlframe(tmp_path):
    trainer = trainer_of(LINE, TURN)
    path = trainer.export_policy("torchscript", tmp_path / "out")
    rows = np.random.default_rng(2).normal(0.0, 4.0, (7, 3)).astype(np.float32)
    (actions,) = torch.jit.load(str(path))(torch.from_numpy(rows))
    assert actions.tolist() == [trainer.compute_single_action(row, explore=False) for row in rows]
    trainer.stop()


def test_the_command_exports_a_run_and_refuses_what_is_there(tmp_path, capsys):
    run = tmp_path / "run"
    trainer = PPOTrainer({"env": "CartPole-v1", "num_workers": 0, "seed": 1, "model": {"fcnet_hiddens": [4]}})
    checkpoint = trainer.save(str(run))
    trainer.stop()
    export(Path(checkpoint), out=tmp_path / "out")
    assert "acts as the policy does" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "contract.json").read_text())["algorithm"] == "PPO"
    for options, said in (({}, "is there already"), ({"to": "tflite"}, "got the format 'tflite'")):
        with pytest.raises(typer.Exit):
            export(Path(checkpoint), out=tmp_path / "out", **options)
        assert said in capsys.readouterr().err
    with pytest.raises(typer.Exit):
        export(tmp_path / "nothing", out=tmp_path / "other")
    assert "there is no directory" in capsys.readouterr().err
