"""PQN: the loss and the policy, for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.dqn.dqn_policy import q_stats
from rlframe.agents.dqn.q_policy import check_discrete
from rlframe.agents.families.actor_critic_networks import (
    action_size,
    encoder_config,
    network_of,
    refuse_action_mask,
)
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTIONS,
    DONES,
    ENV_ID,
    NEXT_OBS,
    OBS,
    VALUE_TARGETS,
)
from rlframe.data.rows import slice_column
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import gae_of_batch
from rlframe.losses.policy_gradients import explained_variance
from rlframe.losses.q_learning import select_by_action
from rlframe.models.spec import Part
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, Component, LossOutput
from rlframe.policy.policy import LearningRate
from rlframe.tensor import ops

if TYPE_CHECKING:
    from rlframe.agents.dqn.pqn import PQNConfig


def postprocess_lambda_returns(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds the λ-returns of the greedy policy as `value_targets`, and drops what the loss does not read.

        G_t = r_t + γ (1 − terminated_t) [ λ G_{t+1} + (1 − λ) max_a Q(s_{t+1}, a) ]

    The trace ends with its fragment, and where an episode is truncated: max_a Q(`new_obs`, a) stands there for G. This
    is V plus generalised advantage estimates, with V(s) = max_a Q(s, a) of the network that acted.

    Args:
        policy: Its config is read for `gamma` and `lambda`.
        sample_batch: Any number of trajectories one after the other, with `action_dist_inputs`, which are Q-values.
        other_agent_batches: Not used; part of the signature of postprocessing functions.
        episode: Not used; part of the signature of postprocessing functions.

    Source: Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning", section 4; Daley and Amato 2019.
    """
    del other_agent_batches, episode

    def values_after(ends: NDArray[np.bool_], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        del ends
        if not len(rows):
            return np.zeros(0, np.float32)
        q, _ = policy.forward(slice_column(sample_batch[NEXT_OBS], rows), False)
        best: NDArray[np.float32] = np.asarray(q, np.float32).max(axis=1)
        return best

    values = np.asarray(sample_batch[ACTION_DIST_INPUTS], np.float32).max(axis=1)
    config = policy.config
    targets = gae_of_batch(sample_batch, values, values_after, config["gamma"], config["lambda"])[1]
    sample_batch[VALUE_TARGETS] = targets
    for column in (NEXT_OBS, ACTION_DIST_INPUTS) if config.get("output") is None else ():
        del sample_batch[column]
    return sample_batch


postprocess_lambda_returns.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_lambda_returns.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


def lambda_loss(policy: Any, model: Any, batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch with its statistics.

        mean ½ (Q(s, a) − G)²

    Source: Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning", algorithm 1.
    """
    del policy
    q, targets = model(batch)[0], batch[VALUE_TARGETS]
    taken = select_by_action(q, batch[ACTIONS])
    td_error = taken - targets
    loss = 0.5 * ops.mean(ops.square(td_error))
    told = {
        "loss": loss,
        "mean_td_error": ops.mean(td_error),
        "vf_explained_var": explained_variance(targets, ops.stop_gradient(taken)),
    }
    return LossOutput(loss, {**q_stats(taken), **{name: ops.stop_gradient(value) for name, value in told.items()}})


class PQNPolicy(LearningPolicy):
    """A Q-network with normalised layers, which learns λ-returns of its own values on what was just sampled.

    Source: Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning".
    """

    config: PQNConfig
    defaults_from = "rlframe.agents.dqn.pqn:DEFAULT_CONFIG"
    acting_network = "q"
    train_columns = (ACTION_DIST_INPUTS, NEXT_OBS, DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, VALUE_TARGETS)
    postprocess_trajectory = postprocess_lambda_returns
    reported = {"cur_lr": "cur_lr"}  # noqa: RUF012
    cur_lr: float

    def prepare(self) -> None:
        """Checks the spaces."""
        check_discrete("PQN", self.action_space)
        self._num_actions = action_size("PQN", self.action_space)
        refuse_action_mask("PQN", self, self._num_actions)

    def encoder(self) -> dict[str, Any] | None:
        """Returns what observations that are no vectors pass through first: convolutions, or a user's own model."""
        return encoder_config(self, self.config.model)

    def networks(self) -> Mapping[str, Part]:
        """Returns the Q-network, behind the encoder where there is one."""
        config = self.config
        section = {**config["model"], "custom_model": None}
        return {"q": network_of(self, section, {}, self._num_actions, layer_norm=config.layer_norm)}

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr` and `adam_epsilon`, clipped to `grad_clip`."""
        config, encoder = self.config, ["encoder"] if self.encoder() else []
        return {"q": AdamSpec(("q", *encoder), config.lr, config.adam_epsilon, config.grad_clip)}

    def make_components(self) -> dict[str, Component]:
        """Returns the schedule of the learning rate."""
        return {"lr": LearningRate(self, self.config.lr, self.config.lr_schedule)}

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `lambda_loss`."""
        del dist_class
        return lambda_loss(self, model, train_batch)


__getattr__ = lazy_policies(__name__, PQNPolicy, PQNTorchPolicy="torch", PQNTFPolicy="tf")
