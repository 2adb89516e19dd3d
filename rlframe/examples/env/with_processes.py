"""Environments that hold something outside: a process of their own, an actor that all of them ask."""

from __future__ import annotations

import atexit
import os
import subprocess
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import ray  # noqa: TID251  the environment's own actor
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Discrete


@ray.remote
class ParameterStorage:
    """An actor that draws the masses of carts, from the streams of those who ask."""

    def get_params(self, rng: np.random.Generator) -> dict[str, float]:
        """Returns `{"MASSCART": kg}`, uniform from 0.5 to 2."""
        return {"MASSCART": float(rng.uniform(low=0.5, high=2.0))}


class CartPoleWithRemoteParamServer(CartPoleEnv):
    """CartPole whose cart has another mass in each episode, told by an actor that is found by its name.

    The actor has no stream of random numbers of its own, so masses do not depend on who asks first: with a `seed` in
    the config runs are the same.

    Args:
        env_config: `param_server`, the actor's name ("param-server").

    Raises:
        ValueError: If there is no such actor.
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.env_config = env_config or {}
        self._handler = ray.get_actor(self.env_config.get("param_server", "param-server"))

    def seed(self, rng_seed: int | None = None) -> None:
        """Seeds the stream, as the old gym does it; None leaves it."""
        if rng_seed is not None:
            self.np_random = np.random.default_rng(rng_seed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Asks for a mass, and begins an episode."""
        obs = super().reset(seed=seed, options=options)
        told: Any = ray.get(self._handler.get_params.remote(self.np_random))
        self.masscart = told["MASSCART"]
        # The actor drew from a copy of the stream.
        self.np_random.uniform()
        self.total_mass = self.masspole + self.masscart
        self.polemass_length = self.masspole * self.length
        return obs


class EnvWithSubprocess(gymnasium.Env[Any, Any]):
    """An environment that starts a process, and removes files: one when its own process ends, another when it closes.

    Args:
        config: An `EnvContext` with the paths `tmp_file1` and `tmp_file3`, of the local worker's environments, and
            `tmp_file2` and `tmp_file4`, of remote ones': the first of each is removed at exit, the second by `close`.
    """

    UNIQUE_CMD = "sleep 20"

    def __init__(self, config: Any) -> None:
        self.action_space = self.observation_space = Discrete(2)
        self.config = config
        at_exit, self._at_close = ("tmp_file1", "tmp_file3") if config.worker_index == 0 else ("tmp_file2", "tmp_file4")
        self.subproc = subprocess.Popen(self.UNIQUE_CMD.split(" "))
        atexit.register(self.subproc.kill)
        atexit.register(os.unlink, config[at_exit])

    def close(self) -> None:
        """Removes the file that is there to show that this was called."""
        os.unlink(self.config[self._at_close])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Ends the episode."""
        del action
        return 0, 0.0, True, False, {}
