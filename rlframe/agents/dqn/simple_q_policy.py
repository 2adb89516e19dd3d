"""SimpleQ: the loss and the policy of the original deep Q-network, for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.dqn.q_actor import QActor
from rlframe.agents.dqn.q_policy import ComputeTDErrorMixin, QTargetPolicy, check_discrete, make_q_model
from rlframe.agents.families.n_step import postprocess_nstep
from rlframe.data.columns import ACTION_DIST_INPUTS, ACTIONS, DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.q_learning import huber, select_by_action
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.schedules import LearningRateSchedule
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def build_q_losses(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the mean Huber loss of the one-step temporal-difference error, a scalar.

        δ = Q(s, a) − [ r + γ (1 − terminated) · max_a' Q⁻(s', a') ]

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", algorithm 1.
    """
    del dist_class
    q_t = policy.online(train_batch[OBS]).q
    q_tp1 = ops.without_gradient(policy.target, train_batch[NEXT_OBS]).q
    target = train_batch[REWARDS] + train_batch[DISCOUNTS] * ops.max(q_tp1, axis=1)
    td_error = select_by_action(q_t, train_batch[ACTIONS]) - target
    model.tower_stats["td_error"] = ops.stop_gradient(td_error)
    policy.keep(td_error=td_error, **q_stats(q_t))
    return ops.mean(huber(td_error))


def q_stats(q: Tensor) -> dict[str, Tensor]:
    """Returns the mean, smallest and largest of Q-values, scalars without gradient."""
    q = ops.stop_gradient(q)
    return {"mean_q": ops.mean(q), "min_q": ops.min(q), "max_q": ops.max(q)}


class SimpleQPolicy(ComputeTDErrorMixin, LearningRateSchedule, QTargetPolicy):
    """A Q-network with a periodically copied target; what a framework adds is the networks and the learner step."""

    defaults_from = "rlframe.agents.dqn.simple_q:DEFAULT_CONFIG"

    train_columns = (NEXT_OBS, DONES)
    learn_columns: tuple[str, ...] = (OBS, ACTIONS, REWARDS, NEXT_OBS, DISCOUNTS)
    build_actor = staticmethod(QActor)
    #: The interface that puts heads on a model.
    model_interface: Any
    selects_online = False  # whatever the config says of double_q
    #: Q-values [B, A] of the observations that were acted on last.
    q_values: Any = None

    def check_action_space(self, action_space: gym.Space[Any]) -> None:
        """Raises an UnsupportedSpaceException unless actions are Discrete."""
        check_discrete(type(self).__name__, action_space)

    def head_config(self) -> dict[str, Any]:
        """Returns what the heads are built with; none here: the trunk's outputs are the Q-values."""
        return {"q_hiddens": (), "dueling": False}

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the Q-network and the distribution whose inputs are Q-values."""
        model, num_outputs = make_q_model(self, self.model_interface, self.head_config())
        self.check_model(model, num_outputs)
        return model, ModelCatalog.get_action_dist(self.action_space, framework=self.framework)[0]

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Sums n-step rewards and adds the discounts that the loss bootstraps with."""
        return postprocess_nstep(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = postprocess_nstep  # type: ignore[attr-defined]  # a marker for NumPy workers

    def distribution(self, dist_inputs: NDArray[np.float32]) -> Any:
        """Returns the NumPy action distribution for Q-values [B, A], and remembers these."""
        self.q_values = dist_inputs
        return super().distribution(dist_inputs)

    def compute_actions_from_input_dict(
        self, input_dict: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[NDArray[Any], list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Returns actions [B], states and extra columns, among them `q_values` [B, A], for a dict of columns."""
        actions, states, columns = super().compute_actions_from_input_dict(input_dict, *args, **kwargs)
        if ACTION_DIST_INPUTS in columns:  # a user's way of acting may have none
            columns.setdefault("q_values", columns[ACTION_DIST_INPUTS])
        return actions, states, columns

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """Returns Q-values [B, A] for a tensor of preprocessed observations [B, ...]."""
        return self.model.q_values(self.model({OBS: obs, "is_training": False}, [], None)[0]).q

    def _dist_inputs(self, batch: SampleBatch, explore: bool, step: int) -> tuple[Tensor, Any, list[Tensor]]:
        del step, explore
        return self.model.q_values(self.model(batch, [], None)[0]).q, self.dist_class, []

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `build_q_losses`."""
        return build_q_losses(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns `loss` statistics of the batch and the learning rate."""
        kept = {name: value for name, value in self._loss_outputs.items() if name != "td_error"}
        return {"cur_lr": self.cur_lr, **kept}
