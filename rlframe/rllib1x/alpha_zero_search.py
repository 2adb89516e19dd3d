"""RLlib's search of AlphaZero: nodes that know the environment and their own way up, for copies of its policy."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.alpha_zero.mcts import with_state
from rlframe.env.adapt import adapt_env
from rlframe.models.action_mask import ACTION_MASK


def _seeded_by_numpy() -> np.random.Generator:
    """Returns a stream that follows NumPy's own, from which RLlib drew and which a trainer's `seed` sets."""
    return np.random.default_rng(np.random.randint(2**31))  # noqa: NPY002


class RootParentNode:
    """What stands above the root: it counts the root's visits.

    Args:
        env: The environment of the search, with `get_state()` and `set_state(state)`, of either contract.
    """

    parent = None

    def __init__(self, env: Any) -> None:
        self.env = env
        self.step_env = adapt_env(env).step
        self.child_total_value: Any = defaultdict(float)
        self.child_number_visits: Any = defaultdict(float)


class Node:
    """A state of the environment, and what the search knows of the actions in it.

    Args:
        action: What led here.
        obs: The environment's observation, which has `action_mask` `[A]`.
        done: Whether the episode is over.
        reward: Of the step that led here.
        state: What `get_state()` gave.
        mcts: The search.
        parent: The node before, or a `RootParentNode`.
    """

    def __init__(
        self, action: Any, obs: Any, done: bool, reward: float, state: Any, mcts: Any, parent: Any = None
    ) -> None:
        self.env, self.step_env = parent.env, parent.step_env
        self.action, self.obs, self.done, self.reward, self.state = action, obs, done, reward, state
        self.mcts, self.parent = mcts, parent
        self.is_expanded = False
        self.children: dict[int, Node] = {}
        self.valid_actions = np.asarray(obs[ACTION_MASK]).astype(bool)
        self.action_space_size = int(self.env.action_space.n)
        self.child_total_value = np.zeros(self.action_space_size, np.float32)
        self.child_priors: NDArray[Any] = np.zeros(self.action_space_size, np.float32)
        self.child_number_visits = np.zeros(self.action_space_size, np.float32)

    @property
    def number_visits(self) -> float:
        """How often the search came here; kept by the parent."""
        return float(self.parent.child_number_visits[self.action])

    @number_visits.setter
    def number_visits(self, value: float) -> None:
        self.parent.child_number_visits[self.action] = value

    @property
    def total_value(self) -> float:
        """The sum of what came of it; kept by the parent."""
        return float(self.parent.child_total_value[self.action])

    @total_value.setter
    def total_value(self, value: float) -> None:
        self.parent.child_total_value[self.action] = value

    def child_Q(self) -> NDArray[Any]:  # noqa: N802 - RLlib's name
        """Returns W / (1 + N) of each action, `[A]`."""
        return np.asarray(self.child_total_value / (1 + self.child_number_visits))

    def child_U(self) -> NDArray[Any]:  # noqa: N802 - RLlib's name
        """Returns P √N / (1 + N(a)) of each action, `[A]`; N is this node's."""
        return np.asarray(math.sqrt(self.number_visits) * self.child_priors / (1 + self.child_number_visits))

    def best_action(self) -> int:
        """Returns the allowed action with the largest Q + c U."""
        scores = self.child_Q() + self.mcts.c_puct * self.child_U()
        return int(np.where(self.valid_actions, scores, -np.inf).argmax())

    def select(self) -> Node:
        """Returns the node that best actions lead to, and that the network was not asked about."""
        node = self
        while node.is_expanded:
            node = node.get_child(node.best_action())
        return node

    def expand(self, child_priors: NDArray[Any]) -> None:
        """Takes the network's priors `[A]`."""
        self.is_expanded = True
        self.child_priors = child_priors

    def get_child(self, action: int) -> Node:
        """Returns the node that an action leads to; the environment is stepped for it once."""
        if action not in self.children:
            inner = with_state(self.env)
            inner.set_state(self.state)
            obs, reward, terminated, truncated, _ = self.step_env(action)
            self.children[action] = type(self)(
                action, obs, bool(terminated or truncated), float(reward), inner.get_state(), self.mcts, self
            )
        return self.children[action]

    def backup(self, value: float) -> None:
        """Adds a visit, and its value, here and all the way up."""
        node = self
        while node.parent is not None:
            node.number_visits += 1
            node.total_value += value
            node = node.parent


