"""Learned environments from logged data: both halves learned and judged, and the best kept at any instant."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlframe.revive.adversarial import GraphGAILTrainer, adversarial_trainer_config
from rlframe.revive.metrics import scores
from rlframe.revive.supervised import GraphBCTrainer, graph_trainer_config, learned_member
from rlframe.revive.venv_model import Member, VirtualEnv
from rlframe.revive.workspace import HALVES, write_text
from rlframe.utils.files import read_json

if TYPE_CHECKING:
    from rlframe.revive.data import GraphData
    from rlframe.revive.graph import DecisionGraph

__all__ = ["VenvResult", "train_virtual_env"]

#: Longest rollouts by which environments are chosen: where errors grow exponentially, longer ones prefer a model that
#: says the mean to one that follows the process for a while.
CHOICE_HORIZON = 10


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
        self._phases = _phases_of(config)
        self._phase = 0
        self._progress = place / "progress.json"

    @property
    def epochs(self) -> int:
        """How many are learned in all."""
        return sum(phase.epochs for phase in self._phases)

    @property
    def _checkpoint(self) -> Path:
        return self.place / self._phases[self._phase].checkpoint

    def begin(self) -> None:
        """Makes the trainer, and goes on where it was, or judges it as it begins."""
        if self._progress.is_file():
            saved = read_json(self._progress)
            self.error, self.metrics = saved["error"], saved["metrics"]
        begun = [number for number, phase in enumerate(self._phases) if (self.place / phase.checkpoint).is_dir()]
        self._phase = max(begun, default=0)
        self.trainer = self._make_trainer()
        if begun:
            self.trainer.restore(str(self._checkpoint))
            self.epoch = sum(phase.epochs for phase in self._phases[: self._phase]) + self.trainer.iteration
        else:
            self._judge()
            self.trainer.save_checkpoint(str(self._checkpoint))

    def learn(self) -> bool:
        """Learns an epoch; returns whether the models are better than all before."""
        if self._ended():
            self._begin_next_phase()
        self.trainer.train()
        self.epoch += 1
        better = self._judge()
        self.trainer.save_checkpoint(str(self._checkpoint))
        return better

    def _ended(self) -> bool:
        last = self._phase == len(self._phases) - 1
        return not last and self.epoch >= sum(phase.epochs for phase in self._phases[: self._phase + 1])

    def _begin_next_phase(self) -> None:
        """Has the next phase's trainer begin with the best models so far."""
        self.trainer.stop()
        self._phase += 1
        self.trainer = self._make_trainer()
        policies = self.trainer.workers.local_worker().policy_map
        for node, model in self.models().items():
            policies[node].set_weights({**policies[node].get_weights(), **model.weights})

    def progress(self) -> dict[str, Any]:
        """Returns what callbacks get."""
        own = {"half": self.half, "member": self.member, "epoch": self.epoch, "epochs": self.epochs}
        return {**own, "best": self.error, **self.metrics}

    def models(self) -> Member:
        """Returns the models of the best epoch."""
        return VirtualEnv.load(self.place / "best").members[0]

    def _make_trainer(self) -> Any:
        base = self.config.base
        seed = base.global_seed + 1000 * self.member + HALVES.index(self.half)
        return self._phases[self._phase].make(self.data, self.config, base.transition_mode == "local", seed)

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


class _Phase(NamedTuple):
    """A part of a member's training, with a trainer of its own.

    Attributes:
        make: `fn(data, config, local, seed)` makes the trainer.
        checkpoint: Where it is kept, below the member's folder.
        epochs: How many it learns.
    """

    make: Callable[[GraphData, Any, bool, int], Any]
    checkpoint: str
    epochs: int


def _supervised(data: GraphData, config: Any, local: bool, seed: int) -> Any:
    return GraphBCTrainer(config=graph_trainer_config(data, config.venv, local=local, seed=seed))


def _adversarial(data: GraphData, config: Any, local: bool, seed: int) -> Any:
    horizon = config.base.venv_rollout_horizon
    return GraphGAILTrainer(adversarial_trainer_config(data, config.venv, horizon, local=local, seed=seed))


def _phases_of(config: Any) -> tuple[_Phase, ...]:
    """Returns the parts of a training by `venv_algo`."""
    supervised = _Phase(_supervised, "checkpoint", config.venv.bc_epoch)
    if config.base.venv_algo == "bc":
        return (supervised,)
    return supervised, _Phase(_adversarial, "adversarial_checkpoint", config.venv.revive_epoch)
