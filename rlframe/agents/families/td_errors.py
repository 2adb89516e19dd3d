"""TD errors of policies that learn from replayed transitions: their loss, those of given rows, first priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTIONS, DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.n_step import postprocess_nstep
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.q_learning import huber
from rlframe.policy.users_code import overridden_by_user
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def error_loss(policy: Any, errors: Tensor) -> Tensor:
    """Returns half the squares of a critic's TD errors; with `use_huber`, Huber's loss. Float, any shape."""
    config = policy.config
    return huber(errors, config.huber_threshold) if config.use_huber else 0.5 * ops.square(errors)


def postprocess_nstep_and_value_prio(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Does as `postprocess_nstep_and_prio` for a policy that acts by action values Q, with no other network than that.

        δ = r + discount · max_a Q(s', a) − Q(s, a)

    The worker's own copy of the network stands for the target network, too.

    Source: Horgan et al. 2018, algorithm 1 (actors).
    """
    batch = postprocess_nstep(policy, sample_batch, other_agent_batches, episode)
    q_t, q_tp1 = (policy.inference.run({OBS: batch[key]}, False)[0] for key in (OBS, NEXT_OBS))
    chosen = np.take_along_axis(q_t, np.asarray(batch[ACTIONS], np.int64)[:, None], axis=1)[:, 0]
    td_error = np.asarray(batch[REWARDS], np.float32) + batch[DISCOUNTS] * q_tp1.max(axis=1) - chosen
    batch[WEIGHTS] = np.abs(td_error) + np.float32(policy.config["prioritized_replay_eps"])
    return batch


postprocess_nstep_and_value_prio.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories


def td_error_left(policy: Any) -> dict[str, Any]:
    """Returns `{"td_error": [B]}` of a loss of the user's own that left it where RLlib's did; `{}` if it did not.

    That is `model.tower_stats["td_error"]` since RLlib 1.5, before `policy.q_loss.td_error` or `policy.td_error`.
    """
    if not overridden_by_user(type(policy), "loss"):
        return {}
    in_model = getattr(policy.model, "tower_stats", {}).get("td_error")
    of_loss, own = getattr(vars(policy).get("q_loss"), "td_error", None), vars(policy).get("td_error")
    found = next((value for value in (in_model, of_loss, own) if value is not None), None)
    return {} if found is None else {"td_error": ops.stop_gradient(found)}


def q_stats_left(policy: Any) -> dict[str, Any]:
    """Returns `q_loss.stats`, where a loss for RLlib 1.x left such an object in the model or the policy; else `{}`."""
    left = getattr(policy.model, "tower_stats", {}).get("q_loss", vars(policy).get("q_loss"))
    return dict(getattr(left, "stats", {}))


def td_error_of(
    policy: Any, obs_t: Any, act_t: Any, rew_t: Any, obs_tp1: Any, done_mask: Any, importance_weights: Any = None,
    discounts: Any = None,
) -> NDArray[np.float32]:  # fmt: skip
    """Returns the TD errors [B] of given transitions, without learning; `compute_td_error` of policies.

    Args:
        policy: A policy whose loss tells `td_error` by row.
        obs_t: Observations [B, ...].
        act_t: Actions [B, ...].
        rew_t: Rewards [B].
        obs_tp1: Observations after the step [B, ...].
        done_mask: Where the episode terminated, bool [B].
        importance_weights: Float [B]; ones if None.
        discounts: γᵏ(1 − terminated), float [B]; None computes it with `n_step` summed rewards.

    Raises:
        ValueError: If the loss is one that tells none.
    """
    if policy.is_recurrent():
        raise ValueError(
            f"compute_td_error: got rows for a {type(policy).__name__} with memory, whose values depend on what came "
            "before; wanted a policy without: learn_on_batch() of sequences gives their td_error"
        )
    ended = np.asarray(done_mask, np.float32)
    if discounts is None:
        discounts = float(policy.config["gamma"]) ** int(policy.config.get("n_step", 1)) * (1.0 - ended)
    weights = np.ones(len(ended), np.float32) if importance_weights is None else importance_weights
    columns = {OBS: obs_t, ACTIONS: act_t, REWARDS: rew_t, NEXT_OBS: obs_tp1, DISCOUNTS: discounts, WEIGHTS: weights}
    columns[DONES] = ended > 0  # for losses of the user's own
    rows = SampleBatch({key: np.asarray(value) for key, value in columns.items()})
    before = policy.get_weights() if policy.config.get("critic_batch_norm") else None
    made = policy.evaluate_loss(policy._learned_columns(rows))
    if before is not None:
        policy.set_weights(before)  # the loss moved the running statistics
    if "td_error" not in made:
        raise ValueError(
            f"{type(policy).__name__}'s loss tells no td_error, by which rows are prioritised: return a LossOutput "
            "that has it by row, call the algorithm's own loss in yours, or set worker_side_prioritization=False"
        )
    return np.asarray(made["td_error"])
