"""Noise on the weights in place of the actions: one behaviour for a whole episode."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlframe.exploration.exploration import Array, Exploration, State
from rlframe.exploration.make import make_exploration
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.numpy import SMALL_NUMBER, convert_to_numpy, softmax

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlframe.exploration.exploration import ExplorationArgs

_DIST_INPUTS = "action_dist_inputs"
_OBS = "obs"
# Epsilon after the random time steps, beside the noisy weights.
_LAST_EPSILON = 0.01
_ADAPTATION = 1.01
_UNTOUCHED = re.compile(r"norm|running_|target|popart|(^|[._])bn\d*[._]", re.IGNORECASE)


class ParameterNoise(Exploration):
    """Acts with weights that carry normal noise, drawn once per episode.

    The noise's standard deviation follows the effect that it has: after each trajectory it grows by 1 % if noisy and
    clean actions differed less than they should, and shrinks by 1 % otherwise. In between rounds of acting the policy
    has its own weights; layer norms, PopArt's moments and target networks are never touched. All slots share
    the noise, and an episode that begins in one of them draws it anew. Wants `batch_mode="complete_episodes"`.

    Args:
        action_space: The environment's action space, Discrete or a Box of floats.
        initial_stddev: Standard deviation of the noise at the beginning.
        random_timesteps: How long actions are random first, in env steps; an option of the default `sub_exploration`.
        sub_exploration: Config of the exploration that acts with the noisy weights. None means EpsilonGreedy for
            Discrete (all random first, then 1 %), OrnsteinUhlenbeckNoise for Boxes.
        **base: See `Exploration`.

    Raises:
        UnsupportedSpaceException: If the action space is of another kind.

    Source: Plappert et al. 2018, "Parameter Space Noise for Exploration", section 3 and appendix C.
    """

    def __init__(
        self,
        action_space: Any,
        *,
        initial_stddev: float = 1.0,
        random_timesteps: int = 10_000,
        sub_exploration: Mapping[str, Any] | None = None,
        **base: Unpack[ExplorationArgs],
    ) -> None:
        super().__init__(action_space, **base)
        default = _default_sub_exploration(action_space, random_timesteps)
        self.stddev = initial_stddev
        base["rng"] = self.rng
        self.sub_exploration = make_exploration(sub_exploration or default, action_space, **base)
        self._noise: dict[str, Array] | None = None  # of the running episodes; None until it is needed
        self._clean: dict[str, Array] | None = None  # the policy's own weights while it has noisy ones
        self._noisy: dict[str, Array] = {}
        self._exploring = False  # whether a round of exploring is on
        self._measuring = False
        self._switching = False
        self._ever_noisy = False

    @property
    def weights_are_currently_noisy(self) -> bool:
        """Whether the policy has noisy weights right now."""
        return self._clean is not None

    # --- acting -----------------------------------------------------------------------------------------------

    def before_compute_actions(
        self, *, timestep: int | None = None, explore: bool | None = None, tf_sess: Any = None, **kwargs: Any
    ) -> None:
        """Gives the policy noisy weights to explore with, its own ones otherwise."""
        self.sub_exploration.before_compute_actions(timestep=timestep, explore=explore, tf_sess=tf_sess, **kwargs)
        if self._measuring:
            return
        self._exploring = bool(explore)
        if self._exploring:
            self._add_noise()
        else:
            self._remove_noise()

    def get_exploration_action(
        self, *, action_distribution: Any, timestep: int | None, explore: bool = True
    ) -> tuple[Any, Array]:
        """Returns the actions and log-likelihoods that `sub_exploration` chooses."""
        self.advance(timestep)
        actions, logp = self.sub_exploration.get_exploration_action(
            action_distribution=action_distribution, timestep=timestep, explore=explore
        )
        return actions, logp

    @property
    def takes_tensors(self) -> bool:
        """What `sub_exploration` says."""
        return self.sub_exploration.takes_tensors

    def restore_weights(self) -> None:
        """Ends the round of acting: gives the policy its own weights back."""
        if self._switching:  # the policy calls this in get_weights and set_weights, which are called here
            return
        self._exploring = False
        self._remove_noise()

    # --- episodes ---------------------------------------------------------------------------------------------

    def on_episode_start(
        self, policy: Any, *, environment: Any = None, episode: Any = None, tf_sess: Any = None
    ) -> None:
        """Draws the next noise, with the standard deviation as it is now, and puts it on the weights while acting."""
        self.policy = policy
        self._remove_noise()
        self._noise = self._draw(self._read_weights())
        if self._exploring:
            self._add_noise()
        self.sub_exploration.on_episode_start(policy, environment=environment, episode=episode, tf_sess=tf_sess)

    def on_episode_end(self, policy: Any, *, environment: Any = None, episode: Any = None, tf_sess: Any = None) -> None:
        """Tells `sub_exploration`; the noise goes when the next episode begins, or the round of acting ends."""
        self.sub_exploration.on_episode_end(policy, environment=environment, episode=episode, tf_sess=tf_sess)

    def postprocess_trajectory(self, policy: Any, sample_batch: Any, tf_sess: Any = None) -> Any:  # noqa: ARG002
        """Adapts the standard deviation to the distance between noisy and clean actions; returns the batch as it is."""
        self.policy = policy
        if self._ever_noisy:
            noisy = sample_batch.get(_DIST_INPUTS)
            if noisy is None:
                noisy = self._dist_inputs(policy, sample_batch, noisy=True)
            clean = self._dist_inputs(policy, sample_batch, noisy=False)
            enough = self._distance(convert_to_numpy(clean), convert_to_numpy(noisy)) > self._wanted_distance()
            self.stddev *= 1 / _ADAPTATION if enough else _ADAPTATION
        return sample_batch

    def _dist_inputs(self, policy: Any, sample_batch: Any, *, noisy: bool) -> Array:
        """Returns what the policy computes from a batch's observations, float `[B, K]`; its clock does not move."""
        exploring, step = self._exploring, policy.global_timestep
        if noisy:
            self._add_noise()
        else:
            self._remove_noise()
        self._measuring = True
        try:
            extra = policy.compute_actions_from_input_dict(sample_batch, explore=False)[2]
            inputs = extra[_DIST_INPUTS] if _DIST_INPUTS in extra else policy.forward(sample_batch[_OBS])[0]
        finally:
            self._measuring = False
            policy.global_timestep = step
            if not exploring:
                self._remove_noise()
        return np.asarray(inputs)

    def _distance(self, clean: Array, noisy: Array) -> float:
        """Returns how much actions differ: KL(clean ‖ noisy) of the softmax of values, or the RMS of Box actions."""
        if isinstance(self.action_space, spaces.Discrete):
            p, q = softmax(clean), softmax(noisy)
            return float(np.mean(np.sum(p * np.log((p + SMALL_NUMBER) / (q + SMALL_NUMBER)), axis=1)))
        size = int(np.prod(self.action_space.shape))  # inputs of a Gaussian begin with the means
        return float(np.sqrt(np.mean(np.square(clean[:, :size] - noisy[:, :size]))))

    def _wanted_distance(self) -> float:
        """Returns the distance that the same amount of noise on the actions would make."""
        state = self.sub_exploration.get_state()
        if isinstance(self.action_space, spaces.Discrete):
            epsilon = float(state.get("cur_epsilon", _LAST_EPSILON))
            return float(-np.log(1.0 - epsilon + epsilon / self.action_space.n))
        sigma = getattr(self.sub_exploration, "ou_sigma", getattr(self.sub_exploration, "stddev", 0.2))
        return float(sigma * state.get("cur_scale", 1.0))

    # --- weights ----------------------------------------------------------------------------------------------

    def _add_noise(self) -> None:
        if self._clean is not None:
            return
        if self.policy is None:
            raise RuntimeError("ParameterNoise does not know its policy: set exploration.policy before acting.")
        clean = self._read_weights()
        if self._noise is None:
            self._noise = self._draw(clean)
        self._noisy = {
            name: array + self._noise[name] if name in self._noise else array for name, array in clean.items()
        }
        self._write_weights(self._noisy)
        self._clean, self._ever_noisy = clean, True

    def _remove_noise(self) -> None:
        if self._clean is None:
            return
        clean, self._clean = self._clean, None
        now = self._read_weights()
        if any(not np.array_equal(now[name], array, equal_nan=True) for name, array in self._noisy.items()):
            raise RuntimeError(
                "The policy's weights were trained or set while they carried ParameterNoise's noise, which would be "
                "lost or learned from: call exploration.restore_weights() before changing weights."
            )
        self._write_weights(clean)

    def _read_weights(self) -> dict[str, Array]:
        self._switching = True
        try:
            return dict(self.policy.get_weights())
        finally:
            self._switching = False

    def _write_weights(self, weights: Mapping[str, Array]) -> None:
        self._switching = True
        try:
            self.policy.set_weights(weights)
        finally:
            self._switching = False

    def _draw(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        fixed = _buffers_and_norms(self.model)
        scale = np.float32(self.stddev)
        return {
            name: (scale * self.rng.standard_normal(array.shape, np.float32)).astype(array.dtype)
            for name, array in weights.items()
            if array.dtype.kind == "f" and name not in fixed and not _UNTOUCHED.search(name)
        }

    # --- state ------------------------------------------------------------------------------------------------

    def get_state(self, sess: Any = None) -> State:
        """Returns the state of `Exploration` and of `sub_exploration`, `cur_stddev`, and the noise of the episodes."""
        return {
            **super().get_state(sess),
            "cur_stddev": self.stddev,
            "ever_noisy": self._ever_noisy,
            "noise": None if self._noise is None else {name: array.copy() for name, array in self._noise.items()},
            "sub_exploration": self.sub_exploration.get_state(sess),
        }

    def set_state(self, state: State, sess: Any = None) -> None:
        """Takes back what `get_state` returned, for a policy that has its own weights."""
        super().set_state(state, sess)
        self.stddev = float(state.get("cur_stddev", self.stddev))
        self._ever_noisy = bool(state.get("ever_noisy", self._ever_noisy))
        self._clean = None
        noise = state.get("noise")
        self._noise = None if noise is None else {name: np.asarray(array) for name, array in noise.items()}
        if "sub_exploration" in state:
            self.sub_exploration.set_state(state["sub_exploration"], sess)


def _default_sub_exploration(action_space: Any, random_timesteps: int) -> dict[str, Any]:
    if isinstance(action_space, spaces.Discrete):
        points = [(0, 1.0), (random_timesteps + 1, 1.0), (random_timesteps + 2, _LAST_EPSILON)]
        return {"type": "EpsilonGreedy", "epsilon_schedule": points}
    if isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating):
        return {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": random_timesteps}
    raise UnsupportedSpaceException(
        f"ParameterNoise got the action space {action_space}; wanted a Discrete one or a Box of floats."
    )


def _buffers_and_norms(model: Any) -> set[str]:
    """Returns the names of a torch model's arrays that must stay as they are; none for other models."""
    if not hasattr(model, "named_modules"):
        return set()
    names = {name for name, _ in model.named_buffers()}
    for prefix, module in model.named_modules():
        if "Norm" in type(module).__name__:
            names.update(f"{prefix}.{name}" for name, _ in module.named_parameters())
    return names
