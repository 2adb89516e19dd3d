"""Supervised learning of a decision graph: a Trainer whose policies are the nodes, which learn from logged rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.optimization import GradientClippingConfig
from rlframe.config.options import option
from rlframe.data.columns import ACTIONS, OBS
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
from rlframe.offline.input_reader import InputReader
from rlframe.policy.policy_spec import PolicySpec
from rlframe.revive.distributions import NodeLayout
from rlframe.revive.metrics import is_transition, learned_mask
from rlframe.revive.node_policy import NODE_MASK, node_spaces
from rlframe.revive.venv_model import STEP, TRAJECTORY, Member, NodeModel, code_width, node_inputs
from rlframe.trainer.template import build_trainer
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.offline.io_context import IOContext
    from rlframe.revive.data import GraphData
    from rlframe.revive.graph import DecisionGraph

__all__ = ["GraphBCConfig", "GraphBCTrainer", "GraphInput", "graph_trainer_config", "learned_member"]

#: Fewest and most updates of an epoch, which otherwise is a pass over the rows.
FEWEST_UPDATES, MOST_UPDATES = 20, 100


class GraphBCConfig(GradientClippingConfig):
    """Keys of supervised learning of a decision graph's nodes; each node's policy has its own `layout`."""

    new_defaults: ClassVar[Any] = {
        "num_workers": 0,
        "train_batch_size": 256,
        "lr": 1e-3,
        "grad_clip": None,
        "input_evaluation": [],
    }

    layout: dict[str, Any] = option({}, "What the numbers of the node's value are; `NodeLayout.to_dict`. Free-form.")
    hidden_features: int = option(64, "Width of hidden layers.", low=1)
    hidden_layers: int = option(2, "Hidden layers.", low=1)
    backbone: str = option("mlp", "One layer behind the other, or each added to what it gets.", choices=("mlp", "res"))
    loss_type: str = option(
        "log_prob", "What is minimised: −log p, or the distance of the mode.", choices=("log_prob", "mae", "mse")
    )
    weight_decay: float = option(1e-5, "Weight of ½ w² of weight matrices in the loss.", low=0)
    lr_decay: float = option(0.99, "Factor on the learning rate after each iteration.", above=0, high=1)


class GraphReader(InputReader):
    """Draws rows of logged data, passing over all of them again and again, as a batch for each node.

    Args:
        data: With ranges in its graph.
        nodes: Names of the networks.
        rows: Rows of a batch.
        seed: Of their order.
    """

    def __init__(self, data: GraphData, nodes: list[str], rows: int, seed: int) -> None:
        self.data = data
        self.columns = {node: _columns_of(data, node) for node in nodes}
        self._rows, self._count = min(rows, len(data)), len(data)
        self._rng = np.random.default_rng(seed)
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)

    def next(self) -> MultiAgentBatch:
        """Returns the next rows of a pass; what is too little for a batch is left out of it."""
        if len(self._order) < self._rows:
            self._order = self._rng.permutation(self._count)
        rows, self._order = self._order[: self._rows], self._order[self._rows :]
        batches = {
            node: SampleBatch({name: column[rows] for name, column in columns.items()})
            for node, columns in self.columns.items()
        }
        return MultiAgentBatch(batches, len(rows))

    def get_state(self) -> dict[str, Any]:
        """Returns what is left of the pass, and the generator's state."""
        return {"order": self._order.copy(), "rng": self._rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self._order, self._rng.bit_generator.state = np.asarray(state["order"]), state["rng"]


def _columns_of(data: GraphData, node: str) -> dict[str, NDArray[Any]]:
    """Returns what a node sees, its values in the learned space, and which of them count, of all rows."""
    graph = data.graph
    places = {STEP: data.steps[:, None], TRAJECTORY: data.trajectory[:, None]}
    return {
        OBS: node_inputs(graph, graph.nodes[node], {**data.arrays, **places}),
        ACTIONS: graph.scalers[node].scale(data.arrays[node]),
        NODE_MASK: learned_mask(graph.scalers[node], data.mask[node]).astype(np.float32),
    }


@dataclass(frozen=True)
class GraphInput:
    """`config["input"]` of a decision graph's trainer: makes a `GraphReader`.

    Attributes:
        data: What was logged.
        nodes: Names of the networks.
    """

    data: GraphData
    nodes: tuple[str, ...]

    def __call__(self, ioctx: IOContext) -> GraphReader:
        """Returns the reader of a worker."""
        return GraphReader(self.data, list(self.nodes), ioctx.config.train_batch_size, ioctx.seed("graph"))

    def __deepcopy__(self, memo: Any) -> GraphInput:
        """Returns itself: configs are copied, and data are only read."""
        return self


def start_linear(workers: WorkerSet) -> None:
    """Has policies that have not learned yet begin with the linear map nearest to the data."""
    local: Any = workers.local_worker()
    for node, columns in local.input_reader.columns.items():
        policy = local.policy_map[node]
        if policy.num_updates == 0:
            codes = code_width(local.input_reader.data.graph.nodes[node])
            policy.start_linear(columns[OBS], columns[ACTIONS], columns[NODE_MASK], codes)


class DecayLearningRates:
    """Multiplies learning rates by a factor with each iteration's share of steps; by the steps that were learned.

    Args:
        workers: The WorkerSet.
        config: Reads `lr`, `lr_decay`, `train_batch_size` and `timesteps_per_iteration`.
    """

    def __init__(self, workers: WorkerSet, config: GraphBCConfig) -> None:
        self._workers, self._config = workers, config

    def __call__(self, item: Any) -> Any:
        """Sets the rates behind a learner step."""
        config = self._config
        updates = max(config.timesteps_per_iteration / config.train_batch_size, 1.0)
        policies: Any = self._workers.local_worker().policy_map
        for policy in policies.values():
            policy.set_learning_rate(policy.config["lr"] * config.lr_decay ** (policy.num_updates / updates))
        return item


def execution_plan(workers: WorkerSet, config: GraphBCConfig) -> LocalIterator[Any]:
    """Reads a batch, has each node learn from it, and lowers the rates."""
    start_linear(workers)
    learn = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(TrainOneStep(workers))
        .for_each(DecayLearningRates(workers, config))
    )
    return StandardMetricsReporting(learn, workers, config)


