"""What every exploration is, the step from a distribution to actions, and `StochasticSampling`: what it draws."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.exploration.uniform import valid_logp, valid_sampler
from rlframe.utils.numpy import convert_to_numpy, softmax
from rlframe.utils.seeding import entropy_seed, make_rng
from rlframe.utils.spaces.old_gym import convert_spaces

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = NDArray[Any]
State = dict[str, Any]


class ExplorationArgs(TypedDict, total=False):
    """What every exploration is given beside its own options; see `Exploration`."""

    framework: str | None
    policy_config: Mapping[str, Any] | None
    model: Any
    num_workers: int
    worker_index: int
    rng: np.random.Generator | None


class Exploration:
    """Chooses actions from a policy's action distribution.

    Actions are those of the policy, not yet of the environment: with `normalize_actions`, bounded float Boxes are
    [-1, 1]; Discrete, MultiDiscrete and (with `normalize_actions`) integer Boxes count from 0.

    A subclass overrides `get_exploration_action`, and of the other methods those it needs; methods that are not
    overridden are not called on the hot path. In its place, RLlib's `_get_torch_exploration_action` and
    `_get_tf_exploration_action_op` can be overridden, with the arguments of any of RLlib's explorations.

    Attributes:
        action_space: The environment's action space.
        framework: The policy's framework; nothing in this package depends on it.
        policy_config: The policy's config.
        model: The policy's model; None where acting needs no framework.
        num_workers: Number of remote workers.
        worker_index: 0 for the local worker, remote workers count from 1.
        rng: The generator that all randomness comes from.
        policy: The policy acted for; whoever makes an exploration for a policy sets it.
        last_timestep: Time step of the last actions; schedules follow it.
        wants_logp: Whether log-likelihoods of the next actions are read; where not, any numbers do.
        has_postprocessing: Whether `postprocess_trajectory` does something.
        has_episode_hooks: Whether `on_episode_start` or `on_episode_end` does something.
        reads: Columns that `postprocess_trajectory` needs beside observations, actions and rewards.
        part_arguments: What RLlib's `_get_torch_exploration_action` of this class is given, in its order.

    Args:
        action_space: The environment's action space.
        framework: The policy's framework.
        policy_config: The policy's config.
        model: The policy's model.
        num_workers: Number of remote workers.
        worker_index: This worker's index.
        rng: Where all randomness comes from; None makes a stream from the config's `seed`.
    """

    wants_logp = True
    has_postprocessing = False
    has_episode_hooks = False
    reads: tuple[str, ...] = ()
    part_arguments: tuple[str, ...] = ("action_dist", "timestep", "explore")
    _chooses_by_users_code = False

    def __init__(  # noqa: PLR0913 (RLlib's signature, and a stream)
        self,
        action_space: Any,
        *,
        framework: str | None = None,
        policy_config: Mapping[str, Any] | None = None,
        model: Any = None,
        num_workers: int = 0,
        worker_index: int = 0,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.action_space = convert_spaces(action_space)
        self.framework = framework
        self.policy_config: Mapping[str, Any] = policy_config or {}
        self.model = model
        self.num_workers = num_workers
        self.worker_index = worker_index
        self.rng = self._make_rng() if rng is None else rng
        self.policy: Any = None
        self.last_timestep = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Notes which hooks the subclass overrides."""
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("rlframe.") or cls.__module__.startswith("rlframe.examples."):
            from rlframe.exploration.by_framework import choose_by_users_code

            choose_by_users_code(cls)
        cls.has_postprocessing = cls.postprocess_trajectory is not Exploration.postprocess_trajectory
        cls.has_episode_hooks = (
            cls.on_episode_start is not Exploration.on_episode_start
            or cls.on_episode_end is not Exploration.on_episode_end
        )

    def _make_rng(self) -> np.random.Generator:
        seed = self.policy_config.get("seed")
        return make_rng(entropy_seed() if seed is None else int(seed), "exploration", self.worker_index)

    @functools.cached_property  # programs set it
    def device(self) -> Any:
        """Device of the torch model's parameters; None without a torch model."""
        parameters = getattr(self.model, "parameters", None)
        return next((p.device for p in parameters()), None) if callable(parameters) else None

    @property
    def takes_tensors(self) -> bool:
        """Whether it is given distributions of the policy's framework: a user's own is, as in RLlib."""
        return self.framework is not None and self._chooses_by_users_code

    @property
    def normalizes(self) -> bool:
        """Whether bounded Box actions of the policy are [-1, 1] and mapped to their bounds later."""
        return bool(self.policy_config.get("normalize_actions", True))

    # --- acting -----------------------------------------------------------------------------------------------

    def before_compute_actions(
        self, *, timestep: int | None = None, explore: bool | None = None, tf_sess: Any = None, **kwargs: Any
    ) -> None:
        """Called before the model runs, once for a round of acting.

        Args:
            timestep: The global time step.
            explore: Whether the coming actions explore.
            tf_sess: Always None.
            **kwargs: For later additions.
        """

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns actions and their log-likelihoods; here what the distribution itself draws.

        Args:
            action_distribution: The distribution for B observations, in NumPy or of a framework.
            timestep: The global time step; None for the last one again.
            explore: Whether to explore; otherwise the distribution's deterministic actions are taken.

        Returns:
            Actions `[B, …]` (a dict or tuple of such for nested spaces) and log-likelihoods, float32 `[B]`; these are
            0 for actions that did not come from the distribution.
        """
        self.advance(timestep)
        return drawn(action_distribution) if explore else greedy(action_distribution)

    def _get_torch_exploration_action(self, *given: Any, **named: Any) -> tuple[Any, Any]:
        """Returns what `get_exploration_action` does, in tensors: RLlib's name, for subclasses that add to it."""
        from rlframe.exploration.by_framework import chosen_by_itself

        return chosen_by_itself(self, *given, **named)

    _get_tf_exploration_action_op = _get_torch_exploration_action
    get_torch_exploration_action = get_tf_exploration_action_op = _get_torch_exploration_action

    def action_probabilities(
        self,
        action_distribution: Any,  # noqa: ARG002 (for subclasses)
        timestep: int | None = None,  # noqa: ARG002
    ) -> Array | None:
        """Returns the probability of each of a Discrete space's actions now; None where that is not known.

        Args:
            action_distribution: The distribution for B observations, in NumPy.
            timestep: The global time step that "now" is; None for the last one of acting.

        Returns:
            Float64 `[B, A]`, or None.
        """
        return None

    def restore_weights(self) -> None:
        """Gives the policy its own weights back, if this exploration changed them.

        Called when a round of acting is over, and before the policy's weights are read, set or trained.
        """

    def advance(self, timestep: int | None) -> int:
        """Notes the time step and returns it; the last one again for None."""
        if timestep is not None:
            self.last_timestep = timestep
        return self.last_timestep

    # --- the course of events ---------------------------------------------------------------------------------

    def on_episode_start(
        self, policy: Any, *, environment: Any = None, episode: Any = None, tf_sess: Any = None
    ) -> None:
        """Called when an episode begins.

        Args:
            policy: The policy acted for.
            environment: The environment.
            episode: The episode; its `env_id` is the slot among the B rows of later calls.
            tf_sess: Always None.
        """

    def on_episode_end(self, policy: Any, *, environment: Any = None, episode: Any = None, tf_sess: Any = None) -> None:
        """Called when an episode has ended; the arguments are those of `on_episode_start`."""

    def postprocess_trajectory(self, policy: Any, sample_batch: Any, tf_sess: Any = None) -> Any:  # noqa: ARG002
        """Returns a trajectory's batch, changed or not; called before the policy's own postprocessing."""
        return sample_batch

    def get_exploration_optimizer(self, optimizers: list[Any]) -> list[Any]:
        """Returns the policy's optimisers, and further ones for what the exploration itself learns."""
        return optimizers

    # --- state ------------------------------------------------------------------------------------------------

    def get_info(self, sess: Any = None) -> State:
        """Returns what `get_state` does (the older name), without random streams: programs report it as statistics."""
        return {name: value for name, value in self.get_state(sess).items() if name != "rng"}

    def get_state(self, sess: Any = None) -> State:  # noqa: ARG002 (RLlib's signature)
        """Returns all that the exploration goes on from, as a nested dict of arrays and plain values."""
        return {"last_timestep": self.last_timestep, "rng": self.rng.bit_generator.state}

    def set_state(self, state: State, sess: Any = None) -> None:  # noqa: ARG002
        """Takes back what `get_state` returned; entries that are missing stay as they are."""
        self.last_timestep = int(state.get("last_timestep", self.last_timestep))
        if "rng" in state:
            self.rng.bit_generator.state = state["rng"]


