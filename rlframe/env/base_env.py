"""What callbacks see of a worker's environments; and environments that a program's own loop polls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from rlframe.env.adapt import user_env
from rlframe.env.agent_dicts import ALL
from rlframe.env.external_env import ExternalEnv
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, SingleAgentAsMany, is_multi_agent
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.env.polled_simulator import ASYNC_RESET_RETURN as ASYNC_RESET_RETURN
from rlframe.env.polled_simulator import PolledSimulator
from rlframe.env.sub_environments import SubEnvironment
from rlframe.env.vector_env import VectorEnv
from rlframe.utils.errors import EnvError

T = TypeVar("T")
ByAgent = dict[Any, Any]
#: Observations, rewards, dones, infos and off-policy actions (none here), each by environment and agent.
Polled = tuple[dict[int, ByAgent], dict[int, ByAgent], dict[int, ByAgent], dict[int, ByAgent], dict[int, ByAgent]]

_DUMMY_AGENT_ID = "agent0"
"""What the agent of an environment with one agent is called."""


_NOT_POLLED = (
    "The worker steps these environments itself; a loop of your own polls BaseEnv.to_base_env(env), or a subclass of "
    "BaseEnv that defines poll(), send_actions() and try_reset()"
)


class UntilSet(Generic[T]):
    """A property until a subclass sets an attribute of that name: RLlib's `BaseEnv` left these names to programs."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> T:
        """Returns the property; attributes that were set are found before it."""
        return cast(T, self) if instance is None else self._function(instance)

    if TYPE_CHECKING:  # what is set is the instance's own, as without a property

        def __set__(self, instance: Any, value: T) -> None: ...


class BaseEnv:
    """A view of the environments that one worker steps; or the base of environments of one's own that are polled.

    As a view it looks at the worker's own list, so an environment that was replaced after a failure is seen at once.
    A subclass defines `poll()`, `send_actions()` and `try_reset()`, and trainers take it as environment.
    """

    _envs: Any = ()

    def __init__(self, envs: Any = ()) -> None:
        """Keeps a reference to `envs`, one per slot, as the worker steps them."""
        self._envs = envs

    @UntilSet
    def num_envs(self) -> int:
        """How many environment slots there are."""
        return len(self._envs)

    @UntilSet
    def envs(self) -> list[Any]:
        """The environments as the user's creator returned them, one per slot; of a `VectorEnv` those in it."""
        return [made for env in self._envs for made in _as_made(env)]

    def get_sub_environments(self, as_dict: bool = False) -> Any:
        """Returns the environments as the user's creator returned them: a list, or a dict by slot."""
        return dict(enumerate(self.envs)) if as_dict else self.envs

    def get_unwrapped(self) -> list[Any]:
        """Returns the environments as the user's creator returned them (the older name)."""
        return self.envs

    @UntilSet
    def observation_space(self) -> Any:
        """The observation space of the first environment, or None without any."""
        return self._envs[0].observation_space if self._envs else None

    @UntilSet
    def action_space(self) -> Any:
        """The action space of the first environment, or None without any."""
        return self._envs[0].action_space if self._envs else None

    def get_agent_ids(self) -> set[Any]:
        """Returns the ids of an environment's agents; of one without several the one that stands for its agent."""
        maker = maker_of(self._envs[0]) if self._envs else None
        if isinstance(maker, BaseEnv):  # a program's own, which may know
            return maker.get_agent_ids()
        several = _several(self.envs[0]) if self.envs else None
        return {_DUMMY_AGENT_ID} if several is None else set(several.get_agent_ids())

    def observation_space_sample(self, agent_id: Iterable[Any] | None = None) -> dict[int, ByAgent]:
        """Returns random observations by environment and agent; None for `agent_id` means all agents."""
        return self._samples("observation_space", agent_id)

    def action_space_sample(self, agent_id: Iterable[Any] | None = None) -> dict[int, ByAgent]:
        """Returns random actions by environment and agent; None for `agent_id` means all agents."""
        return self._samples("action_space", agent_id)

    def observation_space_contains(self, x: Mapping[int, Mapping[Any, Any]]) -> bool:
        """Returns whether observations by environment and agent are in their spaces."""
        return self._contain("observation_space", x)

    def action_space_contains(self, x: Mapping[int, Mapping[Any, Any]]) -> bool:
        """Returns whether actions by environment and agent are in their spaces."""
        return self._contain("action_space", x)

    def _samples(self, name: str, agents: Iterable[Any] | None) -> dict[int, ByAgent]:
        def sample(env: Any) -> ByAgent:
            several = _several(env)
            if several is not None:
                return dict(getattr(several, f"{name}_sample")(agents or None))
            return {_DUMMY_AGENT_ID: getattr(env, name).sample()}

        return {index: sample(env) for index, env in enumerate(self.envs)}

    def _contain(self, name: str, x: Mapping[int, Mapping[Any, Any]]) -> bool:
        def holds(env: Any, by_agent: Mapping[Any, Any]) -> bool:
            several = _several(env)
            if several is not None:
                return bool(getattr(several, f"{name}_contains")(by_agent))
            return all(getattr(env, name).contains(value) for value in by_agent.values())

        envs = self.envs
        return all(holds(envs[index], by_agent) for index, by_agent in x.items())

    def __getattr__(self, name: str) -> Any:
        """Finds the user's `VectorEnv` under the name that RLlib had for it; without one this stands for it."""
        first = self._envs[0] if name == "vector_env" and self._envs else None
        if first is None or isinstance(first, MultiAgentAdapter):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return maker_of(first) or self

    @staticmethod
    def to_base_env(
        env: Any,
        make_env: Callable[[int], Any] | None = None,
        num_envs: int = 1,
        remote_envs: bool = False,
        remote_env_batch_wait_ms: int = 0,
        policy_config: Any = None,
    ) -> BaseEnv:
        """Returns environments that a program's own loop polls and sends actions to.

        Args:
            env: One environment of any kind but an `ExternalEnv`; a `BaseEnv` is returned as it is.
            make_env: `fn(index)` that makes the others.
            num_envs: How many there shall be.
            remote_envs: Has to be False: workers are what steps environments in other processes.
            remote_env_batch_wait_ms: Not used.
            policy_config: Not used.

        Raises:
            EnvError: If there cannot be such.
        """
        del remote_env_batch_wait_ms, policy_config
        return to_base_env(env, make_env, num_envs, remote_envs)

    def poll(self) -> Any:
        """Returns observations, rewards, dones, infos and off-policy actions, each by environment and agent.

        Raises:
            NotImplementedError: If this is a worker's view of what it steps itself.
        """
        raise NotImplementedError(_NOT_POLLED)

    def send_actions(self, action_dict: Any) -> None:
        """Takes actions by environment and agent.

        Raises:
            NotImplementedError: If this is a worker's view of what it steps itself.
        """
        raise NotImplementedError(_NOT_POLLED)

    def try_reset(self, env_id: int | None = None) -> Any:
        """Resets one environment, and returns its observations by agent.

        Raises:
            NotImplementedError: If this is a worker's view of what it steps itself.
        """
        raise NotImplementedError(_NOT_POLLED)

    def try_render(self, env_id: int | None = None) -> Any:
        """Renders the environment of one slot (the first if None)."""
        return self._envs[env_id or 0].render()

    def stop(self) -> None:
        """Closes all environments."""
        for env in self._envs:
            env.close()


