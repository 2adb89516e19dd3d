"""A user's `BaseEnv` as the sampling loop knows simulators: a thread polls it, asks for actions, and sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.env.agent_dicts import ALL
from rlframe.env.external_multi_agent_env import ExternalMultiAgentEnv
from rlframe.env.multi_agent_env import MultiAgentDict
from rlframe.utils.errors import EnvError

#: What `try_reset` returns where the observation comes with a later `poll`.
ASYNC_RESET_RETURN = "async_reset_return"

#: Observations, rewards, terminateds, truncateds, infos and off-policy actions, each by environment and agent.
_Polled = tuple[dict[Any, MultiAgentDict], ...]


class PolledSimulator(ExternalMultiAgentEnv):
    """Runs the episodes of a `BaseEnv` of the user's.

    All environments of one poll are acted for in one call of each policy.

    Args:
        base_env: Defines `poll()`, `send_actions(actions)` and `try_reset(env_id)`.
    """

    def __init__(self, base_env: Any) -> None:
        # What is polled may take as long as it likes, as it could in RLlib.
        super().__init__(base_env.action_space, base_env.observation_space, max_concurrent=1_000_000, timeout_s=None)
        self.base_env = base_env
        self._episodes: dict[Any, str] = {}

    def run(self) -> None:
        """Polls, acts and sends for as long as it is trained."""
        while True:
            obs, *told = _polled(self.base_env.poll())
            waiting: dict[Any, MultiAgentDict] = {}
            off_policy: dict[Any, MultiAgentDict] = {}
            for env_id, agents_obs in obs.items():
                self._tell(env_id, agents_obs, [part.get(env_id) or {} for part in told], waiting, off_policy)
            actions = self._ask({env_id: part for env_id, part in waiting.items() if env_id not in off_policy})
            self.base_env.send_actions({**off_policy, **actions})

    def _tell(
        self,
        env_id: Any,
        obs: MultiAgentDict,
        told: list[MultiAgentDict],
        waiting: dict[Any, MultiAgentDict],
        off_policy: dict[Any, MultiAgentDict],
    ) -> None:
        """Hands over what happened in one environment, and notes what is to be acted on next in it."""
        rewards, terminateds, truncateds, infos, taken = told
        if env_id not in self._episodes:
            self._episodes[env_id] = self.start_episode()
        else:
            through = {agent: flag for part in (terminateds, truncateds) for agent, flag in part.items() if flag}
            through.pop(ALL, None)
            rewards = {agent: 0.0 if reward is None else reward for agent, reward in rewards.items()}
            self.log_returns(self._episodes[env_id], rewards, infos, through)
        if terminateds.get(ALL) or truncateds.get(ALL):
            truncated = not terminateds.get(ALL)
            self.end_episode(self._episodes.pop(env_id), obs, truncated=truncated)
            begun = self._reset(env_id)
            if begun is None:
                return
            self._episodes[env_id] = self.start_episode()
            obs, taken = begun, {}
        if obs:
            waiting[env_id] = obs
        if obs and taken:
            self.log_action(self._episodes[env_id], obs, taken)
            off_policy[env_id] = taken

    def _reset(self, env_id: Any) -> MultiAgentDict | None:
        """Returns first observations by agent; None where they come with a later poll."""
        begun = self.base_env.try_reset(env_id)
        if begun is None or (isinstance(begun, str) and begun == ASYNC_RESET_RETURN):
            return None
        if isinstance(begun, tuple):  # observations and infos
            begun = begun[0]
        if not isinstance(begun, Mapping):
            raise EnvError(f"try_reset({env_id!r}) returned {type(begun).__name__}; wanted observations by agent")
        inner = begun.get(env_id)
        return dict(inner if len(begun) == 1 and isinstance(inner, Mapping) else begun)

    def _ask(self, obs: dict[Any, MultiAgentDict]) -> dict[Any, Any]:
        """Returns actions by environment and agent."""
        ids = {env_id: self._episodes[env_id] for env_id in obs}
        actions = self.broker.ask_all({ids[env_id]: part for env_id, part in obs.items()})
        return {env_id: dict(actions[episode_id]) for env_id, episode_id in ids.items()}

    def close(self) -> None:
        """Ends the thread, then what it polls."""
        super().close()
        self.base_env.stop()

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Shows the first environment."""
        return self.base_env.try_render(*args, **kwargs)


def _polled(result: Any) -> _Polled:
    """Returns what `poll()` gave in six parts; of five, `dones` are taken as terminations."""
    if not isinstance(result, tuple) or len(result) not in (5, 6):
        size = f" of {len(result)}" if isinstance(result, tuple) else ""
        raise EnvError(
            f"poll() returned {type(result).__name__}{size}; wanted (observations, rewards, dones, infos, off-policy "
            "actions), each by environment and agent"
        )
    if len(result) == 6:
        return result
    obs, rewards, dones, infos, taken = result
    return obs, rewards, dones, {}, infos or {}, taken or {}
