"""Dense layers by oneDNN and tanh by NumPy against PyTorch's own ways, on this processor.

python benchmarks/fast_dense.py [--rounds 9]

A forward and backward pass of two hidden layers, one thread, one process; the sides take turns, and the figure is the
ratio of their best rounds. Above 1 x means that `rlframe.fast.dense_torch` is the faster way.
"""

import argparse
import time

import torch

from rlframe.fast import dense_layer_torch, dense_torch

SHAPES = [(256, 256, "relu"), (128, 256, "tanh"), (32, 256, "relu"), (128, 64, "tanh"), (256, 400, "relu")]


def seconds_of(layers, x, activation, function, repeat):
    started = time.perf_counter()
    for _ in range(repeat):
        y = x
        for layer in layers:
            y = dense_layer_torch.dense(y, layer, activation, function)
        y.sum().backward()
    return (time.perf_counter() - started) / repeat


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    onednn = dense_torch.onednn
    print(f"oneDNN's layers are {'on' if onednn else 'off'} here; PyTorch {torch.__version__}")
    onednn = onednn or torch.ops.mkldnn._linear_pointwise.default
    for rows, width, activation in SHAPES:
        layers = [torch.nn.Linear(width, width) for _ in range(2)]
        x, function = torch.randn(rows, width, requires_grad=True), getattr(torch, activation)
        repeat = max(int(4e8 / (rows * width * width)), 10)
        best = {}
        for _ in range(rounds):
            for side, operation in (("own", None), ("fast", onednn)):
                dense_torch.onednn = operation
                taken = seconds_of(layers, x, activation, function, repeat)
                best[side] = min(best.get(side, taken), taken)
        ratio = best["own"] / best["fast"]
        print(f"{rows:4} rows, 2 layers of {width}, {activation}: {ratio:.2f} x ({best['fast'] * 1e6:.0f} us)")


if __name__ == "__main__":
    main()
