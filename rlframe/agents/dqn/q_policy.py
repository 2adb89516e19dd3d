"""What Q-learning policies of all frameworks share: spaces, heads, postprocessing, TD errors, the target's weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.dqn.q_actor import QActor
from rlframe.agents.dqn.q_postprocessing import postprocess_nstep
from rlframe.data.columns import ACTIONS, DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS, TERMINATEDS, WEIGHTS
from rlframe.data.returns import terminal_rows
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.schedules import LearningRateSchedule
from rlframe.policy.target_policy import TargetPolicy
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.spaces.old_gym import convert_space


class SimpleQPolicy(LearningRateSchedule, TargetPolicy):
    """A Q-network with a periodically copied target; what a framework adds is the loss and the learner step."""

    defaults_from = "rlframe.agents.dqn.simple_q:DEFAULT_CONFIG"

    train_columns = (NEXT_OBS, DONES)
    learn_columns: tuple[str, ...] = (OBS, ACTIONS, REWARDS, NEXT_OBS, DISCOUNTS)
    build_actor = staticmethod(QActor)
    #: The interface that puts heads on a model.
    model_interface: Any
    #: Whether the online network selects the action that the target network evaluates.
    selects_online = False

    def check_action_space(self, action_space: gym.Space[Any]) -> None:
        """Raises an UnsupportedSpaceException unless actions are Discrete."""
        if not isinstance(convert_space(action_space), gym.spaces.Discrete):
            raise UnsupportedSpaceException(
                f"{type(self).__name__} needs a Discrete action space, got {action_space}; use an actor-critic "
                "algorithm, or discretise the actions in an environment wrapper"
            )

    def head_config(self) -> dict[str, Any]:
        """Returns what the heads are built with; none here: the trunk's outputs are the Q-values."""
        return {"q_hiddens": (), "dueling": False}

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the Q-network and the distribution whose inputs are Q-values."""
        heads = self.head_config()
        model_config = dict(self.config["model"])
        has_heads = (
            bool(heads["q_hiddens"]) or heads["dueling"] or heads.get("num_atoms", 1) > 1 or heads.get("use_noisy")
        )
        num_outputs = int(self.action_space.n)  # type: ignore[attr-defined]  # checked to be Discrete
        if has_heads:
            num_outputs = int((model_config["post_fcnet_hiddens"] or model_config["fcnet_hiddens"] or [256])[-1])
            model_config["no_final_linear"] = True
        model = ModelCatalog.get_model_v2(
            obs_space=self.observation_space,
            action_space=self.action_space,
            num_outputs=num_outputs,
            model_config=model_config,
            framework=self.framework,
            name="q_func",
            model_interface=self.model_interface,
            **heads,
        )
        self.check_model(model, num_outputs)
        return model, ModelCatalog.get_action_dist(self.action_space, framework=self.framework)[0]

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Sums n-step rewards and adds the discounts that the loss bootstraps with."""
        return postprocess_nstep(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = postprocess_nstep  # type: ignore[attr-defined]  # a marker for NumPy workers

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

    def compute_td_error(
        self, obs_t: Any, act_t: Any, rew_t: Any, obs_tp1: Any, terminateds: Any, importance_weights: Any = None,
        discounts: Any = None,
    ) -> NDArray[np.float32]:  # fmt: skip
        """Returns the TD errors [B] of given transitions, without learning.

        Args:
            obs_t: Observations [B, ...].
            act_t: Actions [B].
            rew_t: Rewards [B].
            obs_tp1: Observations after the step [B, ...].
            terminateds: Where the episode terminated, bool [B].
            importance_weights: Float [B]; ones if None.
            discounts: γᵏ(1 − terminated), float [B]; None computes it with `n_step` summed rewards.
        """
        ended = np.asarray(terminateds, np.float32)
        if discounts is None:
            discounts = float(self.config["gamma"]) ** int(self.config.get("n_step", 1)) * (1.0 - ended)
        weights = np.ones(len(ended), np.float32) if importance_weights is None else importance_weights
        columns = {OBS: obs_t, ACTIONS: act_t, REWARDS: rew_t, NEXT_OBS: obs_tp1, DISCOUNTS: discounts,
                   WEIGHTS: weights}  # fmt: skip
        made = self.evaluate_loss(SampleBatch({key: np.asarray(value) for key, value in columns.items()}))
        return np.asarray(made["td_error"])


class DQNPolicy(SimpleQPolicy):
    """SimpleQ's policy with dueling, distributional and noisy heads, and priorities computed by workers."""

    defaults_from = "rlframe.agents.dqn.dqn:DEFAULT_CONFIG"

    learn_columns = (*SimpleQPolicy.learn_columns, WEIGHTS)

    def _learned_columns(self, samples: SampleBatch) -> SampleBatch:
        if WEIGHTS not in samples:  # a batch that comes from no replay buffer
            samples = samples.copy(shallow=True)
            samples[WEIGHTS] = np.ones(samples.count, np.float32)
        return super()._learned_columns(samples)

    @property
    def selects_online(self) -> bool:  # type: ignore[override]  # a constant there
        """Whether the online network selects the action that the target network evaluates."""
        return bool(self.config["double_q"])

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
        config = self.config
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
