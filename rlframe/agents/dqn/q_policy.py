"""What Q-learning policies are made of: Q-networks and their heads, TD errors, the target's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTIONS,
    DISCOUNTS,
    NEXT_OBS,
    OBS,
    REWARDS,
    WEIGHTS,
)
from rlframe.data.returns import terminal_rows
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.target_policy import TargetPolicy
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.spaces.old_gym import convert_space

Q_SCOPE = "q_func"
Q_TARGET_SCOPE = "target_q_func"


class QTargetPolicy(TargetPolicy):
    """What losses of Q-learning ask a policy for beside its networks; also of policies that are made of functions."""

    #: The copy of the network that targets come from.
    target_model: Any = None

    def online(self, obs: Tensor) -> Any:
        """Returns the online network's `QOutput` of `obs` [B, ...]."""
        raise NotImplementedError

    def target(self, obs: Tensor) -> Any:
        """Returns the target network's `QOutput` of `obs` [B, ...]."""
        raise NotImplementedError

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
