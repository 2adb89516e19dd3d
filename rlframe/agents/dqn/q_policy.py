"""What Q-learning policies of all frameworks share: spaces, heads, postprocessing, TD errors, the target's weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.dqn.q_actor import QActor
from rlframe.agents.dqn.q_postprocessing import postprocess_nstep
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTIONS,
    DISCOUNTS,
    DONES,
    NEXT_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    WEIGHTS,
)
from rlframe.data.returns import terminal_rows
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.schedules import LearningRateSchedule
from rlframe.policy.target_policy import TargetPolicy
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.spaces.old_gym import convert_space

Q_SCOPE = "q_func"
Q_TARGET_SCOPE = "target_q_func"


class QTargetPolicy(TargetPolicy):
    """What losses of Q-learning ask a policy for beside its networks; also of policies that are made of functions."""

    #: The copy of the network that targets come from.
    target_model: Any = None

    @property
    def selects_online(self) -> bool:
        """Whether the online network selects the action that the target network evaluates."""
        return bool(self.config.get("double_q"))

    def variables(self) -> list[Any]:
        """Returns the weights of the network and of its copy."""
        return [*self.model.variables(), *self.target_network.model.variables()]

    def complete_columns(self, batch: SampleBatch) -> SampleBatch:
        """Returns the batch with `discounts` = γⁿ · (1 − terminated), where postprocessing wrote none."""
        if DISCOUNTS in batch:
            return batch
        batch = batch.copy(shallow=True)
        power = np.float32(float(self.config["gamma"]) ** int(self.config.get("n_step", 1)))
        batch[DISCOUNTS] = power * ~terminal_rows(batch)
        return batch

    def _learned_columns(self, samples: SampleBatch) -> SampleBatch:
        return super()._learned_columns(self.complete_columns(samples))


class ComputeTDErrorMixin:
    """Gives a policy `compute_td_error`; its loss keeps TD errors, and its fetches give them as `td_error`."""

    def compute_td_error(
        self: Any, obs_t: Any, act_t: Any, rew_t: Any, obs_tp1: Any, done_mask: Any, importance_weights: Any = None,
        discounts: Any = None,
    ) -> NDArray[np.float32]:  # fmt: skip
        """Returns the TD errors [B] of given transitions, without learning.

        Args:
            obs_t: Observations [B, ...].
            act_t: Actions [B].
            rew_t: Rewards [B].
            obs_tp1: Observations after the step [B, ...].
            done_mask: Where the episode terminated, bool [B].
            importance_weights: Float [B]; ones if None.
            discounts: γᵏ(1 − terminated), float [B]; None computes it with `n_step` summed rewards.
        """
        ended = np.asarray(done_mask, np.float32)
        if discounts is None:
            discounts = float(self.config["gamma"]) ** int(self.config.get("n_step", 1)) * (1.0 - ended)
        weights = np.ones(len(ended), np.float32) if importance_weights is None else importance_weights
        columns = {OBS: obs_t, ACTIONS: act_t, REWARDS: rew_t, NEXT_OBS: obs_tp1, DISCOUNTS: discounts,
                   WEIGHTS: weights}  # fmt: skip
        made = self.evaluate_loss(SampleBatch({key: np.asarray(value) for key, value in columns.items()}))
        return np.asarray(made["td_error"])


def check_discrete(owner: str, action_space: gym.Space[Any]) -> None:
    """Raises an UnsupportedSpaceException unless actions are Discrete."""
    if not isinstance(convert_space(action_space), gym.spaces.Discrete):
        raise UnsupportedSpaceException(
            f"{owner} needs a Discrete action space, got {action_space}; use an actor-critic "
            "algorithm, or discretise the actions in an environment wrapper"
        )


def make_q_model(policy: Any, interface: Any, heads: Mapping[str, Any], name: str = Q_SCOPE) -> tuple[Any, int]:
    """Returns a Q-network for a policy's spaces and config, and the width of its trunk's features.

    Args:
        policy: A policy of which `observation_space`, `action_space`, `config` and `framework` are set.
        interface: What puts heads on a model.
        heads: Keyword arguments of the interface, see `q_heads`.
        name: Name of the model.
    """
    model_config = dict(policy.config["model"])
    has_heads = bool(heads["q_hiddens"]) or heads["dueling"] or heads.get("num_atoms", 1) > 1 or heads.get("use_noisy")
    num_outputs = int(policy.action_space.n)
    if has_heads:
        num_outputs = int((model_config["post_fcnet_hiddens"] or model_config["fcnet_hiddens"] or [256])[-1])
        model_config["no_final_linear"] = True
    model = ModelCatalog.get_model_v2(
        obs_space=policy.observation_space,
        action_space=policy.action_space,
        num_outputs=num_outputs,
        model_config=model_config,
        framework=policy.framework,
        name=name,
        model_interface=interface,
        **heads,
    )
    return model, num_outputs


def q_heads(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what DQN's heads are built with."""
    exploration = (config.get("exploration_config") or {}).get("type")
    return {
        "q_hiddens": tuple(config["hiddens"] or ()),
        "dueling": config["dueling"],
        "num_atoms": config["num_atoms"],
        "use_noisy": config["noisy"],
        "v_min": config["v_min"],
        "v_max": config["v_max"],
        "sigma0": config["sigma0"],
        "add_layer_norm": exploration == "ParameterNoise",
    }


