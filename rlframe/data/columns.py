"""Names of the columns that travel in a `SampleBatch`, and the legend of dimensions used in all docstrings.

Dimensions:
    B: rows of a batch (transitions), or sequences where a text says so.
    T: time steps of one trajectory, fragment or padded sequence.
    A: discrete actions.
    N: agents.
    E: environment slots that step together.
    D: features of one observation, or of one hidden layer.
    K: inputs of an action distribution.
    S: width of one recurrent state.
    Z: atoms of a distributional value.

Rows of one batch are trajectories one after the other: row i+1 continues row i exactly if `eps_id` (and `agent_index`,
where present) are equal and `t` grows by one. Shapes below are those of collected batches, before sequences are padded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

OBS: Final = "obs"
"""Observation acted upon, after preprocessor and filter. `[B, ...]`."""
NEXT_OBS: Final = "new_obs"
"""Observation after the step; after n-step summing, the one n steps on. `[B, ...]`."""
ACTIONS: Final = "actions"
"""Action taken, in the normalised space where actions are normalised. `[B, ...]`."""
REWARDS: Final = "rewards"
"""Reward of the step after clipping; after n-step summing, the discounted sum. float32 `[B]`."""
PREV_ACTIONS: Final = "prev_actions"
"""Action of the step before, zeros at an episode's first step. `[B, ...]`."""
PREV_REWARDS: Final = "prev_rewards"
"""Reward of the step before, 0 at an episode's first step. float32 `[B]`."""
TERMINATEDS: Final = "terminateds"
"""The environment reached a terminal state: nothing follows, values bootstrap with 0. bool `[B]`."""
TRUNCATEDS: Final = "truncateds"
"""The episode was cut from outside (time limit): values bootstrap from `new_obs`. bool `[B]`."""
DONES: Final = "dones"
"""`terminateds | truncateds`, for code written before the two were kept apart. bool `[B]`."""
INFOS: Final = "infos"
"""The environment's info dicts. object `[B]`."""
SEQ_LENS: Final = "seq_lens"
"""Valid rows of each sequence in a batch that is cut into sequences. int32 `[sequences]`."""
VALID_MASK: Final = "valid_mask"
"""False on padding rows of a batch that is cut into sequences; the column is missing without padding. bool `[B]`."""
T: Final = "t"
"""Step of the environment in its episode at which the agent acted, from 0: rows of several agents with the same
`eps_id` and `t` belong together. int `[B]`."""
TURN: Final = "turn"
"""How often the agent acted in its episode before. Only in rows of several agents, which need not act at each `t`:
where it rises by one, no row is missing. int64 `[B]`."""
ACTION_DIST_INPUTS: Final = "action_dist_inputs"
"""Inputs of the action distribution that was sampled from. float32 `[B, K]`."""
ACTION_PROB: Final = "action_prob"
"""Probability (density) of the action taken. float32 `[B]`."""
ACTION_LOGP: Final = "action_logp"
"""Logarithm of `action_prob`. float32 `[B]`."""
EPS_ID: Final = "eps_id"
"""Number of the episode. int64 `[B]`."""
ENV_ID: Final = "env_id"
"""Number of the environment slot. int64 `[B]`."""
UNROLL_ID: Final = "unroll_id"
"""Number of the fragment the row was collected in. int64 `[B]`."""
AGENT_INDEX: Final = "agent_index"
"""Number of the agent within its episode. int64 `[B]`."""
VF_PREDS: Final = "vf_preds"
"""Value predicted at `obs` when acting. float32 `[B]`."""
ADVANTAGES: Final = "advantages"
"""Estimated advantage of the action taken. float32 `[B]`."""
VALUE_TARGETS: Final = "value_targets"
"""What the value function is regressed on. float32 `[B]`."""
WEIGHTS: Final = "weights"
"""Importance weight of the row (prioritised replay), or its initial priority when it is stored. float32 `[B]`."""
BATCH_INDEXES: Final = "batch_indexes"
"""Place in the replay buffer of the row, or of the row's sequence, that was drawn from it. int64 `[B]`."""
BURN_IN: Final = "burn_in"
"""Whether the row of a replayed sequence only warms up the recurrent state, and is not learned from. bool `[B]`."""
DISCOUNTS: Final = "discounts"
"""gamma**k * (1 - terminated), with k the rewards that were summed. float32 `[B]`, in [0, 1]."""
VALUES_AFTER: Final = "values_after"
"""V(`new_obs`), as predicted when sampling, where a trajectory was cut off; 0 elsewhere. float32 `[B]`."""
TRAJECTORY_ENDS: Final = "trajectory_ends"
"""Whether the row is the last one of its trajectory: of an episode, or of a fragment of it. bool `[B]`."""
N_STEPS: Final = "n_steps"
"""k, the rewards that were summed into `rewards`. int32 `[B]`, at least 1."""

STATE_IN_PREFIX: Final = "state_in_"
"""Recurrent state before a row, `state_in_0`, ...: `[B, S]`, and `[sequences, S]` once cut into sequences."""
STATE_OUT_PREFIX: Final = "state_out_"
"""Recurrent state after a row. `[B, S]`."""
IS_TRAINING: Final = "is_training"
"""Not a column: a flag of the batch that can also be read and set by item access."""

#: Columns that sampling can give, and leaves out where nothing is known to read them.
_COLLECTED_IF_READ = frozenset(
    {INFOS, NEXT_OBS, UNROLL_ID, AGENT_INDEX, ENV_ID, ACTION_DIST_INPUTS, ACTION_LOGP, VF_PREDS}
)


def absent(name: str, known: Iterable[Any]) -> str:
    """Returns the text of the error that a batch has no column of a name, but others."""
    text = f"the batch has no column {name!r}; it has {sorted(map(str, known))}"
    if name not in _COLLECTED_IF_READ:
        return text
    return (
        f"{text}. A trainer with a built-in plan collects what learning reads; for all columns, call "
        "trainer.workers.foreach_policy(lambda policy, _: policy.collect_all_columns()) before it samples"
    )
