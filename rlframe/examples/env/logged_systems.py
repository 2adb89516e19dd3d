"""Processes that people have logs of, simulated: to make such logs, and to see what policies from them are worth.

Each simulates many copies at once, in arrays `[B, ...]` by node; `SystemEnv` is one of them as an environment.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, cast

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

__all__ = [
    "SYSTEMS",
    "LoggedSystem",
    "MassSpringDamper",
    "PendulumSystem",
    "Refrigerator",
    "StirredTank",
    "SystemEnv",
]

Floats = NDArray[np.float64]
Nodes = dict[str, Floats]


def _limit(*numbers: float) -> NDArray[np.float32]:
    return np.array(numbers, np.float32)


class LoggedSystem(abc.ABC):
    """`count` copies of a process and the controller that ran it when it was logged.

    Args:
        count: How many.
        rng: Draws all that is random.

    Attributes:
        action: Name of the node that the controller decides.
        steps: Length of a trajectory.
        trajectories: How many are logged by default.
        mean: Whether its score is the mean reward of a step; else it is the sum over the trajectory.
    """

    action: ClassVar[str]
    steps: ClassVar[int]
    trajectories: ClassVar[int]
    mean: ClassVar[bool] = False

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self.count, self.rng, self.step_number = count, rng, 0

    @abc.abstractmethod
    def nodes(self) -> Nodes:
        """Returns what is logged before the controller acts, `[B, columns]` by node."""

    @abc.abstractmethod
    def control(self) -> Floats:
        """Returns the logged controller's action `[B, columns]`."""

    @abc.abstractmethod
    def advance(self, action: Floats) -> Floats:
        """Takes a step with an action `[B, columns]`; returns the true reward `[B]`."""

    @abc.abstractmethod
    def spaces(self) -> tuple[Box, Box]:
        """Returns the spaces of observations, all nodes side by side, and of actions."""


class Refrigerator(LoggedSystem):
    """A refrigerator to be kept at −2 °C, whose door is opened now and then.

    The temperature T loses `power` and 2 % of its difference to a room of 15 °C, 8 % while the door is open. Its
    reading has an error of 0.1 °C. The door opens for 20 of every 200 steps, once a first coin flip has said so. The
    logged controller is proportional, and noisy. Reward: −|T + 2|.
    """

    action, steps, trajectories, mean = "power", 2000, 1, True
    _PERIOD, _OPEN = 200, 20

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        super().__init__(count, rng)
        self.temperature = rng.uniform(-4, 4, count)
        self.opened = np.zeros(count, bool)
        self._period()
        self._read()

    def _period(self) -> None:
        self.opened |= self.rng.random(self.count) < 0.5
        self.offset = self.rng.integers(0, self._PERIOD - self._OPEN, self.count)

    def _read(self) -> None:
        self.reading = self.temperature + self.rng.normal(0, 0.1, self.count)

    @property
    def door(self) -> NDArray[np.bool_]:
        """Whether each door is open, `[B]`."""
        since = self.step_number % self._PERIOD - self.offset
        return self.opened & (since >= 0) & (since < self._OPEN)

    def nodes(self) -> Nodes:
        """Returns the reading of the temperature and whether the door is open."""
        return {"temperature": self.reading[:, None], "door": self.door[:, None].astype(float)}

    def control(self) -> Floats:
        """Returns the power by a proportional controller with noise."""
        power = 0.2 * (self.reading + 3.75) + self.rng.normal(0, 0.1, self.count)
        return np.maximum(0, power)[:, None]

    def advance(self, action: Floats) -> Floats:
        """Cools by `action[:, 0]`, then warms."""
        cooled = self.temperature - np.maximum(0, action[:, 0])
        self.temperature = cooled - np.where(self.door, 0.08, 0.02) * (cooled - 15)
        self.step_number += 1
        if self.step_number % self._PERIOD == 0:
            self._period()
        self._read()
        return -np.abs(self.temperature + 2)

    def spaces(self) -> tuple[Box, Box]:
        """Returns `[temperature, door]` and `[power]`."""
        return Box(_limit(-20, 0), _limit(20, 1)), Box(0, 4, (1,))