DEFAULT_CONFIG: dict[str, Any] = GraphBCConfig.defaults()

GraphBCTrainer = build_trainer(
    name="GraphBC",
    config_class=GraphBCConfig,
    policies={
        "torch": "rlframe.revive.node_policy:NodeTorchPolicy",
        "tf": "rlframe.revive.node_policy:NodeTFPolicy",
    },
    execution_plan=execution_plan,
)


def graph_trainer_config(data: GraphData, settings: Any, *, local: bool = True, seed: int = 0) -> dict[str, Any]:
    """Returns the config of a `GraphBCTrainer` for data.

    Args:
        data: What to learn from; its graph has ranges.
        settings: Has `policy_hidden_features`, `policy_hidden_layers`, `policy_backbone`, the same of `transition_…`,
            `bc_batch_size`, `bc_lr` or else `g_lr`, `lr_decay`, `weight_decay` and `loss_type`; such as the venv part
            of a `Configuration`.
        local: Whether means are a linear map and what is learned beside it, which shifts and laws of control often
            are; else they are kept within the columns' ranges by tanh.
        seed: Of weights and batches.
    """
    graph = data.graph
    policies = {}
    for name in (node for node in graph.order if graph.nodes[node].role == "network"):
        moves = is_transition(name)
        layout = NodeLayout.of(graph.scalers[name], squash=not local)
        probe = _columns_of(data.take([slice(0, 1)]), name)
        kind = "transition" if moves else "policy"
        own = {
            "layout": layout.to_dict(),
            "hidden_features": getattr(settings, f"{kind}_hidden_features"),
            "hidden_layers": getattr(settings, f"{kind}_hidden_layers"),
            "backbone": getattr(settings, f"{kind}_backbone"),
            "loss_type": _loss_of(graph, name, settings.loss_type),
        }
        policies[name] = PolicySpec(None, *node_spaces(probe[OBS].shape[1], layout), own)
    if not policies:
        raise ConfigError(f"{graph.source}: the graph has no network; there is nothing to learn")
    rows = min(settings.bc_batch_size, len(data))
    updates = min(max(math.ceil(len(data) / rows), FEWEST_UPDATES), MOST_UPDATES)
    return {
        "env": None,
        "input": GraphInput(data, tuple(policies)),
        "multiagent": {
            "policies": policies,
            "policy_mapping_fn": own_policy,
            "policies_to_train": [name for name in policies if name not in graph.frozen],
        },
        "train_batch_size": rows,
        "rollout_fragment_length": rows,
        "timesteps_per_iteration": rows * updates,
        "lr": getattr(settings, "bc_lr", settings.g_lr),
        "lr_decay": settings.lr_decay,
        "weight_decay": settings.weight_decay,
        "seed": seed,
        "log_level": "ERROR",  # that no episodes are run is what is asked for
    }


def own_policy(agent_id: str, *args: Any, **kwargs: Any) -> str:
    """Returns the policy of a node: that of its name."""
    del args, kwargs
    return agent_id


def _loss_of(graph: DecisionGraph, node: str, otherwise: str) -> str:
    """Returns the loss of a node, which the graph file may say by name."""
    return graph.nodes[node].loss_type or otherwise


def learned_member(trainer: Any, *, live: bool = False) -> Member:
    """Returns the models of a trainer's nodes.

    Args:
        trainer: A `GraphBCTrainer`, or one built on it.
        live: Whether they follow the trainer's learning, where they can; else they are copies.
    """
    local = trainer.workers.local_worker()
    found = {}
    for node in local.input_reader.columns:
        policy = local.policy_map[node]
        weights = (policy.live_weights() if live else None) or policy.get_weights()
        layers = policy.model.parts["actor"].prefixed("actor")
        kept = {name: weight for name, weight in weights.items() if name.startswith("actor.")}
        found[node] = NodeModel(policy.layout, json.loads(json.dumps(layers)), kept)
    return found
