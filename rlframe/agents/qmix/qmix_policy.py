"""QMIX: the loss on whole sequences, the parts of a group's observations, acting agent by agent; no framework."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.qmix.group_layout import ACTION_MASK, MEMBER_OBS, GroupLayout
from rlframe.agents.qmix.qmix_actor import QMixActor
from rlframe.data.columns import (
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    DISCOUNTS,
    INFOS,
    NEXT_OBS,
    OBS,
    REWARDS,
    SEQ_LENS,
    STATE_IN_PREFIX,
)
from rlframe.data.returns import n_step
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.multi_agent_env import ENV_STATE, GROUP_REWARDS
from rlframe.evaluation.sampling.rollout_buffer import clip_rewards
from rlframe.exploration.make import make_exploration
from rlframe.losses.masking import valid_mean
from rlframe.models.distributions import Categorical
from rlframe.models.modelv2 import states_of
from rlframe.policy.schedules import LearningRateSchedule
from rlframe.policy.target_policy import TargetPolicy
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError, EnvError
from rlframe.utils.numpy import FLOAT_MIN
from rlframe.utils.spaces.old_gym import convert_space

_LOGGER = logging.getLogger("rlframe")
#: Column of the members' single rewards, float32 `[B, N]`, of groups whose agents learn each for itself.
MEMBER_REWARDS = "member_rewards"


def chosen_values(q: Tensor, actions: Tensor) -> Tensor:
    """Returns the values `[..., N]` of the actions taken, int `[..., N]`, among all, `[..., N, A]`."""
    return ops.batched_index(q, actions)


def best_values(q: Tensor, selector: Tensor, valid: Tensor | None) -> Tensor:
    """Returns each agent's value of the valid action that a selector ranks highest.

    Args:
        q: Values that evaluate. Float `[..., N, A]`.
        selector: Values that select: `q` itself, or the online network's for double Q-learning. Float `[..., N, A]`.
        valid: Valid actions, bool `[..., N, A]`; None for all. Where an agent has none (a last observation, padding),
            all count: nobody acts there.

    Returns:
        Float `[..., N]`.
    """
    if valid is not None:
        has_valid = ops.max(ops.to_float(valid), axis=-1)[..., None] > 0
        selector = ops.where(valid | ~has_valid, selector, FLOAT_MIN)
    return chosen_values(q, ops.argmax(selector, axis=-1))


def qmix_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the mean squared temporal-difference error of the mixed values over steps that are no padding, a scalar.

        δ_t = Q_tot(τ_t, u_t, s_t) − [ r_t + γ (1 − terminated) · Q⁻_tot(τ_{t+1}, u*, s_{t+1}) ]
        u*_i = argmax_u Q_i(τ_{t+1}, u)   (the target network's Q_i without `double_q`)

    The networks run once over the T + 1 observations of each sequence, so both ends of a step see the same history.
    Without a mixer δ is each agent's own, with its own reward, and the mean is over agents, too.

    Source: Rashid et al. 2018, eq. 6; van Hasselt et al. 2016 for the double estimate.
    """
    del dist_class

    def by_step(column: Tensor) -> Tensor:
        return ops.split_sequences(column, train_batch[SEQ_LENS])

    obs, next_obs = by_step(train_batch[OBS]), by_step(train_batch[NEXT_OBS])
    history = ops.concat([obs[:, :1], next_obs], axis=1)
    q, _ = model.agent_values(history, states_of(train_batch))
    total = model.mix(chosen_values(q[:, :-1], by_step(train_batch[ACTIONS])), obs)
    target = policy.target_network.model
    q_tp1 = target.agent_values(history, states_of(train_batch))[0][:, 1:]
    selector = ops.stop_gradient(q[:, 1:]) if policy.config["double_q"] else q_tp1
    best = best_values(q_tp1, selector, policy.layout.valid_actions(next_obs))
    rewards = by_step(train_batch[REWARDS])[..., None] if policy.mixes else by_step(train_batch[MEMBER_REWARDS])
    aim = ops.stop_gradient(rewards + by_step(train_batch[DISCOUNTS])[..., None] * target.mix(best, next_obs))
    mean = valid_mean(train_batch)
    td_error = ops.flatten_sequences(total - aim)
    loss = mean(ops.square(td_error))
    policy.keep(
        loss=loss,
        td_error_abs=mean(ops.abs(td_error)),
        q_taken_mean=mean(ops.flatten_sequences(total)),
        target_mean=mean(ops.flatten_sequences(aim)),
    )
    return loss


