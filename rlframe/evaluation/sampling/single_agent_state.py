"""Where the environments of one agent stand: what a checkpoint has of them, and the way back there."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import INFOS
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.episode import DUMMY_AGENT_ID
from rlframe.evaluation.episode_state import piece_of, piece_state, take_users_state, users_state
from rlframe.evaluation.metrics import RolloutMetrics
from rlframe.evaluation.sampling.rollout import RolloutBuffer
from rlframe.evaluation.sampling.single_agent_hooks import EpisodeHooks
from rlframe.policy.recurrent_context import RecurrentContext


class RunnerState(EpisodeHooks):
    """The part of an `EnvRunner` that saves where it stands, and goes back there."""

    obs_filter: Any
    _obs: NDArray[Any]
    _lengths: list[int]
    _returns: list[float]
    _unchecked: set[int]
    _episode_parts: list[int]
    _pending: list[list[SampleBatch]]
    _surplus: Sequence[SampleBatch]
    _memory: RecurrentContext | None
    _preprocess: Any
    _wants_episodes: bool
    _started: bool
    _metrics: list[RolloutMetrics]
    _begin: Any  # methods of the runner
    _begin_part: Any
    _finish_episode: Any

    def get_state(self) -> dict[str, Any]:
        """Returns the place of every environment, unfinished rows, and episodes not yet reported."""
        return {
            "started": self._started,
            "slots": {str(slot.index): slot.get_state() for slot in self.slots},
            "obs": self._obs.copy(),
            "lengths": list(self._lengths),
            "returns": list(self._returns),
            "parts": list(self._episode_parts),
            "fragments": self._fragments,
            "unchecked": sorted(self._unchecked),
            "pending": {str(i): _pieces_state(pieces) for i, pieces in enumerate(self._pending)},
            "surplus": [piece_state(piece) for piece in self._surplus],
            "metrics": [metric.to_state() for metric in self._metrics],
            "memory": None if self._memory is None else self._memory.get_state(),
            "users": {str(i): users_state(episode) for i, episode in enumerate(self._episodes) if episode is not None},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from what `get_state` returned: each environment is replayed to where it stood.

        An environment that does not come to the same observation is not deterministic: that is said as a warning, and
        a new episode begins there.
        """
        self._started = False
        self._fragments = int(state.get("fragments", 0))
        self._metrics = [RolloutMetrics.from_state(item) for item in state["metrics"]]
        if not state["started"] or len(state["slots"]) != len(self.slots):
            return
        wanted = self.policy.train_columns
        self._surplus = [piece_of(columns, infos, wanted) for columns, infos in state.get("surplus", ())]
        obs = np.asarray(state["obs"])
        self._obs = obs.copy()
        self._unchecked = set(state["unchecked"])
        if self._memory is not None and state.get("memory"):
            self._memory.set_state(state["memory"])
        self._episode_parts = list(state["parts"])
        for index, slot in enumerate(self.slots):
            reached = slot.replay(state["slots"][str(index)])
            if reached is not None and self._same_observation(reached, obs[index]):
                self._lengths[index] = int(state["lengths"][index])
                self._returns[index] = float(state["returns"][index])
                self._pending[index] = self._pieces_of(state["pending"][str(index)], slot.repeated_infos)
                if self._wants_episodes:
                    self._resume_episode(index, reached, obs[index], state.get("users", {}).get(str(index), {}))
                continue
            warnings.warn(
                f"{slot.where()} did not come back to where it was saved: it is not deterministic given its seed and "
                "actions; a new episode begins there",
                stacklevel=2,
            )
            self._pending[index] = []
            self._obs[index] = self._begin(index)
        self._started = True

    def _keep_progress(self, t: int, buffer: RolloutBuffer, failing: int, ended: list[Any]) -> None:
        """Notes where the other slots stand when one fails in the middle of step t: the buffer is lost, not they."""
        if self.slots[0].sub_env is not None or self._memory is not None:
            return  # all begin anew: all were stepped, or memories are ahead of the slots that were not
        stepped = buffer.obs_at(t + 1)[:failing]
        if self.obs_filter is not None and failing:
            stepped[:] = self.obs_filter.filter_batch(stepped, update=True)
        self._obs = np.concatenate([stepped, buffer.obs_at(t)[failing:]])
        for end in ended:
            self._finish_episode(end.slot)
            if end.soft:
                self._begin_part(end.slot)
            else:
                self._obs[end.slot] = self._begin(end.slot)
        # Of whole episodes no rows may be lost.
        self._started = self.settings.batch_mode == "truncate_episodes"

    def _pieces_of(self, saved: list[dict[str, Any]], infos: Sequence[Any]) -> list[SampleBatch]:
        """Returns the last rows of an episode, which were saved, with those infos where rows of this policy have any.

        Args:
            saved: The rows.
            infos: Those of the steps up to the last row, from earlier ones on.
        """
        pieces = [SampleBatch(dict(piece)) for piece in saved]
        wanted = self.policy.train_columns
        if wanted is None or INFOS in wanted:
            left = sum(piece.count for piece in pieces)
            for piece in pieces:
                piece[INFOS] = np.empty(piece.count, object)
                piece[INFOS][:] = infos[len(infos) - left : len(infos) - left + piece.count]
                left -= piece.count
        return pieces

    def _resume_episode(self, index: int, raw: Any, obs: Any, users: dict[str, Any]) -> None:
        self._start_episode(index, raw, obs)
        episode = self._episodes[index]
        assert episode is not None
        episode.length, episode.total_reward = self._lengths[index], self._returns[index]
        episode.agent_rewards = {(DUMMY_AGENT_ID, self.policy_id): self._returns[index]}
        take_users_state(episode, users)

    def _same_observation(self, raw: Any, saved: NDArray[Any]) -> bool:
        if self.obs_filter is not None:
            return True  # the saved one is filtered with statistics of its moment: nothing to compare
        obs = np.asarray(raw if self._preprocess is None else self._preprocess.transform(raw))
        return obs.shape == saved.shape and np.array_equal(obs.astype(saved.dtype), saved, equal_nan=True)


def _pieces_state(pieces: list[SampleBatch]) -> list[dict[str, Any]]:
    return [{key: value for key, value in piece.items() if value.dtype != object} for piece in pieces]
