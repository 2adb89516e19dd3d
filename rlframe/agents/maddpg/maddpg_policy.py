"""What MADDPG's policies of all frameworks share: actions on the simplex, joint spaces, streams of noise, state."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.dqn.q_postprocessing import postprocess_nstep
from rlframe.agents.maddpg.joint_steps import (
    JOINT_ACTIONS,
    JOINT_NEXT_ACTIONS,
    JOINT_NEXT_OBS,
    JOINT_OBS,
    NOISE,
)
from rlframe.data.columns import DISCOUNTS, DONES, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.actor import Dense
from rlframe.models.distributions import Categorical, Deterministic
from rlframe.models.preprocessors import NoPreprocessor, get_preprocessor
from rlframe.policy.numpy_policy import ActingRecipe, NumpyPolicy
from rlframe.policy.policy import Policy, State
from rlframe.policy.target_policy import TargetPolicy
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.seeding import make_rng
from rlframe.utils.spaces.old_gym import convert_space
from rlframe.utils.spaces.simplex import Simplex

Array = NDArray[np.float32]

#: The two networks of a policy, each with an optimiser; weights are named "actor_0.weight", "critic_output.bias".
PARTS = ("actor", "critic")


# --- actions ------------------------------------------------------------------------------------------------------


def gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns standard Gumbel noise, float32: −log E, E standard exponential."""
    return -np.log(rng.standard_exponential(shape)).astype(np.float32)


