"""The sampling loop over an environment's own vectorised version: one call steps all slots."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rlframe.env.checks import check_observation
from rlframe.evaluation.sampling.loop import Hooks, RunnerSettings
from rlframe.evaluation.sampling.rollout import RolloutBuffer, TrajectorySlice, assemble, clip_rewards
from rlframe.evaluation.sampling.single_agent import EnvRunner
from rlframe.utils.errors import ConfigError, EnvError, describe_error
from rlframe.utils.seeding import derive_seed

if TYPE_CHECKING:
    from rlframe.data.sample_batch import SampleBatch
    from rlframe.evaluation.sampling.rollout import EnvSlot
    from rlframe.policy.policy import Policy

_INSTEAD = "set vectorized_env=False"


def make_vector_env(env_id: Any, size: int, env_config: dict[str, Any]) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Returns `size` copies of an environment that step together, in its own vectorised version.

    Raises:
        ConfigError: If the environment has none, or one that resets episodes in another way than at the next step.
    """
    spec = gym.registry.get(env_id) if isinstance(env_id, str) else None
    if spec is None or spec.vector_entry_point is None:
        raise ConfigError(
            f"vectorized_env: {env_id!r} has no vectorised version, as Gymnasium ids with a vector_entry_point have; "
            f"{_INSTEAD}"
        )
    made = gym.make_vec(env_id, num_envs=size, vectorization_mode="vector_entry_point", **env_config)
    mode = made.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.NEXT_STEP:
        raise ConfigError(f"vectorized_env: {env_id!r} resets episodes by {mode}, wanted {AutoresetMode.NEXT_STEP}")
    return made


class _Slot:
    """One of the environments that step together, as the loop knows slots."""

    actions = None  # not kept: one environment of many cannot be brought back to where it was
    failed = False

    def __init__(self, first: EnvSlot, index: int) -> None:
        self.env, self.stream, self.index = first.env, first.id_stream, index
        self.worker_index = first.worker_index
        self.episode = 0

    @property
    def episode_id(self) -> int:
        """A number unique among all episodes of all workers of a run."""
        return (self.stream << 48) | (self.index << 36) | self.episode

    def where(self) -> str:
        """Returns which environment this is, for messages."""
        return f"the vectorised environment of worker {self.worker_index}, slot {self.index} (episode {self.episode})"


def extend(buffer: RolloutBuffer, steps: int) -> None:
    """Makes room in a buffer for steps behind its last; views that `obs_at` gave before are of the old rows."""
    if steps == 0:
        return
    before, old, last = buffer.length, buffer._steps, buffer.obs_at(buffer.length)
    buffer.length += steps
    buffer.make_obs(last)
    buffer._steps[:, :before] = old
    buffer.obs_at(before)[:] = last
    for name in ("rewards", "terminateds", "truncateds", "skipped", "eps_id", "t", "actions", "infos"):
        column = getattr(buffer, name)
        if column is not None:
            setattr(buffer, name, _longer(column, steps))
    buffer.extras = {key: _longer(column, steps) for key, column in buffer.extras.items()}
    buffer.segments = [
        replace(one, start=one.start + one.slot * steps, stop=one.stop + one.slot * steps) for one in buffer.segments
    ]


def _longer(column: NDArray[Any], steps: int) -> NDArray[Any]:
    """Returns a column with room for further steps, zeros so far: nobody ended there."""
    return np.concatenate([column, np.zeros((steps, *column.shape[1:]), column.dtype)])


