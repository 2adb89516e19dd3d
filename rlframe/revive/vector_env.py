"""A learned environment as an ordinary vectorised one, in which any trainer, and any Gymnasium program, can learn.

Importing this module registers the Gymnasium id "revive_venv"; its arguments are those of `make_vector`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlframe.revive.data import GraphData
from rlframe.revive.functions import load_reward
from rlframe.revive.nodes import DONE
from rlframe.revive.venv_model import STEP, TRAJECTORY, VirtualEnv, node_inputs
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlframe.revive.functions import RewardFunction

__all__ = ["ENV_ID", "VirtualVectorEnv", "make_single", "make_vector"]

ENV_ID = "revive_venv"
Arrays = dict[str, NDArray[Any]]


class VirtualVectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """Slots of a learned environment, in which each network computes all slots in one pass.

    An episode begins in a logged row, drawn at random. The policy sees the inputs of its node and gives the node's
    value, both in the learned space, where ranges are [−1, 1]. External factors are those of the row's trajectory;
    where there are such, an episode is truncated at the trajectory's end, or over where the log says `done` and the
    graph has no such node. A slot whose episode has ended begins the next one at the next step, whose action is not
    looked at.

    Args:
        venv: The learned environment.
        data: Where episodes begin, and what external factors are; its graph says what the policy's node sees.
        reward: Of each step.
        policy_node: Which node acts; None is the graph's first.
        num_envs: Slots.
        horizon: Steps after which an episode is truncated.
        half: Which half of the data the environment was learned from; kept for reports.
        member: Which member of an ensemble moves on.
        penalty: Weight of the members' disagreement, which is subtracted from the reward.
        seed: Of starts and draws, until `reset` says another one.
        deterministic: Whether nodes take their most likely values; else they are drawn.

    Attributes:
        before: Nodes that are computed before the policy acts, in their order.
        behind: Those that are computed behind it.
        external: Nodes that follow the log.
        uncertain: Networks whose disagreement is the uncertainty; none with one member.
        last_rows: The last row of each row's trajectory, int `[N]`.

    Raises:
        ConfigError: There is no such member, or the reward's values depend on the batch.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - declared so by Gymnasium

    def __init__(  # noqa: PLR0913, PLR0917 - its settings, as other Gymnasium environments have them
        self,
        venv: VirtualEnv,
        data: GraphData,
        reward: RewardFunction,
        policy_node: str | None = None,
        num_envs: int = 256,
        horizon: int = 100,
        half: str = "train",
        member: int = 0,
        penalty: float = 0.0,
        seed: int | None = None,
        deterministic: bool = True,
    ) -> None:
        if not 0 <= member < len(venv.members):
            raise ConfigError(f"member is {member}; the environment has {len(venv.members)}, counted from 0")
        if num_envs < 1 or horizon < 1:
            raise ConfigError(f"got num_envs {num_envs} and horizon {horizon}; wanted 1 or more of both")
        reward.check(data.arrays)
        self.venv, self.data, self.reward = venv, data, reward
        self.graph = data.graph
        self.policy_node = self.graph.policy_node(policy_node)
        self.num_envs, self.horizon, self.half, self.member = num_envs, horizon, half, member
        self.penalty, self.deterministic = penalty, deterministic
        self._settle_order()
        width = self._inputs({name: values[:1] for name, values in data.arrays.items()}).shape[-1]
        self._scaler = self.graph.scalers[self.policy_node]
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, (self._scaler.width,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.last_rows = np.repeat(data.ends - 1, np.diff(data.ends, prepend=0))
        self._rows = np.zeros(num_envs, np.int64)
        self._steps = np.zeros(num_envs, np.int64)
        self._first_rows = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, np.bool_)
        self._state: Arrays = {}
        self._values: Arrays = {}
        self._rng = np.random.default_rng(seed)

    def _settle_order(self) -> None:
        """Says which nodes are computed before the policy acts, and which behind it."""
        nodes = self.venv.graph.nodes
        before: set[str] = set()
        waiting = list(self.graph.nodes[self.policy_node].inputs)
        while waiting:
            name = waiting.pop()
            if name not in before and name in nodes and nodes[name].inputs:
                before.add(name)
                waiting += nodes[name].inputs
        order = [name for name in self.venv.graph.order if name != self.policy_node]
        self.before = [name for name in order if name in before]
        self.behind = [name for name in order if name not in before]
        self._carried = dict(self.venv.graph.transitions)
        external = [
            name for name, node in nodes.items() if node.role in {"leaf", "external"} and name != self.policy_node
        ]
        self.external = [name for name in external if name not in self._carried.values()]
        self.uncertain = [
            name for name in order if nodes[name].role == "network" and len(self.venv.members) > 1
        ]  # fmt: skip

    # --- Gymnasium's contract ---------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins an episode in every slot.

        Args:
            seed: Of starts and draws from now on; None goes on.
            options: `{"rows": [...]}` says in which rows of the data the slots begin.
        """
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            self.venv.reset(int(self._rng.integers(2**31)))
        self._ended[:] = False
        rows = (options or {}).get("rows")
        self._begin(np.arange(self.num_envs), None if rows is None else np.asarray(rows, np.int64))
        return self._look(), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Does a step in every slot.

        Args:
            actions: Values of the policy's node in the learned space, `[slots, width]`; clipped to [−1, 1].

        Returns:
            Observations, rewards, what is over, what is broken off, and `{"uncertainty": [slots]}` of an ensemble.
        """
        fresh = np.flatnonzero(self._ended)
        values = self._values
        values[self.policy_node] = self._scaler.unscale(np.clip(np.asarray(actions, np.float32), -1.0, 1.0))
        self._compute(self.behind, values)
        rewards = self.reward(values)
        infos: dict[str, Any] = {}
        if self.uncertain:
            infos["uncertainty"] = self.venv.uncertainty(values, self.uncertain)
            rewards = rewards - self.penalty * infos["uncertainty"]
        self._steps += 1
        self._rows += 1
        behind = self._behind_the_log()
        if DONE in values:
            terminated = values[DONE][:, 0] > 0.5
        else:  # the log says no more than that its trajectory ended by itself
            terminated = behind & (self.data.done[np.clip(self._rows - 1, 0, len(self.data) - 1), 0] > 0.5)
        truncated = ~terminated & (behind | (self._steps >= self.horizon))
        self._state = {base: values[following] for following, base in self._carried.items()}
        if len(fresh):
            self._begin(fresh)
            rewards = np.where(self._ended, np.float32(0.0), rewards)
            terminated, truncated = terminated & ~self._ended, truncated & ~self._ended
        self._ended = terminated | truncated
        return self._look(), np.asarray(rewards, np.float32), terminated, truncated, infos

    # --- a step -----------------------------------------------------------------------------------------------

    def _begin(self, slots: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> None:
        """Begins episodes in some slots, in given rows or in rows that are drawn."""
        self._rows[slots] = self._rng.integers(len(self.data), size=len(slots)) if rows is None else rows
        self._steps[slots] = 0
        self._first_rows[slots] = self._rows[slots]
        for base in self._carried.values():
            logged = self.data.arrays[base]
            if base not in self._state or len(slots) == self.num_envs:
                self._state[base] = logged[self._rows].copy()
            else:
                self._state[base] = self._state[base].copy()
                self._state[base][slots] = logged[self._rows[slots]]

    def _behind_the_log(self) -> NDArray[np.bool_]:
        """Returns which slots have left the last row of their trajectory, where the log has to go on."""
        if not self.external:
            return np.zeros(self.num_envs, np.bool_)
        left = np.minimum(self._rows, len(self.data)) - 1
        return np.asarray(self._rows > self.last_rows[left])

    def _look(self) -> NDArray[np.float32]:
        """Returns what the policy sees, `[slots, D]`; computes the nodes before its own."""
        values = dict(self._state)
        # Behind its trajectory's last row a slot has ended: what it sees then is the last that was logged.
        rows = np.where(self._ended, np.maximum(self._rows - 1, 0), self._rows) if self.external else self._rows
        values.update({name: self.data.arrays[name][rows] for name in self.external})
        if any(node.step_input or node.traj_id for node in self.graph.nodes.values()):
            values[STEP] = (self.data.steps[self._first_rows] + self._steps)[:, None]
            values[TRAJECTORY] = self.data.trajectory[self._first_rows][:, None]
        self._compute(self.before, values)
        self._values = values
        return self._inputs(values)

    def _inputs(self, values: Mapping[str, Any]) -> NDArray[np.float32]:
        return node_inputs(self.graph, self.graph.nodes[self.policy_node], values)

    def _compute(self, nodes: list[str], values: Arrays) -> None:
        for node in nodes:
            values[node] = self.venv.node_infer(node, values, self.deterministic, member=self.member)


class _Single(gym.Env[Any, Any]):
    """One slot as an environment of its own."""

    def __init__(self, vector_env: VirtualVectorEnv) -> None:
        self.vector_env = vector_env
        self.observation_space = vector_env.single_observation_space
        self.action_space = vector_env.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        obs, infos = self.vector_env.reset(seed=seed, options=options)
        return obs[0], infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Does a step."""
        obs, rewards, terminated, truncated, infos = self.vector_env.step(np.asarray(action)[None])
        own = {name: value[0] for name, value in infos.items()}
        return obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), own


def make_vector(
    num_envs: int = 1,
    *,
    path: str,
    data: str,
    reward: str,
    half: str = "train",
    trust: bool = False,
    **options: Any,
) -> VirtualVectorEnv:
    """Returns the environment of a run's folder.

    Args:
        num_envs: Slots.
        path: Folder with the environments of both halves.
        data: File of logged data.
        reward: The reward file; it is run.
        half: "train" or "val".
        trust: Whether the graph's expert functions are run.
        **options: `policy_node`, `horizon`, `member`, `penalty`, `seed`, `deterministic` of `VirtualVectorEnv`.
    """
    venv = VirtualEnv.load(Path(path) / half, trust=trust)
    logged = GraphData.from_file(data, venv.graph)
    return VirtualVectorEnv(venv, logged, load_reward(reward), num_envs=num_envs, half=half, **options)


def make_single(**options: Any) -> gym.Env[Any, Any]:
    """Returns one slot of `make_vector` as an environment of its own."""
    return _Single(make_vector(1, **options))


gym.register(
    ENV_ID,
    entry_point="rlframe.revive.vector_env:make_single",
    vector_entry_point="rlframe.revive.vector_env:make_vector",
    disable_env_checker=True,
    order_enforce=False,
)
