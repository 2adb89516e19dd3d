"""A trainer as something that acts: one observation in, one action of the environment's space out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from rlframe.data.sample_batch import DEFAULT_POLICY_ID

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.policy.policy import Policy
    from rlframe.trainer.actor import StatefulActor

#: An action, the recurrent states after it, and what else the policy computed.
FullFetch = tuple[Any, list[Any], dict[str, Any]]


class ActingMixin:
    """Acting methods of a `Trainer`; they run the local worker's policy, preprocessor and (frozen) filter."""

    workers: WorkerSet
    config: dict[str, Any]
    #: What a remote worker said about its environment's rewards, once it was asked.
    _remote_clipping: tuple[bool | float | None] | None = None

    def get_policy(self, policy_id: str = DEFAULT_POLICY_ID) -> Policy:
        """Returns the local worker's policy; None where there is no policy `policy_id`, as in RLlib."""
        return cast("Policy", self.workers.local_worker().get_policy(policy_id))

    def _known_policy(self, policy_id: str) -> Policy:
        if policy_id not in self.workers.local_worker().policy_map:
            known = ", ".join(self.workers.local_worker().policy_map)
            raise KeyError(f"policy_id={policy_id!r}: wanted one of {known}")
        return self.get_policy(policy_id)

    def make_actor(self, policy_id: str = DEFAULT_POLICY_ID, explore: bool | None = None) -> StatefulActor:
        """Returns an actor that keeps recurrent state, past actions and rewards from step to step.

        It acts with the policy's weights as they are when it acts. Several actors do not disturb each other.

        Args:
            policy_id: Which policy acts.
            explore: Whether it explores; None takes `config["explore"]`.

        Raises:
            KeyError: If there is no policy `policy_id`.
        """
        from rlframe.trainer.actor import StatefulActor

        return StatefulActor(self._known_policy(policy_id), explore, self.how_rewards_are_clipped())

    def how_rewards_are_clipped(self) -> bool | float | None:
        """Returns how rewards are clipped before policies see them: True to their sign, a number x to ±x.

        Where `clip_rewards` says nothing that is for the environment to tell, which may be with remote workers alone.
        """
        worker, remotes = self.workers.local_worker(), self.workers.remote_workers()
        if worker.policy_config.clip_rewards is not None or worker.env is not None or not remotes:
            return worker.clips_rewards
        if self._remote_clipping is None:
            import ray

            self._remote_clipping = (ray.get(remotes[0].apply.remote(_clipping_of)),)
        return self._remote_clipping[0]

    @overload
    def compute_single_action(
        self, observation: Any = None, state: list[Any] | None = None, *, full_fetch: Literal[True], **kwargs: Any
    ) -> FullFetch: ...

    @overload
    def compute_single_action(
        self,
        observation: Any = None,
        state: list[Any] | None = None,
        *,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: dict[str, Any] | None = None,
        input_dict: Mapping[str, Any] | None = None,
        policy_id: str = DEFAULT_POLICY_ID,
        full_fetch: bool = False,
        explore: bool | None = None,
        timestep: int | None = None,
        episode: Any = None,
        unsquash_action: bool | None = None,
        clip_action: bool | None = None,
        **kwargs: Any,
    ) -> Any: ...

    def compute_single_action(
        self,
        observation: Any = None,
        state: list[Any] | None = None,
        *,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: dict[str, Any] | None = None,
        input_dict: Mapping[str, Any] | None = None,
        policy_id: str = DEFAULT_POLICY_ID,
        full_fetch: bool = False,
        explore: bool | None = None,
        timestep: int | None = None,
        episode: Any = None,
        unsquash_action: bool | None = None,
        clip_action: bool | None = None,
        unsquash_actions: bool | None = None,
        clip_actions: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Returns an action for one observation of the environment.

        Args:
            observation: As the environment gives it.
            state: Recurrent state.
            prev_action: The action before.
            prev_reward: The reward before, as the environment gave it; clipped where training's are.
            info: The environment's info; policies here do not use it.
            input_dict: Columns instead of `observation`.
            policy_id: Which policy acts.
            full_fetch: Whether to return states and extra outputs too.
            explore: None takes `config["explore"]`.
            timestep: Global step for exploration; None takes the policy's.
            episode: Accepted for old programs.
            unsquash_action: None takes `config["normalize_actions"]`.
            clip_action: None takes `config["clip_actions"]`.
            unsquash_actions: Older spelling.
            clip_actions: Older spelling.
            **kwargs: Passed to the policy.

        Returns:
            The action; or `(action, states, extra)` if `state` is given or `full_fetch` is set.

        Raises:
            KeyError: If there is no policy `policy_id`.
        """
        if prev_reward is not None:
            from rlframe.evaluation.sampling.rollout import clip_rewards

            clipped = clip_rewards(np.asarray([prev_reward], np.float32), self.how_rewards_are_clipped())
            prev_reward = clipped[0]
        action, states, extra = self._known_policy(policy_id).compute_single_action(
            observation,
            state,
            prev_action=prev_action,
            prev_reward=prev_reward,
            info=info,
            input_dict=input_dict,
            episode=episode,
            explore=explore,
            timestep=timestep,
            unsquash_action=unsquash_actions if unsquash_action is None else unsquash_action,
            clip_action=clip_actions if clip_action is None else clip_action,
            **kwargs,
        )
        has_state = state is not None and len(state) > 0
        return (action, states, extra) if has_state or full_fetch else action

    def compute_action(
        self,
        observation: Any = None,
        state: list[Any] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: dict[str, Any] | None = None,
        policy_id: str = DEFAULT_POLICY_ID,
        full_fetch: bool = False,
        explore: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Returns an action for one observation; the older name of `compute_single_action`, with its positions."""
        return self.compute_single_action(
            observation,
            state,
            prev_action=prev_action,
            prev_reward=prev_reward,
            info=info,
            policy_id=policy_id,
            full_fetch=full_fetch,
            explore=explore,
            **kwargs,
        )

    def compute_actions(
        self,
        observations: Mapping[Any, Any],
        state: Mapping[Any, list[Any]] | None = None,
        prev_action: Mapping[Any, Any] | None = None,
        prev_reward: Mapping[Any, float] | None = None,
        info: Mapping[Any, Any] | None = None,
        policy_id: str = DEFAULT_POLICY_ID,
        full_fetch: bool = False,
        explore: bool | None = None,
        *,
        episodes: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Returns `{agent_id: action}` for `{agent_id: observation}`, all from one policy.

        With `state`, be it empty, or `full_fetch`: `(actions, states, extras)`, each a dict by agent. `episodes` are in
        the agents' order.
        """
        ongoing = dict(zip(observations, episodes or (), strict=False))
        made = {
            agent: self.compute_single_action(
                observation,
                (state or {}).get(agent),
                prev_action=(prev_action or {}).get(agent),
                prev_reward=(prev_reward or {}).get(agent),
                info=(info or {}).get(agent),
                policy_id=policy_id,
                episode=ongoing.get(agent),
                full_fetch=True,
                explore=explore,
                **kwargs,
            )
            for agent, observation in observations.items()
        }
        actions = {agent: result[0] for agent, result in made.items()}
        if state is None and not full_fetch:
            return actions
        return (
            actions,
            {agent: result[1] for agent, result in made.items()},
            _Extras({agent: result[2] for agent, result in made.items()}),
        )


class _Extras(dict[Any, Any]):
    """What the policy computed beside actions, by agent; by name, as in RLlib, it is the agents' rows together."""

    def __missing__(self, name: Any) -> Any:
        if not self or any(name not in extra for extra in self.values()):
            raise KeyError(name)
        return np.stack([extra[name] for extra in self.values()])


def _clipping_of(worker: Any) -> bool | float | None:
    how: bool | float | None = worker.clips_rewards
    return how
