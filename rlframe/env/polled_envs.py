"""Environments in the contract of RLlib's `BaseEnv`: what happened is polled, and actions are sent.

The sampling loops here call environments themselves; this is for programs that have a loop of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlframe.env.base_env import _DUMMY_AGENT_ID, BaseEnv
from rlframe.env.external_env import ExternalEnv
from rlframe.env.multi_agent_adapt import ALL, MultiAgentAdapter, is_multi_agent
from rlframe.env.vector_env import VectorEnv
from rlframe.utils.errors import EnvError

ByAgent = dict[Any, Any]
#: Observations, rewards, dones, infos and off-policy actions (none here), each by environment and agent.
Polled = tuple[dict[int, ByAgent], dict[int, ByAgent], dict[int, ByAgent], dict[int, ByAgent], dict[int, ByAgent]]


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

    @property
    def num_envs(self) -> int:
        """How many copies there are."""
        return self.vector_env.num_envs

    @property
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
