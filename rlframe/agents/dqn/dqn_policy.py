"""DQN: the loss (double, n-step, weighted, distributional) and the policy with its heads, for both frameworks."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from rlframe.agents.dqn.q_policy import NetworkName, QOutput, WeightsOf, check_discrete, make_q_model, q_heads, q_output
from rlframe.agents.dqn.step_values import step_values
from rlframe.agents.families.replayed_sequences import histories, prepare_sequences, td_errors_to_replay
from rlframe.agents.families.td_errors import postprocess_nstep_and_value_prio, q_stats_left, td_error_left, td_error_of
from rlframe.data.columns import ACTION_DIST_INPUTS, ACTIONS, DISCOUNTS, REWARDS, WEIGHTS
from rlframe.data.n_step import (
    LOSS_COLUMNS,
    SAMPLED_COLUMNS,
    postprocess_nstep_and_prio,
    postprocess_replayed,
    with_discounts,
    with_discounts_and_weights,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.q_learning import (
    categorical_q_loss,
    double_q_td_error,
    huber,
    project_distribution,
    rescaled_td_error,
    select_by_action,
    surprise_of_target,
)
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, Component, FusedGradients, LossOutput, kept
from rlframe.policy.policy import LearningRate
from rlframe.policy.users_code import overridden_by_user
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from rlframe.agents.dqn.dqn import DQNConfig

#: Methods that say how large TD errors are.
_TELL_PRIORITIES = ("loss", "online", "target", "compute_td_error", "postprocess_trajectory")


class DoubleQLoss:
    """The loss of one batch, its TD errors, and statistics.

    With one atom: mean of w · huber(δ), δ the n-step double-Q error. With Z atoms: mean of w · cross-entropy between
    the projected target distribution and the online one; the divergence of the two then serves as the TD error.

    Args:
        q_t: Online network at `obs`: q [B, A], logits [B, A, Z] or None.
        q_tp1: Target network at `new_obs`.
        q_tp1_selector: Q-values [B, A] at `new_obs` that choose the next action: the online network's for double
            Q-learning, the target network's otherwise.
        batch: Columns `actions`, `rewards`, `discounts`, `weights` (or ones), `valid_mask` (false rows do not count).
        support: Atoms [Z].
        h_epsilon: ε of value rescaling, see `signed_hyperbolic`; None learns values as they are.

    Attributes:
        loss: Scalar.
        td_error: [B], without gradient.
        stats: Scalars for the report.

    Source: van Hasselt et al. 2016 (double); Schaul et al. 2016 (weights); Bellemare et al. 2017, algorithm 1 (atoms);
    Hessel et al. 2018 (their priorities).
    """

    def __init__(
        self,
        q_t: Any,
        q_tp1: Any,
        q_tp1_selector: Tensor,
        batch: SampleBatch,
        support: Tensor | None = None,
        *,
        h_epsilon: float | None = None,
    ) -> None:
        actions, rewards, discounts = batch[ACTIONS], batch[REWARDS], batch[DISCOUNTS]
        weights = batch.get(WEIGHTS)
        if q_t.logits is None and h_epsilon is not None:
            best = select_by_action(q_tp1.q, ops.argmax(q_tp1_selector, axis=1))
            td_error = rescaled_td_error(select_by_action(q_t.q, actions), rewards, discounts, best, h_epsilon)
            per_row = huber(td_error)
        elif q_t.logits is None:
            td_error = double_q_td_error(q_t.q, actions, rewards, discounts, q_tp1.q, q_tp1_selector)
            per_row = huber(td_error)
        else:
            assert support is not None
            assert q_tp1.logits is not None
            best = ops.argmax(q_tp1_selector, axis=1)
            next_probs = ops.softmax(select_by_action(q_tp1.logits, best))
            target = project_distribution(next_probs, rewards, discounts, support)
            per_row = categorical_q_loss(select_by_action(q_t.logits, actions), target)
            td_error = surprise_of_target(per_row, target)
        self.loss = valid_mean(batch)(per_row if weights is None else weights * per_row)
        self.td_error = ops.stop_gradient(td_error)
        self.stats = q_stats(valid_rows(batch)(select_by_action(q_t.q, actions)))


def q_stats(q: Tensor) -> dict[str, Tensor]:
    """Returns the mean, smallest and largest of the Q-values of actions taken, scalars without gradient."""
    q = ops.stop_gradient(q)
    return {"mean_q": ops.mean(q), "min_q": ops.min(q), "max_q": ops.max(q)}


def double_q_loss(policy: Any, model: Any, batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch with TD errors and statistics; see `DoubleQLoss`."""
    q_t, q_tp1, selector, steps = step_values(policy, batch)
    q_loss = DoubleQLoss(q_t, q_tp1, selector, steps, getattr(model, "support", None), h_epsilon=policy.h_epsilon)
    td_error = td_errors_to_replay(policy, q_loss.td_error, steps)
    model.tower_stats.update(td_error=td_error, q_loss=q_loss)
    return LossOutput(q_loss.loss, q_loss.stats, {"td_error": td_error})


