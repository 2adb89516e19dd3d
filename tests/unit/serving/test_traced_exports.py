"""Models and distributions of users' own as files: they are traced, act as the policy does, or are refused."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTorchPolicy, PPOTrainer
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.torch.recurrent_net import RecurrentNetwork
from rlframe.models.torch.torch_action_dist import TorchDiagGaussian
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.utils.errors import ConfigError

LINE = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)
PARTS = gym.spaces.Dict({"place": gym.spaces.Box(-9.0, 9.0, (2,), np.float64), "kind": gym.spaces.Discrete(3)})
MOVES = gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([5.0, 1.0], np.float32))
TURN = gym.spaces.Discrete(3, start=2)
IMAGE = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)


class Plain(TorchModelV2, nn.Module):
    """Takes a nested observation apart, as RLlib's examples do, and keeps features for its value function."""

    def __init__(self, *args, **kwargs):
        nn.Module.__init__(self)
        super().__init__(*args, **kwargs)
        self.num_outputs = self.num_outputs or 4  # before a memory there are only features
        self.first, self.last, self.value = nn.Linear(5, 6), nn.Linear(6, self.num_outputs), nn.Linear(6, 1)

    def forward(self, input_dict, state, seq_lens):
        seen = input_dict["obs"]
        self.features = torch.tanh(self.first(torch.cat([seen["place"].float(), seen["kind"].float()], 1)))
        return self.last(self.features), state

    def value_function(self):
        return self.value(self.features).squeeze(1)


