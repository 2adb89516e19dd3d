"""QMIX: networks, optimiser and loss on whole sequences, in both frameworks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.qmix.group_layout import ACTION_MASK, MEMBER_OBS, GroupActor, GroupLayout
from rlframe.data.columns import ACTIONS, DISCOUNTS, INFOS, NEXT_OBS, OBS, REWARDS, SEQ_LENS
from rlframe.data.n_step import n_step
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.multi_agent_env import ENV_STATE, GROUP_REWARDS
from rlframe.evaluation.sampling.rollout import clip_rewards
from rlframe.losses.masking import valid_mean
from rlframe.models.modelv2 import states_of
from rlframe.models.spec import GRU, CustomNetwork, Dense, Network, Part
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import Component, LossOutput, RMSPropSpec
from rlframe.policy.policy import LearningRate
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError
from rlframe.utils.numpy import FLOAT_MIN
from rlframe.utils.spaces.old_gym import convert_space

if TYPE_CHECKING:
    from rlframe.agents.qmix.qmix import QMixConfig

_LOGGER = logging.getLogger("rlframe")
#: Column of the members' single rewards, float32 `[B, N]`, of groups whose agents learn each for itself.
MEMBER_REWARDS = "member_rewards"


def postprocess_group(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds `discounts` = γ(1 − terminated), and `member_rewards` where agents learn each for itself."""
    del other_agent_batches, episode
    config = policy.config
    batch = n_step(sample_batch, 1, float(config.gamma))
    if config.mixer is None:
        single = member_rewards(batch, len(policy.action_space.spaces))
        batch[MEMBER_REWARDS] = clip_rewards(single, config.clip_rewards)
    return batch


postprocess_group.framework_free = postprocess_group  # type: ignore[attr-defined]  # a marker for NumPy workers


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


