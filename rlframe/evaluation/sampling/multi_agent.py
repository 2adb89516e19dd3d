"""The sampling loop for environments with several agents: one batched call per policy and step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import INFOS, OBS
from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.env.agent_dicts import ALL
from rlframe.evaluation.episode import DUMMY_AGENT_ID, Episode
from rlframe.evaluation.metrics import RolloutMetrics
from rlframe.evaluation.sampling.collector import Agent, MultiAgentCollector, PolicyCollector, whole_episode
from rlframe.evaluation.sampling.loop import EPISODE_HOOKS, Hooks, RunnerSettings, SamplingLoop
from rlframe.evaluation.sampling.multi_agent_postprocessing import MultiAgentPostprocessing
from rlframe.evaluation.sampling.multi_agent_state import ResumableRunner
from rlframe.evaluation.sampling.rollout import EnvSlot, clip_rewards, reset_slots, step_together
from rlframe.policy.users_code import explores_by_episode, overridden_by_user, sees_episodes
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError
from rlframe.utils.spaces.observations import check_sampled
from rlframe.utils.spaces.space_utils import flatten_to_single_ndarray, unbatch

if TYPE_CHECKING:
    from rlframe.env.multi_agent_adapt import StepDicts
    from rlframe.policy.policy import Policy

#: Steps in a row in which nobody acts; after that an episode is taken for one that cannot end.
_MAX_IDLE_STEPS = 10_000
#: `fn(agent id, episode) -> policy id`.
Mapping_ = Callable[[Any, Episode], str]


class MultiAgentRunner(ResumableRunner, SamplingLoop):
    """Steps B environment slots with any number of agents and policies, and returns `MultiAgentBatch`es.

    A transition of an agent is closed by its next turn: it has the rewards of all steps since it acted, so an agent
    that loses by another one's move sees that.

    Args:
        slots: The environments, see `MultiAgentAdapter`.
        policies: Policies by id; the dict may change between calls of `sample`.
        mapping: Returns `fn(agent id, episode) -> policy id` for an episode that begins; called once per agent then.
        settings: See `RunnerSettings`.
        hooks: Callbacks.
        filters: Observation filters by policy id.
        observation_fn: Changes the observations of all agents together, or None.
        count_steps_by: What `rollout_fragment_length` counts: "env_steps", or "agent_steps".
    """

    slots: list[EnvSlot]

    def __init__(  # noqa: PLR0913 - what the worker has
        self,
        slots: list[EnvSlot],
        policies: Mapping[str, Policy],
        mapping: Callable[[], Mapping_],
        settings: RunnerSettings,
        hooks: Hooks,
        *,
        filters: Mapping[str, Any],
        observation_fn: Callable[..., Any] | None = None,
        count_steps_by: str = "env_steps",
    ) -> None:
        super().__init__(slots, settings, hooks)
        self.policies, self.mapping, self.filters = policies, mapping, filters
        self._observation_fn = observation_fn
        self.rows = MultiAgentCollector(
            policies,
            filters,
            settings.clip_rewards,
            slots=len(slots),
            by_agent_steps=count_steps_by == "agent_steps",
        )
        self._episodes: list[Episode] = []
        self._parts = [0] * len(slots)  # soft horizons that the running episodes have passed
        self._idle = [0] * len(slots)  # steps since somebody acted
        self._cut: dict[int, int] = {}  # slots whose episode passes one, and the id of the part that ends there
        self._unchecked = set(range(len(slots)))
        self._resting: set[int] = set()  # slots that are not stepped: their episodes are over, and none follows yet
        self._followers: dict[str, tuple[Policy, bool]] = {}  # policies, and whether their explorations follow episodes
        self._wants_steps = not EPISODE_HOOKS.isdisjoint(hooks.call) or any(
            sees_episodes(policy) for policy in policies.values()
        )
        self._postprocess = MultiAgentPostprocessing(policies, hooks)

    # --- public -----------------------------------------------------------------------------------------------

    def sample(self) -> MultiAgentBatch:
        """Returns the next batch: rows of closed transitions by policy, and the environment steps it took.

        truncate_episodes: `rollout_fragment_length` steps of each slot (or at least as many agent steps in all).
        complete_episodes: whole episodes only, the first that have at least that many steps.

        Raises:
            EnvError: If an environment raised, or returned what it must not; names the agent.
            NonFiniteError: If a reward or observation was NaN or infinite.
        """
        self._ensure_started()
        wanted = self.settings.rollout_fragment_length * len(self.slots)
        complete = self.settings.batch_mode != "truncate_episodes"
        env_steps, clock = 0, time.perf_counter
        try:
            while (env_steps == 0 and not complete) or self._progress(env_steps, complete=complete) < wanted:
                started = clock()
                try:
                    actions = self._act()
                except BaseException:
                    self._begin_all_anew()  # some have acted, and their actions are lost
                    raise
                between = clock()
                env_time = self._step(actions)
                env_steps += len(self.slots)
                self._times.add(between - started, env_time, clock() - started)
        finally:
            self.rows.end_acting()
        return self._take_batch(env_steps, complete=complete, wanted=wanted)

    def _progress(self, env_steps: int, *, complete: bool) -> int:
        """Returns how much of a batch there is."""
        return self.rows.progress(env_steps, complete=complete)

    # --- episodes ---------------------------------------------------------------------------------------------

    def _ensure_started(self) -> None:
        if not self._started:
            self.rows.clear()
            self._episodes = [None for _ in self.slots]  # type: ignore[misc]  # filled below
        told = {"whole": not self._started, "recreate": self.settings.recreate_envs}
        for index, begun in reset_slots(self.slots, self._drop_rows, **told):
            self._begin(index, begun)
        self._started = True

    def _begin_all_anew(self) -> None:
        """Lets the next `sample()` begin an episode in every slot."""
        for slot in self.slots:
            slot.failed = True

    def _drop_rows(self, index: int, *, whole: bool = True) -> None:
        """Forgets the rows of an episode that will not end; without `whole` those that are not closed."""
        episode = self._episodes[index]
        if episode is None or episode.episode_id in self.rows.over:
            return
        self.rows.over.add(episode.episode_id)
        if index in self._cut:  # it failed at a soft horizon: what lies before is over, and stays
            self.rows.over.add(self._cut.pop(index))
        for agent in self.rows.agents[index].values():
            if agent.collector.memory is not None and not agent.done:
                agent.collector.free_indices.append(agent.memory_index)
            agent.done = True
        for collector in self.rows.by_policy.values():
            # Of an earlier part, behind a soft horizon, only what is open is lost.
            lost = collector.episodes() == episode.episode_id
            lost &= whole
            agents = [agent for agent in self.rows.agents[index].values() if agent.collector is collector]
            lost[[agent.row for agent in agents if agent.row >= 0]] = True
            rows = np.flatnonzero(lost).tolist()
            if rows:
                self.rows.forget(collector, rows, dropped=index)
        for agent in self.rows.agents[index].values():
            agent.row = -1

    def _begin(self, index: int, begun: Any = None) -> None:
        slot = self.slots[index]
        raw, infos = begun or slot.begin()
        slot.failed = True  # until all have taken notice: a callback may raise
        self._parts[index] = self._idle[index] = 0
        self._cut.pop(index, None)  # of an episode that failed at a soft horizon
        self._new_episode(index, slot.episode_id)
        self._call("on_episode_start", index)
        self._explore_hook("on_episode_start", index)
        self._receive(index, (self._observed(index, raw), {}, {}, {}, infos))
        self.rows.filter_new()
        slot.failed = False

    def _new_episode(self, index: int, episode_id: int) -> Episode:
        """Puts an episode without agents into a slot."""
        worker = self.hooks.worker
        episode = Episode(self.policies, self.mapping(), episode_id=episode_id, env_id=index, worker=worker)
        self._episodes[index], self.rows.agents[index] = episode, {}
        self.rows.running[episode_id] = episode
        return episode

    def _agent(self, index: int, agent_id: Any) -> Agent:
        """Returns an agent of a slot's episode; a new one gets its policy."""
        agent = self.rows.agents[index].get(agent_id)
        if agent is None:
            episode = self._episodes[index]
            policy_id = episode.policy_for(agent_id)
            collector = self.rows.of_policy(policy_id, agent_id)
            agent = self.rows.agents[index][agent_id] = Agent(agent_id, len(self.rows.agents[index]), index, collector)
            self.rows.names[episode.episode_id, agent.index] = agent_id
        return agent

    def _restore_agent(self, index: int, agent_id: Any, saved: Mapping[str, Any]) -> Agent:
        """Puts an agent back into a slot's episode."""
        collector = self.rows.by_policy[saved["policy"]]
        agent = Agent(agent_id, len(self.rows.agents[index]), index, collector, memory_index=int(saved["memory_index"]))
        agent.row, agent.turn = int(saved["row"]), int(saved["turn"])
        agent.done = bool(saved["done"])
        agent.total = None if saved["total"] is None else float(saved["total"])
        self.rows.agents[index][agent_id] = agent
        return agent

    def _explore_hook(self, hook: str, index: int) -> None:
        """Tells the explorations that follow episodes."""
        for policy_id, policy in self.policies.items():
            if self._follows_episodes(policy_id, policy):
                function = getattr(policy.exploration, hook)
                # Rows of later calls are agents, not slots: for built-in ones `env_id` would name a stranger's row.
                episode = self._episodes[index] if overridden_by_user(type(policy.exploration), hook) else None
                function(policy, environment=self._slot(index).env, episode=episode)

    def _follows_episodes(self, policy_id: str, policy: Policy) -> bool:
        known = self._followers.get(policy_id)
        if known is None or known[0] is not policy:  # remembered: asking would bring back policies that wait on disk
            known = self._followers[policy_id] = policy, bool(policy.exploration.has_episode_hooks)
        return known[1]

    # --- the loop ---------------------------------------------------------------------------------------------

    def _act(self) -> list[dict[Any, Any]]:
        """Returns, by slot, the actions of the agents that have observations; one call for each policy."""
        actions: list[dict[Any, Any]] = [{} for _ in self.rows.agents]
        for collector in self.rows.by_policy.values():
            if not collector.waiting:
                continue
            rows = collector.store.waiting()
            obs = collector.store.columns[OBS][rows]
            made, flat, extras = self._act_side(collector, obs)
            collector.store.act(flat, extras)
            env_actions = collector.policy.to_env_actions(made)
            for agent, action in zip(
                collector.waiting, unbatch(env_actions) if collector.nested else env_actions, strict=True
            ):
                actions[agent.slot][agent.id] = action
            if self._wants_steps:
                self._note_actions(collector, flat, extras)
            collector.waiting = []
        return actions

    def _act_side(
        self, collector: PolicyCollector, obs: NDArray[Any]
    ) -> tuple[Any, NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns actions, the same as one array, and the columns that are stored with them."""
        policy, memory = collector.begin_acting(self.policies, self.settings.explore), collector.memory
        indices = np.array([agent.memory_index for agent in collector.waiting])
        inputs = None if memory is None else memory.inputs(obs, indices)
        if self._wants_steps:
            policy.act_for([(self._episodes[agent.slot], agent.id) for agent in collector.waiting])
        made, extras = policy.act_on_rows(obs, self.settings.explore, None, inputs)
        flat = flatten_to_single_ndarray(made, 1) if collector.nested else made
        flat, extras = self._as_taken(collector, obs, flat, {**(inputs or {}), **extras})
        if memory is not None:
            memory.acted(obs, flat, extras, indices)
        return made, flat, extras

    def _as_taken(
        self,
        collector: PolicyCollector,  # noqa: ARG002 - for simulators that choose themselves
        obs: NDArray[Any],  # noqa: ARG002
        actions: NDArray[Any],
        extras: dict[str, NDArray[Any]],
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns the actions that are taken, and their columns: here those of the policy."""
        return actions, extras

    def _slot(self, index: int) -> EnvSlot:
        """Returns the slot that a running episode belongs to."""
        return self.slots[index]

    def _note_actions(self, collector: PolicyCollector, actions: NDArray[Any], extras: dict[str, NDArray[Any]]) -> None:
        for number, agent in enumerate(collector.waiting):
            outs = {key: column[number] for key, column in extras.items()}
            self._episodes[agent.slot]._record_step(actions[number], outs, agent.id)

    def _step(self, actions: list[dict[Any, Any]]) -> float:
        """Steps all slots; returns the seconds that the environments took."""
        env_time, clock = 0.0, time.perf_counter
        taken: dict[int, tuple[StepDicts, bool]] = {}
        step_together(self.slots, actions, DUMMY_AGENT_ID)

        def step(index: int) -> None:
            nonlocal env_time
            slot = self.slots[index]
            slot.record(actions[index])
            before = clock()
            self._check_somebody_acts(index, actions[index])
            result = self._step_env(slot, actions[index])
            env_time += clock() - before
            taken[index] = self._take_result(index, result)

        failed = self._look_after([index for index, _ in self._going_on()], step)
        self.rows.filter_new()
        if self._wants_steps:
            unnoted = self._look_after(taken, lambda index: self._note_step(index, *taken[index][0]))
            failed = failed or unnoted
        over = [index for index, (_, ends) in taken.items() if ends and not self.slots[index].failed]
        unfinished = self._look_after(over, self._finish_or_cut)
        failed = failed or unfinished
        if failed is not None:
            raise failed
        if self.settings.render_env:
            self.slots[0].env.render()
        return env_time

    def _look_after(self, indices: Iterable[int], look: Callable[[int], None]) -> Exception | None:
        """Calls `look` for each of these slots, also behind one where it fails; returns an error of the first."""
        failed: Exception | None = None
        for index in indices:
            try:
                look(index)
            except Exception as error:
                self.slots[index].failed, failed = True, failed or error
            except BaseException:  # Ctrl-C: the slots behind this one are not looked after
                self._begin_all_anew()
                raise
        return failed

    def _finish_or_cut(self, index: int) -> None:
        """Ends what is over: the part before a soft horizon, or an episode, behind which another begins."""
        if index in self._cut:
            self._finish_part(index)
        else:
            self._finish(index)
            self._follow(index)

    def _going_on(self) -> list[tuple[int, EnvSlot]]:
        """Returns the slots that do not rest, by number."""
        return [(index, slot) for index, slot in enumerate(self.slots) if index not in self._resting]

    def _step_env(self, slot: EnvSlot, actions: dict[Any, Any]) -> StepDicts:
        """Steps one environment; what it raises says so, unlike errors of mappings and callbacks."""
        try:
            result: StepDicts = slot.env.step(actions)
        except Exception as error:
            slot.fail("step", error, actions)
        return result

    def _check_somebody_acts(self, index: int, actions: dict[Any, Any]) -> None:
        """Raises where nobody has acted for so long that nobody ever will."""
        self._idle[index] = 0 if actions else self._idle[index] + 1
        if self._idle[index] > _MAX_IDLE_STEPS:
            through = [agent.id for agent in self.rows.agents[index].values() if agent.done]
            raise EnvError(
                f"no agent had an observation to act on in the last {_MAX_IDLE_STEPS:,} steps of "
                f"{self._slot(index).where()}, "
                f'and "__all__" was never True; agents that are through: {through}. Return an observation for who acts '
                'next, or "__all__": True when the episode is over'
            )

    def _take_result(self, index: int, result: StepDicts) -> tuple[StepDicts, bool]:
        """Writes what a step of one slot gave; returns that as it was taken, and whether its episode is over."""
        obs, rewards, terminateds, truncateds, infos = result
        episode = self._episodes[index]
        episode.length += 1
        horizon = self.settings.horizon
        at_horizon = horizon is not None and episode.length >= horizon and not terminateds[ALL]
        soft = at_horizon and self.settings.soft_horizon and not truncateds.get(ALL)
        if at_horizon and not soft:
            truncateds[ALL] = True
        for agent_id, reward in rewards.items():
            agent = self._agent(index, agent_id)
            agent.rewarded(reward)
            if agent.row >= 0:
                agent.collector.store.reward(agent.row, reward)
        if self._observation_fn is not None:
            obs = self._observed(index, obs)
        if soft:
            self._begin_part(index)
        taken = obs, rewards, terminateds, truncateds, infos
        self._receive(index, taken)
        return taken, bool(terminateds[ALL] or truncateds.get(ALL) or soft)

    def _begin_part(self, index: int) -> None:
        """Lets rows that begin from now on be those of another part of the episode, behind a soft horizon.

        Nobody's trajectory ends there: the environment and the agents' memories go on, and a transition that is under
        way, of an agent whose turn it is not, is closed by its next turn as ever.
        """
        episode = self._episodes[index]
        self._cut[index] = episode.episode_id
        self._parts[index] += 1
        # 12 bits between those of the episode and those of the slot; after 4,096 parts they come again.
        episode.episode_id = self.slots[index].episode_id + (self._parts[index] % 4096 << 24)
        self.rows.running[episode.episode_id] = episode
        for agent in self.rows.agents[index].values():
            agent.turn = 0
            self.rows.names[episode.episode_id, agent.index] = agent.id

    def _observed(self, index: int, obs: dict[Any, Any]) -> dict[Any, Any]:
        """Returns the observations as `observation_fn` makes them."""
        if self._observation_fn is None:
            return obs
        changed = self._observation_fn(
            agent_obs=obs,
            worker=self.hooks.worker,
            base_env=self.hooks.base_env,
            policies=self.policies,
            episode=self._episodes[index],
        )
        if not isinstance(changed, Mapping):
            raise ConfigError(
                f"multiagent.observation_fn returned {type(changed).__name__}, wanted a dict {{agent id: observation}}"
            )
        return dict(changed)

    def _receive(self, index: int, result: StepDicts) -> None:
        """Closes the transitions that a step closed, and begins those of the agents that act next."""
        obs, _, terminateds, truncateds, infos = result
        all_terminated = terminateds.get(ALL, False)
        over = all_terminated or truncateds.get(ALL, False)
        for agent_id, raw in obs.items():
            agent = self._agent(index, agent_id)
            terminated = bool(all_terminated or terminateds.get(agent_id, False))
            ended = over or terminated or truncateds.get(agent_id, False)
            if agent.row >= 0 and INFOS in agent.collector.store.columns:
                agent.collector.store.columns[INFOS][agent.row] = infos.get(agent_id, {})
            if ended:
                self._end(agent, self._prepared(agent, raw), terminated=terminated)
            elif agent.done:
                raise EnvError(
                    f"agent {agent_id!r} was done, and got another observation; wanted none for an agent that is "
                    "through (an agent that comes again needs a new id)"
                )
            else:
                self._continue(agent, self._prepared(agent, raw))
        for agent_id, agent in self.rows.agents[index].items():
            if agent_id not in obs and (agent.row >= 0 or (over and not agent.done)):
                terminated = bool(all_terminated or terminateds.get(agent_id, False))
                if over or terminated or truncateds.get(agent_id, False):
                    # Its last observation is not known: the one it acted on stands for it.
                    self._end(agent, None, terminated=terminated)

    def _prepared(self, agent: Agent, raw: Any) -> Any:
        """Returns an observation as the agent's policy takes it."""
        collector = agent.collector
        if agent.slot in self._unchecked:
            raw = self._checked(agent, raw)
        if self._wants_steps:
            self._episodes[agent.slot]._view(agent.id).raw_obs = raw
        try:
            made = collector.prepared(raw)
            if np.shape(made) == collector.shape:
                return made
        except Exception:  # the check below says what is wrong
            pass
        return collector.prepared(self._checked(agent, raw))

    def _checked(self, agent: Agent, raw: Any) -> Any:
        where = f"{self._slot(agent.slot).where()}, agent {agent.id!r}, policy {agent.collector.policy_id!r}"
        return check_sampled(raw, agent.collector.raw_space, where, first=not self._episodes[agent.slot].length)

    def _continue(self, agent: Agent, obs: Any) -> None:
        collector, index = agent.collector, agent.slot
        episode = self._episodes[index]
        step = 0 if index in self._cut else episode.length  # behind a soft horizon it is counted anew
        row = collector.store.begin(obs, episode.episode_id, step, agent.index, index, turn=agent.turn)
        if agent.row >= 0:
            collector.store.link(agent.row, row)
            if collector.memory is not None:
                reward = collector.store.columns["rewards"][agent.row : agent.row + 1]
                clipped = clip_rewards(reward, self.settings.clip_rewards)
                collector.memory.rewarded(clipped, np.array([agent.memory_index]))
        agent.row, agent.turn = row, agent.turn + 1
        collector.waiting.append(agent)

    def _end(self, agent: Agent, obs: Any, *, terminated: bool) -> None:
        """Closes an agent's trajectory, if it has one."""
        collector = agent.collector
        if agent.row >= 0:
            if obs is None:
                final = collector.store.columns[OBS][agent.row]
            else:
                final = np.asarray(obs)
                if collector.filter is not None and np.isfinite(final).all():
                    final = np.asarray(collector.filter(final, update=True))
            agent.final = final.copy()
            flags = (False, False) if self.settings.no_done_at_end else (terminated, not terminated)
            collector.store.end(agent.row, final, terminated=flags[0], truncated=flags[1])
        if collector.memory is not None and not agent.done:
            collector.free_indices.append(agent.memory_index)
        agent.row, agent.done = -1, True

    def _note_step(
        self,
        index: int,
        obs: dict[Any, Any],
        rewards: dict[Any, float],
        terminateds: dict[Any, bool],
        truncateds: dict[Any, bool],
        infos: dict[Any, Any],
    ) -> None:
        """Keeps what callbacks may ask of an episode, and calls them."""
        episode, over = self._episodes[index], terminateds.get(ALL, False) or truncateds.get(ALL, False)
        for agent_id, agent in self.rows.agents[index].items():
            ends = bool(terminateds.get(agent_id) or truncateds.get(agent_id))
            last = agent.collector.store.columns[OBS][agent.row].copy() if agent.row >= 0 else agent.final
            episode._record_outcome(
                obs=last,
                raw_obs=obs.get(agent_id),
                reward=rewards.get(agent_id),
                done=agent.done or ends,
                info=infos.get(agent_id, {} if agent_id in obs else None),
                agent_id=agent_id,
                closes=over or agent_id in obs or ends,
            )
        self._call("on_episode_step", index)

    def _finish(self, index: int) -> None:
        """Reports an episode that ended."""
        episode_id = self._episodes[index].episode_id
        self.rows.over.add(episode_id)
        self._postprocess_ended(episode_id)
        self._report(index, episode_id)
        self._explore_hook("on_episode_end", index)
        self._unchecked.discard(index)

    def _postprocess_ended(self, part: int) -> None:
        """Postprocesses what ended, if users' code sees that: before any `on_episode_end` is called."""
        call, policies = self.hooks.call, [collector.policy for collector in self.rows.by_policy.values()]
        seen = "on_postprocess_trajectory" in call or any(
            overridden_by_user(type(policy), "postprocess_trajectory") for policy in policies
        )
        if any(map(explores_by_episode, policies)) or (seen and "on_episode_end" in call):
            self.rows.postprocess_ended(part, self._postprocess)

    def _follow(self, index: int) -> None:
        """Begins what follows on an episode that ended: the next one."""
        self._begin(index)

    def _finish_part(self, index: int) -> None:
        """Reports what lies before a soft horizon, and counts anew."""
        part = self._cut.pop(index)
        self.rows.over.add(part)
        self._postprocess_ended(part)
        episode = self._report(index, part)
        self._unchecked.discard(index)
        for agent in self.rows.agents[index].values():
            agent.total = None
        episode.soft_reset()

    def _report(self, index: int, part: int) -> Episode:
        episode = self._episodes[index]
        agents = self.rows.agents[index].values()
        # Who was never rewarded has no return: an agent that only saw the end would lower its policy's mean.
        totals = {(agent.id, agent.collector.policy_id): agent.total for agent in agents}
        episode.agent_rewards = {whose: total for whose, total in totals.items() if total is not None}
        episode.total_reward = sum(episode.agent_rewards.values())
        self._call("on_episode_end", index)
        self.rows.finished_steps += episode.length
        self.rows.steps_of[part] = episode.length
        self._metrics.append(
            RolloutMetrics(
                episode_length=episode.length,
                episode_reward=episode.total_reward,
                agent_rewards=dict(episode.agent_rewards),
                custom_metrics=episode.custom_metrics,
                perf_stats=self._times.stats(),
                hist_data=episode.hist_data,
                media=episode.media,
                slot=index,
            )
        )
        return episode

    # --- batches ----------------------------------------------------------------------------------------------

    def _take_batch(self, env_steps: int, *, complete: bool, wanted: int | None = None) -> MultiAgentBatch:
        ended = self.rows.ended(wanted) if complete else None
        ready = self.rows.ready(ended)
        first, bad = self.rows.forget_not_finite(ready)  # of all, before anything is taken out
        if first:
            for index, running in enumerate(self._episodes):
                if whole_episode(running.episode_id) in bad:
                    self._slot(index).failed = True
            raise NonFiniteError(first)
        before = self.rows.finished_steps
        batches = self.rows.take(ready, self._postprocess, ended)
        return MultiAgentBatch(batches, before - self.rows.finished_steps if complete else env_steps)


__all__ = ["MultiAgentRunner"]
