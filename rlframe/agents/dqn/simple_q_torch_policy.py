"""SimpleQ in PyTorch: the loss and the policy of the original deep Q-network."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlframe.agents.dqn.dqn_torch_model import DQNTorchModel, QOutput, functional_q
from rlframe.agents.dqn.q_actor import QActor
from rlframe.agents.dqn.q_postprocessing import postprocess_nstep
from rlframe.data.columns import ACTIONS, DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.torch.q_learning import huber, select_by_action
from rlframe.models.catalog import ModelCatalog
from rlframe.models.torch.check_model import check_model
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.policy.policy import State
from rlframe.policy.torch.arrays import load_weights, to_arrays
from rlframe.policy.torch.target import TargetNetwork
from rlframe.policy.torch_policy import LearningRateSchedule, TorchPolicy
from rlframe.utils.errors import UnsupportedSpaceException

Stats = dict[str, Any]


def build_q_losses(policy: SimpleQTorchPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the mean Huber loss of the one-step temporal-difference error, a scalar.

        δ = Q(s, a) − [ r + γ (1 − terminated) · max_a' Q⁻(s', a') ]

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", algorithm 1.
    """
    del model, dist_class
    q_t = policy.online(train_batch[OBS]).q
    with torch.no_grad():
        q_tp1 = policy.target(train_batch[NEXT_OBS]).q
        target = train_batch[REWARDS] + train_batch[DISCOUNTS] * q_tp1.amax(1)
    td_error = select_by_action(q_t, train_batch[ACTIONS]) - target
    policy.keep(td_error, mean_q=q_t.mean(), min_q=q_t.min(), max_q=q_t.max())
    return huber(td_error).mean()


class SimpleQTorchPolicy(LearningRateSchedule, TorchPolicy):
    """A Q-network, a periodically copied target, and exploration on Q-values."""

    train_columns = (NEXT_OBS, DONES)
    learn_columns = (OBS, ACTIONS, REWARDS, NEXT_OBS, DISCOUNTS, WEIGHTS)
    build_actor = staticmethod(QActor)

    def __init__(self, obs_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        if not isinstance(action_space, gym.spaces.Discrete):
            raise UnsupportedSpaceException(
                f"{type(self).__name__} needs a Discrete action space, got {action_space}; use an actor-critic "
                "algorithm, or discretise the actions in an environment wrapper"
            )
        self._loss_stats: Stats = {}
        self._td_error: Tensor | None = None
        TorchPolicy.__init__(self, obs_space, action_space, config)
        self.target_network = TargetNetwork(self.model)
        self.target_models = {self.model: self.target_network.model}
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])
        self._fast_online = functional_q(self.model)
        self._fast_target = functional_q(self.target_network.model)

    # --- parts ------------------------------------------------------------------------------------------------

    def head_config(self) -> dict[str, Any]:
        """Returns what `DQNTorchModel` is built with; none here: the trunk's outputs are the Q-values."""
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
            framework="torch",
            name="q_func",
            model_interface=DQNTorchModel,
            **heads,
        )
        check_model(model, self.observation_space, num_outputs)
        return model, TorchCategorical

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns Adam with `lr` and `adam_epsilon`."""
        return self.adam(self.model.parameters(), lr=self.config["lr"], eps=self.config["adam_epsilon"])

    def online(self, obs: Tensor) -> QOutput:
        """Returns the online network's Q-values of `obs` [B, ...]."""
        if self._fast_online is not None:
            return self._fast_online(obs)
        result: QOutput = self.model.q_values(self.model({OBS: obs, "is_training": True})[0])
        return result

    def target(self, obs: Tensor) -> QOutput:
        """Returns the target network's Q-values of `obs` [B, ...]."""
        if self._fast_target is not None:
            return self._fast_target(obs)
        model = self.target_network.model
        result: QOutput = model.q_values(model({OBS: obs, "is_training": False})[0])
        return result

    # --- acting -----------------------------------------------------------------------------------------------

    def forward(self, obs: NDArray[Any], explore: bool = True) -> tuple[NDArray[np.float32], None]:
        """Returns Q-values [B, A]; there are no state values."""
        if self.actor is not None:
            actor = self.actor if explore else self.actor.mean
            return actor.forward(obs), None
        with torch.no_grad():
            return self.q_in_torch(obs, explore).cpu().numpy(), None

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """Returns Q-values [B, A] for a tensor of preprocessed observations [B, ...]."""
        q: Tensor = self.model.q_values(self.model({OBS: obs, "is_training": False}, [], None)[0]).q
        return q

    def q_in_torch(self, obs: NDArray[Any], explore: bool) -> Tensor:
        """Returns Q-values [B, A] by way of torch, for models that NumPy cannot run."""
        del explore
        features, _ = self._run_model({OBS: obs})
        q: Tensor = self.model.q_values(features).q
        return q

    def _dist_inputs(self, batch: SampleBatch, explore: bool, step: int) -> tuple[Tensor, Any]:
        del step, explore
        return self.model.q_values(self.model(batch, [], None)[0]).q, self.dist_class

    # --- learning ---------------------------------------------------------------------------------------------

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds the discounts that the loss bootstraps with."""
        return postprocess_nstep(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = postprocess_nstep  # type: ignore[attr-defined]  # a marker for NumPy workers

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `build_q_losses`."""
        return build_q_losses(self, model, dist_class, train_batch)

    def keep(self, td_error: Tensor, **stats: Tensor) -> None:
        """Keeps what the loss computed beside the loss, for the learner's report."""
        self._td_error = td_error.detach()
        self._loss_stats = {name: value.detach() for name, value in stats.items()}

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Stats:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(optimizer, self.config["grad_clip"])

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:
        """Returns `loss` statistics of the batch and the learning rate."""
        return {"cur_lr": self.cur_lr, **self._loss_stats}

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns the TD errors of the batch and their mean."""
        if self._td_error is None:  # a user's own loss kept none
            return {}
        td_error = self._td_error.cpu().numpy()
        return {"td_error": td_error, "mean_td_error": float(td_error.mean())}

    def update_target(self) -> None:
        """Copies the online network into the target network."""
        self.target_network.update()

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
        columns = {
            OBS: obs_t,
            ACTIONS: act_t,
            REWARDS: rew_t,
            NEXT_OBS: obs_tp1,
            DISCOUNTS: discounts,
            "weights": weights,
        }
        batch = self._lazy_tensor_dict(SampleBatch({key: np.asarray(value) for key, value in columns.items()}))
        with torch.no_grad():
            self.loss(self.model, self.dist_class, batch)
        assert self._td_error is not None
        return np.asarray(self._td_error.cpu().numpy())

    # --- state ------------------------------------------------------------------------------------------------

    def _modules_by_role(self) -> dict[str, torch.nn.Module]:
        return {"online": self.model, "target": self.target_network.model}

    def get_state(self) -> State:
        """Returns the policy's state with the target network's weights."""
        state = super().get_state()
        state["_target_weights"] = to_arrays(self.target_network.model.state_dict())
        return state

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned; a state without target weights copies the online ones."""
        super().set_state(state)
        saved = state.get("_target_weights")
        if saved is None:
            self.update_target()
        else:
            load_weights(self.target_network.model, saved, owner=f"{type(self).__name__}'s target network")


def build_q_models(policy: SimpleQTorchPolicy) -> tuple[Any, Any]:
    """Returns the online and the target model (RLlib's name)."""
    return policy.model, policy.target_network.model


__all__ = ["ModelCatalog", "SimpleQTorchPolicy", "build_q_losses", "build_q_models"]
