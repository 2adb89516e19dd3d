"""What RLlib's DQN was made of in both frameworks, for policies that are made of functions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.dqn.dqn_policy import q_stats
from rlframe.agents.dqn.q_policy import (
    Q_SCOPE,
    Q_TARGET_SCOPE,
    NetworkName,
    QOutput,
    WeightsOf,
    check_discrete,
    make_q_model,
    q_heads,
    q_output,
)
from rlframe.agents.families.td_errors import q_stats_left, td_error_left, td_error_of
from rlframe.data.columns import OBS
from rlframe.data.n_step import (
    with_discounts,
    with_discounts_and_weights,
)
from rlframe.losses.q_learning import (
    categorical_q_loss,
    huber,
    project_distribution,
    signed_hyperbolic,
    signed_parabolic,
)
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL
from rlframe.rllib1x.schedules import LearningRateSchedule
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


class ComputeTDErrorMixin:
    """Gives a policy `compute_td_error`; its loss keeps TD errors, and its fetches give them as `td_error`."""

    compute_td_error = td_error_of

    def __init__(self, loss_fn: Any = None) -> None:
        """Does nothing: the TD errors are those of the policy's own loss, which is what SAC's and DDPG's got here."""


def _adjust_nstep(
    n_step: int,
    gamma: float,
    obs: NDArray[Any],
    actions: NDArray[Any],
    rewards: NDArray[Any],
    new_obs: NDArray[Any],
    dones: NDArray[Any],
) -> None:
    """Turns one trajectory's transitions into n-step ones, in place; `adjust_nstep` takes a batch instead.

    Args:
        n_step: Rewards to sum, in env steps; the last rows sum what is left.
        gamma: Discount per step.
        obs: Not used, nor are `actions`.
        actions: Not used.
        rewards: Float [T]; becomes discounted sums.
        new_obs: [T, ...]; becomes those of the last step that is summed.
        dones: Bool [T]; likewise.

    Raises:
        ValueError: If an episode ends before the last row.
    """
    del obs, actions
    if np.any(dones[:-1]):
        raise ValueError(f"_adjust_nstep got an episode's end before the last row of {len(rewards)}; pass one episode.")
    for row in range(len(rewards)):  # rows ahead are still as they were
        last = min(row + n_step, len(rewards))
        rewards[row] = gamma ** np.arange(last - row) @ np.asarray(rewards[row:last])
        new_obs[row], dones[row] = new_obs[last - 1], dones[last - 1]