class QMixPolicy(LearningPolicy):
    """Acts for a group of agents that share one recurrent network, and mixes their values to that of the team.

        δ_t = Q_tot(τ_t, u_t, s_t) − [ r_t + γ (1 − terminated) · Q⁻_tot(τ_{t+1}, u*, s_{t+1}) ],   loss δ²
        u*_i = argmax_u Q_i(τ_{t+1}, u)   (the target network's Q_i without `double_q`)

    Without a mixer δ is each agent's own, with its own reward, and the mean is over agents, too.

    Source: Rashid et al. 2018, "QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement
    Learning", eq. 6; Sunehag et al. 2018 (VDN); van Hasselt et al. 2016 for the double estimate.
    """

    config: QMixConfig
    defaults_from = "rlframe.agents.qmix.qmix:DEFAULT_CONFIG"
    acting_network = "agent"
    acts_for_group = True
    build_actor = staticmethod(GroupActor)
    postprocess_trajectory = postprocess_group
    reported = {"cur_lr": "cur_lr"}  # noqa: RUF012
    cur_lr: float

    # --- what it consists of ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Finds out what the group's spaces are made of.

        Raises:
            UnsupportedSpaceException: If the policy cannot act for them.
            ConfigError: If observations are to be filtered, and their action masks with them.
        """
        self.layout = GroupLayout(convert_space(self.observation_space), convert_space(self.action_space))
        if self._obs_preprocessor is not None:  # programs that act by hand give the environment's own space
            self.observation_space = self._obs_preprocessor.observation_space
        unread = self.layout.unread_keys()
        if unread and not self.config.get("worker_index"):
            _LOGGER.warning(
                'QMIX reads "%s", "%s" and "%s" of an agent\'s Dict observation; nothing reads %s',
                *(MEMBER_OBS, ENV_STATE, ACTION_MASK, ", ".join(map(repr, unread))),
            )
        filtered = self.config.observation_filter
        if self.layout.has_mask and filtered != "NoFilter":
            raise ConfigError(
                f"observation_filter: got {filtered!r}, which would change the action masks in the observations, too; "
                "set 'NoFilter', and scale observations in the environment"
            )
        self.mixes = self.config.mixer is not None
        self.target_networks = tuple(self.networks())

    def networks(self) -> Mapping[str, Part]:
        """Returns the agents' network, a GRU between dense layers or a model of the user's own, and the mixer's."""
        layout, config = self.layout, self.config
        model, seen, out = config.model, {"obs": layout.obs_size}, layout.n_actions
        if model.get("custom_model") or model.get("use_lstm") or model.get("use_attention"):
            spaces = layout.agent_obs_space, layout.agent_action_space
            agent: Part = CustomNetwork(seen, out, model, *spaces)
        else:
            size = int(model["lstm_cell_size"])
            agent = Network(seen, (Dense("inputs", "relu", size), GRU("gru", size), Dense("outputs", "linear", out)))
        if config.mixer != "qmix":
            return {"agent": agent}
        return {"agent": agent, **mixing_networks(layout.n_agents, layout.state_size, int(config.mixing_embed_dim))}

    def acting_view(self) -> GroupLayout:
        """Returns how the agents' network acts for all of them."""
        return self.layout

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the spec for `GroupActor`; None for a network of the user's own."""
        agent = super().actor_spec()
        return None if agent is None else {**agent, **self.layout.to_spec()}

    def optimizers(self) -> Mapping[str, RMSPropSpec]:
        """Returns RMSProp over agents' network and mixer."""
        config = self.config
        return {
            "team": RMSPropSpec(
                self.target_networks, config.lr, config.optim_eps, config.grad_clip,
                decay=config.optim_alpha,
            )
        }  # fmt: skip

    def make_components(self) -> dict[str, Component]:
        """Returns the schedule of the learning rate."""
        return {"lr": LearningRate(self, self.config.lr, self.config.lr_schedule)}

    def allow_actions(self, obs: NDArray[Any]) -> None:
        """Sets the action masks in observations of zeros."""
        self.layout.allow_actions(obs)

    # --- columns ----------------------------------------------------------------------------------------------

    @property
    def train_columns(self) -> tuple[str, ...]:  # type: ignore[override]  # a constant there
        """Columns wanted beside those always there."""
        return (NEXT_OBS,) if self.config.mixer is not None else (NEXT_OBS, INFOS)

    def collect_all_columns(self) -> None:
        """Keeps the columns: a group's further ones are no columns of an agent's."""

    @property
    def learn_columns(self) -> tuple[str, ...]:  # type: ignore[override]  # a constant there
        """Columns that the loss reads."""
        return (OBS, ACTIONS, REWARDS if self.mixes else MEMBER_REWARDS, NEXT_OBS, DISCOUNTS)

    def is_recurrent(self) -> bool:
        """Returns True: whole sequences are learned from, whatever the agents' network is."""
        return True

    def complete_batch(self, batch: SampleBatch) -> SampleBatch:
        """Returns the batch with what the loss reads, where rows of a program's own were not postprocessed."""
        return batch if DISCOUNTS in batch else postprocess_group(self, batch.copy(shallow=True))

    # --- the loss ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `qmix_loss`."""
        return qmix_loss(self, model, dist_class, train_batch)

    def _learn_result(
        self, stats: Mapping[str, Any], fetches: Mapping[str, Any], custom: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns what is told of a learner step, the gradient's norm by RLlib's name for this algorithm as well."""
        if "grad_gnorm" in stats:
            stats = {**stats, "grad_norm": stats["grad_gnorm"]}
        return super()._learn_result(stats, fetches, custom)

    def unrolled(self, networks: Any, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """Returns the agents' values at both ends of each step, float `[B, N, A]` each.

        The network runs once over the T + 1 observations of each sequence, so both ends see the same history.
        """
        obs, next_obs = (ops.split_sequences(batch[column], batch[SEQ_LENS]) for column in (OBS, NEXT_OBS))
        history = ops.concat([obs[:, :1], next_obs], axis=1)
        q, _ = self.layout.values(networks.agent, history, states_of(batch))
        return ops.flatten_sequences(q[:, :-1]), ops.flatten_sequences(q[:, 1:])

    def mix(self, networks: Any, agent_qs: Tensor, obs: Tensor) -> Tensor:
        """Returns the agents' values `[B, N]` mixed to `[B, 1]`, or as they are without a mixer.

        Args:
            networks: The online or the target networks.
            agent_qs: Values of the agents' actions. Float `[B, N]`.
            obs: Flat observations, in which the state is. Float `[B, D]`.
        """
        if not self.mixes:
            return agent_qs
        if self.config.mixer == "vdn":
            return ops.sum(agent_qs, axis=1)[:, None]
        return mixed_value(networks, agent_qs, self.layout.mixer_states(obs))


def qmix_loss(policy: QMixPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the mean squared error of the mixed values over steps that are no padding; see `QMixPolicy`."""
    del dist_class
    obs, next_obs = ops.to_float(train_batch[OBS]), ops.to_float(train_batch[NEXT_OBS])
    batch = train_batch._like({**train_batch, OBS: obs, NEXT_OBS: next_obs})
    q, q_next = policy.unrolled(model, batch)
    total = policy.mix(model, chosen_values(q, train_batch[ACTIONS]), obs)

    def aims(after: Tensor) -> Tensor:
        q_tp1 = policy.unrolled(policy.target_model, batch)[1]
        best = best_values(q_tp1, q_next if policy.config.double_q else q_tp1, policy.layout.valid_actions(after))
        rewards = train_batch[REWARDS][:, None] if policy.mixes else train_batch[MEMBER_REWARDS]
        return rewards + train_batch[DISCOUNTS][:, None] * policy.mix(policy.target_model, best, after)

    aim = ops.without_gradient(aims, next_obs)
    mean, td_error = valid_mean(train_batch), total - aim
    loss = mean(ops.square(td_error))
    stats = {
        "loss": loss,
        "td_error_abs": mean(ops.abs(td_error)),
        "q_taken_mean": mean(total),
        "target_mean": mean(aim),
    }
    return LossOutput({"team": loss}, {name: ops.stop_gradient(value) for name, value in stats.items()})


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


# --- the mixing network -------------------------------------------------------------------------------------------


def mixing_networks(n_agents: int, state_size: int, embed_dim: int) -> dict[str, Network]:
    """Returns what makes the weights of QMIX's mixing network of a state: W_1, b_1, w_2 and V of `mixed_value`.

    Args:
        n_agents: N.
        state_size: Width of the state, Ds.
        embed_dim: Width of the mixing network's hidden layer, E.
    """

    def linear(units: int) -> Network:
        return Network({"state": state_size}, (Dense("output", "linear", units),))

    hidden = Dense("hidden", "relu", embed_dim)
    return {
        "mixer_w1": linear(n_agents * embed_dim),
        "mixer_b1": linear(embed_dim),
        "mixer_w2": linear(embed_dim),
        "mixer_v": Network({"state": state_size}, (hidden, Dense("output", "linear", 1))),
    }


def mixed_value(networks: Any, agent_qs: Tensor, states: Tensor) -> Tensor:
    """Returns the value of all agents, which grows with each of theirs; how much, the state says.

        Q_tot = elu(q |W_1(s)| + b_1(s)) · |w_2(s)| + V(s)

    The absolute values make ∂Q_tot/∂q_i ≥ 0, so that agents which choose for themselves choose what is best for all.

    Args:
        networks: Those of `mixing_networks`, as attributes.
        agent_qs: Values of the agents' actions. Float `[B, N]`.
        states: States of the environment. Float `[B, Ds]`.

    Returns:
        Float `[B, 1]`.

    Source: Rashid et al. 2018, section 4 and figure 2.
    """
    weights, bias = ops.abs(networks.mixer_w1(states)), networks.mixer_b1(states)
    first = ops.split_last(weights, weights.shape[1] // bias.shape[1])
    hidden = ops.elu(ops.sum(agent_qs[..., None] * first, axis=1) + bias)
    return ops.sum(hidden * ops.abs(networks.mixer_w2(states)), axis=1)[:, None] + networks.mixer_v(states)


__getattr__ = lazy_policies(__name__, QMixPolicy, QMixTorchPolicy="torch", QMixTFPolicy="tf")