def softmax(logits: Array) -> Array:
    """Returns points on the simplex, float32 `[B, A]`."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    points: Array = weights / weights.sum(axis=-1, keepdims=True)
    return points


class RelaxedOneHot(Categorical):
    """A choice among A as a point on the simplex, from logits `[B, A]`, at temperature 1.

        y = softmax(logits + G), G standard Gumbel

    The largest component of y is a draw from the categorical distribution of the logits; y itself has gradients.

    Source: Jang et al. 2017, "Categorical Reparameterization with Gumbel-Softmax", eq. 2.
    """

    def sample(self) -> NDArray[Any]:
        """Draws points, float32 `[B, A]`."""
        self.last_sample = softmax(self.inputs + gumbel(self._generator(), self.inputs.shape))
        sample: NDArray[Any] = self.last_sample
        return sample

    def deterministic_sample(self) -> NDArray[Any]:
        """Returns the points without noise, float32 `[B, A]`; their largest component is the likeliest choice."""
        self.last_sample = softmax(self.inputs)
        sample: NDArray[Any] = self.last_sample
        return sample

    def logp(self, x: Any) -> NDArray[Any]:
        """Returns log-likelihoods of the choices that `x` stands for: points `[B, A]`, or numbers `[B]`."""
        given = np.asarray(x)
        return super().logp(given.argmax(-1) if given.dtype.kind == "f" else given)


class TanhAction(Deterministic):
    """The hyperbolic tangent of the inputs `[B, A]`: actions in [-1, 1].

    Args:
        inputs: Outputs of the actor. Float32 `[B, A]`.
        rng: Not used: nothing is drawn.
        shape: Shape of one action, of A numbers.
    """

    def __init__(self, inputs: Array, rng: np.random.Generator | None = None, *, shape: tuple[int, ...]) -> None:
        super().__init__(inputs, rng)
        self.shape = shape

    def sample(self) -> NDArray[Any]:
        """Returns the actions, float32 `[B, *shape]`."""
        self.last_sample = np.tanh(self.inputs).reshape(len(self.inputs), *self.shape)
        sample: NDArray[Any] = self.last_sample
        return sample


def is_choice(space: Any) -> bool:
    """Returns whether actions of a space are points on the simplex for MADDPG: Discrete, or Simplex itself."""
    return isinstance(space, (gym.spaces.Discrete, Simplex))


def action_size(space: Any, agent: int) -> int:
    """Returns how many numbers stand for an action in a critic.

    Raises:
        UnsupportedSpaceException: If MADDPG cannot act in the space.
    """
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


class MADDPGActing(Policy):
    """How MADDPG's policies act, learning or not.

    A policy's action is what its critic sees: a point on the simplex for Discrete and Simplex spaces, numbers in
    [-1, 1] for a Box. Environments with a Discrete space get the number of the largest component.
    """

    defaults_from = "rlframe.agents.maddpg.maddpg:DEFAULT_CONFIG"

    def distribution(self, dist_inputs: Array) -> Any:
        """Returns the NumPy action distribution for the actor's outputs [B, A]."""
        if is_choice(self.action_space):
            return RelaxedOneHot(dist_inputs, self._action_rng)
        return TanhAction(dist_inputs, self._action_rng, shape=tuple(self.action_space.shape or ()))

    def _act(
        self,
        obs: NDArray[Any],
        explore: bool,
        timestep: int | None,
        wanted: tuple[str, ...] | None,
        inputs: Mapping[str, NDArray[Any]] | None,
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns actions and the wanted columns; None wants all."""
        actions, columns = super()._act(obs, explore, timestep, wanted, inputs)
        if isinstance(self.action_space, gym.spaces.Discrete) and actions.ndim == 1:
            # Some explorations choose a number: a corner of the simplex.
            actions = np.eye(int(self.action_space.n), dtype=np.float32)[actions]
        return actions, columns

    def to_env_actions(self, actions: Any, *, unsquash: bool | None = None, clip: bool | None = None) -> Any:
        """Returns actions [B, ...] of the policy's space as actions of the environment's space."""
        chosen = np.asarray(actions).argmax(-1) if isinstance(self.action_space, gym.spaces.Discrete) else actions
        return super().to_env_actions(chosen, unsquash=unsquash, clip=clip)

    def from_env_action(self, action: Any) -> Any:
        """Returns one action of the environment's space as the policy's space has it."""
        own = super().from_env_action(action)
        if isinstance(self.action_space, gym.spaces.Discrete):
            return np.eye(int(self.action_space.n), dtype=np.float32)[int(own)]
        return own

    def exploration_options(self) -> Mapping[str, Any]:
        """Returns the exploration's config: GaussianNoise for a Box, whose actors are deterministic, unless named."""
        options = super().exploration_options()
        sampled = options.get("type", "StochasticSampling") == "StochasticSampling"
        return {"type": "GaussianNoise"} if sampled and not is_choice(self.action_space) else options

    def _create_exploration(self) -> Any:
        # Agents may share a seed: without streams of their own they would all draw the same.
        agent, stream = int(self.config["agent_id"]), max(int(self.config.get("worker_index", 0)), 1)
        self._action_rng = make_rng(self._policy_seed, "action", stream, agent)
        self._exploration_rng = make_rng(self._policy_seed, "exploration", stream, agent)
        self.noise_rng = make_rng(self._policy_seed, "relaxation", agent)
        return super()._create_exploration()


class MADDPGNumpyPolicy(MADDPGActing, NumpyPolicy):
    """Acts on remote workers, with weights and NumPy alone."""


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
    """An actor and a critic on joint steps, and targets that follow them; a framework adds losses and learner steps."""

    train_columns = (NEXT_OBS, DONES)
    learn_columns = (
        *(OBS, JOINT_OBS, JOINT_ACTIONS, JOINT_NEXT_OBS, JOINT_NEXT_ACTIONS),
        *(NOISE, REWARDS, DISCOUNTS),
    )
    #: The two Adams' states are by the weights' names in each framework, so that a state can cross over.
    named_moments = True
    model_class: Any
    joint: JointSpaces

    def prepare(self, action_space: gym.Space[Any], config: Mapping[str, Any]) -> None:
        """Finds out about the other agents; the constructors' first step.

        Raises:
            ConfigError: If the config does not say who the agents are, or leaves actions in the environment's range.
            UnsupportedSpaceException: If MADDPG cannot act in an action space.
        """
        self.joint = JointSpaces.of_config(config)
        if not is_choice(convert_space(action_space)) and not config.get("normalize_actions", True):
            raise ConfigError(
                f"normalize_actions: got False with the action space {action_space}; wanted True: MADDPG's actors act "
                "in [-1, 1]"
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
