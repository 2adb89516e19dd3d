"""PG in PyTorch: the loss and the policy."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rlframe.agents.pg.pg_policy import PGPolicy
from rlframe.data.columns import ACTIONS, ADVANTAGES
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import post_process_advantages
from rlframe.losses.masking import valid_mean
from rlframe.losses.policy_gradients import policy_gradient
from rlframe.policy.torch_policy import TorchPolicy


def pg_torch_loss(policy: PGTorchPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, the mean of −log π(a|s) · G, a scalar.

    Source: Williams 1992; Sutton and Barto 2018, eq. 13.8.
    """
    dist_inputs, _ = model(train_batch)
    logp = dist_class(dist_inputs, model).logp(train_batch[ACTIONS])
    loss: Tensor = valid_mean(train_batch)(policy_gradient(logp, train_batch[ADVANTAGES]))
    policy._loss_outputs = {"policy_loss": loss.detach()}
    return loss


class PGTorchPolicy(PGPolicy, TorchPolicy):
    """An actor trained on returns."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self._loss_outputs: dict[str, Any] = {}
        TorchPolicy.__init__(self, obs_space, action_space, config)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `pg_torch_loss`."""
        return pg_torch_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns the loss."""
        return self._loss_outputs


__all__ = ["PGTorchPolicy", "pg_torch_loss", "post_process_advantages"]