def maker_of(env: Any) -> Any:
    """Returns the user's `VectorEnv` or `BaseEnv` that an environment is a part of, None for others."""
    inner = _inner(env)
    if isinstance(inner, PolledSimulator):
        return inner.base_env
    return inner.vector_env if isinstance(inner, SubEnvironment) else None


def _inner(env: Any) -> Any:
    return user_env(env.env) if isinstance(env, (MultiAgentAdapter, SingleAgentAsMany)) else user_env(env)


def _several(env: Any) -> MultiAgentEnv | None:
    """Returns an environment of several agents as a `MultiAgentEnv`, PettingZoo's wrapped; None for others."""
    if isinstance(env, MultiAgentEnv):
        return env
    return MultiAgentAdapter(env).multi_agent_env if is_multi_agent(env) else None


def _as_made(env: Any) -> list[Any]:
    """Returns an environment as the user's creator returned it; of one of several, those in it, with its first."""
    inner, maker = _inner(env), maker_of(env)
    if maker is None:
        return [inner]
    return list(_single_envs(maker)) if getattr(inner, "index", 0) == 0 else []


def _single_envs(maker: Any) -> Any:
    """Returns the single environments, by the newer or the older name: whichever the user's class defines."""
    older = type(maker).__dict__.get("get_unwrapped")
    newer = type(maker).__dict__.get("get_sub_environments")
    return maker.get_unwrapped() if older is not None and newer is None else maker.get_sub_environments()


def to_base_env(
    env: Any, make_env: Callable[[int], Any] | None = None, num_envs: int = 1, remote_envs: bool = False, **unused: Any
) -> BaseEnv:
    """Returns environments of any kind as a `BaseEnv`; see `BaseEnv.to_base_env`.

    Raises:
        EnvError: If it is an `ExternalEnv`, more environments are wanted and nothing makes them, or remote ones are.
    """
    del unused
    if remote_envs:
        raise EnvError("remote_envs is True; set num_workers to step environments in several processes")
    if isinstance(env, BaseEnv):
        return env
    if isinstance(env, ExternalEnv):
        raise EnvError(f"{type(env).__name__} has a main loop of its own; give it to a trainer or RolloutWorker as env")
    if isinstance(env, VectorEnv):
        return PolledVectorEnv(env)
    envs = [env]
    if num_envs > 1 and make_env is None:
        raise EnvError(f"num_envs is {num_envs} and make_env None; wanted make_env(index), which makes the others")
    while make_env is not None and len(envs) < num_envs:
        envs.append(make_env(len(envs)))
    if is_multi_agent(env):
        return PolledMultiAgentEnvs([MultiAgentAdapter(each) for each in envs])
    return PolledVectorEnv(VectorEnv.vectorize_gym_envs(existing_envs=envs, num_envs=num_envs))


