"""Steps per second of a learned environment with three nodes, in one process.

    OMP_NUM_THREADS=1 python benchmarks/revive_venv_steps.py

The nodes are a policy (acted by the caller), a network for a disturbance and a transition; networks have two hidden
layers of 64. Prints the median of five runs.
"""

import argparse
import statistics
import time

import numpy as np

from rlframe.models.spec import Dense, dense_layers
from rlframe.revive.data import GraphData
from rlframe.revive.distributions import NodeLayout
from rlframe.revive.functions import RewardFunction
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.vector_env import VirtualVectorEnv
from rlframe.revive.venv_model import NodeModel, VirtualEnv, node_inputs

GRAPH = {
    "metadata": {
        "graph": {"action": ["state"], "wind": ["state"], "next_state": ["state", "action", "wind"]},
        "columns": [
            *[{f"s{number}": {"dim": "state", "type": "continuous"}} for number in range(4)],
            {"a": {"dim": "action", "type": "continuous"}},
            {"w": {"dim": "wind", "type": "continuous"}},
        ],
    }
}


def make(slots: int, width: int) -> VirtualVectorEnv:
    """Returns an environment with networks that were not trained."""
    graph, rng = DecisionGraph.from_dict(GRAPH), np.random.default_rng(0)
    arrays = {name: rng.uniform(-1, 1, (5000, columns)) for name, columns in (("state", 4), ("action", 1), ("wind", 1))}
    data = GraphData.from_arrays({**arrays, "index": np.arange(1, 51) * 100}, graph)
    graph.fit_ranges(data)
    member = {}
    for name in ("action", "wind", "next_state"):
        layout, size = (
            NodeLayout.of(graph.scalers[name], squash=False),
            node_inputs(graph, graph.nodes[name], data.arrays).shape[-1],
        )
        layers, weights = (*dense_layers([width, width], "swish"), Dense("output", "linear", layout.inputs)), {}
        for layer in layers:
            weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"] = layer.initial.draw(rng, layer.units, size)
            size = layer.units
        member[name] = NodeModel(layout, [layer.to_spec() for layer in layers], weights)
    reward = RewardFunction("reward.py", "get_reward", "", lambda values: -np.abs(values["next_state"][..., 0]))
    return VirtualVectorEnv(VirtualEnv(graph, [member]), data, reward, num_envs=slots, seed=0)


def main() -> None:
    """Measures, and prints one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    given = parser.parse_args()
    env = make(given.slots, given.width)
    env.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (given.slots, 1)).astype(np.float32)
    rates, cpu = [], []
    for _ in range(5):
        started, used = time.perf_counter(), time.process_time()
        for _ in range(given.steps):
            env.step(actions)
        rates.append(given.slots * given.steps / (time.perf_counter() - started))
        cpu.append(given.slots * given.steps / (time.process_time() - used))
    print(
        f"{given.slots} slots, width {given.width}: {statistics.median(rates):,.0f} steps/s, "
        f"{statistics.median(cpu):,.0f} steps per CPU second"
    )


if __name__ == "__main__":
    main()
