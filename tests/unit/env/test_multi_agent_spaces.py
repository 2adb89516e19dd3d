"""What a `MultiAgentEnv` tells of its agents and their spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.env.multi_agent_adapt import MultiAgentAdapter
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.utils.errors import EnvError

BOX = spaces.Box(-1, 1, (2,), np.float32)


class Shared(MultiAgentEnv):
    observation_space, action_space = BOX, spaces.Discrete(3)

    def __init__(self) -> None:
        self._agent_ids = {"a", "b"}


class Each(MultiAgentEnv):
    observation_space = spaces.Dict({"a": BOX, "b": spaces.Discrete(2)})
    action_space = spaces.Dict({"a": spaces.Discrete(3), "b": BOX})
    possible_agents = ("a", "b")


@pytest.mark.parametrize("env", [Shared(), Each()], ids=["shared", "each"])
def test_samples_are_in_the_spaces_of_all_agents_or_of_some(env: Any) -> None:
    assert env.get_agent_ids() == {"a", "b"}
    observations, actions = env.observation_space_sample(), env.action_space_sample(["b"])
    assert (set(observations), set(actions)) == ({"a", "b"}, {"b"})
    assert env.observation_space_contains(observations)
    assert env.action_space_contains(actions)
    assert not env.observation_space_contains({"a": np.array([2.0, 0.0], np.float32)})


class Behind:
    def __init__(self, env: Any) -> None:
        self.env = env


class Default:
    def __init__(self, size: int = 3) -> None:
        self.size = size


def test_constructors_behind_are_called_with_what_they_need_or_not_at_all() -> None:
    class Wrapped(MultiAgentEnv, Behind):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)

    class Sized(MultiAgentEnv, Default):
        pass

    assert not hasattr(Wrapped(), "env")  # RLlib 1.10 to 1.13
    assert Wrapped("inner").env == "inner"  # up to 1.9
    assert (Sized().size, Sized(5).size) == (3, 5)
    with pytest.raises(TypeError):
        MultiAgentEnv(1)


def test_steps_may_come_as_lists() -> None:
    class Listed(Shared):
        def step(self, actions: Any) -> Any:
            return [{"a": BOX.sample()}, {"a": 1.0}, {"__all__": True}, {}]

    obs, rewards, terminateds, _, _ = MultiAgentAdapter(Listed()).step({"a": 0})
    assert (set(obs), rewards, terminateds["__all__"]) == ({"a"}, {"a": 1.0}, True)


def test_an_agent_without_a_space_is_named() -> None:
    with pytest.raises(EnvError, match="'c'"):
        Each().action_space_sample(["c"])
    with pytest.raises(EnvError, match="'a'"):
        MultiAgentEnv().action_space_contains({"a": 0})


def test_render_and_close_are_those_of_another_base_class():
    class Traffic:
        def render(self, reset=False):
            return f"reset={reset}"

        def close(self):
            self.closed = True

    class Cars(MultiAgentEnv, Traffic):
        pass

    class Plain(MultiAgentEnv):
        pass

    cars, plain = Cars(), Plain()
    assert cars.render(reset=True) == "reset=True"
    cars.close()
    assert cars.closed
    assert plain.render("human") is None
    plain.close()