class Remembers(RecurrentNetwork, nn.Module):
    """A GRU of the user's own, in sequences."""

    def __init__(self, *args, **kwargs):
        nn.Module.__init__(self)
        super().__init__(*args, **kwargs)
        self.cell, self.last = nn.GRU(3, 5, batch_first=True), nn.Linear(5, self.num_outputs)

    def get_initial_state(self):
        return [np.full(5, 0.25, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        outputs, after = self.cell(inputs, state[0].unsqueeze(0))
        self.made = outputs
        return self.last(outputs), [after.squeeze(0)]

    def value_function(self):
        return self.made.sum(-1).reshape(-1)


class LooksBack(TorchModelV2, nn.Module):
    """Sees three observations, two actions and two rewards, without a state."""

    def __init__(self, *args, **kwargs):
        nn.Module.__init__(self)
        super().__init__(*args, **kwargs)
        self.view_requirements["past_obs"] = ViewRequirement("obs", shift="-2:0", space=self.obs_space)
        self.view_requirements["past_actions"] = ViewRequirement("actions", shift="-2:-1", space=self.action_space)
        self.view_requirements["past_rewards"] = ViewRequirement("rewards", shift="-2:-1")
        self.last = nn.Linear(9 + 4 + 2, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        names = ("past_obs", "past_actions", "past_rewards")
        self.seen = torch.cat([input_dict[name].float().flatten(1) for name in names], 1)
        return self.last(self.seen), state

    def value_function(self):
        return self.seen.sum(1)


class Screens(TorchModelV2, nn.Module):
    """Convolutions over bytes."""

    def __init__(self, *args, **kwargs):
        nn.Module.__init__(self)
        super().__init__(*args, **kwargs)
        self.net = nn.Sequential(nn.Conv2d(1, 2, 4, 2), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4))
        self.last = nn.Linear(4, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.features = self.net(input_dict["obs"].float().permute(0, 3, 1, 2) / 255)
        return self.last(self.features), state

    def value_function(self):
        return self.features.sum(1)


class Halved(TorchDiagGaussian):
    """Acts at half the mean."""

    def deterministic_sample(self):
        return super().deterministic_sample() / 2


def trainer_of(cls, observed, acted, model, **config):
    small = {"num_workers": 0, "seed": 3, "log_sys_usage": False, "framework": "torch", "env": None}
    made = cls({**small, "observation_space": observed, "action_space": acted, "model": model, **config})
    worker, rng = made.workers.local_worker(), np.random.default_rng(0)
    if "observation_filter" in config:
        for row in rng.normal(2.0, 3.0, (20, *observed.shape)):
            next(iter(worker.filters.values()))(row)
    drawn = {name: rng.normal(0.0, 0.4, part.shape) for name, part in worker.get_policy().get_weights().items()}
    positive = {name: np.abs(part) if "running_var" in name else part for name, part in drawn.items()}
    worker.get_policy().set_weights({name: part.astype(np.float32) for name, part in positive.items()})
    return made


CASES = {
    "nested": (PPOTrainer, PARTS, MOVES, {"custom_model": Plain}, {}),
    "behind an LSTM": (PPOTrainer, PARTS, TURN, {"custom_model": Plain, "use_lstm": True, "lstm_cell_size": 4,
                                                 "lstm_use_prev_action": True, "lstm_use_prev_reward": True}, {}),
    "recurrent": (PPOTrainer, LINE, MOVES, {"custom_model": Remembers}, {"observation_filter": "MeanStdFilter"}),
    "past steps": (PPOTrainer, LINE, MOVES, {"custom_model": LooksBack}, {"clip_rewards": 0.5}),
    "screens": (PPOTrainer, IMAGE, TURN, {"custom_model": Screens}, {}),
    "encoder of Q": (DQNTrainer, PARTS, TURN, {"custom_model": Plain}, {"hiddens": [4]}),
    "distribution": (PPOTrainer, LINE, MOVES, {"fcnet_hiddens": [4], "custom_action_dist": Halved}, {}),
}  # fmt: skip


DEFAULT = {
    ("nested", "torchscript"), ("recurrent", "torchscript"), ("past steps", "torchscript"),
    ("distribution", "torchscript"), ("recurrent", "onnx"), ("screens", "onnx"),
}  # fmt: skip
EVERY = [
    pytest.param(case, to, marks=() if (case, to) in DEFAULT else pytest.mark.slow)
    for case in CASES
    for to in ("torchscript", "onnx")
]


@pytest.mark.parametrize(("case", "to"), EVERY)
def test_what_is_not_built_in_is_traced(case, to, tmp_path):
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    cls, observed, acted, model, config = CASES[case]
    trainer = trainer_of(cls, observed, acted, model, **config)
    path = trainer.export_policy(to, tmp_path / "out")
    trainer.stop()
    contract = json.loads((tmp_path / "out" / "contract.json").read_text())
    assert path.exists()
    assert contract["verified"]["observations"] == 120
    assert contract["verified"]["difference"] < 1e-5


def drawn(policy, model, *, input_dict, **kwargs):
    """An `action_distribution_fn`: Gaussians around twice what the model says."""
    outputs, states = model(input_dict, [], None)
    return outputs * 2, TorchDiagGaussian, states


def test_functions_that_choose_are_traced_too(tmp_path):
    policy = PPOTorchPolicy.with_updates(name="Doubled", action_distribution_fn=drawn)
    cls = PPOTrainer.with_updates(name="Own", default_policy=policy)
    trainer = trainer_of(cls, LINE, MOVES, {"fcnet_hiddens": [4]})
    trainer.export_policy("torchscript", tmp_path / "out")
    trainer.stop()
    assert json.loads((tmp_path / "out" / "contract.json").read_text())["verified"]["difference"] < 1e-5


@pytest.mark.filterwarnings("ignore:.torch.jit.load. is deprecated:DeprecationWarning")
def test_a_traced_file_needs_pytorch_alone_and_keeps_the_weights_it_was_written_with(tmp_path):
    trainer = trainer_of(PPOTrainer, PARTS, MOVES, {"custom_model": Plain})
    path = trainer.export_policy("torchscript", tmp_path / "out")
    PARTS.seed(1)
    seen = [PARTS.sample() for _ in range(5)]
    wanted = [trainer.compute_single_action(each, explore=False) for each in seen]
    policy = trainer.get_policy()
    policy.set_weights({name: part * 0 for name, part in policy.get_weights().items()})
    trainer.stop()
    contract = json.loads((tmp_path / "out" / "contract.json").read_text())
    parts = [torch.tensor(np.stack([each[port["path"][0]] for each in seen])) for port in contract["observations"]]
    (actions,) = torch.jit.load(str(path))(*parts)
    np.testing.assert_allclose(actions.detach().numpy(), wanted, rtol=1e-5)


class ByNumPy(Plain):
    """Leaves PyTorch on the way."""

    def forward(self, input_dict, state, seq_lens):
        outputs, state = super().forward(input_dict, state, seq_lens)
        return torch.from_numpy(np.sort(outputs.detach().numpy(), axis=1)), state


class ByValue(Plain):
    """Does something else where what it sees is large."""

    def forward(self, input_dict, state, seq_lens):
        outputs, state = super().forward(input_dict, state, seq_lens)
        return (-outputs if bool(input_dict["obs"]["place"].sum() > 1.0) else outputs), state


class OfTwo(Plain):
    """Takes the number of rows for a constant."""

    def forward(self, input_dict, state, seq_lens):
        outputs, state = super().forward(input_dict, state, seq_lens)
        return outputs + torch.zeros(int(outputs.shape[0]), 1), state


class Breaks(Plain):
    """Asks a tracer for what it does not have."""

    def forward(self, input_dict, state, seq_lens):
        outputs, state = super().forward(input_dict, state, seq_lens)
        if torch.jit.is_tracing():
            raise RuntimeError("no\nway")
        return outputs, state


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (ByNumPy, r"the file gives action .* the policy .*; not written; tracing follows tensors alone"),
        (ByValue, r"the file gives action \[.*\], the policy \[.*\]; not written; tracing follows tensors alone"),
        (OfTwo, r"OfTwo runs on 2 rows, as it was traced, and not on 40 \(RuntimeError: .*\); serve it instead"),
        (Breaks, r"Breaks cannot be traced \(RuntimeError: no way\); serve it instead: rlframe serve RUN"),
    ],
)
def test_what_tracing_does_not_follow_is_refused_and_leaves_nothing(model, said, tmp_path):
    trainer = trainer_of(PPOTrainer, PARTS, MOVES, {"custom_model": model})
    with pytest.raises(ConfigError, match=said) as caught:
        trainer.export_policy("torchscript", tmp_path / "deployed" / "out")
    trainer.stop()
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "deployed").iterdir())