class SimpleQPolicy(ComputeTDErrorMixin, LearningRateSchedule, QTargetPolicy):
    """A Q-network with a periodically copied target; what a framework adds is the loss and the learner step."""

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


class DQNPolicy(SimpleQPolicy):
    """SimpleQ's policy with dueling, distributional and noisy heads, and priorities computed by workers."""

    defaults_from = "rlframe.agents.dqn.dqn:DEFAULT_CONFIG"

    learn_columns = (*SimpleQPolicy.learn_columns, WEIGHTS)
    selects_online = QTargetPolicy.selects_online

    def _learned_columns(self, samples: SampleBatch) -> SampleBatch:
        if WEIGHTS not in samples:  # a batch that comes from no replay buffer
            samples = samples.copy(shallow=True)
            samples[WEIGHTS] = np.ones(samples.count, np.float32)
        return super()._learned_columns(samples)

    #: The online network's noisy layers.
    _noisy_layers: Sequence[Any] = ()

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

    def head_config(self) -> dict[str, Any]:
        """Returns what the heads are built with."""
        return q_heads(self.config)

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Sums n-step rewards; with `worker_side_prioritization` adds initial priorities |δ| as `weights`."""
        batch = postprocess_nstep(self, sample_batch, other_agent_batches, episode)
        if self.config["worker_side_prioritization"]:
            td_error = self.compute_td_error(
                batch[OBS],
                batch[ACTIONS],
                batch[REWARDS],
                batch[NEXT_OBS],
                batch[TERMINATEDS],
                discounts=batch[DISCOUNTS],
            )
            batch[WEIGHTS] = np.abs(td_error) + np.float32(self.config["prioritized_replay_eps"])
        return batch

    postprocess_trajectory.framework_free = postprocess_nstep  # type: ignore[attr-defined]  # a marker for NumPy workers

    def acting_recipe(self) -> Any:
        """Returns what a remote worker acts by without the framework; None when workers compute priorities."""
        return None if self.config["worker_side_prioritization"] else super().acting_recipe()


def postprocess_nstep_and_prio(
    policy: DQNPolicy, batch: SampleBatch, other_agent: Any = None, episode: Any = None
) -> SampleBatch:
    """Returns the batch as `DQNPolicy.postprocess_trajectory` makes it (RLlib's name)."""
    return DQNPolicy.postprocess_trajectory(policy, batch, other_agent, episode)