def count_rows(distribution: Any) -> int:
    """Returns the number B of rows of a distribution."""
    return len(distribution.inputs)


def no_logp(rows: int) -> Array:
    """Returns zeros, float32 `[rows]`: the log-likelihoods of actions that did not come from the distribution."""
    return np.zeros(rows, np.float32)


def greedy(distribution: Any) -> tuple[Any, Array]:
    """Returns the deterministic actions `[B, …]` and zeros `[B]`."""
    actions = distribution.deterministic_sample()
    if type(actions) is not np.ndarray:
        actions = convert_to_numpy(actions)
    return actions, no_logp(count_rows(distribution))


def drawn(distribution: Any) -> tuple[Any, Array]:
    """Returns actions `[B, …]` drawn from the distribution and their log-likelihoods, float32 `[B]`."""
    actions = distribution.sample()
    logp = distribution.sampled_action_logp()
    if type(actions) is not np.ndarray:
        actions = convert_to_numpy(actions)
    if type(logp) is not np.ndarray:
        logp = convert_to_numpy(logp)
    return actions, logp if logp.dtype == np.float32 else logp.astype(np.float32)


class StochasticSampling(Exploration):
    """Samples from the policy's distribution, after some uniformly random steps if wanted.

    Args:
        action_space: The environment's action space.
        random_timesteps: How long actions are uniformly random first, in env steps; with `Random`'s log-likelihoods.
            Invalid Discrete actions, with a logit of FLOAT_MIN, are never drawn.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If random steps are wanted and the space cannot be drawn from.
    """

    def __init__(self, action_space: Any, *, random_timesteps: int = 0, **base: Unpack[ExplorationArgs]) -> None:
        super().__init__(action_space, **base)
        self.random_timesteps = random_timesteps
        self._random = valid_sampler(action_space, normalized=self.normalizes) if random_timesteps else None
        self._random_logp = valid_logp(action_space, normalized=self.normalizes)

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None = None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns sampled actions `[B, …]` and their log-likelihoods `[B]`; deterministic ones without `explore`."""
        step = self.advance(timestep)
        if not explore:
            actions, logp = greedy(action_distribution)
            return actions, _shaped(logp, action_distribution)
        if self._random is not None and step < self.random_timesteps:
            return self._uniform(action_distribution)
        return drawn(action_distribution)

    def _uniform(self, action_distribution: Any) -> tuple[Any, Array]:
        """Returns uniformly random actions `[B, …]` and their log-likelihoods, float32 `[B]`."""
        assert self._random is not None  # asked for at random steps alone
        return self._random(self.rng, action_distribution), self._random_logp(action_distribution)

    def is_random_at(self, timestep: int | None) -> bool:
        """Returns whether actions are uniformly random at a global time step; None takes that of the last actions."""
        return (self.last_timestep if timestep is None else timestep) < self.random_timesteps

    def action_probabilities(self, action_distribution: Any, timestep: int | None = None) -> Array | None:
        """Returns softmax of the logits, float64 `[B, A]`; None in other spaces, and while actions are uniform."""
        if self.is_random_at(timestep) or not isinstance(self.action_space, spaces.Discrete):
            return None
        return softmax(np.asarray(convert_to_numpy(action_distribution.inputs), np.float64))


def _shaped(logp: Array, distribution: Any) -> Array:
    """Returns zeros `[B]`, in the shape that a user's distribution gives log-likelihoods: `[B, N]` for N agents."""
    ours = type(distribution).__module__.startswith("rlframe.")
    given = None if ours else getattr(distribution, "sampled_action_logp", None)
    return logp if given is None else np.zeros(np.shape(convert_to_numpy(given())), np.float32)
