"""Tasks of DeepMind's Control Suite as Gymnasium environments, as RLlib had them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.env.wrappers.dm_env_wrapper import DMEnv, space_of
from rlframe.utils.errors import EnvError
from rlframe.utils.spaces.old_gym import known_to_both


class DMCEnv(DMEnv):
    """A task of the Control Suite: flat observations or pictures, actions in [−1, 1].

    Args:
        domain_name: For example "walker".
        task_name: For example "walk".
        task_kwargs: Arguments of the task; `random` is its seed.
        visualize_reward: Whether colours show the reward.
        from_pixels: Observe pictures instead of positions and velocities.
        height: Of pictures, in pixels.
        width: Of pictures, in pixels.
        camera_id: Number of the camera.
        frame_skip: Steps of the task in one step here; rewards are added.
        environment_kwargs: Arguments of the environment.
        channels_first: Pictures are `[3, height, width]` instead of `[height, width, 3]`.
        preprocess: Pictures are float32 in [−0.5, 0.5] instead of bytes.

    Raises:
        EnvError: If dm_control is not installed.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - RLlib's
        self,
        domain_name: str,
        task_name: str,
        task_kwargs: Mapping[str, Any] | None = None,
        visualize_reward: bool = False,
        from_pixels: bool = False,
        height: int = 64,
        width: int = 64,
        camera_id: int = 0,
        frame_skip: int = 2,
        environment_kwargs: Mapping[str, Any] | None = None,
        channels_first: bool = True,
        preprocess: bool = True,
    ) -> None:
        try:
            from dm_control import suite
        except ImportError as error:
            raise EnvError(f"DMCEnv needs the Control Suite ({error}): pip install dm-control") from error
        super().__init__(suite.load(domain_name, task_name, task_kwargs, environment_kwargs, visualize_reward))
        self._size, self._camera_id, self._frame_skip = (height, width), camera_id, frame_skip
        self._from_pixels, self._channels_first, self.preprocess = from_pixels, channels_first, preprocess
        true_space: Any = space_of(self._env.action_spec())
        self._low, self._high = true_space.low.astype(np.float64), true_space.high.astype(np.float64)
        self.action_space = known_to_both(spaces.Box(-1.0, 1.0, true_space.shape, np.float32))
        width_of_state = sum(int(np.prod(spec.shape)) for spec in self._env.observation_spec().values())
        self.state_space = known_to_both(spaces.Box(-np.inf, np.inf, (width_of_state,), np.float32))
        self.observation_space = self.state_space
        if from_pixels:
            shape = (3, height, width) if channels_first else (height, width, 3)
            of_bytes, of_floats = spaces.Box(0, 255, shape, np.uint8), spaces.Box(-0.5, 0.5, shape, np.float32)
            self.observation_space = known_to_both(of_floats if preprocess else of_bytes)
        #: The flat state, float32, also where pictures are observed.
        self.current_state: NDArray[np.float32] | None = None

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Does `frame_skip` steps; the info has the last one's `discount`, and `internal_state` before them."""
        share = (np.asarray(action, np.float64) + 1.0) / 2.0
        before = self._env.physics.get_state().copy()
        reward = 0.0
        for _ in range(self._frame_skip):
            made = self._env.step(self._low + share * (self._high - self._low))
            reward += float(made.reward or 0.0)
            if made.last():
                break
        obs, reward, terminated, truncated, info = self._outcome(made, reward)
        return obs, reward, terminated, truncated, {"internal_state": before, **info}

    def render(self, mode: str = "rgb_array", height: int | None = None, width: int | None = None) -> Any:
        """Returns a picture, uint8 `[height, width, 3]`."""
        del mode
        size = (height or self._size[0], width or self._size[1])
        return self._env.physics.render(*size, camera_id=self._camera_id)

    def _observe(self, step: Any) -> Any:
        parts = [np.asarray(part, np.float32).reshape(-1) for part in step.observation.values()]
        self.current_state = np.concatenate(parts)
        if not self._from_pixels:
            return self.current_state
        picture = self.render()
        picture = np.ascontiguousarray(picture.transpose(2, 0, 1)) if self._channels_first else picture
        return (picture / 255.0 - 0.5).astype(np.float32) if self.preprocess else picture

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._env, name)