class MassSpringDamper(LoggedSystem):
    """Two masses between two walls, to be brought to targets that may change halfway.

    Wall, mass 1, mass 2, wall are joined by springs (2 N/m) and dampers (4 Ns/m); masses are 20 kg, forces 30 N at
    most. The logged controller is a PID; its integral is logged with it. Reward: −Σ ln(|position − target| + 0.01).
    """

    action, steps, trajectories = "force", 100, 1000
    _DT, _SPRING, _DAMPER, _MASS, _FORCE = 0.2, 2.0, 4.0, 20.0, 30.0
    _GAINS = (1.0, 0.02, 1.0)

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        super().__init__(count, rng)
        self.position = rng.uniform(-0.25, 0.25, (count, 2))
        self.velocity = rng.uniform(-0.1, 0.1, (count, 2))
        self.targets = rng.uniform(-1.5, 1.5, (2, count, 2))
        self.changes = rng.random((count, 2)) < 0.5
        self.integral = np.zeros((count, 2))

    @property
    def target(self) -> Floats:
        """Where the masses should be now, `[B, 2]`."""
        late = self.changes & (self.step_number >= self.steps // 2)
        target: Floats = np.where(late, self.targets[1], self.targets[0])
        return target

    def nodes(self) -> Nodes:
        """Returns positions and velocities, the targets, and the controller's integral."""
        state = np.concatenate([self.position, self.velocity], -1)
        return {"state": state, "target": self.target, "integral": self.integral}

    def control(self) -> Floats:
        """Returns a PID controller's forces, as shares of the largest."""
        error = self.target - self.position
        proportional, integral, derivative = self._GAINS
        force = proportional * error + integral * self.integral - derivative * self.velocity
        return np.clip(force, -1, 1)

    def advance(self, action: Floats) -> Floats:
        """Applies the forces `action` as shares of the largest, `[B, 2]`."""
        target = self.target
        x, v = self.position, self.velocity
        stretch = x - x[:, ::-1]
        spin = v - v[:, ::-1]
        pull = self._SPRING * (x + stretch) + self._DAMPER * (v + spin)
        acceleration = (self._FORCE * np.clip(action, -1, 1) - pull) / self._MASS
        self.integral = self.integral + self._DT * (target - x)
        self.velocity = v + self._DT * acceleration
        self.position = x + self._DT * self.velocity
        self.step_number += 1
        reward: Floats = -np.log(np.abs(self.position - target) + 0.01).sum(-1)
        return reward

    def spaces(self) -> tuple[Box, Box]:
        """Returns `[positions, velocities, targets, integral]` and the forces."""
        high = _limit(3, 3, 3, 3, 1.5, 1.5, 30, 30)
        return Box(-high, high), Box(-1, 1, (2,))


class PendulumSystem(LoggedSystem):
    """Gymnasium's Pendulum-v1, run by a controller that pumps energy, half of whose actions are random.

    Reward: −(θ² + 0.1 θ̇² + 0.001 torque²).
    """

    action, steps, trajectories = "torque", 200, 100

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        super().__init__(count, rng)
        self.angle = rng.uniform(-np.pi, np.pi, count)
        self.speed = rng.uniform(-1, 1, count)

    def nodes(self) -> Nodes:
        """Returns `[cos θ, sin θ, θ̇]`."""
        return {"pendulum": np.stack([np.cos(self.angle), np.sin(self.angle), self.speed], -1)}

    def control(self) -> Floats:
        """Returns torques: half are random, the others swing up by energy and hold near the top."""
        angle = _wrapped(self.angle)
        energy = 0.5 * self.speed**2 / 3 + 5 * (np.cos(angle) - 1)
        swing = np.where(self.speed >= 0, 1.0, -1.0) * np.clip(-energy, -2, 2)
        hold = -(10 * angle + 2 * self.speed)
        chosen = np.where(np.abs(angle) < 0.5, hold, swing)
        random = self.rng.random(self.count) < 0.5
        torque = np.where(random, self.rng.uniform(-2, 2, self.count), np.clip(chosen, -2, 2))
        return torque[:, None]

    def advance(self, action: Floats) -> Floats:
        """Turns by `action[:, 0]`."""
        torque = np.clip(action[:, 0], -2, 2)
        reward = -(_wrapped(self.angle) ** 2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = np.clip(self.speed + (15 * np.sin(self.angle) + 3 * torque) * 0.05, -8, 8)
        self.angle = self.angle + self.speed * 0.05
        self.step_number += 1
        return reward

    def spaces(self) -> tuple[Box, Box]:
        """Returns those of Pendulum-v1."""
        high = _limit(1, 1, 8)
        return Box(-high, high), Box(-2, 2, (1,))


def _wrapped(angle: Floats) -> Floats:
    wrapped: Floats = np.mod(angle + np.pi, 2 * np.pi) - np.pi
    return wrapped


class StirredTank(LoggedSystem):
    """A tank to be kept at 1.5 m by a valve with eleven positions, while two kinds of feed come in.

    The outflow grows with the valve's position and the root of the level. Reward: 1 − |level − 1.5| − 0.05 valve.
    """

    action, steps, trajectories = "valve", 50, 40

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        super().__init__(count, rng)
        self.level = rng.uniform(0.5, 2.5, count)
        self._feed()

    def _feed(self) -> None:
        self.inflow = self.rng.uniform(0.05, 0.2, self.count)
        self.mode = self.rng.integers(0, 2, self.count).astype(float)

    def nodes(self) -> Nodes:
        """Returns the level, and what comes in: how much, and of which kind."""
        return {"level": self.level[:, None], "feed": np.stack([self.inflow, self.mode], -1)}

    def control(self) -> Floats:
        """Returns the valve in percent, from the level alone, sometimes anything."""
        wanted = 60 * (self.level - 0.5) + self.rng.normal(0, 15, self.count)
        return _steps_of_ten(wanted)[:, None]

    def advance(self, action: Floats) -> Floats:
        """Sets the valve to `action[:, 0]` percent, rounded to its positions."""
        valve = _steps_of_ten(action[:, 0])
        outflow = 0.3 * valve / 100 * np.sqrt(self.level)
        noise = self.rng.normal(0, 0.01, self.count)
        self.level = np.clip(self.level + self.inflow * (1 + 0.5 * self.mode) - outflow + noise, 0, 3)
        self._feed()
        self.step_number += 1
        return 1 - np.abs(self.level - 1.5) - 0.05 * valve / 100

    def spaces(self) -> tuple[Box, Box]:
        """Returns `[level, inflow, kind of feed]` and `[valve]`."""
        return Box(_limit(0, 0, 0), _limit(3, 1, 1)), Box(0, 100, (1,))


def _steps_of_ten(percent: Floats) -> Floats:
    rounded: Floats = np.clip(np.rint(percent / 10) * 10, 0, 100)
    return rounded


#: Names of the systems in `rlframe revive example`.
SYSTEMS: dict[str, type[LoggedSystem]] = {
    "refrigerator": Refrigerator,
    "pendulum": PendulumSystem,
    "mass-spring": MassSpringDamper,
    "mixed": StirredTank,
}


class SystemEnv(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """One of `SYSTEMS` as an environment: observations are its nodes side by side, episodes its trajectories.

    Args:
        config: `{"system": NAME}`.
    """

    def __init__(self, config: Any) -> None:
        self.system_class = SYSTEMS[config["system"]]
        self.system = self.system_class(1, np.random.default_rng(0))
        spaces: tuple[Any, Any] = self.system.spaces()
        self.observation_space, self.action_space = spaces

    def _obs(self) -> NDArray[np.float32]:
        obs = np.concatenate([values[0] for values in self.system.nodes().values()]).astype(np.float32)
        space = cast("Box", self.observation_space)
        return np.clip(obs, space.low, space.high)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins a trajectory."""
        super().reset(seed=seed)
        self.system = self.system_class(1, self.np_random)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Takes a step; the trajectory is truncated at its length."""
        reward = self.system.advance(np.asarray(action, float).reshape(1, -1))
        return self._obs(), float(reward[0]), False, self.system.step_number >= self.system.steps, {}
