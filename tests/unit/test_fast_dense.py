"""oneDNN's dense layers: the numbers and gradients of PyTorch's own, and where they are taken."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rlframe.fast import dense_layer_torch, dense_torch  # noqa: E402 - behind the check for torch

ROWS, IN, OUT = 160, 160, 192


@pytest.fixture
def _switched_on(monkeypatch):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(dense_torch, "onednn", torch.ops.mkldnn._linear_pointwise.default)
    monkeypatch.setattr(dense_torch, "_arrays", False)


@pytest.fixture(params=["oneDNN", "NumPy"])
def _either_way(request, monkeypatch, _switched_on):
    monkeypatch.setattr(dense_torch, "_arrays", request.param == "NumPy")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1 if request.param == "NumPy" else 2)


def layer_and_rows(seed=0):
    torch.manual_seed(seed)
    layer, x = torch.nn.Linear(IN, OUT), torch.randn(ROWS, IN)
    return layer, x, torch.randn(ROWS, OUT)


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("activation", ["linear", "relu", "tanh", "sigmoid"])
def test_values_and_all_gradients_are_those_of_autograd(activation):
    function = {"linear": None, "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}[activation]
    made = []
    for fast in (True, False):
        layer, x, slope = layer_and_rows()
        x.requires_grad_()
        if fast:
            y = dense_layer_torch.dense(x, layer, activation, function)
            assert type(y.grad_fn).__name__ == "_DenseBackward", "these sizes are worth it"
        else:
            y = layer(x) if function is None else function(layer(x))
        y.backward(slope)
        made.append([y.detach(), x.grad, layer.weight.grad, layer.bias.grad])
    for fast, plain in zip(*made, strict=True):
        torch.testing.assert_close(fast, plain, atol=2e-4, rtol=1e-4)


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_gradients_of_gradients_are_those_of_autograd(activation):
    function = {"linear": None, "tanh": torch.tanh}[activation]
    made = []
    for run in (lambda x, layer: dense_layer_torch.dense(x, layer, activation, function),
                lambda x, layer: layer(x) if function is None else function(layer(x))):  # fmt: skip
        layer, x, slope = layer_and_rows()
        x.requires_grad_()
        inner = torch.autograd.grad(run(x, layer), [x, layer.weight], slope, create_graph=True)
        made.append(torch.autograd.grad(sum(part.square().sum() for part in inner), [x, layer.weight]))
    for fast, plain in zip(*made, strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-3 * float(plain.abs().max()), rtol=1e-3)


@pytest.mark.usefixtures("_either_way")
def test_frozen_weights_and_inputs_without_gradient_get_none():
    layer, x, slope = layer_and_rows()
    layer.weight.requires_grad_(False)
    x.requires_grad_()
    dense_layer_torch.dense(x, layer, "relu", torch.relu).backward(slope)
    assert layer.weight.grad is None
    assert x.grad is not None
    with torch.no_grad():
        assert dense_layer_torch.dense(x, layer, "relu", torch.relu).grad_fn is None


@pytest.mark.usefixtures("_switched_on")
def test_small_batches_hooks_and_other_modules_take_the_plain_way():
    layer, x, _ = layer_and_rows()
    assert "Dense" not in type(dense_layer_torch.dense(x[:2], layer, "relu", torch.relu).grad_fn).__name__
    seen = []
    layer.register_forward_hook(lambda *_: seen.append(1))
    dense_layer_torch.dense(x, layer, "relu", torch.relu)
    assert seen == [1]
    double = torch.nn.Linear(IN, OUT, dtype=torch.float64)
    assert dense_layer_torch.dense(x.double(), double, "linear", None).dtype == torch.float64


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("activation", ["linear", "relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("rows", [3, ROWS])
def test_layers_without_autograd_give_the_same_numbers(activation, rows):
    layer, x, _ = layer_and_rows()
    plain = layer(x[:rows]).detach()
    wanted = plain if activation == "linear" else getattr(torch, activation)(plain)
    made = dense_torch.dense_in_place(x[:rows], layer.weight.detach(), layer.bias.detach(), activation)
    torch.testing.assert_close(made, wanted, atol=1e-4, rtol=1e-4)
    out = torch.empty(rows, IN)
    assert dense_torch.matmul(plain, layer.weight.detach(), out=out) is out
    torch.testing.assert_close(out, plain @ layer.weight.detach(), atol=1e-3, rtol=1e-4)


@pytest.mark.usefixtures("_switched_on")
@pytest.mark.parametrize("count", [7, 5000])
def test_tanh_of_few_and_of_many_numbers_is_tanh(count):
    x = np.linspace(-20, 20, count, dtype=np.float32)
    y = torch.from_numpy(x.copy())
    dense_torch.tanh_(y)
    np.testing.assert_allclose(y.numpy(), np.tanh(x.astype(np.float64)), atol=1e-6)


@pytest.mark.parametrize(("said", "wanted"), [pytest.param("0", "None", marks=pytest.mark.slow), ("1", "mkldnn")])
def test_the_environment_switches_it_off_and_on(said, wanted):
    code = "from rlframe.fast import dense_layer_torch, dense_torch; print(dense_torch.onednn)"
    made = subprocess.run(
        [sys.executable, "-c", code], env={"RLFRAME_FAST_DENSE": said, "PATH": ""}, capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    assert wanted in made.stdout or (said == "1" and not torch.backends.mkldnn.is_available())


@pytest.mark.usefixtures("_switched_on")
@pytest.mark.parametrize("rows", [3, ROWS])
def test_frozen_layers_let_gradients_pass_and_take_none_where_it_saves_work(rows):
    layer, x, slope = layer_and_rows()
    made = []
    for frozen in (True, False):
        inputs = x[:rows].clone().requires_grad_()
        dense_layer_torch.dense(inputs, layer, "relu", torch.relu, frozen=frozen).backward(slope[:rows])
        made.append(inputs.grad)
        if frozen and rows == ROWS:
            assert layer.weight.grad is None
            assert layer.bias.grad is None
    torch.testing.assert_close(*made)


def test_products_with_a_narrow_side_are_the_same_by_numpy(monkeypatch):
    monkeypatch.setattr(dense_torch, "_arrays", True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    grad, x, out = torch.randn(256, 400), torch.randn(256, 4), torch.empty(400, 4)
    calls, product = [], np.dot
    monkeypatch.setattr(np, "dot", lambda *args: calls.append(args) or product(*args))
    torch.testing.assert_close(dense_torch.matmul(grad.t(), x, out=out), grad.t() @ x, atol=1e-3, rtol=1e-4)
    assert len(calls) == 1


@pytest.mark.parametrize(("rows", "width", "worth"), [(63, 512, False), (64, 512, True), (64, 128, False)])
def test_few_rows_and_little_work_go_pytorchs_own_way(rows, width, worth):
    assert dense_torch.worth(torch.zeros(rows, width), torch.zeros(width, width), "relu") is worth