class PolledVectorEnv(BaseEnv):
    """A `VectorEnv` whose one agent is `agent0`; each call of `send_actions` has an action for every copy.

    Args:
        vector_env: The environment.
    """

    def __init__(self, vector_env: VectorEnv) -> None:
        super().__init__([])
        self.vector_env = vector_env
        self.observation_space, self.action_space = vector_env.observation_space, vector_env.action_space
        self._result: tuple[list[Any], ...] | None = None

    @UntilSet
    def num_envs(self) -> int:
        """How many copies there are."""
        return self.vector_env.num_envs

    @UntilSet
    def envs(self) -> list[Any]:
        """The single environments, if there are such."""
        return list(self.vector_env.get_sub_environments())

    def poll(self) -> Polled:
        """Returns what came of the last actions; of none, all copies are reset, and rewards and infos are None."""
        if self._result is None:
            count = self.num_envs
            self._result = (self.vector_env.vector_reset(), [None] * count, [False] * count, [None] * count)
        keys = (_DUMMY_AGENT_ID, _DUMMY_AGENT_ID, ALL, _DUMMY_AGENT_ID)
        obs, rewards, dones, infos = (
            {index: {key: value} for index, value in enumerate(part)}
            for key, part in zip(keys, self._result, strict=True)
        )
        self._result = ([], [], [], [])
        return obs, rewards, dones, infos, {}

    def send_actions(self, action_dict: Mapping[int, Mapping[Any, Any]]) -> None:
        """Steps all copies."""
        actions = [action_dict[index][_DUMMY_AGENT_ID] for index in range(self.num_envs)]
        self._result = self.vector_env.vector_step(actions)

    def try_reset(self, env_id: int | None = None) -> ByAgent:
        """Resets one copy (the first if None), and returns its observation by agent."""
        return {_DUMMY_AGENT_ID: self.vector_env.reset_at(env_id)}

    def try_render(self, env_id: int | None = None) -> Any:
        """Shows one copy (the first if None)."""
        return self.vector_env.try_render_at(env_id)

    def stop(self) -> None:
        """Closes the single environments, if there are such."""
        for env in self.envs:
            env.close()


class PolledMultiAgentEnvs(BaseEnv):
    """Environments with several agents, each stepped when it is sent actions.

    Args:
        envs: The environments.
    """

    def __init__(self, envs: list[MultiAgentAdapter]) -> None:
        super().__init__(envs)
        self._states = [_State(env) for env in envs]

    def poll(self) -> Polled:
        """Returns what came of the last actions; environments that nobody has reset are reset.

        An agent's reward, done and info wait until it observes or the episode is over; rewards add up meanwhile.
        """
        parts = [state.poll() for state in self._states]
        obs, rewards, dones, infos = (dict(enumerate(part)) for part in zip(*parts, strict=True))
        return obs, rewards, dones, infos, {}

    def send_actions(self, action_dict: Mapping[int, Mapping[Any, Any]]) -> None:
        """Steps the environments that are named, with the agents' actions.

        Raises:
            ValueError: If one's episode is over.
        """
        for env_id, actions in action_dict.items():
            self._states[env_id].step(env_id, dict(actions))

    def try_reset(self, env_id: int | None = None) -> ByAgent:
        """Resets one environment (the first if None), and returns its observations by agent."""
        return self._states[env_id or 0].reset()


class _State:
    """What one environment said that nobody has polled yet."""

    def __init__(self, env: MultiAgentAdapter) -> None:
        self.env = env
        self._obs: ByAgent | None = None
        self._waiting: tuple[ByAgent, ByAgent, ByAgent] = ({}, {}, {})
        self._over = False

    def reset(self) -> ByAgent:
        self._obs, _ = self.env.reset()
        self._waiting, self._over = ({}, {}, {}), False
        return self._obs

    def step(self, env_id: int, actions: ByAgent) -> None:
        if self._over:
            raise ValueError(f"The episode of environment {env_id} is over; wanted try_reset({env_id}) before actions.")
        self._obs, new_rewards, terminateds, truncateds, new_infos = self.env.step(actions)
        rewards, dones, infos = self._waiting
        for agent, reward in new_rewards.items():
            rewards[agent] = rewards.get(agent, 0.0) + reward
        for agent in {**terminateds, **truncateds}:
            ended = terminateds.get(agent, False) or truncateds.get(agent, False)
            dones[agent] = dones.get(agent, False) or ended
        infos.update(new_infos)
        self._over = dones.pop(ALL)

    def poll(self) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent]:
        obs = self.reset() if self._obs is None else self._obs
        taken = self._waiting
        if not self._over:
            taken = tuple({agent: part.pop(agent) for agent in obs if agent in part} for part in self._waiting)  # type: ignore[assignment]
        else:
            self._waiting = ({}, {}, {})
        rewards, dones, infos = taken
        return obs, rewards, {ALL: self._over, **dones}, infos
