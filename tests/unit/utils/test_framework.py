"""The frameworks, there or not."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from rlframe.utils import framework
from rlframe.utils.framework import (
    LazyModule,
    get_activation_fn,
    get_variable,
    try_import_jax,
    try_import_tf,
    try_import_tfp,
    try_import_torch,
)


def test_try_import_torch_gives_torch_and_nn():
    torch, nn = try_import_torch()
    assert torch is sys.modules["torch"]
    assert nn is torch.nn


def test_try_import_torch_without_torch_gives_stand_ins(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    torch, nn = try_import_torch()
    assert torch is None
    assert not nn

    class Model(nn.Module):
        """Defined at the top of a user's file."""

    with pytest.raises(ImportError, match="Model needs PyTorch"):
        Model()
    with pytest.raises(ImportError):
        try_import_torch(error=True)


def test_try_import_tf_without_tensorflow_gives_three_nones(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.setitem(sys.modules, "tensorflow_probability", None)
    assert try_import_tf() == (None, None, None)
    assert try_import_tfp() is None
    assert try_import_jax() == (None, None)
    for function in (try_import_tf, try_import_tfp, try_import_jax):
        with pytest.raises(ImportError):
            function(error=True)


def test_try_import_tf_imports_tensorflow_at_first_use(monkeypatch):
    monkeypatch.setattr(framework, "_is_installed", lambda name: True)
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    before = set(sys.modules)
    tf1, tf, version = try_import_tf()
    assert tf1
    assert tf
    assert version == 2
    assert "tensorflow" not in set(sys.modules) - before
    assert try_import_tfp()


def test_lazy_module_acts_as_the_module():
    lazy = LazyModule("json")
    assert lazy.loads("[1]") == [1]
    assert "dumps" in dir(lazy)
    assert pickle.loads(pickle.dumps(lazy)).loads("2") == 2
    with pytest.raises(AttributeError):
        lazy.no_such_name  # noqa: B018


def test_get_activation_fn_knows_the_usual_names():
    torch = pytest.importorskip("torch")
    assert get_activation_fn("relu", "torch") is torch.nn.ReLU
    assert get_activation_fn("swish", framework="torch") is torch.nn.SiLU
    assert get_activation_fn("linear", "torch") is None
    assert get_activation_fn(None, "torch") is None
    assert get_activation_fn(torch.nn.ELU, "torch") is torch.nn.ELU
    with pytest.raises(ValueError, match="tanh"):
        get_activation_fn("tanhh", "torch")
    with pytest.raises(ValueError, match="framework"):
        get_activation_fn("tanh", "caffe")


def test_get_variable_makes_what_the_framework_holds():
    torch = pytest.importorskip("torch")
    assert get_variable(3, framework="torch") == 3
    tensor = get_variable([1.0], framework="torch", torch_tensor=True, trainable=True)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.requires_grad


def test_one_name_for_what_try_import_tf_returns_is_tensorflow_as_in_rllib_0_8(monkeypatch):
    monkeypatch.setattr(framework, "_is_installed", lambda name: True)
    assert type(try_import_tf()) is framework._TensorFlows
    tf = pickle.loads(pickle.dumps(framework._TensorFlows((LazyModule("json"), None, 2))))
    assert (tf.loads("[1]"), tf[2]) == ([1], 2)
    with pytest.raises(AttributeError):
        tf.no_such_name  # noqa: B018


@pytest.mark.parametrize(
    "use",
    ["import rlframe.utils.quiet_tf", "from rlframe.utils.framework import try_import_tf; try_import_tf()[1].here"],
)
def test_triton_is_loaded_before_tensorflow(tmp_path, use):
    (tmp_path / "triton.py").write_text("import sys; assert 'tensorflow' not in sys.modules")
    (tmp_path / "tensorflow.py").write_text("import sys; assert 'triton' in sys.modules; here = True")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {use}; assert sys.modules['tensorflow'].here"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.slow
def test_triton_behind_tensorflow_is_left_out(tmp_path):
    (tmp_path / "triton.py").write_text("raise SystemExit('this would end the process')")
    (tmp_path / "tensorflow.py").write_text("")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import tensorflow
from rlframe.agents.pg import PGTrainer
PGTrainer({{"num_workers": 0, "train_batch_size": 10}}, env="CartPole-v1").train()
import torch
torch.optim.RMSprop([torch.nn.Parameter(torch.zeros(1))]).step()
assert sys.modules["triton"] is None
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
