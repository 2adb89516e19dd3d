"""What users' code is told of the episodes of one agent while they run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import UNROLL_ID
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.episode import DUMMY_AGENT_ID, Episode
from rlframe.evaluation.sampling.complete_episodes import split_segments
from rlframe.evaluation.sampling.ended_trajectories import rows_of
from rlframe.evaluation.sampling.loop import Hooks
from rlframe.evaluation.sampling.rollout import EnvSlot, RolloutBuffer, TrajectorySlice
from rlframe.policy.recurrent_context import add_later_steps
from rlframe.policy.users_code import explores_by_episode, overridden_by_user, postprocess

if TYPE_CHECKING:
    from rlframe.policy.policy import Policy


class EpisodeHooks:
    """The part of an `EnvRunner` that calls callbacks and explorations' hooks."""

    slots: list[EnvSlot]
    policy: Policy
    policy_id: str
    hooks: Hooks
    _episodes: list[Episode | None]
    _fragments = 0  # of trajectories, handed out so far
    settings: Any
    _pending: list[list[SampleBatch]]
    _flat: Any  # methods of the runner
    _call: Any

    @property
    def policies(self) -> dict[str, Policy]:
        """The policy by its id, as users' code gets it."""
        return {self.policy_id: self.policy}

    def _explore_hook(self, hook: str, index: int) -> None:
        episode = self._episodes[index] or SimpleNamespace(env_id=index)
        function = getattr(self.policy.exploration, hook)
        function(self.policy, environment=self.slots[index].env, episode=episode)

    def _start_episode(self, index: int, raw: Any, obs: Any) -> None:
        episode = Episode(
            self.policies,
            self.policy_id,
            episode_id=self.slots[index].episode_id,
            env_id=index,
            worker=self.hooks.worker,
        )
        self._episodes[index] = episode
        view = episode._view(DUMMY_AGENT_ID)
        view.raw_obs = raw
        self._call("on_episode_start", index)
        view.obs = obs

    def _record_hooks(
        self, t: int, buffer: RolloutBuffer, actions: NDArray[Any], extras: dict[str, NDArray[Any]], over: set[int]
    ) -> None:
        flat = self._flat(actions)
        for index, episode in enumerate(self._episodes):
            assert episode is not None
            episode._record_step(flat[index], {key: column[index] for key, column in extras.items()})
            view = episode._view(DUMMY_AGENT_ID)
            view.obs, view.done = buffer.obs_at(t + 1)[index].copy(), index in over
            self._call("on_episode_step", index)

    def _number_fragments(self, batch: SampleBatch, segments: list[TrajectorySlice]) -> None:
        """Writes `unroll_id`: it tells the parts of an episode that were sampled at different times, as in RLlib."""
        numbers = np.full(batch.count, -1, np.int64)  # rows of no trajectory keep it
        for number, segment in enumerate(segments, self._fragments):
            numbers[segment.start : segment.stop] = number
        batch[UNROLL_ID] = numbers
        self._fragments += len(segments)

    def _postprocess_ended(self, buffer: RolloutBuffer) -> None:
        """Postprocesses the trajectory that ended last, if users' code sees that: before `on_episode_end`."""
        call, policy = self.hooks.call, self.policy
        seen = "on_postprocess_trajectory" in call or overridden_by_user(type(policy), "postprocess_trajectory")
        if not (explores_by_episode(policy) or (seen and "on_episode_end" in call)):
            return
        segment = buffer.segments[-1]
        piece = rows_of(buffer, segment, policy, self.settings)
        if piece is None:
            return
        if segment.start == segment.slot * buffer.length and self._pending[segment.slot]:  # of complete_episodes
            piece = SampleBatch.concat_samples([*self._pending[segment.slot], piece])
        whole = replace(segment, start=0, stop=piece.count)
        add_later_steps(policy.view_requirements, piece)
        if policy.train_columns is None:
            self._number_fragments(piece, [whole])
        buffer.segments[-1] = replace(segment, made=self._postprocess_each(piece, [whole]))

    def _postprocess_each(self, batch: SampleBatch, segments: list[TrajectorySlice]) -> SampleBatch:
        """Postprocesses trajectory by trajectory: the exploration, then the policy, then the callback."""
        policy = self.policy
        hook = self.hooks.call.get("on_postprocess_trajectory")
        explores = policy.exploration.has_postprocessing
        pieces = []
        for segment, piece in zip(segments, split_segments(batch, segments), strict=True):
            if segment.made is not None:
                pieces.append(segment.made)
                continue
            episode = segment.episode
            original = piece.copy() if hook is not None else piece
            if explores:
                piece = policy.exploration.postprocess_trajectory(policy, piece) or piece
            piece = postprocess(policy, piece, {}, episode)
            if hook is not None:
                hook(
                    worker=self.hooks.worker,
                    episode=episode,
                    agent_id=DUMMY_AGENT_ID,
                    policy_id=self.policy_id,
                    policies=self.policies,
                    postprocessed_batch=piece,
                    original_batches={DUMMY_AGENT_ID: (policy, original)},
                )
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else SampleBatch.concat_samples(pieces)
