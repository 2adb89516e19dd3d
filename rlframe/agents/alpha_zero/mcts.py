"""Monte-Carlo tree search with priors and values of a network, on environments that can be put into a state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.env.adapt import adapt_env
from rlframe.env.contracts import check_step_result
from rlframe.utils.errors import EnvError

Vector: TypeAlias = NDArray[np.float64]
#: From an observation of the environment to priors `[A]`, 0 where an action is forbidden, and a value.
Evaluate: TypeAlias = Callable[[Any], tuple[Vector, float]]


class Node:
    """A state of the environment, with what the search knows of the actions in it.

    Attributes:
        state: What `get_state()` of the environment gave.
        obs: Its observation there.
        total: Sum of the episode's rewards until then, in env reward units.
        done: Whether the episode is over.
        priors: P, of the network, `[A]`; None until it was asked.
        visits: N, how often each action was taken, `[A]`.
        values: W, the sum of what came of it, `[A]`.
        children: Nodes by action.
    """

    __slots__ = ("children", "done", "obs", "priors", "state", "total", "values", "visits")

    def __init__(self, state: Any, obs: Any, total: float, done: bool, actions: int) -> None:
        self.state, self.obs, self.total, self.done = state, obs, total, done
        self.priors: Vector | None = None
        self.visits, self.values = np.zeros(actions), np.zeros(actions)
        self.children: dict[int, Node] = {}

    def scores(self, puct_coefficient: float, priors: Vector) -> Vector:
        """Returns what the search maximises, `[A]`, minus infinity for actions that are forbidden.

            Q(a) + c P(a) √(1 + Σ_b N(b)) / (1 + N(a)),    Q(a) = W(a) / N(a), 0 where N(a) is 0

        Source: Silver et al. 2017, methods, "Select" (PUCT); the 1 under the root is the visit of the node itself.
        """
        means = self.values / np.maximum(self.visits, 1.0)
        bonus = puct_coefficient * priors * np.sqrt(1.0 + self.visits.sum()) / (1.0 + self.visits)
        return np.where(priors > 0, means + bonus, -np.inf)


class Simulator:
    """An environment of the search's own, which it puts into states that it met.

    Args:
        env: What a user's creator made; it or something that it wraps has `get_state()` and `set_state(state)`.
        seed: Of what it draws.

    Raises:
        EnvError: If nothing of it has them.
    """

    def __init__(self, env: Any, seed: int) -> None:
        self._inner = with_state(env)
        self._env = adapt_env(self._inner)
        self._env.reset(seed=seed)
        self.actions = int(self._env.action_space.n)  # type: ignore[attr-defined]  # Discrete, the policy checks

    def root(self, state: Any, total: float) -> Node:
        """Returns the node of a state in which the episode's rewards are `total` so far."""
        return Node(state, self._inner.set_state(copy.deepcopy(state)), total, False, self.actions)

    def child(self, node: Node, action: int) -> Node:
        """Returns the node that an action leads to; the environment is stepped for it once."""
        if action not in node.children:
            self._inner.set_state(node.state)
            obs, reward, terminated, truncated, _ = check_step_result(self._env.step(action), "step() in the search")
            state, over = self._inner.get_state(), terminated or truncated
            node.children[action] = Node(state, obs, node.total + reward, over, self.actions)
        return node.children[action]

    def random_return(self, rng: np.random.Generator, mask_of: Callable[[Any], NDArray[np.bool_]]) -> float:
        """Plays an episode at random, and returns its return."""
        obs, _ = self._env.reset(seed=int(rng.integers(2**31)))
        total, over = 0.0, False
        while not over:
            action = int(rng.choice(np.flatnonzero(mask_of(obs))))
            obs, reward, terminated, truncated, _ = check_step_result(self._env.step(action), "step() in the search")
            total, over = total + reward, terminated or truncated
        return total


def with_state(env: Any) -> Any:
    """Returns the outermost of an environment's layers that has `get_state` and `set_state`.

    Raises:
        EnvError: If none has.
    """
    layer = env
    while not (callable(getattr(layer, "get_state", None)) and callable(getattr(layer, "set_state", None))):
        if not hasattr(layer, "env"):
            raise EnvError(
                f"{env!r} has no get_state() and set_state(state); wanted both, the second returning the observation: "
                "the search of AlphaZero tries actions from states that it was in"
            )
        layer = layer.env
    return layer


class MCTS:
    """Searches from a node.

    Args:
        simulator: Steps the environment.
        evaluate: Asks the network.
        outcome: From the return of an episode that is over to its value.
        options: The config's `mcts_config`.
        rng: Where noise and choices come from.
    """

    def __init__(
        self,
        simulator: Simulator,
        evaluate: Evaluate,
        outcome: Callable[[float], float],
        options: Any,
        rng: np.random.Generator,
    ) -> None:
        self._simulator, self._evaluate, self._outcome, self._options, self._rng = (
            simulator, evaluate, outcome, options, rng
        )  # fmt: skip

    def compute_action(self, root: Node, explore: bool = True) -> tuple[Vector, int, Node]:
        """Searches, and returns the tree policy `[A]`, the action, and the node that it leads to.

            π(a) = N(a)^τ / Σ_b N(b)^τ

        The action is drawn from π, or its likeliest where `argmax_tree_policy` is set.

        Args:
            root: Where to begin; what was found below it before counts.
            explore: Whether the network's priors at the root get noise, and actions are drawn.
        """
        options = self._options
        if root.priors is None:
            root.priors, _ = self._evaluate(root.obs)
        priors = self._noisy(root.priors) if explore and options["add_dirichlet_noise"] else root.priors
        for _ in range(options["num_simulations"]):
            self._simulate(root, priors)
        tree_policy = (root.visits / root.visits.max()) ** options["temperature"]
        tree_policy /= tree_policy.sum()
        if options["argmax_tree_policy"] or not explore:
            action = int(tree_policy.argmax())
        else:
            action = int(self._rng.choice(len(tree_policy), p=tree_policy))
        return tree_policy, action, self._simulator.child(root, action)

    def _simulate(self, root: Node, priors: Vector) -> None:
        """Goes down to a node that the network was not asked about, or to an end, and backs its value up."""
        node, path = root, []
        while node.priors is not None and not node.done:
            scores = node.scores(self._options["puct_coefficient"], priors if node is root else node.priors)
            action = int(scores.argmax())
            path.append((node, action))
            node = self._simulator.child(node, action)
        if node.done:
            value = self._outcome(node.total)
        else:
            node.priors, value = self._evaluate(node.obs)
        for parent, action in path:
            parent.visits[action] += 1
            parent.values[action] += value

    def _noisy(self, priors: Vector) -> Vector:
        """Returns (1 − ε) P + ε η, η drawn from Dir(α) over the allowed actions."""
        share, allowed = self._options["dirichlet_epsilon"], priors > 0
        noise = np.zeros(len(priors))
        noise[allowed] = self._rng.dirichlet([self._options["dirichlet_noise"]] * int(allowed.sum()))
        mixed = (1 - share) * priors + share * noise
        # A draw may be 0 to the last bit, and a share may be 1: the action stays allowed.
        return np.asarray(np.where(allowed, np.maximum(mixed, np.finfo(np.float64).tiny), 0.0))
