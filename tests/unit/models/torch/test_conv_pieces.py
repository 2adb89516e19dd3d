import warnings

import numpy as np
import pytest
import torch

from rlframe.models.torch import conv_pieces
from rlframe.models.torch.visionnet import ConvStack

SHAPE = (11, 9, 2)
STACKS = {
    "padded": [[4, 4, 2], [5, 3, 1], [6, 3, 2]],
    "unpadded": [[4, 4, 2, "valid"], [5, 2, 1]],
    "one layer": [[4, 3, 2, "same"]],
    "a dense layer behind": [[4, 4, 2], [8, [6, 5], 1]],
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Four images of SHAPE go together."""
    monkeypatch.setattr(conv_pieces, "PIECE_BYTES", 4 * 4 * int(np.prod(SHAPE)))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stack(name="padded"):
    torch.manual_seed(0)
    made = ConvStack(SHAPE, STACKS[name], "relu", reduce=False)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-0.5, 0.5)
    return made


def images(rows=10, dtype=np.uint8):
    return torch.as_tensor(np.random.default_rng(0).integers(0, 9, (rows, *SHAPE)).astype(dtype))


def in_pieces(features):
    """Whether the graph of features has convolutions in pieces."""
    open_nodes, names = [features.grad_fn], set()
    while open_nodes:
        node = open_nodes.pop()
        names.add(node.name())
        open_nodes += [parent for parent, _ in node.next_functions if parent is not None]
    return "_PiecesBackward" in names


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pieces_have_the_numbers_and_gradients_of_the_whole(name, dtype, monkeypatch):
    net, rows = stack(name), images(dtype=dtype)
    weights = torch.randn(10, net.out_size)
    found = net(rows)
    gradients = torch.autograd.grad(found, list(net.parameters()), weights)
    assert in_pieces(found)
    monkeypatch.setattr(conv_pieces, "PIECE_BYTES", 1 << 40)
    expected = net(rows)
    assert not in_pieces(expected)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, list(net.parameters()), weights))


def test_pieces_have_gradients_of_gradients(monkeypatch):
    net, rows = stack().double(), images()
    net.convs[0]._model[1].bias.requires_grad_(False)
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]

    def of_squares():
        first = torch.autograd.grad(net(rows).square().mean(), parameters, create_graph=True)
        return torch.autograd.grad(sum(part.square().sum() for part in first), parameters)

    assert in_pieces(net(rows))
    found = of_squares()
    monkeypatch.setattr(conv_pieces, "PIECE_BYTES", 1 << 40)
    torch.testing.assert_close(found, of_squares())


def test_layers_that_somebody_watches_compute_themselves():
    net, seen = stack(), []
    net.convs[1]._model[1].register_forward_hook(lambda _module, _args, maps: seen.append(maps.shape))
    features = net(images())
    assert in_pieces(features)  # the first layer
    assert seen == [(10, 5, 6, 5)]
    watched = images(dtype=np.float32).requires_grad_()
    net(watched).sum().backward()
    assert watched.grad.abs().sum() > 0


def test_a_replaced_layer_computes():
    net = stack()
    net.convs[1] = torch.nn.Identity()
    net.convs[2] = torch.nn.Flatten()
    assert net(images()).shape == (10, 4 * 6 * 5)


def test_traces_and_functional_gradients_are_of_whole_batches():
    net, rows = stack(), images()
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(net, (rows,))
    torch.testing.assert_close(traced(rows[:3]), net(rows[:3]))

    def total(parameters):
        return torch.func.functional_call(net, parameters, (rows,)).sum()

    parameters = dict(net.named_parameters())
    net(rows).sum().backward()
    found = torch.func.grad(total)(parameters)
    torch.testing.assert_close(found, {name: parameter.grad for name, parameter in parameters.items()})