class MCTS:
    """Searches from a node by a model's priors and values.

    Args:
        model: Has `compute_priors_and_value(obs)`: priors `[A]` and a number.
        mcts_param: The config's `mcts_config`.
    """

    def __init__(self, model: Any, mcts_param: Mapping[str, Any]) -> None:
        self.model = model
        self.temperature = mcts_param["temperature"]
        self.dir_epsilon, self.dir_noise = mcts_param["dirichlet_epsilon"], mcts_param["dirichlet_noise"]
        self.num_sims = mcts_param["num_simulations"]
        self.exploit = mcts_param["argmax_tree_policy"]
        self.add_dirichlet_noise = mcts_param["add_dirichlet_noise"]
        self.c_puct = mcts_param["puct_coefficient"]
        self._rng = _seeded_by_numpy()

    def compute_action(self, node: Node) -> tuple[NDArray[Any], int, Node]:
        """Searches, and returns the tree policy `[A]`, the action, and the node that it leads to.

        Each node's priors are mixed with noise, as RLlib does it; AlphaZero itself mixes the root's alone.
        """
        for _ in range(self.num_sims):
            leaf = node.select()
            value = leaf.reward
            if not leaf.done:
                priors, value = self.model.compute_priors_and_value(leaf.obs)
                leaf.expand(self._noisy(np.asarray(priors)) if self.add_dirichlet_noise else np.asarray(priors))
            leaf.backup(float(value))
        tree_policy = (node.child_number_visits / node.child_number_visits.max()) ** self.temperature
        tree_policy /= tree_policy.sum()
        action = int(tree_policy.argmax() if self.exploit else self._rng.choice(len(tree_policy), p=tree_policy))
        return tree_policy, action, node.children[action]

    def _noisy(self, priors: NDArray[Any]) -> NDArray[Any]:
        noise = self._rng.dirichlet([self.dir_noise] * priors.size)
        return np.asarray((1 - self.dir_epsilon) * priors + self.dir_epsilon * noise)


class RankedRewardsBuffer:
    """The last returns, against which a new one is ranked (Laterre et al. 2018, section 3.2).

    Args:
        buffer_max_length: How many are kept.
        percentile: What a return must reach among them, 0 to 100.
    """

    def __init__(self, buffer_max_length: int, percentile: float) -> None:
        self.buffer_max_length, self.percentile = buffer_max_length, percentile
        self.buffer: list[float] = []

    def add_reward(self, reward: float) -> None:
        """Adds a return; the oldest goes where there are too many."""
        self.buffer = [*self.buffer, reward][-self.buffer_max_length :]

    def normalize(self, reward: float) -> float:
        """Returns 1 for a return that reaches the percentile, else -1."""
        return 1.0 if reward >= np.percentile(self.buffer, self.percentile) else -1.0

    def get_state(self) -> NDArray[Any]:
        """Returns the returns."""
        return np.array(self.buffer)

    def set_state(self, state: Any) -> None:
        """Takes returns; None leaves them."""
        if state is not None:
            self.buffer = list(state)


def get_r2_env_wrapper(env_creator: Callable[[Any], Any], r2_config: Mapping[str, Any]) -> type:
    """Returns a class of environments for the search whose last reward is its rank, 1 or -1.

    Args:
        env_creator: Makes the environment of a config; of either contract, its observations have `action_mask`.
        r2_config: The config's `ranked_rewards`.
    """

    class RankedRewardsEnvWrapper:
        def __init__(self, env_config: Any) -> None:
            self.env = env_creator(env_config)
            self._adapted = adapt_env(self.env)
            self.action_space, self.observation_space = self.env.action_space, self.env.observation_space
            self.r2_buffer = RankedRewardsBuffer(r2_config["buffer_max_length"], r2_config["percentile"])
            rng = _seeded_by_numpy()
            for _ in range(r2_config["num_init_rewards"] if r2_config["initialize_buffer"] else 0):
                obs, reward, over = self.reset(), 0.0, False
                while not over:
                    allowed = np.flatnonzero(np.asarray(obs[ACTION_MASK]))
                    obs, reward, over, _ = self._stepped(int(rng.choice(allowed)))
                self.r2_buffer.add_reward(reward)

        def _stepped(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
            obs, reward, terminated, truncated, info = self._adapted.step(action)
            return obs, float(reward), bool(terminated or truncated), info

        def reset(self) -> Any:
            return self._adapted.reset()[0]

        def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
            obs, reward, over, info = self._stepped(action)
            return obs, self.r2_buffer.normalize(reward) if over else reward, over, info

        def get_state(self) -> dict[str, Any]:
            state = {"env_state": with_state(self.env).get_state(), "buffer_state": self.r2_buffer.get_state()}
            return copy.deepcopy(state)

        def set_state(self, state: Mapping[str, Any]) -> Any:
            obs = with_state(self.env).set_state(state["env_state"])
            self.r2_buffer.set_state(state["buffer_state"])
            return obs

    return RankedRewardsEnvWrapper
