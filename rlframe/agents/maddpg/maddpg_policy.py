"""MADDPG: the losses of actor and critic, and the policy, for both frameworks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.n_step import postprocess_nstep
from rlframe.agents.maddpg.joint_steps import (
    JOINT_ACTIONS,
    JOINT_NEXT_ACTIONS,
    JOINT_NEXT_OBS,
    JOINT_OBS,
    NOISE,
)
from rlframe.agents.maddpg.maddpg_acting import (
    Array,
    MADDPGActing,
    MADDPGNumpyPolicy,
    action_size,
    gumbel,
    is_choice,
    softmax,
)
from rlframe.data.columns import DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.preprocessors import NoPreprocessor, get_preprocessor
from rlframe.models.spec import Dense
from rlframe.policy.numpy_policy import ActingRecipe
from rlframe.policy.policy import Policy, State
from rlframe.policy.target_policy import TargetPolicy
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

#: The two networks of a policy, each with an optimiser; weights are named "actor_0.weight", "critic_output.bias".
PARTS = ("actor", "critic")


# --- losses -------------------------------------------------------------------------------------------------------


def td_errors(q_t: Tensor, q_tp1: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
    """Returns the temporal-difference errors of a critic, float `[B]`.

        δ = Q(x, a_1, …, a_N) − [ r + γ · Q⁻(x', a'_1, …, a'_N) ],  a'_j = μ⁻_j(o'_j)

    Gradients flow through `q_t` only.

    Args:
        q_t: The critic's values of what was seen and done. Float `[B]`.
        q_tp1: The target critic's values of what followed. Float `[B]`.
        rewards: Sum of n discounted rewards of the agent. Float `[B]`, in env reward units.
        discounts: γᵏ for k summed rewards where the episode went on, 0 where it terminated. Float `[B]`.

    Source: Lowe et al. 2017, "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", eq. 6.
    """
    return q_t - ops.stop_gradient(rewards + discounts * q_tp1)


def relaxed_actions(features: Tensor, noise: Tensor | None) -> Tensor:
    """Returns an actor's actions with gradients, float `[B, A]`.

    Args:
        features: The actor's outputs. Float `[B, A]`.
        noise: Gumbel noise, which makes a draw on the simplex of logits; None for actions tanh(features). `[B, A]`.

    Source: Jang et al. 2017, "Categorical Reparameterization with Gumbel-Softmax", eq. 2, at temperature 1.
    """
    return ops.tanh(features) if noise is None else ops.softmax(features + noise)


def actor_loss(q: Tensor, features: Tensor, regularization: float) -> Tensor:
    """Returns the loss of an actor, a scalar.

        −mean Q(x, a_1, …, μ_i(o_i), …, a_N) + c · mean f²,  f the actor's outputs

    Args:
        q: The critic's values where the agent's own action is the actor's. Float `[B]`.
        features: The actor's outputs. Float `[B, A]`.
        regularization: c, which keeps logits from growing.

    Source: Lowe et al. 2017, eq. 5.
    """
    return -ops.mean(q) + regularization * ops.mean(ops.square(features))


def maddpg_losses(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> list[Tensor]:
    """Returns the losses of actor and critic, scalars; the actor's does not reach the critic's weights."""
    del dist_class
    actions, obs = train_batch[JOINT_ACTIONS], train_batch[JOINT_OBS]
    seen = policy.seen_by_critic(train_batch[JOINT_NEXT_OBS], train_batch[JOINT_NEXT_ACTIONS])
    q_tp1 = policy.target_network.model.q_values(*seen)
    q_t = model.q_values(*policy.seen_by_critic(obs, actions))
    td_error = td_errors(q_t, q_tp1, train_batch[REWARDS], train_batch[DISCOUNTS])
    features = model.features(ops.to_float(train_batch[OBS]))
    own, mine = policy.joint.own_actions, relaxed_actions(features, train_batch.get(NOISE))
    joint = ops.concat([actions[:, : own.start], mine, actions[:, own.stop :]], axis=1)
    q_mine = model.q_values(*policy.seen_by_critic(obs, joint), frozen=True)
    losses = [
        actor_loss(q_mine, features, policy.config["actor_feature_reg"] or 0.0),
        ops.mean(ops.square(td_error)),
    ]
    policy.keep(
        td_error=td_error,
        actor_loss=losses[0],
        critic_loss=losses[1],
        mean_q=ops.mean(q_t),
        min_q=ops.min(q_t),
        max_q=ops.max(q_t),
    )
    return losses


# --- networks -----------------------------------------------------------------------------------------------------


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
        actions = tuple(action_size(spec.action_space, agent) for agent, spec in enumerate(specs))
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


def _obs_size(space: Any, agent: int, config: Mapping[str, Any]) -> int:
    preprocessor = NoPreprocessor if config.get("_disable_preprocessor_api") else get_preprocessor(space)
    shape = preprocessor(space, config.get("model") or {}).shape
    if len(shape) != 1:
        raise ConfigError(
            f"agent {agent} has observations of shape {tuple(shape)} ({space}); wanted vectors, which critics put side "
            "by side: flatten them in an environment wrapper"
        )
    return int(shape[0])


def dense_layers(part: str, hiddens: Sequence[int], activation: str, out: int) -> list[Dense]:
    """Returns the layers of a network, "<part>_0", "<part>_1", … and "<part>_output"."""
    hidden = [Dense(f"{part}_{index}", activation, int(units)) for index, units in enumerate(hiddens)]
    return [*hidden, Dense(f"{part}_output", "linear", out)]


class MADDPGPolicy(MADDPGActing, TargetPolicy):
    """An actor and a critic on joint steps, and targets that follow them; a framework adds networks and its step."""

    train_columns = (NEXT_OBS, DONES)
    learn_columns = (
        *(OBS, JOINT_OBS, JOINT_ACTIONS, JOINT_NEXT_OBS, JOINT_NEXT_ACTIONS),
        *(NOISE, REWARDS, DISCOUNTS),
    )
    #: The two Adams' states are by the weights' names in each framework, so that a state can cross over.
    named_moments = True
    model_class: Any
    joint: JointSpaces

    def prepare(self) -> None:
        """Finds out about the other agents.

        Raises:
            ConfigError: If the config does not say who the agents are, or leaves actions in the environment's range.
            UnsupportedSpaceException: If MADDPG cannot act in an action space.
        """
        self.joint = JointSpaces.of_config(self.config)
        if not is_choice(self.action_space) and not self.config.get("normalize_actions", True):
            raise ConfigError(
                f"normalize_actions: got False with the action space {self.action_space}; wanted True: MADDPG's "
                "actors act in [-1, 1]"
            )

    # --- building ---------------------------------------------------------------------------------------------

    def stream_seed(self, *path: int | str) -> int:
        """Returns the seed of this policy's random stream named by `path`; other agents' are others."""
        return super().stream_seed("agent", self.joint.agent, *path)

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the model with both networks; actions are made of its outputs in NumPy, see `distribution`."""
        config, joint = self.config, self.joint
        width = joint.actions[joint.agent]
        seen = (joint.obs[joint.agent] + width) if config["use_local_critic"] else sum(joint.obs) + sum(joint.actions)
        actor = dense_layers("actor", config["actor_hiddens"], config["actor_hidden_activation"], width)
        critic = dense_layers("critic", config["critic_hiddens"], config["critic_hidden_activation"], 1)
        model = self.model_class(
            self.observation_space, self.action_space, width, config["model"], "maddpg",
            actor=actor, critic=critic, critic_inputs=seen,
        )  # fmt: skip
        self.check_model(model, width)
        return model, None

    def _numpy_distribution(self) -> Any:
        """Returns what makes distributions in NumPy."""
        return self.distribution

    def acting_recipe(self) -> ActingRecipe | None:
        """Returns what a remote worker acts by without the framework."""
        recipe = super().acting_recipe()
        return None if recipe is None else dataclasses.replace(recipe, policy_class=MADDPGNumpyPolicy)

    # --- acting -----------------------------------------------------------------------------------------------

    def compute_actions_from_input_dict(
        self,
        input_dict: Mapping[str, Any],
        explore: bool | None = None,
        timestep: int | None = None,
        episodes: Any = None,
        **kwargs: Any,
    ) -> tuple[NDArray[Any], list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Returns actions [B, ...], states and extra columns for a dict of columns."""
        return Policy.compute_actions_from_input_dict(self, input_dict, explore, timestep, episodes, **kwargs)

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Sums n-step rewards and adds the discounts that the loss bootstraps with."""
        return postprocess_nstep(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = postprocess_nstep  # type: ignore[attr-defined]  # a marker for NumPy workers

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

    def draw_noise(self, rows: int) -> Array | None:
        """Returns Gumbel noise for `rows` actions, float32 `[rows, A]`; None for actions that are no choices."""
        if not is_choice(self.action_space):
            return None
        return gumbel(self.noise_rng, (rows, self.joint.actions[self.joint.agent]))

    def target_actions(self, new_obs: NDArray[Any]) -> Array:
        """Returns what the target actor does, float32 `[B, A]`: a relaxed draw for choices."""
        features, noise = self.target_features(new_obs), self.draw_noise(len(new_obs))
        actions: Array = np.tanh(features) if noise is None else softmax(features + noise)
        return actions

    def target_features(self, new_obs: NDArray[Any]) -> Array:
        """Returns the target actor's outputs, float32 `[B, A]`, for observations [B, D]."""
        raise NotImplementedError

    def seen_by_critic(self, obs: Any, actions: Any) -> tuple[Any, Any]:
        """Returns of joint observations and actions what the critic sees: all, or the own with `use_local_critic`."""
        if not self.config["use_local_critic"]:
            return obs, actions
        return obs[:, self.joint.own_obs], actions[:, self.joint.own_actions]

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> list[Tensor]:
        """Returns the losses of one batch; see `maddpg_losses`."""
        return maddpg_losses(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns both losses and statistics of the critic's values."""
        return {name: value for name, value in self._loss_outputs.items() if name != "td_error"}

    def _learned_columns(self, samples: SampleBatch) -> SampleBatch:
        if JOINT_OBS not in samples:
            raise ValueError(
                f"MADDPG learns from the joint steps of all agents: got the columns {sorted(samples)}, wanted "
                f"{JOINT_OBS!r} and others among them; put ShareJointSteps before TrainOneStep in the plan"
            )
        return super()._learned_columns(samples)

    def update_target(self, tau: float | None = None) -> None:
        """Moves the target networks towards the online ones by `tau`; None takes the config's."""
        self.target_network.update(float(self.config["tau"]) if tau is None else tau)

    def part_of(self, name: str) -> str:
        """Returns to which network a weight belongs."""
        return name.partition("_")[0]

    def learning_rate(self, part: str) -> float:
        """Returns the learning rate of a network."""
        return float({"actor": self.config["actor_lr"], "critic": self.config["critic_lr"]}[part])

    # --- state ------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """Returns the policy's state with the target networks' weights and the stream of the relaxations' noise."""
        return {**super().get_state(), "_noise_rng": self.noise_rng.bit_generator.state}

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned; a state without target weights copies the online ones."""
        super().set_state(state)
        if "_noise_rng" in state:
            self.noise_rng.bit_generator.state = state["_noise_rng"]
