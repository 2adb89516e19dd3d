"""The learned environment in PyTorch, through which gradients flow, and the policy that goes up its return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from rlframe.agents.families.actor_critic_networks import HIDDEN
from rlframe.data.columns import OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.spec import Dense, Initial, Network, Part, dense_layers, layer_from_spec
from rlframe.models.torch.networks import TorchNetwork
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.policy.torch_policy import TorchPolicy
from rlframe.revive.distributions import mode
from rlframe.revive.functions_torch import differentiable
from rlframe.revive.policy_model import PolicyNetwork
from rlframe.revive.regularized import gaussian_distance
from rlframe.revive.shooting import ROW, check_smooth_nodes
from rlframe.revive.venv_model import STEP, TRAJECTORY, NodeModel, node_inputs, place_codes
from rlframe.tensor import ops
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.revive.columns import NodeScaler
    from rlframe.revive.data import GraphData
    from rlframe.revive.functions import RewardFunction
    from rlframe.revive.graph import DecisionGraph
    from rlframe.revive.nodes import Node
    from rlframe.revive.vector_env import VirtualVectorEnv

__all__ = ["ShootingTorchPolicy", "SmoothEnv", "check_smooth"]

Tensors = dict[str, Tensor]
#: Added to variances under the root: its slope at 0 is infinite.
_LEAST_VARIANCE = 1e-12


def check_smooth(graph: DecisionGraph, data: GraphData, reward: RewardFunction, node: str) -> None:
    """Looks whether gradients flow from the policy's node to the reward.

    Args:
        graph: With functions.
        data: Some rows of it are tried.
        reward: The reward.
        node: The policy's.

    Raises:
        ConfigError: Through a node, or through the reward, there flows none.
    """
    check_smooth_nodes(graph, node)
    rows = {name: torch.from_numpy(values[:4].copy()).requires_grad_() for name, values in data.arrays.items()}
    try:
        for name, function in graph.functions.items():
            differentiable(function.function, {key: rows[key] for key in graph.nodes[name].inputs}, function.where)
        differentiable(reward.function, rows, reward.where)
    except ConfigError as error:
        raise ConfigError(f"policy_algo is 'shooting': {error}; else choose ppo, sac or td3") from error


class _SmoothScaler:
    """A node's scaler with gradients: of continuous columns; categories and discrete columns are constants."""

    def __init__(self, scaler: NodeScaler) -> None:
        self._scaler = scaler
        self.low, self.high = torch.from_numpy(scaler.low), torch.from_numpy(scaler.high)
        self._middle, self._half = torch.from_numpy(scaler.middle), torch.from_numpy(scaler.half)
        self._order = list(scaler.order)
        self._back = np.argsort(self._order).tolist()
        self._smooth = all(column.kind == "continuous" for column in scaler.columns)

    def scale(self, values: Tensor) -> Tensor:
        """Returns `[B, columns]` in the user's units as `[B, width]` in the learned space."""
        if not self._smooth:  # leaves and external factors, which nothing here changes
            return torch.from_numpy(self._scaler.scale(values.detach().numpy()))
        return ((values - self._middle) / self._half)[..., self._order]

    def unscale(self, scaled: Tensor) -> Tensor:
        """Returns `[B, width]` of the learned space in the user's units, within the columns' ranges."""
        return self.within(scaled[..., self._back] * self._half + self._middle)

    def within(self, values: Tensor) -> Tensor:
        """Returns values within the columns' ranges."""
        return torch.minimum(torch.maximum(values, self.low), self.high)