class VectorRunner(EnvRunner):
    """Steps a vectorised environment with one policy and returns `SampleBatch`es.

    Such an environment resets an episode in the step after its last, which has no action of ours and no reward; that
    row is stepped, and dropped. So a batch has one row less for each episode that began in it; where plans wait for a
    number of rows (`whole_fragments`), all slots step on until there are as many: up to one row of each too many.

    Args:
        vector_env: Environments that step together.
        first: A slot with one environment of the same kind, for spaces and messages.
        policy: Acts for all of them, one batched call per step.
        policy_id: Its id.
        settings: See `RunnerSettings`.
        hooks: Callbacks.
        obs_filter: Observation filter with `filter_batch`, or None.

    Raises:
        ConfigError: If the config asks for what needs single environments.
    """

    _shows_episodes = False

    def __init__(
        self,
        vector_env: gym.vector.VectorEnv[Any, Any, Any],
        first: EnvSlot,
        policy: Policy,
        policy_id: str,
        settings: RunnerSettings,
        hooks: Hooks,
        obs_filter: Any = None,
    ) -> None:
        slots: Any = [_Slot(first, index) for index in range(vector_env.num_envs)]
        super().__init__(slots, policy, policy_id, settings, hooks, obs_filter)
        self.vector_env = vector_env
        self._seed = derive_seed(first.seed, "vector env", first.stream)
        self._refuse(settings)
        self._counts = np.zeros(len(slots), np.int64)
        self._sums = np.zeros(len(slots))
        self._skip = np.zeros(len(slots), np.bool_)
        self._kept: NDArray[np.int64] | None = None

    def _refuse(self, settings: RunnerSettings) -> None:
        reasons = {
            "callbacks of episodes": self._wants_episodes,
            "an exploration that follows episodes": self.policy.exploration.has_episode_hooks,
            "observations that need preprocessing": self._preprocess is not None,
            "horizon": settings.horizon is not None,
            "batch_mode='complete_episodes'": settings.batch_mode != "truncate_episodes",
            "render_env": settings.render_env,
        }
        found = [name for name, asked in reasons.items() if asked]
        if found:
            raise ConfigError(f"vectorized_env cannot be had with {', '.join(found)}; {_INSTEAD}")

    def _ensure_started(self) -> None:
        if self._started:
            return
        obs, _ = self.vector_env.reset(seed=self._seed)
        check_observation(obs[0], self._raw_space, self.slots[0].where())
        self._obs[:] = obs if self.obs_filter is None else self.obs_filter.filter_batch(np.asarray(obs), update=True)
        for index in range(len(self.slots)):
            self.slots[index].episode += int(self._counts[index] > 0)  # one that was broken off
            if self._memory is not None:
                self._memory.begin(index)
        self._counts[:], self._sums[:], self._skip[:] = 0, 0.0, False
        self._started = True

    def _fill_buffer(self, steps: int | None = None) -> tuple[SampleBatch, list[TrajectorySlice]]:
        """Steps all slots `steps` times (None: a fragment's), or on to as many rows; returns rows and segments."""
        settings, policy = self.settings, self.policy
        buffer = RolloutBuffer(steps or settings.rollout_fragment_length, self._obs, policy, self.empty)
        wanted = buffer.length * buffer.slots
        policy.exploration.before_compute_actions(timestep=policy.global_timestep, explore=settings.explore)
        clock = time.perf_counter
        started, act_time, env_time = clock(), 0.0, 0.0
        t = 0
        while t < buffer.length:
            before = clock()
            actions, extras = self._act(buffer.obs_at(t))
            between = clock()
            buffer.write_actions(t, self._flat(actions), extras)
            self._step_all(t, buffer, actions)
            after = clock()
            act_time += between - before
            env_time += after - between
            t += 1
            if t == buffer.length and settings.whole_fragments:
                missing = wanted - int(np.count_nonzero(~buffer.skipped))
                extend(buffer, -(-missing // buffer.slots))
        policy.exploration.restore_weights()
        self._obs, self._started = buffer.obs_at(buffer.length).copy(), True  # as in EnvRunner
        self._times.add(act_time, env_time, clock() - started, buffer.length)
        for index in range(buffer.slots):
            buffer.close_segment(index, self._part_id(index), int(self._counts[index]))
        self._kept = None
        if buffer.skipped.any():
            # Rows of no episode, so that nothing before or behind them is taken for their neighbour.
            buffer.eps_id[buffer.skipped], buffer.t[buffer.skipped] = -1, 0
            self._kept = np.flatnonzero(~buffer.skipped.swapaxes(0, 1).reshape(-1))
        return assemble(buffer, policy, settings), buffer.segments

    def _step_all(self, t: int, buffer: RolloutBuffer, actions: NDArray[Any]) -> None:
        try:
            made = self.vector_env.step(self._vector_actions(actions))
        except Exception as error:
            self._started = False
            raise EnvError(f"step() of {self.slots[0].where()} raised {describe_error(error)}") from error
        obs, rewards, terminateds, truncateds, infos = made
        row = buffer.obs_at(t + 1)
        row[:] = obs
        if self.obs_filter is not None:
            row[:] = self.obs_filter.filter_batch(row, update=True)
        buffer.rewards[t] = rewards
        if self._memory is not None:
            self._memory.rewarded(clip_rewards(buffer.rewards[t], self.settings.clip_rewards))
        skip, self._skip = self._skip, np.logical_or(terminateds, truncateds)
        self._counts += 1
        self._sums += rewards
        if skip.any():
            self._begin_skipped(t, buffer, skip)
        if infos and buffer.infos is not None:
            buffer.infos[t] = [_info_of(infos, index) for index in range(buffer.slots)]
        elif buffer.infos is not None:
            buffer.infos[t] = [{} for _ in range(buffer.slots)]
        if self._skip.any():
            if not self.settings.no_done_at_end:
                buffer.terminateds[t] = terminateds
                buffer.truncateds[t] = truncateds & ~np.asarray(terminateds)
            for index in np.flatnonzero(self._skip).tolist():
                self._close(t, buffer, index)

    def _begin_skipped(self, t: int, buffer: RolloutBuffer, skip: NDArray[np.bool_]) -> None:
        """Lets new episodes begin in the slots whose row t was the reset of the last one."""
        self._counts[skip], self._sums[skip] = 0, 0.0
        for index in np.flatnonzero(skip).tolist():
            buffer.skip_row(t, index)
            if self._memory is not None:
                self._memory.begin(index)

    def _vector_actions(self, actions: NDArray[Any]) -> Any:
        return actions + self._start_offset if self._discrete else np.asarray(self.policy.to_env_actions(actions))

    def _close(self, t: int, buffer: RolloutBuffer, index: int) -> None:
        """Reports an episode that ended with row t."""
        self._lengths[index], self._returns[index] = int(self._counts[index]), float(self._sums[index])
        self._finish_episode(index)
        buffer.close_segment(index, self._part_id(index), self._lengths[index], stop=t + 1)
        self.slots[index].episode += 1

    def _cut(self, batch: SampleBatch) -> SampleBatch:
        """Drops the rows in which episodes were reset, and cuts those of a recurrent policy into sequences."""
        each = "on_postprocess_trajectory" in self.hooks.call or self.policy.exploration.has_postprocessing
        if self._kept is not None and not each and self.policy.postprocesses_many:
            batch = batch.take(self._kept)
        return super()._cut(batch)  # rows of segments have no such rows among them

    def get_state(self) -> dict[str, Any]:
        """Returns the episodes not yet reported; the environments' place cannot be told."""
        return {"started": False, "slots": {}, "metrics": [metric.to_state() for metric in self._metrics]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes the episodes not yet reported, and begins new ones."""
        super().set_state({**state, "started": False})
        warnings.warn(
            "a vectorised environment cannot be brought back to where it was: new episodes begin (set "
            "vectorized_env=False for runs that resume exactly)",
            stacklevel=2,
        )


def _info_of(infos: dict[str, Any], index: int) -> dict[str, Any]:
    """Returns one environment's info; entries that only others have are marked so under "_<key>"."""
    return {
        key: value[index]
        for key, value in infos.items()
        if not key.startswith("_") and (f"_{key}" not in infos or infos[f"_{key}"][index])
    }
