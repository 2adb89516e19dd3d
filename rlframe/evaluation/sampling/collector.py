"""What the sampling loop for several agents keeps of all policies, of each one, and of each agent in an episode."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import AGENT_INDEX, EPS_ID, OBS, UNROLL_ID, T
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import cut_into_sequences
from rlframe.evaluation.sampling.trajectory_store import TrajectoryStore
from rlframe.models.preprocessors import NoPreprocessor
from rlframe.policy.recurrent_context import RecurrentContext
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rlframe.evaluation.episode import Episode
    from rlframe.policy.policy import Policy

    Postprocess = Callable[..., dict[str, SampleBatch]]


class PolicyCollector:
    """What the loop keeps for one policy."""

    def __init__(self, policy_id: str, policy: Policy, obs_filter: Any) -> None:
        self.policy_id = policy_id
        self.policy = policy
        self.filter = obs_filter
        space = policy.observation_space
        dtype = np.dtype(space.dtype or np.float32)
        plain = np.dtype(np.float32) if dtype == np.float64 or obs_filter is not None else dtype
        self.shape = tuple(space.shape or ())
        self.store = TrajectoryStore(self.shape, plain, policy.train_columns)
        preprocessor = policy._obs_preprocessor
        self.preprocess: Any = None if isinstance(preprocessor, NoPreprocessor) else preprocessor
        given = getattr(preprocessor, "_obs_space", space)  # the policy's constructor may have made another of it
        self.raw_space = getattr(given, "original_space", given)
        self.nested = policy.action_space_struct is not policy.action_space
        self.memory = RecurrentContext(policy, 1) if policy.needs_memory() else None
        self.free_indices: list[int] = []
        self.num_indices = 0
        #: Agents whose rows wait for an action, in the order of the rows.
        self.waiting: list[Agent] = []
        self.unfiltered = 0
        #: The exploration that was told that acting begins, None between samples.
        self.told: weakref.ref[Any] | None = None

    def prepared(self, raw: Any) -> Any:
        """Returns an observation as the policy takes it."""
        return raw if self.preprocess is None else self.preprocess.transform(raw)

    def begin_acting(self, policies: Mapping[str, Policy], explore: bool) -> Policy:
        """Tells the exploration of the policy that acting begins, once for each sample; returns the policy.

        Once more where the policy came back from the disk: its exploration is a new one then.

        Args:
            policies: Policies by id.
            explore: Whether actions are explored.
        """
        policy: Policy = policies.get(self.policy_id, self.policy)
        exploration = policy.exploration
        if self.told is None or self.told() is not exploration:
            policy.begin_acting(explore)
            self.told = weakref.ref(exploration)
        return policy

    def end_acting(self) -> None:
        """Gives a policy whose exploration changes weights its own ones back."""
        exploration = None if self.told is None else self.told()
        if exploration is not None:
            exploration.restore_weights()
        self.told = None

    def filter_new(self) -> None:
        """Filters the observations that came with the last step."""
        count = len(self.store)
        if self.filter is not None and count > self.unfiltered:
            rows = self.store.columns[OBS][self.unfiltered : count]
            finite = np.isfinite(rows.reshape(len(rows), -1)).all(1)  # what is not would stay in the filter's mean
            if finite.any():
                rows[finite] = self.filter.filter_batch(rows[finite], update=True)
        self.unfiltered = count

    def closed(self) -> NDArray[np.bool_]:
        """Returns which rows are closed."""
        closed: NDArray[np.bool_] = self.store.closed[: len(self.store)]
        return closed

    def episodes(self) -> NDArray[np.int64]:
        """Returns the rows' episode ids."""
        ids: NDArray[np.int64] = self.store.columns[EPS_ID][: len(self.store)]
        return ids

    def in_sequences(self, batch: SampleBatch) -> SampleBatch:
        """Returns a batch as the policy learns from it: cut into sequences where it learns from such."""
        policy = self.policy
        if not policy.learns_sequences():
            return batch
        return cut_into_sequences(batch, policy.max_seq_len, keep_states_out=policy.train_columns is None)

    def take_index(self) -> int:
        """Returns a free index of the memory, which begins anew."""
        if self.memory is None:
            return 0
        if self.free_indices:
            index = self.free_indices.pop()
        else:
            index, self.num_indices = self.num_indices, self.num_indices + 1
            self.memory.grow(max(16, 2 * self.num_indices))
        self.memory.begin(index)
        return index