def build_q_losses(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar; the policy keeps the rest, and `q_loss`. See `DoubleQLoss`."""
    del dist_class
    output = double_q_loss(policy, model, train_batch)
    policy.q_loss = model.tower_stats["q_loss"]
    return kept(policy, output)


class DQNPolicy(LearningPolicy):
    """A Q-network with dueling, distributional and noisy heads, and a copy of it that targets come from.

    Source: Mnih et al. 2015, algorithm 1; the sources of `DoubleQLoss`; Fortunato et al. 2018 (noise).
    """

    config: DQNConfig
    defaults_from: str | None = "rlframe.agents.dqn.dqn:DEFAULT_CONFIG"
    train_columns = SAMPLED_COLUMNS
    learn_columns: tuple[str, ...] | None = LOSS_COLUMNS
    complete_columns, complete_batch = with_discounts, with_discounts_and_weights
    compute_td_error = td_error_of
    postprocess_trajectory = postprocess_replayed
    padded_sequences = histories
    target_networks = WHOLE_MODEL
    #: ε of the rescaling of values, see `signed_hyperbolic`; None learns them as they are.
    h_epsilon: float | None = None
    reported = {"cur_lr": "cur_lr"}  # noqa: RUF012
    fused_gradients = FusedGradients(
        {"torch": "rlframe.agents.dqn.dense_q_torch:DenseQGradients"}, ("loss", "online", "target", "keep")
    )
    cur_lr: float
    #: RLlib's names, up to 1.8.
    q_model, target_q_model = NetworkName("model"), NetworkName("target_model")
    q_func_vars, target_q_func_vars = WeightsOf("model"), WeightsOf("target_model")
    #: The online network's noisy layers.
    _noisy_layers: Sequence[Any] = ()

    # --- what it consists of ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Checks the action space."""
        check_discrete(type(self).__name__, self.action_space)
        self._noisy_network = bool(self.config.get("noisy"))

    @property
    def selects_online(self) -> bool:
        """Whether the online network selects the action that the target network evaluates."""
        return bool(self.config.get("double_q"))

    def head_config(self) -> dict[str, Any]:
        """Returns what the heads are built with."""
        return q_heads(self.config)

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the Q-network and the distribution whose inputs are Q-values."""
        home = importlib.import_module(f"rlframe.agents.dqn.dqn_{self.framework}_model")
        model, num_outputs = make_q_model(self, home.DQNModel, self.head_config())
        self.check_model(model, num_outputs)
        return model, ModelCatalog.get_action_dist(self.action_space, framework=self.framework)[0]

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr` and `adam_epsilon`, clipped to `grad_clip`."""
        config = self.config
        return {"q": AdamSpec(WHOLE_MODEL, config.lr, config.adam_epsilon, config.grad_clip)}

    def make_components(self) -> dict[str, Component]:
        """Returns the schedule of the learning rate; gives noisy layers their streams, and memories their sequences."""
        self._noisy_layers = getattr(self.model, "noisy_layers", list)()
        for index, layer in enumerate(self._noisy_layers):
            layer.generator = self.make_generator("noise", index)
        for index, layer in enumerate(getattr(self.target_model, "noisy_layers", list)()):
            # The target's noise is its own draw, and on: Fortunato et al. 2018, section 3.1.
            layer.noise, layer.generator = True, self.make_generator("target_noise", index)
        prepare_sequences(self)
        return {"lr": LearningRate(self, self.config.lr, self.config.lr_schedule)}

    # --- Q-values ---------------------------------------------------------------------------------------------

    def online(self, obs: Tensor | Mapping[str, Any]) -> QOutput:
        """Returns the online network's `QOutput`, noisy where it has noise; of what, see `q_output`."""
        with self._noise(True):
            return q_output(self.model, obs, training=True)

    def target(self, obs: Tensor | Mapping[str, Any]) -> QOutput:
        """Returns the target network's `QOutput`; of what, see `q_output`."""
        return q_output(self.target_model, obs, training=False)

    @contextlib.contextmanager
    def _noise(self, on: bool) -> Iterator[None]:
        """A context in which the online network's noise is on or off; outside of it, it is as the framework has it."""
        for layer in self._noisy_layers:
            layer.noise = on
        try:
            yield
        finally:
            for layer in self._noisy_layers:
                layer.noise = None

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """Returns Q-values [B, A] for a tensor of preprocessed observations [B, ...]."""
        return q_output(self.model, obs, training=False).q

    def _network_outputs(self, batch: SampleBatch, explore: bool) -> tuple[Tensor, list[Tensor]]:
        with self._noise(explore):
            outputs, states = self.model(batch, [], None)
            return self.model.q_values(outputs).q if hasattr(self.model, "q_values") else outputs, states

    @property
    def q_values(self) -> Any:
        """Q-values [B, A] of the observations that were acted on last."""
        return self.last_inputs

    @q_values.setter
    def q_values(self, values: Any) -> None:
        self.last_inputs = values

    def compute_actions_from_input_dict(
        self, input_dict: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[NDArray[Any], list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Returns actions [B], states and extra columns, among them `q_values` [B, A], for a dict of columns."""
        actions, states, columns = super().compute_actions_from_input_dict(input_dict, *args, **kwargs)
        if ACTION_DIST_INPUTS in columns:  # a user's way of acting may have none
            columns.setdefault("q_values", columns[ACTION_DIST_INPUTS])
        return actions, states, columns

    def numpy_postprocessing(self) -> Any:
        """Returns what postprocesses without the framework, with first priorities where Q-values alone tell them."""
        own = any(overridden_by_user(type(self), name) for name in _TELL_PRIORITIES)
        if not self.config.get("worker_side_prioritization") or self.config.get("num_atoms", 1) > 1 or own:
            return super().numpy_postprocessing()
        return None if self.is_recurrent() else postprocess_nstep_and_value_prio

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `DoubleQLoss`."""
        del dist_class
        return double_q_loss(self, model, train_batch)

    def stats_left(self) -> dict[str, Any]:
        """Returns statistics of Q-values that a loss of the user's own had the policy keep, or left as RLlib's did."""
        return {key: value for key, value in self._loss_outputs.items() if key != "td_error"} or q_stats_left(self)

    def rows_left(self) -> dict[str, Any]:
        """Returns the TD errors `[B]` that such a loss had the policy keep, or left as RLlib's did."""
        return {key: value for key, value in self._loss_outputs.items() if key == "td_error"} or td_error_left(self)

    def variables(self) -> list[Any]:
        """Returns the weights of the network and of its copy."""
        return [*self.model.variables(), *self.target_model.variables()]


__getattr__ = lazy_policies(__name__, DQNPolicy, DQNTorchPolicy="torch", DQNTFPolicy="tf")

__all__ = ["DQNPolicy", "DoubleQLoss", "build_q_losses", "double_q_loss", "postprocess_nstep_and_prio", "q_stats"]
