"""Learned environments from logged data: a Trainer whose policies are the nodes, and what chooses the best."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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
from rlframe.revive.metrics import is_transition, learned_mask, scores
from rlframe.revive.node_policy import NODE_MASK, node_spaces
from rlframe.revive.venv_model import STEP, TRAJECTORY, Member, NodeModel, VirtualEnv, node_inputs
from rlframe.revive.workspace import write_text
from rlframe.trainer.template import build_trainer
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import read_json

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.offline.io_context import IOContext
    from rlframe.revive.data import GraphData
    from rlframe.revive.graph import DecisionGraph

__all__ = [
    "GraphBCConfig", "GraphBCTrainer", "GraphInput", "VenvResult", "graph_trainer_config", "learned_member",
    "train_virtual_env",
]  # fmt: skip

#: Fewest and most updates of an epoch, which otherwise is a pass over the rows.
FEWEST_UPDATES, MOST_UPDATES = 20, 100
#: Longest rollouts by which environments are chosen: where errors grow exponentially, longer ones prefer a model that
#: says the mean to one that follows the process for a while.
CHOICE_HORIZON = 10
#: Where an environment of each half is, below the workspace.
HALVES = ("train", "val")


class GraphBCConfig(GradientClippingConfig):
    """Keys of supervised learning of a decision graph's nodes; each node's policy has its own `layout`."""

    new_defaults: ClassVar = {
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
            policy.start_linear(columns[OBS], columns[ACTIONS], columns[NODE_MASK])


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
            `bc_batch_size`, `g_lr`, `lr_decay`, `weight_decay` and `loss_type`; such as the venv part of a
            `Configuration`.
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
        "lr": settings.g_lr,
        "lr_decay": settings.lr_decay,
        "weight_decay": settings.weight_decay,
        "seed": seed,
    }


def own_policy(agent_id: str, *args: Any, **kwargs: Any) -> str:
    """Returns the policy of a node: that of its name."""
    del args, kwargs
    return agent_id


def _loss_of(graph: DecisionGraph, node: str, otherwise: str) -> str:
    """Returns the loss of a node, which the graph file may say by name."""
    own = graph.nodes[node].loss_type
    if own is not None and own not in ("log_prob", "mae", "mse"):
        raise ConfigError(f"nodes: {node}: loss_type is {own!r}; wanted 'log_prob', 'mae' or 'mse'")
    return own or otherwise


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


@dataclass
class VenvResult:
    """What `train_virtual_env` gives.

    Attributes:
        metric: The chosen error of the train half's best environment on the data of the other half, of short rollouts
            that logged decisions lead; of free ones over the whole horizon it is `average_rollout_…` among the metrics.
        path: Where both halves' environments are, in the folders "train" and "val"; `VirtualEnv.load` reads them.
        venvs: Them, by half.
        metrics: Errors of each half's environment on the other half's data, by half, then by name.
        epochs: Epochs learned by each member, by half.
    """

    metric: float
    path: Path
    venvs: dict[str, VirtualEnv]
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    epochs: dict[str, list[int]] = field(default_factory=dict)


Callback = Callable[[dict[str, Any]], Any]


def train_virtual_env(
    graph: DecisionGraph,
    data: GraphData,
    config: Any,
    workspace_dir: str | Path,
    callback: Callback | None = None,
    val_data: GraphData | None = None,
) -> VenvResult:
    """Learns an environment on each half of the data, judges each on the other half, and keeps the best.

    At any instant the best environments so far are complete on disk. Called again with the same folder it goes on
    behind the last epoch that was saved.

    Args:
        graph: Of the data; ranges that it lacks are taken from them.
        data: What was logged.
        config: Has `base` (`global_seed`, `val_split_ratio`, `val_split_mode`, `venv_algo`, `venv_metric`,
            `venv_rollout_horizon`, `num_venv_in_use`, `transition_mode`) and `venv` (the algorithm's), as a
            `Configuration` has.
        workspace_dir: Where to write.
        callback: Called with the progress of each epoch, a dict with "half", "member", "epoch", "epochs", the errors
            and "best"; what returns False ends the training, and what is best by then is the result.
        val_data: The other half; None splits `data`.

    Raises:
        ConfigError: `venv_algo` is none that there is.
    """
    base = config.base
    if not graph.scalers:
        graph.fit_ranges(data)
    if val_data is None:
        data, val_data = data.split(base.val_split_ratio, base.val_split_mode, base.global_seed)
    halves = [
        _HalfTraining(half, own, other, config, Path(workspace_dir))
        for half, own, other in zip(HALVES, (data, val_data), (val_data, data), strict=True)
    ]
    try:
        for half in halves:
            half.begin()
        for half in halves:
            if not half.run(callback):
                break
    finally:
        for half in halves:
            half.stop()
    venvs = {half.name: half.venv() for half in halves}
    metrics = {half.name: half.best.metrics for half in halves}
    epochs = {half.name: [member.epoch for member in half.members] for half in halves}
    return VenvResult(halves[0].best.error, Path(workspace_dir), venvs, metrics, epochs)


class _HalfTraining:
    """The members of one half, each learned from the same data, judged by the other half.

    Args:
        name: Which half.
        data: What to learn from.
        other: What to judge by.
        config: See `train_virtual_env`.
        place: The workspace.
    """

    def __init__(self, name: str, data: GraphData, other: GraphData, config: Any, place: Path) -> None:
        self.name, self.graph, self.config, self.place = name, data.graph, config, place
        self.members = [
            _MemberTraining(data, other, config, place / f"{name}_{number}", (name, number))
            for number in range(config.base.num_venv_in_use)
        ]

    @property
    def best(self) -> _MemberTraining:
        """The member with the smallest error."""
        return min(self.members, key=lambda member: member.error)

    def begin(self) -> None:
        """Has an environment on disk, of members that have not learned yet, or of those that were saved."""
        for member in self.members:
            member.begin()
        self._keep()

    def run(self, callback: Callback | None) -> bool:
        """Learns the epochs that are left; returns False where the callback has ended the training."""
        for member in self.members:
            while member.epoch < member.epochs:
                if member.learn():
                    self._keep()
                if callback is not None and callback(member.progress()) is False:
                    return False
        return True

    def venv(self) -> VirtualEnv:
        """Returns the environment of the best models of all members, the best member first."""
        ordered = sorted(self.members, key=lambda member: member.error)
        return VirtualEnv(self.graph, [member.models() for member in ordered], self.config.base.global_seed)

    def stop(self) -> None:
        """Ends the members' trainers."""
        for member in self.members:
            if member.trainer is not None:
                member.trainer.stop()

    def _keep(self) -> None:
        self.venv().save(self.place / self.name)


class _MemberTraining:
    """Training of one member of one half, which can be broken off after each epoch and gone on with.

    Args:
        data: What to learn from.
        other: What to judge by.
        config: See `train_virtual_env`.
        place: Folder of its files.
        name: Its half and its number there.
    """

    def __init__(self, data: GraphData, other: GraphData, config: Any, place: Path, name: tuple[str, int]) -> None:
        self.data, self.other, self.config, self.place = data, other, config, place
        self.half, self.member = name
        self.epoch, self.error = 0, math.inf
        self.metrics: dict[str, float] = {}
        self.trainer: Any = None
        self._progress = place / "progress.json"

    @property
    def epochs(self) -> int:
        """How many are learned in all."""
        return int(self.config.venv.bc_epoch)

    def begin(self) -> None:
        """Makes the trainer, and goes on where it was, or judges it as it begins."""
        if self._progress.is_file():
            saved = read_json(self._progress)
            self.error, self.metrics = saved["error"], saved["metrics"]
        self.trainer = self._make_trainer()
        if (self.place / "checkpoint").is_dir():
            self.trainer.restore(str(self.place / "checkpoint"))
            self.epoch = self.trainer.iteration
        else:
            self._judge()
            self.trainer.save_checkpoint(str(self.place / "checkpoint"))

    def learn(self) -> bool:
        """Learns an epoch; returns whether the models are better than all before."""
        self.trainer.train()
        self.epoch += 1
        better = self._judge()
        self.trainer.save_checkpoint(str(self.place / "checkpoint"))
        return better

    def progress(self) -> dict[str, Any]:
        """Returns what callbacks get."""
        own = {"half": self.half, "member": self.member, "epoch": self.epoch, "epochs": self.epochs}
        return {**own, "best": self.error, **self.metrics}

    def models(self) -> Member:
        """Returns the models of the best epoch."""
        return VirtualEnv.load(self.place / "best").members[0]

    def _make_trainer(self) -> Any:
        base = self.config.base
        if base.venv_algo not in _TRAINERS:
            raise ConfigError(f"venv_algo is {base.venv_algo!r}; wanted one of {sorted(_TRAINERS)}")
        seed = base.global_seed + 1000 * self.member + HALVES.index(self.half)
        local = base.transition_mode == "local"
        return _TRAINERS[base.venv_algo](self.data, self.config.venv, local=local, seed=seed)

    def _judge(self) -> bool:
        """Measures the errors of the models as they are now, and keeps them if they are the best; returns whether."""
        base = self.config.base
        venv = VirtualEnv(self.data.graph, [learned_member(self.trainer)], base.global_seed)
        horizon = base.venv_rollout_horizon
        guided = scores(venv, self.other, min(horizon, CHOICE_HORIZON), guided=True)
        found = guided.to_dict("guided_rollout")
        error = found[f"average_guided_rollout_{base.venv_metric}"]
        if error >= self.error:
            return False
        found.update(scores(venv, self.other, horizon).to_dict("rollout"))
        found.update(scores(venv, self.other, 1).to_dict("one_step"))
        venv.save(self.place / "best")
        self.error, self.metrics = error, found
        write_text(self._progress, json.dumps({"error": error, "metrics": found}))
        return True


def _bc_trainer(data: GraphData, settings: Any, *, local: bool, seed: int) -> Any:
    return GraphBCTrainer(config=graph_trainer_config(data, settings, local=local, seed=seed))


#: What makes the trainer of an algorithm.
_TRAINERS: dict[str, Callable[..., Any]] = {"bc": _bc_trainer}