class Agent:
    """One agent in one episode."""

    __slots__ = ("collector", "done", "final", "id", "index", "memory_index", "row", "slot", "total", "turn")

    def __init__(
        self, agent_id: Any, index: int, slot: int, collector: PolicyCollector, memory_index: int | None = None
    ) -> None:
        self.id, self.index, self.slot, self.collector = agent_id, index, slot, collector
        self.row = -1  # its open row
        self.turn = 0
        self.total: float | None = None  # of its raw rewards; None before the first
        self.done = False
        self.final: Any = None  # its last observation, as its policy would take it
        self.memory_index = collector.take_index() if memory_index is None else memory_index

    def rewarded(self, reward: float) -> None:
        """Counts a raw reward."""
        self.total = reward if self.total is None else self.total + reward


class MultiAgentCollector:
    """The rows of all policies from the observation that begins them to the batch that they are handed out in.

    Args:
        policies: Policies by id; the dict may change while rows are collected.
        filters: Observation filters by policy id.
        clips_rewards: See `clip_rewards`.
        slots: Number of environments.
        by_agent_steps: Whether sizes of batches count the steps of agents.

    Attributes:
        by_policy: What is kept of each policy, by its id.
        agents: Of the running episode of each slot, by agent id.
        names: Agents' ids by (episode id, agent's number).
        running: Episodes with rows that are not handed out yet, by id.
        over: Ids of the episodes that have ended.
        finished_steps: Env steps of the episodes that have ended since the last batch.
        steps_of: Of these, by id of the part of an episode.
        early: Rows that were postprocessed when their episode ended, by its id and that of the policy.
        fragments: Of trajectories, numbered so far.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        filters: Mapping[str, Any],
        clips_rewards: bool | float | None,
        *,
        slots: int,
        by_agent_steps: bool,
    ) -> None:
        self._policies, self._filters, self._clips_rewards = policies, filters, clips_rewards
        self._by_agent_steps = by_agent_steps
        self.fragments = 0
        self.agents: list[dict[Any, Agent]] = [{} for _ in range(slots)]
        self.clear()

    def clear(self) -> None:
        """Forgets all rows and episodes."""
        self.by_policy: dict[str, PolicyCollector] = {}
        self.names: dict[tuple[int, int], Any] = {}
        self.running: dict[int, Episode] = {}
        self.over: set[int] = set()
        self.finished_steps = 0
        self.steps_of: dict[int, int] = {}
        self.early: dict[int, dict[str, SampleBatch]] = {}

    def add(self, policy_id: str) -> PolicyCollector:
        """Begins to collect the rows of a policy."""
        policy = self._policies[policy_id]
        obs_filter = self._filters.get(policy_id) if policy._obs_filter is not None else None
        made = PolicyCollector(policy_id, policy, obs_filter)
        self.by_policy[policy_id] = made
        return made

    def of_policy(self, policy_id: Any, agent_id: Any) -> PolicyCollector:
        """Returns what is kept of the policy that acts for an agent.

        Raises:
            ConfigError: If there is no such policy.
        """
        known, policy = self.by_policy.get(policy_id), self._policies.get(policy_id)
        if known is not None and known.policy is policy:
            return known
        if policy is None:
            raise ConfigError(
                f"multiagent.policy_mapping_fn: gave {policy_id!r} for agent {agent_id!r}, wanted one of "
                f"{', '.join(map(repr, self._policies))}"
            )
        return self.add(policy_id)

    # --- while sampling -------------------------------------------------------------------------------------------

    def end_acting(self) -> None:
        """Gives policies whose exploration changes weights their own ones back."""
        for collector in self.by_policy.values():
            collector.end_acting()

    def filter_new(self) -> None:
        """Filters the observations that came with the last step."""
        for collector in self.by_policy.values():
            collector.filter_new()

    def forget(self, collector: PolicyCollector, rows: list[int], dropped: int | None = None) -> None:
        """Drops rows of a policy.

        Args:
            collector: What is kept of the policy.
            rows: Their numbers.
            dropped: Slot of which the agents no longer wait for actions; None for no slot.
        """
        self._move(collector, collector.store.forget(rows), dropped)

    def _move(self, collector: PolicyCollector, moved: NDArray[np.int64], dropped: int | None = None) -> None:
        """Tells agents where their rows are after some were taken out."""
        for index, agents in enumerate(self.agents):
            for agent in agents.values():
                if agent.collector is collector and agent.row >= 0:
                    agent.row = int(moved[agent.row])
            if index == dropped:
                collector.waiting = [agent for agent in collector.waiting if agent.slot != dropped]
        collector.unfiltered = len(collector.store)

    # --- batches --------------------------------------------------------------------------------------------------

    def progress(self, env_steps: int, *, complete: bool) -> int:
        """Returns how much of a batch there is, in what its size counts.

        Args:
            env_steps: Steps of environments since the last batch.
            complete: Whether whole episodes are wanted.
        """
        if complete and not self._by_agent_steps:
            return self.finished_steps
        if self._by_agent_steps:
            return self._num_ready(self.over | set(self.early) if complete else None)
        return env_steps

    def ended(self, wanted: int | None = None) -> set[int]:
        """Returns the ids of the episodes that have ended, without those behind the one that completes a batch.

        Args:
            wanted: Steps of a batch, in what its size counts; None returns all of them.
        """
        chosen, made = self.over - set(self.steps_of), 0
        for part, steps in self.steps_of.items():
            if wanted is not None and made >= wanted:
                break
            chosen.add(part)
            made += self._num_ready({part}) if self._by_agent_steps else steps
        return chosen

    def _num_ready(self, episodes: set[int] | None) -> int:
        early = [batches for part, batches in self.early.items() if episodes is None or part in episodes]
        made = [batch.count for batches in early for batch in batches.values()]
        return sum(made) + sum(map(len, self.ready(episodes).values()))

    def ready(self, episodes: set[int] | None = None) -> dict[str, NDArray[np.int64]]:
        """Returns the numbers of the rows that can be handed out, by policy id.

        Args:
            episodes: Ids of those whose rows are wanted; None takes all.
        """
        made = {}
        for policy_id, collector in self.by_policy.items():
            among = True if episodes is None else np.isin(collector.episodes(), list(episodes))
            made[policy_id] = np.flatnonzero(collector.closed() & among)
        return made

    def take(
        self, ready: Mapping[str, NDArray[np.int64]], postprocess: Postprocess, episodes: set[int] | None = None
    ) -> dict[str, SampleBatch]:
        """Takes rows out, and returns them as postprocessed batches by policy id; episodes without rows are forgotten.

        Args:
            ready: Numbers of rows by policy id.
            postprocess: `fn(batches by policy id, names, running) -> batches by policy id`.
            episodes: Ids of the episodes that have ended and were asked for; None: all.
        """
        parts = [part for part in self.early if episodes is None or part in episodes]
        pieces = [*(self.early.pop(part) for part in parts), self._take(ready, postprocess)]
        made = {}
        for policy_id in self.by_policy:
            batches = [piece[policy_id] for piece in pieces if policy_id in piece]
            if batches:
                made[policy_id] = batches[0] if len(batches) == 1 else SampleBatch.concat_samples(batches)
        self._forget_episodes()
        left = {} if episodes is None else {part: n for part, n in self.steps_of.items() if part not in episodes}
        self.finished_steps, self.steps_of = sum(left.values()), left
        return made

    def postprocess_ended(self, part: int, postprocess: Postprocess) -> None:
        """Takes out an episode's closed rows and postprocesses them; they are kept until its rows are asked for.

        Args:
            part: Id of the episode, or of the part before a soft horizon.
            postprocess: See `take`.
        """
        ready = self.ready({part})
        # What is not finite stays: an error will say so when all rows are asked for.
        if not any(self.by_policy[policy_id].store.not_finite(rows) for policy_id, rows in ready.items()):
            self.early[part] = self._take(ready, postprocess)

    def _take(self, ready: Mapping[str, NDArray[np.int64]], postprocess: Postprocess) -> dict[str, SampleBatch]:
        taken: dict[str, SampleBatch] = {}
        for policy_id, rows in ready.items():
            if len(rows):
                collector = self.by_policy[policy_id]
                batch, moved = collector.store.take(rows, self._clips_rewards)
                taken[policy_id] = self._numbered(batch, collector)
                self._move(collector, moved)
        done = postprocess(taken, self.names, self.running)
        return {policy_id: self.by_policy[policy_id].in_sequences(batch) for policy_id, batch in done.items()}

    def _numbered(self, batch: SampleBatch, collector: PolicyCollector) -> SampleBatch:
        """Returns rows with `unroll_id`, where all columns are wanted: a number for each trajectory's fragment."""
        if collector.store.wanted is None:
            begins = np.ones(batch.count, np.int64)
            whose = np.stack([batch[EPS_ID], batch[AGENT_INDEX]])
            begins[1:] = (whose[:, 1:] != whose[:, :-1]).any(0)
            batch[UNROLL_ID] = self.fragments + begins.cumsum() - 1
            self.fragments += int(begins.sum())
        return batch

    def forget_not_finite(self, ready: Mapping[str, NDArray[np.int64]]) -> tuple[str, set[int]]:
        """Drops closed rows of episodes with NaN or infinity in rows that are to be handed out.

        Args:
            ready: Numbers of these rows by policy id.

        Returns:
            In words the first such number, "" for none, and the ids of the episodes, without their parts.
        """
        first, bad = "", set[int]()
        for policy_id, rows in ready.items():
            columns = self.by_policy[policy_id].store.columns
            for row, what in self.by_policy[policy_id].store.not_finite(rows):
                episode = int(columns[EPS_ID][row])
                bad.add(whole_episode(episode))
                agent = self.names[episode, int(columns[AGENT_INDEX][row])]
                first = first or (
                    f"the environment in slot {episode >> 36 & 0xFFF} gave {what} of agent {agent!r}, policy "
                    f"{policy_id!r}, in episode {episode & 0xFFFFFF} at the agent's step {int(columns[T][row])}; "
                    "wanted finite numbers"
                )
        for collector in self.by_policy.values() if bad else ():
            lost = np.isin(whole_episode(collector.episodes()), list(bad)) & collector.closed()
            if lost.any():
                self.forget(collector, np.flatnonzero(lost).tolist())
        self.early = {part: made for part, made in self.early.items() if whole_episode(part) not in bad}
        for part in [part for part in self.steps_of if whole_episode(part) in bad]:
            self.finished_steps -= self.steps_of.pop(part)
        return first, bad

    def _forget_episodes(self) -> None:
        """Lets go of finished episodes whose rows have all been handed out."""
        left = {int(episode) for collector in self.by_policy.values() for episode in collector.episodes()}
        gone = {episode for episode in self.over if episode not in left}
        self.over -= gone
        for episode in gone:
            self.running.pop(episode, None)
        self.names = {key: name for key, name in self.names.items() if key[0] not in gone}


def whole_episode(part: Any) -> Any:
    """Returns the ids of the environment's episodes, of ids that name parts of them behind soft horizons."""
    return part & ~(0xFFF << 24)