class QTargetPolicy(LearningPolicy):
    """What losses of Q-learning ask a policy for that is made of functions: a Q-network and the copy of it.

    Call the constructor when the policy's model exists: in `before_loss_init` or `after_init`. A `target_model` that
    was built with the model becomes the copy. A loss that runs before finds the copy, too.
    """

    complete_columns, complete_batch = with_discounts, with_discounts_and_weights
    q_model, target_q_model = NetworkName("model"), NetworkName("target_model")
    q_func_vars, target_q_func_vars = WeightsOf("model"), WeightsOf("target_model")

    def __init__(self, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None:
        self._make_target()
        self.update_target()

    def _make_target(self: Any) -> None:
        if "target_network" not in self.__dict__:
            self._make_target_network(WHOLE_MODEL)

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns the TD errors `[B]` of the batch, where the loss kept `td_error`."""
        td_error = self._loss_outputs.get("td_error")
        return td_error_left(self) if td_error is None else {"td_error": td_error}

    def online(self, obs: Tensor) -> QOutput:
        """Returns the online network's Q-values of `obs` [B, ...]."""
        return q_output(self.model, obs, training=True)

    def target(self, obs: Tensor) -> QOutput:
        """Returns the target network's Q-values of `obs` [B, ...]."""
        self._make_target()
        return q_output(self.target_model, obs, training=False)

    #: Values are learned as they are.
    h_epsilon: float | None = None

    @property
    def selects_online(self) -> bool:
        """Whether the online network selects the action that the target network evaluates."""
        return bool(self.config.get("double_q"))

    def variables(self) -> list[Any]:
        """Returns the weights of the network and of its copy."""
        return [*self.model.variables(), *self.target_model.variables()]


#: RLlib's name.
TargetNetworkMixin = QTargetPolicy


def h_function(x: Tensor, epsilon: float = 1.0) -> Tensor:
    """Returns `signed_hyperbolic` with RLlib's default of ε."""
    return signed_hyperbolic(x, epsilon)


def h_inverse(x: Tensor, epsilon: float = 1.0) -> Tensor:
    """Returns `signed_parabolic` with RLlib's default of ε."""
    return signed_parabolic(x, epsilon)


def build_q_model(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> Any:
    """Returns DQN's Q-network; sets `policy.target_model`.

    Raises:
        UnsupportedSpaceException: If actions are not Discrete.
    """
    return _build(policy, obs_space, action_space, q_heads(config))


def build_q_models(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> Any:
    """Returns SimpleQ's Q-network, whose outputs are the Q-values; sets `policy.target_model`.

    Raises:
        UnsupportedSpaceException: If actions are not Discrete.
    """
    del config
    return _build(policy, obs_space, action_space, {"q_hiddens": (), "dueling": False})


def build_q_model_and_distribution(
    policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns DQN's Q-network and the distribution whose inputs are Q-values; sets `policy.target_model`."""
    return build_q_model(policy, obs_space, action_space, config), _dist_class(policy)


def build_simple_q_model_and_distribution(
    policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns SimpleQ's Q-network and the distribution whose inputs are Q-values; sets `policy.target_model`."""
    return build_q_models(policy, obs_space, action_space, config), _dist_class(policy)


def _build(policy: Any, obs_space: Any, action_space: Any, heads: Mapping[str, Any]) -> Any:
    check_discrete(type(policy).__name__, action_space)
    policy.observation_space, policy.action_space = obs_space, action_space
    interface = importlib.import_module(f"rlframe.agents.dqn.dqn_{policy.framework}_model").DQNModel
    model = make_q_model(policy, interface, heads, Q_SCOPE)[0]
    policy.target_model = make_q_model(policy, interface, heads, Q_TARGET_SCOPE)[0]
    if not hasattr(type(policy), "q_model"):  # the names up to RLlib 1.6, for copies with a mixin of their own
        policy.q_model, policy.target_q_model = model, policy.target_model
    return model


def _dist_class(policy: Any) -> Any:
    return ModelCatalog.get_action_dist(policy.action_space, framework=policy.framework)[0]


def setup_late_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Makes the target network of a policy with a `TargetNetworkMixin`, once the model is there."""
    TargetNetworkMixin.__init__(policy, obs_space, action_space, config)


def compute_q_values(
    policy: Any,
    model: Any,
    input_dict: Any,
    state_batches: Any = None,
    seq_lens: Any = None,
    explore: Any = None,
    is_training: bool = False,
) -> tuple[Any, ...]:
    """Returns Q-values [B, A], logits and probabilities of the value's atoms [B, A, Z], and new states.

    With one atom both are ones. `explore` changes nothing: noisy layers are noisy while training. Observations alone
    (`compute_q_values(policy, model, obs, explore)`, as up to RLlib 1.2) have no states.
    """
    if not isinstance(input_dict, Mapping):
        return compute_q_values(policy, model, {OBS: input_dict}, is_training=is_training)[:3]
    del policy, explore
    inputs = input_dict if hasattr(input_dict, "set_training") else {"is_training": is_training, **input_dict}
    features, state = model(inputs, state_batches or [], seq_lens)
    made = model.q_values(features)
    if made.logits is None:
        ones = ops.ones_like(made.q)[..., None]
        return made.q, ones, ones, state
    return made.q, made.logits, ops.softmax(made.logits), state


def compute_simple_q_values(policy: Any, model: Any, obs: Any, explore: Any, is_training: Any = None) -> Tensor:
    """Returns a model's Q-values [B, A] of observations [B, ...]."""
    del policy, explore
    return q_output(model, obs, training=bool(is_training)).q


def get_distribution_inputs_and_class(
    policy: Any, model: Any, input_dict: Any, *, explore: bool = True, is_training: bool = False, **kwargs: Any
) -> tuple[Tensor, Any, list[Any]]:
    """Returns Q-values [B, A], their distribution class, and new states; keeps them as `policy.q_values`."""
    states, seq_lens = (kwargs.get(name) for name in ("state_batches", "seq_lens"))
    policy.q_values, *_, new_states = compute_q_values(
        policy, model, input_dict, states, seq_lens, explore, is_training
    )
    model.tower_stats["q_values"] = policy.q_values
    return policy.q_values, _dist_class(policy), list(new_states)


def get_simple_distribution_inputs_and_class(
    policy: Any, q_model: Any, obs_batch: Any, *, explore: bool = True, is_training: bool = True, **kwargs: Any
) -> tuple[Tensor, Any, list[Any]]:
    """Returns Q-values [B, A], their distribution class, and new states; keeps them as `policy.q_values`."""
    del kwargs
    policy.q_values = compute_simple_q_values(policy, q_model, obs_batch, explore, is_training)
    return policy.q_values, _dist_class(policy), []


def setup_early_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the schedule of the learning rate."""
    del obs_space, action_space
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


def build_q_stats(policy: Any, batch: Any) -> dict[str, Any]:
    """Returns what the loss kept of the Q-values, and the learning rate."""
    del batch
    kept = {name: value for name, value in policy._loss_outputs.items() if name != "td_error"}
    return {"cur_lr": getattr(policy, "cur_lr", policy.config["lr"]), **q_stats_left(policy), **kept}


class QLoss:
    """The loss of Q-values that were selected by the caller.

    Args:
        q_t_selected: Q(s, a). Float [B].
        q_logits_t_selected: Logits of its atoms, float [B, Z]; read with several.
        q_tp1_best: Q⁻(s', a*). Float [B].
        q_probs_tp1_best: Probabilities of its atoms, float [B, Z]; read with several.
        importance_weights: Float [B].
        rewards: Float [B].
        done_mask: Where the episode terminated. Float [B].
        gamma: Discount per step.
        n_step: Rewards that were summed.
        num_atoms: Z.
        v_min: Smallest atom.
        v_max: Largest atom.

    Attributes:
        loss: Scalar.
        td_error: Float [B].
        stats: Scalars for the report.

    Source: Mnih et al. 2015, algorithm 1; Bellemare et al. 2017, algorithm 1.
    """

    def __init__(
        self,
        q_t_selected: Tensor,
        q_logits_t_selected: Tensor | None,
        q_tp1_best: Tensor,
        q_probs_tp1_best: Tensor | None,
        importance_weights: Tensor,
        rewards: Tensor,
        done_mask: Tensor,
        gamma: float = 0.99,
        n_step: int = 1,
        num_atoms: int = 1,
        v_min: float = -10.0,
        v_max: float = 10.0,
    ) -> None:
        discounts = gamma**n_step * (1.0 - ops.to_float(done_mask))
        self.stats: dict[str, Tensor] = {}
        if num_atoms > 1:
            assert q_logits_t_selected is not None
            assert q_probs_tp1_best is not None
            atoms = ops.tensor_like(np.linspace(v_min, v_max, num_atoms, dtype=np.float32), rewards)
            target = project_distribution(q_probs_tp1_best, rewards, discounts, atoms)
            per_row = self.td_error = categorical_q_loss(q_logits_t_selected, target)
        else:
            self.td_error = q_t_selected - ops.stop_gradient(rewards + discounts * q_tp1_best)
            per_row = huber(self.td_error)
            self.stats = q_stats(q_t_selected)
        self.loss = ops.mean(ops.to_float(importance_weights) * per_row)