class SmoothEnv:
    """Rollouts of a `VirtualVectorEnv`, whose rewards have gradients; nodes take their most likely values.

    Args:
        env: The environment; its member, horizon, penalty, data and reward are taken.
    """

    def __init__(self, env: VirtualVectorEnv) -> None:
        self.env, self.graph, self.node = env, env.venv.graph, env.policy_node
        check_smooth(env.graph, env.data, env.reward, self.node)
        self._policy_graph = env.graph
        self._scalers = {name: _SmoothScaler(scaler) for name, scaler in self.graph.scalers.items()}
        self._scalers.update({name: _SmoothScaler(scaler) for name, scaler in env.graph.scalers.items()})
        self._members = [
            {name: _network_of(model, self._width(name)) for name, model in member.items() if name != self.node}
            for member in env.venv.members
        ]
        self._layouts = {name: model.layout for name, model in env.venv.members[0].items()}

    def _width(self, name: str) -> int:
        """Returns the width of what a node's network sees."""
        row = {key: values[:1] for key, values in self.env.data.arrays.items()}
        return int(node_inputs(self.graph, self.graph.nodes[name], row).shape[-1])

    def returns(self, policy: Any, rows: Any, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
        """Returns what rollouts come to.

        Args:
            policy: `fn(obs) -> actions`, tensors of the learned space, `[B, D]` to `[B, A]`.
            rows: In which rows of the data they begin, int `[B]`.
            gamma: Discount.

        Returns:
            Σ γᵗ r / horizon, float `[B]`; and of all steps behind each other what the policy saw, `[T · B, D]`, and
            whether the step counts, float `[T · B]`.
        """
        env, rows = self.env, np.asarray(rows, np.int64)
        state = {base: self._logged(base, rows) for base in self.graph.transitions.values()}
        total, goes_on = torch.zeros(len(rows)), np.ones(len(rows), np.bool_)
        seen, counted = [], []
        for step in range(env.horizon):
            now = rows + step
            if env.external:  # a trajectory's end is an episode's
                goes_on = goes_on & (now <= env.last_rows[rows])
                now = np.minimum(now, env.last_rows[rows])
            values = {**state, **{name: self._logged(name, now) for name in env.external}}
            values[STEP] = torch.from_numpy((env.data.steps[rows] + step)[:, None])
            values[TRAJECTORY] = torch.from_numpy(env.data.trajectory[rows][:, None])
            for name in env.before:
                values[name] = self._made(name, values)
            obs = self._seen(self._policy_graph.nodes[self.node], values)
            actions = policy(obs)
            values[self.node] = self._scalers[self.node].unscale(torch.clamp(actions, -1.0, 1.0))
            for name in env.behind:
                values[name] = self._made(name, values)
            alive = torch.from_numpy(goes_on.astype(np.float32))
            total = total + alive * gamma**step * self._reward(values)
            seen.append(obs)
            counted.append(alive)
            state = {base: values[following] for following, base in self.graph.transitions.items()}
        return total / env.horizon, torch.cat(seen), torch.cat(counted)

    def _logged(self, name: str, rows: Any) -> Tensor:
        return torch.from_numpy(self.env.data.arrays[name][rows])

    def _seen(self, node: Node, values: Mapping[str, Tensor]) -> Tensor:
        """Returns what a node's network sees; see `node_inputs`."""
        parts = [self._scalers[name].scale(values[name]) for name in node.inputs]
        places = {name: values[name].numpy() for name in (STEP, TRAJECTORY)}
        codes = place_codes(node, places, tuple(parts[0].shape[:-1]))
        return torch.cat([*parts, *map(torch.from_numpy, codes)], -1)

    def _made(self, name: str, values: Tensors) -> Tensor:
        """Returns a node's values in the user's units."""
        node = self.graph.nodes[name]
        inputs = [values[one] for one in node.inputs]
        if node.derivation is not None:
            if node.derivation.kind == "shift":
                return torch.cat([inputs[0][..., node.derivation.columns :], inputs[1]], -1)
            made: Tensor = node.derivation(inputs)  # type: ignore[arg-type, assignment]  # slices and sums alone
            return self._scalers[name].within(made) if node.derivation.kind == "add" else made
        if node.role == "function":
            computed: Tensor = self.graph.functions[name].function(dict(zip(node.inputs, inputs, strict=True)))
            return computed
        return self._scalers[name].unscale(self._mode(name, self.env.member, values))

    def _mode(self, name: str, member: int, values: Tensors) -> Tensor:
        made: Tensor = mode(
            self._layouts[name], self._members[member][name](self._seen(self.graph.nodes[name], values)), ops
        )
        return made

    def _reward(self, values: Tensors) -> Tensor:
        """Returns rewards, less the penalty for disagreement, float `[B]`."""
        env = self.env
        nodes = {name: value for name, value in values.items() if name not in {STEP, TRAJECTORY}}
        rewards: Tensor = env.reward.function(nodes).reshape(-1)
        if not env.uncertain or not env.penalty:
            return rewards
        return rewards - env.penalty * self._uncertainty(env.uncertain, values)

    def _uncertainty(self, nodes: Sequence[str], values: Tensors) -> Tensor:
        """Returns how far the members are apart; see `VirtualEnv.uncertainty`."""
        spreads = []
        for name in nodes:
            modes = torch.stack([self._mode(name, member, values) for member in range(len(self._members))])
            spreads.append((modes.var(0, unbiased=False) + _LEAST_VARIANCE).sqrt().mean(-1))
        return torch.stack(spreads).max(0).values


def _network_of(model: NodeModel, width: int) -> TorchNetwork:
    """Returns a node's network for inputs of a width, with its weights, which do not learn."""
    layers = tuple(layer_from_spec(layer) for layer in model.layers)
    network = TorchNetwork(Network({OBS: width}, layers))
    network.load_state_dict({name: torch.tensor(np.asarray(weight)) for name, weight in model.weights.items()})
    return network.requires_grad_(False)


class ShootingTorchPolicy(TorchPolicy):
    """A deterministic actor that goes up the return of rollouts in the learned environment.

        loss = −mean Σ_t γᵗ r_t / horizon + w_kl · mean KL(π‖b)

    KL is the divergence of Gaussians around the actions of the policy and of the cloned behaviour; its gradient does
    not flow through what the policy saw.
    """

    defaults_from = "rlframe.revive.shooting:DEFAULT_CONFIG"
    dist_type = "deterministic"
    learn_columns: tuple[str, ...] = (ROW,)
    behaviour: PolicyNetwork
    variance: float

    def prepare(self) -> None:
        """Makes the environment's networks."""
        starts = self.config["start_rows"]
        self.smooth, self.gamma = SmoothEnv(starts.env), starts.gamma

    def networks(self) -> Mapping[str, Part]:
        """Returns the actor."""
        width, size = (gym.spaces.flatdim(space) for space in (self.observation_space, self.action_space))
        hidden = dense_layers(self.config["hiddens"], "tanh", initial=HIDDEN)
        return {"actor": Network({OBS: width}, (*hidden, Dense("output", "tanh", size, Initial("normc", 0.01))))}

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr`, clipped to `grad_clip`."""
        return {"actor": AdamSpec(("actor",), self.config["lr"], grad_clip=self.config["grad_clip"])}

    def set_behaviour(self, network: PolicyNetwork, error: float) -> None:
        """Takes the cloned behaviour, and the mean squared error of its actions."""
        self.behaviour, self.variance = network, max(error, 0.01)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:  # type: ignore[override]
        """Returns the loss of rollouts from some rows; see the class."""
        del dist_class
        returns, seen, counted = self.smooth.returns(model.actor, train_batch[ROW].numpy(), self.gamma)
        score = returns.mean()
        loss, stats = -score, {"score": score}
        if self.config["w_kl"]:
            told = torch.from_numpy(self.behaviour.means(seen.detach().numpy()))
            apart = gaussian_distance(model.actor(seen.detach()), told, self.variance)
            distance = (apart * counted).sum() / counted.sum().clamp_min(1.0)
            loss, stats["behaviour_kl"] = loss + self.config["w_kl"] * distance, distance
        return LossOutput(loss, {"total_loss": loss, **stats})
