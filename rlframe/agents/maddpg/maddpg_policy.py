"""MADDPG: networks, optimisers and losses, in both frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.maddpg.joint_steps import JOINT_ACTIONS, JOINT_NEXT_ACTIONS, JOINT_NEXT_OBS, JOINT_OBS
from rlframe.data.columns import DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS
from rlframe.data.n_step import postprocess_nstep
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.actor_critic import bootstrapped
from rlframe.models.preprocessors import get_preprocessor, without_preprocessing
from rlframe.models.spec import Dense, Initial, Network, Part, dense_layers
from rlframe.models.special import gumbel, softmax
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.spaces.simplex import Simplex

if TYPE_CHECKING:
    from rlframe.agents.maddpg.maddpg import MADDPGConfig

#: Gumbel noise of the action that the actor's loss draws; only with choices. float32 `[B, A]`.
NOISE = "relaxation_noise"


class MADDPGPolicy(LearningPolicy):
    """An actor that sees what its agent sees, and a critic of what all agents see and do; targets follow both.

        critic:  y = r + γⁿ(1 − d) · Q⁻(x', a'_1, …, a'_N),  a'_j = μ⁻_j(o'_j);   (Q(x, a_1, …, a_N) − y)²
        actor:   −Q(x, a_1, …, μ_i(o_i), …, a_N) + c · f²,  f the actor's outputs

    μ is a relaxed draw, softmax(f + Gumbel noise), for choices, and tanh f for a Box.

    Source: Lowe et al. 2017, "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", eqs. 5, 6.
    """

    config: MADDPGConfig
    defaults_from = "rlframe.agents.maddpg.maddpg:DEFAULT_CONFIG"
    train_columns = (NEXT_OBS, DONES)
    learn_columns = (OBS, JOINT_OBS, JOINT_ACTIONS, JOINT_NEXT_OBS, JOINT_NEXT_ACTIONS, REWARDS, DISCOUNTS)
    target_networks = ("actor", "critic")
    postprocess_trajectory = postprocess_nstep

    # --- what it consists of ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Finds out about the other agents.

        Raises:
            ConfigError: If the config does not say who the agents are, or leaves actions in the environment's range.
            UnsupportedSpaceException: If MADDPG cannot act in an action space.
        """
        self.joint = JointSpaces.of_config(self.config)
        self.chooses = is_choice(self.action_space)
        self.dist_type = "relaxed_one_hot" if self.chooses else "tanh"
        if not self.chooses and not self.config.normalize_actions:
            raise ConfigError(
                f"normalize_actions: got False with the action space {self.action_space}; wanted True: MADDPG's "
                "actors act in [-1, 1]"
            )

    def networks(self) -> Mapping[str, Part]:
        """Returns the actor, and the critic of all agents' steps, or of the own with `use_local_critic`."""
        config, joint, xavier = self.config, self.joint, Initial("xavier")
        seen = {"obs": sum(joint.obs), "actions": sum(joint.actions)}
        if config.use_local_critic:
            seen = {"obs": joint.obs[joint.agent], "actions": joint.actions[joint.agent]}
        actor = dense_layers(config.actor_hiddens, config.actor_hidden_activation, initial=xavier)
        critic = dense_layers(config.critic_hiddens, config.critic_hidden_activation, initial=xavier)
        outputs = Dense("output", "linear", joint.actions[joint.agent], xavier)
        return {
            "actor": Network({"obs": joint.obs[joint.agent]}, (*actor, outputs)),
            "critic": Network(seen, (*critic, Dense("output", "linear", 1, xavier))),
        }

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns an Adam each for actor and critic; the gradients of each weight array are clipped by themselves."""
        limit = self.config.grad_norm_clipping or math.inf
        return {
            "actor": AdamSpec(("actor",), self.config.actor_lr, clip_each=limit),
            "critic": AdamSpec(("critic",), self.config.critic_lr, clip_each=limit),
        }

    def random_columns(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Returns the noise of the choices that the actor's loss draws; nothing for a Box."""
        return {NOISE: gumbel(rng, (rows, self.joint.actions[self.joint.agent]))} if self.chooses else {}

    # --- joint steps ------------------------------------------------------------------------------------------

    def check_agents_of(self, parts: Mapping[str, Any], ordered: Sequence[str]) -> None:
        """Checks that the policies, and those with rows, are those that this one's critic was built for.

        Raises:
            ValueError: If they are not.
        """
        if len(ordered) != len(self.joint.obs) or set(parts) != set(ordered):
            raise ValueError(
                f"MADDPG: the critic of agent {self.joint.agent} was built for {len(self.joint.obs)} agents; got the "
                f"policies {list(ordered)} and rows of {sorted(parts)}, wanted those of the start, each with rows"
            )

    def target_actions(self, new_obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns what the target actor does, float32 `[B, A]`: a relaxed draw for choices."""
        obs = self.to_tensors(np.asarray(new_obs, np.float32))
        features: NDArray[np.float32] = self.to_numpy(ops.without_gradient(self.target_model.actor, obs))
        rng: Any = self._loss_rng
        drawn = self.random_columns(len(features), rng)
        return softmax(features + drawn[NOISE]) if self.chooses else np.tanh(features)

    def complete_batch(self, batch: SampleBatch) -> SampleBatch:
        """Returns the batch.

        Raises:
            ValueError: If it has no joint steps.
        """
        if JOINT_OBS not in batch:
            raise ValueError(
                f"MADDPG learns from the joint steps of all agents: got the columns {sorted(batch)}, wanted "
                f"{JOINT_OBS!r} and others among them; put ShareJointSteps before TrainOneStep in the plan"
            )
        return batch

    # --- losses -----------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the losses of actor and critic; see `maddpg_loss`."""
        return maddpg_loss(self, model, dist_class, train_batch)

    def value(self, critic: Any, obs: Tensor, actions: Tensor) -> Tensor:
        """Returns a critic's values of joint observations `[B, ΣD]` and actions `[B, ΣA]`. Float `[B]`."""
        if self.config.use_local_critic:
            obs, actions = obs[:, self.joint.own_obs], actions[:, self.joint.own_actions]
        made: Tensor = critic(obs, actions)[:, 0]
        return made


def maddpg_loss(policy: MADDPGPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the losses of actor and critic for one batch; the equations are those of `MADDPGPolicy`."""
    del dist_class
    obs, actions = train_batch[JOINT_OBS], train_batch[JOINT_ACTIONS]
    q_tp1 = policy.value(policy.target_model.critic, train_batch[JOINT_NEXT_OBS], train_batch[JOINT_NEXT_ACTIONS])
    targets = bootstrapped(train_batch[REWARDS], train_batch[DISCOUNTS], q_tp1)
    q_t = policy.value(model.critic, obs, actions)
    td_error = q_t - targets
    features = model.actor(model.encode(train_batch[OBS]))
    own, mine = policy.joint.own_actions, relaxed_actions(features, train_batch.get(NOISE))
    q_mine = policy.value(
        model.critic, obs, ops.concat([actions[:, : own.start], mine, actions[:, own.stop :]], axis=1)
    )
    losses = {
        "actor": -ops.mean(q_mine) + (policy.config.actor_feature_reg or 0.0) * ops.mean(ops.square(features)),
        "critic": ops.mean(ops.square(td_error)),
    }
    stats = {f"{name}_loss": ops.stop_gradient(loss) for name, loss in losses.items()}
    stats |= {"mean_q": ops.mean(q_t), "min_q": ops.min(q_t), "max_q": ops.max(q_t)}
    return LossOutput(losses, stats, {"td_error": td_error})


def relaxed_actions(features: Tensor, noise: Tensor | None) -> Tensor:
    """Returns an actor's actions with gradients, float `[B, A]`.

    Args:
        features: The actor's outputs. Float `[B, A]`.
        noise: Gumbel noise, which makes a draw on the simplex of logits; None for actions tanh(features). `[B, A]`.

    Source: Jang et al. 2017, "Categorical Reparameterization with Gumbel-Softmax", eq. 2, at temperature 1.
    """
    return ops.tanh(features) if noise is None else ops.softmax(features + noise)


# --- who the agents are -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JointSpaces:
    """How many numbers all agents see and act by, in the order of their `agent_id`.

    Attributes:
        agent: Whose policy this is.
        obs: Width of each agent's preprocessed observations.
        actions: Width of each agent's actions.
    """

    agent: int
    obs: tuple[int, ...]
    actions: tuple[int, ...]

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> JointSpaces:
        """Returns the spaces that `multiagent.policies` tells.

        Raises:
            ConfigError: If policies are not numbered from 0, or an agent sees no vector.
            UnsupportedSpaceException: If MADDPG cannot act in an action space.
        """
        table = (config.get("multiagent") or {}).get("policies") or {}
        numbers = {pid: (spec.config or {}).get("agent_id") for pid, spec in table.items()}
        if sorted(numbers.values(), key=str) != sorted(range(len(table)), key=str) or not table:
            raise ConfigError(
                f"multiagent.policies have agent_id {numbers}; wanted each of {list(range(len(table)))} once, in "
                "PolicySpec(config={'agent_id': ...}) (MADDPG's policies cannot be added or removed later)"
            )
        specs = sorted(table.values(), key=lambda spec: int(spec.config["agent_id"]))
        obs = tuple(_obs_size(spec.observation_space, agent, config) for agent, spec in enumerate(specs))
        actions = tuple(_action_size(spec.action_space, agent) for agent, spec in enumerate(specs))
        return cls(int(config["agent_id"]), obs, actions)

    @property
    def own_obs(self) -> slice:
        """Where the own observation is among the joint ones."""
        start = sum(self.obs[: self.agent])
        return slice(start, start + self.obs[self.agent])

    @property
    def own_actions(self) -> slice:
        """Where the own action is among the joint ones."""
        start = sum(self.actions[: self.agent])
        return slice(start, start + self.actions[self.agent])


def is_choice(space: Any) -> bool:
    """Returns whether actions of a space are points on the simplex for MADDPG: Discrete, or Simplex itself."""
    return isinstance(space, (gym.spaces.Discrete, Simplex))


def _obs_size(space: Any, agent: int, config: Mapping[str, Any]) -> int:
    raw = config.get("_disable_preprocessor_api")
    made = without_preprocessing(space) if raw else get_preprocessor(space)(space, config.get("model") or {})
    shape = made.shape
    if len(shape) != 1:
        raise ConfigError(
            f"agent {agent} has observations of shape {tuple(shape)} ({space}); wanted vectors, which critics put side "
            "by side: flatten them in an environment wrapper"
        )
    return int(shape[0])


def _action_size(space: Any, agent: int) -> int:
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, Simplex) and len(space.shape or ()) == 1:
        return space.dim
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.is_bounded():
        return math.prod(space.shape)
    raise UnsupportedSpaceException(
        f"agent {agent} has the action space {space}; MADDPG needs Discrete, Simplex of one dimension, or a Box of "
        "floats that is bounded everywhere"
    )


__getattr__ = lazy_policies(__name__, MADDPGPolicy, MADDPGTorchPolicy="torch", MADDPGTFPolicy="tf")
