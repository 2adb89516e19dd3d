"""PG: the loss and the policy, for both frameworks."""

from __future__ import annotations

from typing import Any

from rlframe.agents.families.users_losses import called_as_in_rllib, kept_by_users_loss
from rlframe.data.columns import ACTIONS, ADVANTAGES, DONES, ENV_ID, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import post_process_advantages
from rlframe.losses.masking import valid_mean
from rlframe.losses.policy_gradients import policy_gradient
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import LossOutput
from rlframe.tensor.ops import Tensor


def reinforce_loss(model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch, the mean of −log π(a|s) · G, a scalar.

    Source: Williams 1992; Sutton and Barto 2018, eq. 13.8.
    """
    dist_inputs, _ = model(train_batch)
    logp = dist_class(dist_inputs, model).logp(train_batch[ACTIONS])
    loss = valid_mean(train_batch)(policy_gradient(logp, train_batch[ADVANTAGES]))
    return LossOutput(loss, {"policy_loss": loss})


_KEPT = {"policy_loss": ("pi_err", "policy_loss")}
"""By statistic, the names under which losses for RLlib 1.x kept it; see `kept_by_users_loss`."""


def pg_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar; the policy keeps the rest. See `reinforce_loss`."""
    arguments = (policy, model, dist_class, train_batch)
    return called_as_in_rllib(lambda policy, *given: reinforce_loss(*given), arguments, _KEPT, prefix="")


#: RLlib's names.
pg_torch_loss = pg_tf_loss = pg_loss


class PGPolicy(LearningPolicy):
    """An actor that weights what it did by the return that followed."""

    defaults_from = "rlframe.agents.pg.pg:DEFAULT_CONFIG"

    train_columns = (DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, ADVANTAGES)
    postprocess_trajectory = post_process_advantages

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `reinforce_loss`."""
        return reinforce_loss(model, dist_class, train_batch)

    def stats_left(self) -> dict[str, Any]:
        """Returns `policy_loss`, where a loss of the user's own left it as RLlib's did."""
        return kept_by_users_loss(self, _KEPT)


__getattr__ = lazy_policies(__name__, PGPolicy, PGTorchPolicy="torch", PGTFPolicy="tf")