class QMixPolicy(LearningRateSchedule, TargetPolicy):
    """Acts for a group of agents that share one recurrent network; exploration is each agent's own."""

    defaults_from = "rlframe.agents.qmix.qmix:DEFAULT_CONFIG"
    build_actor = staticmethod(QMixActor)

    def read_spaces(self, observation_space: Any, action_space: Any, config: Mapping[str, Any]) -> None:
        """Notes what the group's spaces are made of.

        Raises:
            UnsupportedSpaceException: If the policy cannot act for them.
            ConfigError: If observations are to be filtered, and their action masks with them.
        """
        self.layout = GroupLayout(convert_space(observation_space), convert_space(action_space))
        unread = self.layout.unread_keys()
        if unread and not config.get("worker_index"):
            _LOGGER.warning(
                'QMIX reads "%s", "%s" and "%s" of an agent\'s Dict observation; nothing reads %s',
                *(MEMBER_OBS, ENV_STATE, ACTION_MASK, ", ".join(map(repr, unread))),
            )
        filtered = config.get("observation_filter", "NoFilter")
        if self.layout.has_mask and filtered != "NoFilter":
            raise ConfigError(
                f"observation_filter: got {filtered!r}, which would change the action masks in the observations, too; "
                "set 'NoFilter', and scale observations in the environment"
            )

    @property
    def mixes(self) -> bool:
        """Whether there is one value of all agents; otherwise each learns from its own rewards."""
        return self.config["mixer"] is not None

    @property
    def train_columns(self) -> tuple[str, ...]:  # type: ignore[override]  # a constant there
        """Columns wanted beside those always there."""
        return (NEXT_OBS,) if self.mixes else (NEXT_OBS, INFOS)

    def collect_all_columns(self) -> None:
        """Keeps the columns: a group's further ones are no columns of an agent's."""

    @property
    def learn_columns(self) -> tuple[str, ...]:  # type: ignore[override]  # a constant there
        """Columns that the loss reads."""
        return (OBS, ACTIONS, REWARDS if self.mixes else MEMBER_REWARDS, NEXT_OBS, DISCOUNTS)

    def is_recurrent(self) -> bool:
        """Returns True: whole sequences are learned from, whatever the agents' network is."""
        return True

    # --- acting -----------------------------------------------------------------------------------------------

    def _create_exploration(self) -> Any:
        """Returns an exploration in the space of one agent's actions: each explores for itself."""
        made = make_exploration(
            self.config.get("exploration_config") or {"type": "StochasticSampling"},
            action_space=self.layout.agent_action_space,
            framework=self.framework,
            policy_config=self.config,
            model=self.model,
            num_workers=int(self.config.get("num_workers", 0)),
            worker_index=int(self.config.get("worker_index", 0)),
            rng=self._exploration_rng,
        )
        made.policy = self
        return made

    def distribution(self, dist_inputs: NDArray[np.float32]) -> Categorical:
        """Returns the distribution of B · N single actions for values [B, N · A], FLOAT_MIN where invalid.

        Raises:
            EnvError: If an agent has no valid action.
        """
        by_agent = dist_inputs.reshape(-1, self.layout.n_actions)
        if self.layout.has_mask:
            none_valid = np.flatnonzero(by_agent.max(axis=1) <= FLOAT_MIN)
            if len(none_valid):
                raise EnvError(
                    f"agent number {int(none_valid[0]) % self.layout.n_agents} of a group has an "
                    f'"{ACTION_MASK}" of zeros; wanted at least one valid action (an agent that is through needs a '
                    "no-op)"
                )
        return Categorical(by_agent, self._action_rng)

    def _act(
        self,
        obs: NDArray[Any],
        explore: bool,
        timestep: int | None,
        wanted: tuple[str, ...] | None,
        inputs: Mapping[str, NDArray[Any]] | None,
    ) -> tuple[Any, dict[str, NDArray[Any]]]:
        actions, columns = super()._act(obs, explore, timestep, wanted, inputs)
        by_agent = actions.reshape(len(obs), self.layout.n_agents)
        if wanted is None:  # learning needs no probabilities: `train_columns`
            columns[ACTION_LOGP] = columns[ACTION_LOGP].reshape(by_agent.shape).sum(axis=1)
            columns[ACTION_PROB] = np.exp(columns[ACTION_LOGP])
        return tuple(by_agent.T), columns

    def act_in_framework(
        self, input_dict: Mapping[str, Any], explore: bool, timestep: int | None
    ) -> tuple[Any, dict[str, NDArray[Any]]]:
        """Returns what `act_on_rows` does for a dict of columns; a user's own model acts through the framework."""
        states = {key: np.asarray(value) for key, value in input_dict.items() if key.startswith(STATE_IN_PREFIX)}
        return self._act(np.asarray(input_dict[OBS]), explore, timestep, None, states)

    def acting_recipe(self) -> None:
        """Returns None: remote workers act with this policy, which explores agent by agent."""
        return

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `qmix_loss`."""
        return qmix_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:  # noqa: ARG002 - a hook
        """Returns the loss, means of errors, values and targets over the steps that count, and the learning rate."""
        return {"cur_lr": self.cur_lr, **self._loss_outputs}

    # --- trajectories -----------------------------------------------------------------------------------------

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds `discounts` = γ(1 − terminated), and `member_rewards` where agents learn each for itself."""
        del other_agent_batches, episode
        batch = n_step(sample_batch, 1, float(self.config["gamma"]))
        if not self.mixes:
            single = member_rewards(batch, self.layout.n_agents)
            batch[MEMBER_REWARDS] = clip_rewards(single, self.config.get("clip_rewards"))
        return batch


def member_rewards(batch: Mapping[str, Any], n_agents: int) -> NDArray[np.float32]:
    """Returns each agent's own rewards, float32 `[B, N]`; the group's reward for each where infos tell no others.

    Args:
        batch: Columns `rewards [B]` and `infos [B]`, dicts with `_group_rewards` as `GroupAgentsWrapper` writes them.
        n_agents: N.
    """
    together = np.repeat(np.asarray(batch[REWARDS], np.float32)[:, None], n_agents, axis=1)
    for row, info in enumerate(batch[INFOS]):
        single = info.get(GROUP_REWARDS)
        if single is not None:
            together[row] = single
    return together
