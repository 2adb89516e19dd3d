"""Policies learned by shooting: gradients of the return of rollouts flow back through the learned environment.

Rollouts begin in logged rows; their return is a smooth function of the policy's weights where the reward and all nodes
are, and goes up along its gradient.

Source: Heess et al. 2015, "Learning Continuous Control Policies by Stochastic Value Gradients", SVG(∞), with the most
likely value of each node in the place of draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.optimization import GradientClippingConfig
from rlframe.config.options import option
from rlframe.data.columns import OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
from rlframe.offline.input_reader import InputReader
from rlframe.revive.nodes import DONE
from rlframe.trainer.template import build_trainer
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.offline.io_context import IOContext
    from rlframe.revive.graph import DecisionGraph
    from rlframe.revive.vector_env import VirtualVectorEnv

__all__ = ["ROW", "ShootingConfig", "ShootingTrainer", "StartRows", "check_smooth_nodes", "shooting_config"]

#: In which row of the data a rollout begins, int `[B]`.
ROW = "row"


class ShootingConfig(GradientClippingConfig):
    """Keys of shooting."""

    new_defaults: ClassVar[Any] = {
        "num_workers": 0, "train_batch_size": 64, "lr": 1e-3, "grad_clip": 1.0, "input_evaluation": [],
    }  # fmt: skip

    start_rows: Any = option(None, "The learned environment, and where rollouts begin: `StartRows`. Free-form.")
    hiddens: list[int] = option([64, 64], "Widths of the policy's hidden layers.")
    w_kl: float = option(0.0, "Weight of KL(π‖behaviour).", low=0)


class StartRows:
    """`config["input"]` of shooting: makes readers that draw in which rows of the data rollouts begin.

    Args:
        env: The learned environment, with its data and reward.
        gamma: Discount of the return.
    """

    def __init__(self, env: VirtualVectorEnv, gamma: float) -> None:
        self.env, self.gamma = env, gamma

    def __call__(self, ioctx: IOContext) -> RowReader:
        """Returns the reader of a worker."""
        return RowReader(len(self.env.data), ioctx.config.train_batch_size, ioctx.seed("rows"))

    def __deepcopy__(self, memo: Any) -> StartRows:
        """Returns itself: configs are copied, and environments are only read."""
        return self


class RowReader(InputReader):
    """Draws rows.

    Args:
        count: Of all rows.
        rows: How many are drawn.
        seed: Of the draws.
    """

    def __init__(self, count: int, rows: int, seed: int) -> None:
        self._count, self._rows, self._rng = count, rows, np.random.default_rng(seed)

    def next(self) -> SampleBatch:
        """Returns numbers of rows."""
        drawn: NDArray[np.int64] = self._rng.integers(self._count, size=self._rows)
        return SampleBatch({ROW: drawn, OBS: np.zeros((self._rows, 1), np.float32)})

    def get_state(self) -> dict[str, Any]:
        """Returns the generator's state."""
        return {"rng": self._rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes it back."""
        self._rng.bit_generator.state = state["rng"]


def execution_plan(workers: WorkerSet, config: ShootingConfig) -> LocalIterator[Any]:
    """Draws where rollouts begin, and goes up the gradient of their return."""
    learn = ParallelRollouts(workers, mode="bulk_sync").for_each(TrainOneStep(workers))
    return StandardMetricsReporting(learn, workers, config)


DEFAULT_CONFIG: dict[str, Any] = ShootingConfig.defaults()

ShootingTrainer = build_trainer(
    name="Shooting",
    config_class=ShootingConfig,
    policies={"torch": "rlframe.revive.shooting_torch:ShootingTorchPolicy"},
    execution_plan=execution_plan,
)


def shooting_config(env: VirtualVectorEnv, chosen: Any, seed: int) -> dict[str, Any]:
    """Returns the config of a `ShootingTrainer`.

    Args:
        env: The learned environment.
        chosen: The policy part of a `Configuration`, of the algorithm `shooting`.
        seed: Of weights and draws.
    """
    starts = StartRows(env, chosen.gamma)
    return {
        "env": None, "input": starts, "start_rows": starts, "seed": seed, "num_workers": 0, "min_iter_time_s": 0,
        "observation_space": env.single_observation_space, "action_space": env.single_action_space,
        "train_batch_size": chosen.batch_size, "rollout_fragment_length": chosen.batch_size,
        "timesteps_per_iteration": chosen.batch_size * chosen.steps_per_epoch, "lr": chosen.g_lr,
        "hiddens": [chosen.policy_hidden_features] * chosen.policy_hidden_layers, "w_kl": chosen.w_kl,
        "log_level": "ERROR",
    }  # fmt: skip


def check_smooth_nodes(graph: DecisionGraph, node: str) -> None:
    """Looks whether gradients can flow through what a graph makes.

    Args:
        graph: The graph.
        node: The policy's.

    Raises:
        ConfigError: A node that is produced has values that jump.
    """
    for name in graph.order:
        jumps = [column for column in graph.nodes[name].columns if column.kind != "continuous"]
        if name == DONE or jumps:
            what = (
                "says where the process ends" if name == DONE else f"has the {jumps[0].kind} column {jumps[0].name!r}"
            )
            raise ConfigError(
                f"policy_algo is 'shooting', whose gradients flow through the environment to what {node!r} decides, "
                f"but node {name!r} {what}, through which none flow; wanted continuous columns, or ppo, sac or td3"
            )
