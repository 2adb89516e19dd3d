"""The two stages of a run, each once: an environment is learned from the data, and a policy is trained in it."""

from __future__ import annotations

import filecmp
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.revive.configuration import Configuration
from rlframe.revive.data import GraphData
from rlframe.revive.functions import RewardFunction, load_reward
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.policy_model import PolicyModel
from rlframe.revive.policy_training import PolicyResult, PolicyTraining, Progress
from rlframe.revive.vector_env import VirtualVectorEnv
from rlframe.revive.venv_model import VirtualEnv
from rlframe.revive.venv_training import VenvResult, train_virtual_env
from rlframe.revive.verdict import verdict_of
from rlframe.revive.workspace import HALVES
from rlframe.utils.errors import ConfigError

#: Told a line of progress; false ends the stage, with the best so far.
GoOn = Callable[[str], bool]


@dataclass(frozen=True)
class RunFiles:
    """The files that a run is given, absolute; what they name is run as the user's own.

    Attributes:
        data: Logged trajectories.
        graph: The graph file, with the files of its expert functions beside it.
        val: Trajectories for the other half; None splits `data`.
        reward: The reward file; None where no policy is trained.
    """

    data: str
    graph: str
    val: str | None = None
    reward: str | None = None


class _Joined:
    """Arrays and masks of several files, one behind the other."""

    def __init__(self, parts: Sequence[GraphData]) -> None:
        names = parts[0].arrays
        self.arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in names}
        self.mask = {name: np.concatenate([part.mask[name] for part in parts]) for name in names}


class Inputs:
    """What a run learns from, read and checked.

    Args:
        files: Where it is.
        config: Parameters.
        trained: The graph of the environment that is there, whose functions must be unchanged; None begins anew.

    Attributes:
        graph: With functions and ranges.
        data: Of both halves.
    """

    def __init__(self, files: RunFiles, config: Configuration, trained: DecisionGraph | None = None) -> None:
        self.files, self.config = files, config
        base = config.base
        self.graph = DecisionGraph.from_file(files.graph)
        if trained is not None:
            check_functions_unchanged(self.graph, trained)
        self.graph.load_functions()
        paths = [path for path in (files.data, files.val) if path is not None]
        parts = [self._read(path) for path in paths]
        self.graph.fit_ranges(_Joined(parts))
        if files.val is None:
            parts = list(parts[0].split(base.val_split_ratio, base.val_split_mode, base.global_seed))
        elif filecmp.cmp(files.data, files.val, shallow=False):
            raise ConfigError(
                f"val_file_path: {files.val} holds what {files.data} holds, so environments and policies would be "
                "judged by what they learned from; leave it out, and the data are split"
            )
        else:
            parts = [self._read(path) for path in paths]  # again: values of discrete columns are those of both ranges
        self.data: Mapping[str, GraphData] = dict(zip(HALVES, parts, strict=True))

    def _read(self, path: str) -> GraphData:
        return GraphData.from_file(path, self.graph, ignore_check=self.config.base.ignore_check)

    @functools.cached_property
    def reward(self) -> RewardFunction:
        """The user's reward, checked on the data.

        Raises:
            ConfigError: There is none, or it does not give one value per row.
        """
        if self.files.reward is None:
            raise ConfigError("reward_file_path: got none; a policy is trained for a reward: give the file")
        reward = load_reward(self.files.reward)
        for half in HALVES:
            self.data[half].check_rewards(reward)
        return reward


def check_functions_unchanged(graph: DecisionGraph, trained: DecisionGraph) -> None:
    """Looks whether a graph's functions are those that an environment was learned with; runs none.

    Raises:
        ConfigError: A file has changed.
    """
    for name, node in graph.nodes.items():
        before = trained.nodes[name].function if name in trained.nodes else None
        if node.function is not None and (before is None or before.sha256 != node.function.sha256):
            raise ConfigError(
                f"{node.function.file}: the file with {node.function.name!r} of node {name!r} has changed since "
                "training; put the old file back, or train again"
            )


def learn_environment(inputs: Inputs, config: Configuration, directory: Path, go_on: GoOn) -> VenvResult:
    """Learns the environments of both halves into a directory; called again it goes on where it was.

    Args:
        inputs: What to learn from.
        config: Parameters.
        directory: The best environments so far are in its folders "train" and "val".
        go_on: See `GoOn`.
    """

    def told(progress: Mapping[str, Any]) -> bool:
        error = progress.get("best")
        line = (
            f"{progress['half']} {progress['member']}: epoch {progress['epoch']} of {progress['epochs']}, best {error}"
        )
        return go_on(line)

    data = inputs.data
    return train_virtual_env(inputs.graph, data["train"], config, directory, told, data["val"])


def load_environments(directory: Path) -> dict[str, VirtualEnv]:
    """Returns the learned environments of both halves; their expert functions are loaded if they are unchanged.

    Raises:
        ConfigError: There are none.
    """
    for half in HALVES:
        if not (directory / half).is_dir():
            raise ConfigError(f"{directory / half}: there is no learned environment yet; train one: -vm once")
    return {half: VirtualEnv.load(directory / half, trust=True) for half in HALVES}


class PolicyStage:
    """Training of policies in learned environments.

    Args:
        inputs: Data and reward.
        venvs: The environments by half.
        target: Which node is decided; None takes the first.

    Attributes:
        node: The node.
    """

    def __init__(self, inputs: Inputs, venvs: Mapping[str, VirtualEnv], target: str | None) -> None:
        self.inputs, self.venvs = inputs, venvs
        self.node = inputs.graph.policy_node(target)
        for venv in venvs.values():
            inputs.graph.check_completes(venv.graph)
        inputs.reward  # noqa: B018 - checked before anything is trained

    def make_env(self, half: str, num_envs: int, horizon: int, penalty: float, seed: int) -> Any:
        """Returns slots of a half's environment; see `policy_training.MakeEnv`."""
        return VirtualVectorEnv(
            self.venvs[half], self.inputs.data[half], self.inputs.reward, self.node, num_envs=num_envs,
            horizon=horizon, half=half, penalty=penalty, seed=seed,
        )  # fmt: skip

    def run(
        self, config: Configuration, keep: Callable[[Progress], None], go_on: GoOn,
        known: Mapping[str, PolicyModel] | None = None,
    ) -> PolicyResult:  # fmt: skip
        """Trains the policies of both halves.

        Args:
            config: Parameters.
            keep: Given every policy that is the best of its half so far.
            go_on: See `GoOn`.
            known: By half, policies of an earlier run of the stage; those of another graph or node are not looked at.
        """
        graph = self.inputs.graph.to_dict()
        known = {
            half: model
            for half, model in (known or {}).items()
            if model.node == self.node and model.graph.to_dict() == graph
        }

        def told(progress: Progress) -> bool:
            if progress.model is not None:
                keep(progress)
            share = f"{progress.half} policy: {100 * progress.done:.0f} %"
            return go_on(f"{share}, score {progress.score:.5g}, best {progress.best:.5g}")

        training = PolicyTraining(self.make_env, self.inputs.data, self.inputs.reward, self.node, config, known)
        return training.run(told)


def details_of(result: PolicyResult) -> dict[str, Any]:
    """Returns what a policy's stage notes of its result."""
    return {**result.to_dict(), "verdict": verdict_of(result).to_dict()}
