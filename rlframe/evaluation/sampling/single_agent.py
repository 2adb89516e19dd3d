"""The sampling loop: environments are stepped, and every step is written into columns `[T, B, ...]`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import NEXT_OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import cut_into_sequences
from rlframe.env.checks import check_step_result
from rlframe.evaluation.episode import DUMMY_AGENT_ID, Episode
from rlframe.evaluation.metrics import RolloutMetrics
from rlframe.evaluation.sampling.complete_episodes import CompleteEpisodes
from rlframe.evaluation.sampling.loop import EPISODE_HOOKS, Hooks, RunnerSettings, SamplingLoop
from rlframe.evaluation.sampling.rollout import (
    EnvSlot,
    RolloutBuffer,
    TrajectorySlice,
    assemble,
    clip_rewards,
    reset_slots,
    step_together,
)
from rlframe.evaluation.sampling.single_agent_state import RunnerState
from rlframe.models.preprocessors import NoPreprocessor
from rlframe.policy.recurrent_context import RecurrentContext, add_later_steps
from rlframe.policy.users_code import sees_episodes
from rlframe.utils.spaces.observations import check_sampled
from rlframe.utils.spaces.space_maps import unsquash_action
from rlframe.utils.spaces.space_utils import flatten_to_single_ndarray, unbatch

if TYPE_CHECKING:
    from rlframe.policy.policy import Policy


class _End(NamedTuple):
    """How an episode ended; `soft` where only its horizon was reached, and its environment goes on."""

    slot: int
    terminated: bool
    truncated: bool
    soft: bool


class EnvRunner(CompleteEpisodes, RunnerState, SamplingLoop):
    """Steps B environment slots with one policy and returns `SampleBatch`es.

    Args:
        slots: The environments.
        policy: Acts for all of them, one batched call per step.
        policy_id: Its id.
        settings: See `RunnerSettings`.
        hooks: Callbacks.
        obs_filter: Observation filter with `filter_batch`, or None.

    Attributes:
        empty: `numpy.empty`, or what makes memory for observations instead.
    """

    slots: list[EnvSlot]
    empty: Callable[..., Any] = staticmethod(np.empty)
    #: Whether postprocessing of a user's own is given the episode.
    _shows_episodes = True

    def __init__(
        self,
        slots: list[EnvSlot],
        policy: Policy,
        policy_id: str,
        settings: RunnerSettings,
        hooks: Hooks,
        obs_filter: Any = None,
    ) -> None:
        super().__init__(slots, settings, hooks)
        self.policy = policy
        self.policy_id = policy_id
        self.obs_filter = obs_filter
        self._raw_space = slots[0].env.observation_space
        preprocessor = policy._obs_preprocessor
        self._preprocess: Any = None if isinstance(preprocessor, NoPreprocessor) else preprocessor
        space = policy.observation_space
        self._obs_shape = space.shape or ()
        dtype = np.dtype(space.dtype or np.float32)
        self._obs_dtype = np.dtype(np.float32) if dtype == np.float64 or obs_filter is not None else dtype
        self._discrete = isinstance(policy.action_space, gym.spaces.Discrete)
        self._start_offset = int(getattr(policy.action_space, "start", 0)) if self._discrete else 0
        self._only_unsquashes = not self._discrete and policy.only_unsquashes()
        self._nested = policy.action_space_struct is not policy.action_space
        size = len(slots)
        self._obs: NDArray[Any] = np.zeros((size, *self._obs_shape), self._obs_dtype)
        self._lengths = [0] * size
        self._returns = [0.0] * size
        self._unchecked = set(range(size))
        self._episode_parts = [0] * size
        self._episodes: list[Episode | None] = [None] * size
        shown = self._shows_episodes and sees_episodes(policy)
        self._wants_episodes = shown or not EPISODE_HOOKS.isdisjoint(hooks.call)
        self._pending: list[list[SampleBatch]] = [[] for _ in slots]
        self._memory = RecurrentContext(policy, size) if policy.needs_memory() else None

    # --- public -----------------------------------------------------------------------------------------------

    def sample(self) -> SampleBatch:
        """Returns the next batch.

        truncate_episodes: exactly `rollout_fragment_length · B` rows. complete_episodes: whole episodes only, at least
        that many rows.

        Raises:
            EnvError: If an environment raised, or returned what its spaces do not allow.
            NonFiniteError: If a reward or observation was NaN or infinite.
        """
        self._ensure_started()
        self._started = False  # what breaks off between an action and its row, Ctrl-C too, lets all begin anew
        if self.settings.batch_mode == "truncate_episodes":
            return self._postprocess(*self._fill_buffer())
        batch = self._sample_complete()
        self._started = True
        return batch

    # --- episodes ---------------------------------------------------------------------------------------------

    def _ensure_started(self) -> None:
        told = {"whole": not self._started, "recreate": self.settings.recreate_envs}
        for index, begun in reset_slots(self.slots, lambda index: self._pending[index].clear(), **told):
            self._obs[index] = self._begin(index, begun)
            self.slots[index].failed = False
        self._started = True

    def _begin(self, index: int, begun: Any = None) -> NDArray[Any]:
        slot = self.slots[index]
        raw, _ = begun or slot.begin()
        self._lengths[index], self._returns[index] = 0, 0.0
        if self._memory is not None:
            self._memory.begin(index)
        obs = self._observe(index, raw)
        if self.obs_filter is not None:
            obs = self.obs_filter(obs, update=True)
        if self._wants_episodes:
            self._start_episode(index, raw, obs)
        if self.policy.exploration.has_episode_hooks:
            self._explore_hook("on_episode_start", index)
        return np.asarray(obs)

    def _observe(self, index: int, raw: Any) -> Any:
        """Checks (in a slot's first episode) and preprocesses one observation."""
        if index in self._unchecked:
            slot = self.slots[index]
            try:
                raw = check_sampled(raw, self._raw_space, slot.where(), first=not self._lengths[index])
            except Exception:
                slot.failed = True
                raise
        return raw if self._preprocess is None else self._preprocess.transform(raw)

    def _finish_episode(self, index: int) -> None:
        """Reports an episode that ended, or whose soft horizon was reached."""
        episode = self._episodes[index]
        if self._wants_episodes:
            self._call("on_episode_end", index)
        if self.policy.exploration.has_episode_hooks:
            self._explore_hook("on_episode_end", index)
        self._metrics.append(
            RolloutMetrics(
                episode_length=self._lengths[index],
                episode_reward=self._returns[index],
                agent_rewards={(DUMMY_AGENT_ID, self.policy_id): self._returns[index]},
                custom_metrics={} if episode is None else episode.custom_metrics,
                perf_stats=self._times.stats(),
                hist_data={} if episode is None else episode.hist_data,
                media={} if episode is None else episode.media,
                slot=index,
            )
        )
        self._unchecked.discard(index)

    # --- the loop ---------------------------------------------------------------------------------------------

    def _fill_buffer(self, steps: int | None = None) -> tuple[SampleBatch, list[TrajectorySlice]]:
        """Steps every slot `steps` times (None: a fragment's) and returns the rows and their segments."""
        settings, policy = self.settings, self.policy
        buffer = RolloutBuffer(steps or settings.rollout_fragment_length, self._obs, policy, self.empty)
        policy.begin_acting(settings.explore)
        clock = time.perf_counter
        started, act_time, env_time = clock(), 0.0, 0.0
        for t in range(buffer.length):
            before = clock()
            actions, extras = self._act(buffer.obs_at(t))
            between = clock()
            buffer.write_actions(t, self._flat(actions), extras)
            self._step_slots(t, buffer, actions, extras)
            after = clock()
            act_time += between - before
            env_time += after - between
        policy.exploration.restore_weights()
        self._obs = buffer.obs_at(buffer.length).copy()  # a view would keep the buffer alive while the next is filled
        self._times.add(act_time, env_time, clock() - started, buffer.length)
        for index in range(len(self.slots)):
            buffer.close_segment(index, self._part_id(index), self._lengths[index], episode=self._episodes[index])
        self._started = settings.batch_mode == "truncate_episodes"
        return assemble(buffer, policy, settings), buffer.segments

    def _act(self, obs: NDArray[Any]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns an action for each slot, and the columns that are stored with it: also those that were acted on."""
        explore, memory = self.settings.explore, self._memory
        if self._wants_episodes:
            self.policy.act_for([(episode, DUMMY_AGENT_ID) for episode in self._episodes])
        if memory is None:
            return self.policy.act_on_rows(obs, explore, None)
        inputs = memory.inputs(obs)
        actions, extras = self.policy.act_on_rows(obs, explore, None, inputs)
        memory.acted(obs, self._flat(actions), extras)
        return actions, {**inputs, **extras}

    def _flat(self, actions: Any) -> NDArray[Any]:
        """Returns actions as they are stored, `[B, ...]`: those of Tuple and Dict spaces side by side."""
        return flatten_to_single_ndarray(actions, 1) if self._nested else actions

    def _part_id(self, index: int) -> int:
        """Returns the id of the running metric episode; a soft horizon starts another part of the same episode."""
        return int(self.slots[index].episode_id) + (self._episode_parts[index] << 24)

    def _step_slots(
        self, t: int, buffer: RolloutBuffer, actions: NDArray[Any], extras: dict[str, NDArray[Any]]
    ) -> None:
        """Steps all slots once: row t of the buffer gets rewards and ends, row t + 1 the observations."""
        ended = self._step_envs(t, buffer, self._env_actions(actions))
        if self._memory is not None:
            self._memory.rewarded(clip_rewards(buffer.rewards[t], self.settings.clip_rewards))
        if self.obs_filter is not None:
            row = buffer.obs_at(t + 1)
            row[:] = self.obs_filter.filter_batch(row, update=True)
        if self._wants_episodes:
            self._record_hooks(t, buffer, actions, extras, {end.slot for end in ended})
        for end in ended:
            self._end(t, buffer, end)
        if self.settings.render_env:
            self.slots[0].env.render()

    def _step_envs(self, t: int, buffer: RolloutBuffer, env_actions: Any) -> list[_End]:
        """Writes what each environment gives; returns the episodes that ended."""
        careful = bool(self._unchecked) or self._preprocess is not None or self._wants_episodes
        row, rewards = buffer.obs_at(t + 1), buffer.reward_list
        lengths, returns, horizon = self._lengths, self._returns, self.settings.horizon
        ended: list[_End] = []
        infos = buffer.info_row(t)
        index = 0
        step_together(self.slots, env_actions)
        try:
            for index, slot in enumerate(self.slots):
                action = env_actions[index]
                if slot.actions is not None:
                    slot.record(action)
                obs, reward, terminated, truncated, info = (
                    slot.env.step(action) if not careful else self._careful_step(slot, action)
                )
                row[index] = obs
                rewards[index] = reward
                returns[index] += reward
                lengths[index] += 1
                if infos is not None:
                    infos[index] = info
                if terminated or truncated:
                    ended.append(_End(index, bool(terminated), bool(truncated) and not terminated, False))
                elif horizon is not None and lengths[index] >= horizon:
                    ended.append(_End(index, False, True, self.settings.soft_horizon))
        except Exception as error:
            self._keep_progress(t, buffer, index, ended)
            self.slots[index].fail("step", error, env_actions[index])
        buffer.rewards[t] = rewards
        return ended

    def _env_actions(self, actions: NDArray[Any]) -> Any:
        """Returns one action per slot in the environment's space; NumPy integers for Discrete spaces."""
        if self._discrete:
            return list(actions + self._start_offset if self._start_offset else actions)
        policy = self.policy
        if self._only_unsquashes and policy.config["normalize_actions"] and "to_env_actions" not in vars(policy):
            made = unsquash_action(actions, policy.action_space_struct)
        else:
            made = policy.to_env_actions(actions)
        return unbatch(made) if self._nested else made

    def _careful_step(self, slot: EnvSlot, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps one environment with all checks (first episode), preprocessing and bookkeeping for callbacks."""
        index = slot.index
        result = slot.env.step(action)
        if index in self._unchecked:
            check_step_result(result, slot.where())
        raw, reward, terminated, truncated, info = result
        obs = self._observe(index, raw)
        episode = self._episodes[index]
        if episode is not None:
            done = bool(terminated or truncated)
            episode.length += 1
            episode._record_outcome(obs=obs, raw_obs=raw, reward=float(reward), done=done, info=info)
        return obs, reward, terminated, truncated, info

    def _end(self, t: int, buffer: RolloutBuffer, end: _End) -> None:
        """Closes the episode of one slot after row t and starts the next one."""
        index, terminated, truncated, soft = end
        stored = (False, False) if self.settings.no_done_at_end or soft else (terminated, truncated)
        buffer.write_end(t, index, *stored)
        buffer.close_segment(index, self._part_id(index), self._lengths[index], self._episodes[index], stop=t + 1)
        if self._wants_episodes or self.policy.exploration.has_episode_hooks:
            self._postprocess_ended(buffer)
        self._finish_episode(index)
        if soft:
            self._begin_part(index)
            return
        buffer.keep_final(t, index)
        self._episode_parts[index] = 0
        buffer.obs_at(t + 1)[index] = self._begin(index)

    def _begin_part(self, index: int) -> None:
        """Counts anew behind a soft horizon: the environment goes on."""
        self._episode_parts[index] += 1
        self._lengths[index], self._returns[index] = 0, 0.0
        episode = self._episodes[index]
        if episode is not None:
            episode.soft_reset(self._part_id(index))

    # --- after the loop ---------------------------------------------------------------------------------------

    def _postprocess(self, batch: SampleBatch, segments: list[TrajectorySlice]) -> SampleBatch:
        """Runs the exploration's, then the policy's postprocessing, then the callback."""
        policy = self.policy
        if policy.train_columns is None:
            self._number_fragments(batch, segments)
        if any(view.looks_ahead for name, view in policy.view_requirements.items() if name != NEXT_OBS):
            add_later_steps(policy.view_requirements, batch)
        hook = self.hooks.call.get("on_postprocess_trajectory")
        explores = policy.exploration.has_postprocessing
        if hook is None and policy.postprocesses_many and not explores:
            return self._cut(policy.postprocess_trajectory(batch))
        return self._cut(self._postprocess_each(batch, segments))

    def _cut(self, batch: SampleBatch) -> SampleBatch:
        """Returns rows as sequences, with one state for each instead of one per row, where such are learned from."""
        policy = self.policy
        if not policy.learns_sequences():
            return batch
        return cut_into_sequences(batch, policy.max_seq_len, keep_states_out=policy.train_columns is None)


__all__ = ["EnvRunner"]