def test_forms_that_cannot_hold_a_traced_network_name_those_that_can(tmp_path):
    trainer = trainer_of(PPOTrainer, PARTS, MOVES, {"custom_model": Plain})
    with pytest.raises(ConfigError, match=r"got the format 'numpy' for Plain, .* wanted torchscript or onnx"):
        trainer.export_policy("numpy", tmp_path / "out")
    trainer.stop()


class ByMethod(PPOTorchPolicy):
    """Acts by a method on arrays."""

    def compute_actions_from_input_dict(self, *args, **kwargs):
        actions, states, extra = super().compute_actions_from_input_dict(*args, **kwargs)
        return actions, states, extra


def test_methods_on_arrays_are_refused(tmp_path):
    trainer = trainer_of(PPOTrainer.with_updates(name="Own", default_policy=ByMethod), LINE, MOVES, {})
    with pytest.raises(ConfigError, match="acts by functions or a distribution of its own"):
        trainer.export_policy("torchscript", tmp_path / "out")
    trainer.stop()


@pytest.mark.slow
def test_tensorflows_models_become_saved_models(tmp_path):
    pytest.importorskip("tensorflow")
    from tests.helpers.tf_export_models import Plain as PlainInTF

    trainer = trainer_of(PPOTrainer, LINE, MOVES, {"custom_model": PlainInTF}, framework="tf")
    trainer.export_policy("savedmodel", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "contract.json").read_text())["verified"]["difference"] < 1e-5
    with pytest.raises(ConfigError, match=r"got the format 'onnx' for Plain, .* wanted savedmodel"):
        trainer.export_policy("onnx", tmp_path / "other")
    trainer.stop()
