"""Functions and wrappers of RLlib's `env` that nothing here needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.env.adapt import adapt_env
from rlframe.env.base_env import BaseEnv, to_base_env
from rlframe.env.env_context import EnvContext
from rlframe.env.multi_agent_adapt import is_multi_agent
from rlframe.env.recording import with_recording
from rlframe.env.registry import resolve_env


def gym_env_creator(env_context: Mapping[str, Any], env_descriptor: str) -> Any:
    """Returns the environment that a name stands for; see `resolve_env`.

    Args:
        env_context: An `EnvContext`, or a plain `env_config`.
        env_descriptor: The name.

    Raises:
        EnvError: If there is none, with the nearest names.
    """
    context = env_context if isinstance(env_context, EnvContext) else EnvContext(env_context)
    return resolve_env(env_descriptor)[1](context)


def record_env_wrapper(env: Any, record_env: bool | str | None, log_dir: str, policy_config: Mapping[str, Any]) -> Any:
    """Returns the environment, filmed if `record_env` says so.

    Args:
        env: The environment, which draws pictures.
        record_env: A directory, below `log_dir` if it is not absolute; True is `log_dir` itself.
        log_dir: The trainer's directory.
        policy_config: `in_evaluation` begins the files' names.
    """
    if not record_env:
        return env
    prefix = "evaluation_" if policy_config.get("in_evaluation") else ""
    creator = with_recording(lambda _: env, record_env, log_dir, prefix=prefix, by_id=False)
    return creator(EnvContext({}))


class _Polled(type):
    """The class of classes that name a kind of `BaseEnv`: calling one makes such, whose class is another."""

    several_agents: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.polled(*args, **kwargs)  # type: ignore[attr-defined]

    def __instancecheck__(cls, instance: Any) -> bool:
        if not isinstance(instance, BaseEnv):
            return False
        envs = instance.envs
        return bool(envs) and is_multi_agent(envs[0]) == cls.several_agents


class VectorEnvWrapper(metaclass=_Polled):
    """What RLlib polled environments of one agent by: callbacks ask whether their `base_env` is one.

    Called with a `VectorEnv` it returns the `BaseEnv` around it.
    """

    several_agents = False

    @staticmethod
    def polled(vector_env: Any) -> BaseEnv:
        """Returns the `BaseEnv` around a `VectorEnv`."""
        return to_base_env(vector_env)


class MultiAgentEnvWrapper(metaclass=_Polled):
    """What RLlib polled environments of several agents by: callbacks ask whether their `base_env` is one.

    Called with `make_env`, a list of environments and their number it returns the `BaseEnv` around them.
    """

    several_agents = True

    @staticmethod
    def polled(make_env: Any, existing_envs: Any = (), num_envs: int = 1) -> BaseEnv:
        """Returns the `BaseEnv` around environments, of which the first exists or is made."""
        if len(existing_envs) > 1:
            made = dict(enumerate(existing_envs))
            return to_base_env(made[0], lambda i: made[i] if i in made else make_env(i), max(num_envs, len(made)))
        return to_base_env(existing_envs[0] if existing_envs else make_env(0), make_env, num_envs)


def add_RewardUncertaintyEnvClassWrapper(  # noqa: N802 (RLlib's name)
    EnvClass: type[Any],  # noqa: N803
    reward_uncertainty_std: float,
    reward_uncertainty_mean: float = 0.0,
) -> type[Any]:
    """Returns a subclass of a multi-agent environment's class that adds Gaussian noise to each agent's reward.

    The noise is drawn from NumPy's global generator.

    Args:
        EnvClass: A class whose `step` returns rewards by agent, of either contract.
        reward_uncertainty_std: Standard deviation of the noise.
        reward_uncertainty_mean: Mean of the noise.
    """

    class RewardUncertaintyEnvClassWrapper(EnvClass):  # type: ignore[misc]  # the class is the caller's
        def step(self, action: Any) -> Any:
            obs, rewards, *rest = super().step(action)
            return (obs, self.reward_wrapper(rewards), *rest)

        def reward_wrapper(self, reward_dict: Mapping[Any, float]) -> dict[Any, float]:
            """Returns rewards with noise, by agent."""
            noise = np.random.normal(reward_uncertainty_mean, reward_uncertainty_std, len(reward_dict))  # noqa: NPY002
            return {agent: reward + part for (agent, reward), part in zip(reward_dict.items(), noise, strict=True)}

    return RewardUncertaintyEnvClassWrapper


class FrameStackTrajectoryView(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Takes the last axis, of length 1, off frames `[H, W, 1]`, for models that stack frames themselves.

    Args:
        env: Its observations are grey frames.

    Raises:
        ValueError: If they are others.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(adapt_env(env))
        shape = self.env.observation_space.shape
        if shape is None or len(shape) != 3 or shape[2] != 1:
            raise ValueError(f"Got observations of shape {shape}; wanted grey frames [height, width, 1].")
        self.observation_space = spaces.Box(0, 255, shape[:2], self.env.observation_space.dtype)  # type: ignore[arg-type]

    def observation(self, observation: Any) -> NDArray[Any]:
        """Returns a frame `[H, W]`."""
        frame: NDArray[Any] = np.asarray(observation)[..., 0]
        return frame


class ScaledFloatFrame(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Gives frames of bytes as float32 in [0, 1]; they take four times the memory.

    Args:
        env: Its observations are frames of bytes.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(adapt_env(env))
        self.observation_space = spaces.Box(0.0, 1.0, self.env.observation_space.shape, np.float32)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """Returns a frame in [0, 1]."""
        return np.asarray(observation, np.float32) / np.float32(255.0)
