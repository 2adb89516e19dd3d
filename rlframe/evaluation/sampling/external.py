"""The sampling loop for simulators with main loops of their own: it answers their calls."""

from __future__ import annotations

import logging
import queue
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTION_PROB,
    EPS_ID,
    PREV_ACTIONS,
    PREV_REWARDS,
    STATE_IN_PREFIX,
)
from rlframe.env.agent_dicts import ALL
from rlframe.evaluation.metrics import RolloutMetrics
from rlframe.evaluation.sampling.multi_agent import MultiAgentRunner
from rlframe.policy.users_code import method
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError, describe_error
from rlframe.utils.numpy import convert_to_numpy
from rlframe.utils.spaces.observations import check_observation, describe

if TYPE_CHECKING:
    from rlframe.data.sample_batch import MultiAgentBatch
    from rlframe.env.episode_broker import ActionRequest, EpisodeBroker, OpenEpisode
    from rlframe.evaluation.sampling.collector import PolicyCollector
    from rlframe.evaluation.sampling.rollout import EnvSlot


_LOGGER = logging.getLogger("rlframe")


class _Everything(set[int]):
    """Contains every index: each observation is checked, for those of a simulator come from anywhere."""

    def __contains__(self, index: object) -> bool:
        return True


class ExternalRunner(MultiAgentRunner):
    """Samples from `ExternalEnv`s: rows are those of their episodes, which end when the simulators say so.

    One round answers all who wait, one call for each policy, and waits for the next call. Steps are counted when they
    are closed, by the next observation or the end. What a simulator has asked while the trainer learned is answered
    with the new weights.

    Takes what `MultiAgentRunner` takes. Where a running episode stands in its lists is its index; indices of episodes
    that have ended are used again.

    Raises:
        ConfigError: If a horizon is set: it is the simulators that end episodes.
    """

    def __init__(
        self, slots: list[EnvSlot], policies: Any, mapping: Any, settings: Any, *args: Any, **more: Any
    ) -> None:
        if settings.horizon is not None:
            raise ConfigError(
                f"horizon: got {settings.horizon} with an ExternalEnv, wanted None: end episodes in its run(), with "
                "end_episode(..., truncated=True) where they are cut off"
            )
        super().__init__(slots, policies, mapping, settings, *args, **more)
        self._unchecked = _Everything()
        self.rows.agents, self._episodes = [], []
        self._requests: queue.SimpleQueue[ActionRequest] = queue.SimpleQueue()
        self._indices: dict[OpenEpisode, int] = {}
        self._free: list[int] = []
        self._slots_by_index: list[EnvSlot] = []
        self._slots_of_brokers: dict[EpisodeBroker, EnvSlot] = {}
        self._silent_s: dict[EpisodeBroker, float] = {}  # how long a call was waited for since the last one
        self._waiting: dict[int, ActionRequest] = {}  # by index
        self._not_trained: set[int] = set()  # ids of episodes whose rows are dropped
        self._not_reported: set[int] = set()
        self._failures: dict[int, EnvError] = {}  # by slot
        self._of_callback: Exception | None = None  # what one raised last
        self._woken = False

    @property
    def num_slots(self) -> int:
        """1: simulators begin episodes when they like, so none is waited for."""
        return 1

    # --- sampling ------------------------------------------------------------------------------------------------

    def sample(self) -> MultiAgentBatch:
        """Returns the next batch, see `MultiAgentRunner.sample`; waits for the simulators.

        One that is woken (`EpisodeBroker.wake`) returns what there is, which may be no row at all.

        Raises:
            EnvError: If a simulator's `run()` raised or returned, or called nothing for `timeout_s`, or gave what its
                spaces do not allow.
        """
        self._ensure_started()
        wanted = self.settings.rollout_fragment_length * len(self.slots)
        complete = self.settings.batch_mode != "truncate_episodes"
        env_steps, clock = 0, time.perf_counter
        self._woken = False
        try:
            while not self._woken and self.rows.progress(env_steps, complete=complete) < wanted:
                started = clock()
                self._answer(self._act())
                between = clock()
                call = self._next_call()
                waited = clock()
                while call is not None:
                    env_steps += self._take_call(call)
                    call = self._next_call(wait=False)
                self._times.add(between - started, waited - between, clock() - started)
        finally:
            self.rows.end_acting()
        self._drop_untrained()
        return self._take_batch(env_steps, complete=complete)

    def _ensure_started(self) -> None:
        for slot in self.slots:
            if slot.index in self._failures:
                if not self.settings.recreate_envs:
                    raise self._failures[slot.index]
                self._forget(slot)
                slot.recreate()
                del self._failures[slot.index]
            if slot.env.broker not in self._slots_of_brokers:
                slot.env.broker.attach_queue(self._requests)
                self._slots_of_brokers[slot.env.broker] = slot
                self._silent_s[slot.env.broker] = 0.0
                slot.env.start()
        self._started = True

    def _forget(self, slot: EnvSlot) -> None:
        """Drops the running episodes of a simulator that has failed."""
        self._slots_of_brokers = {
            broker: known for broker, known in self._slots_of_brokers.items() if known is not slot
        }
        self._silent_s = {
            broker: silent_s for broker, silent_s in self._silent_s.items() if broker in self._slots_of_brokers
        }
        for episode, index in list(self._indices.items()):
            if self._slots_by_index[index] is slot:
                self._drop_rows(index)
                self._leave(episode, index)

    def _next_call(self, *, wait: bool = True) -> ActionRequest | None:
        if not wait:
            return None if self._requests.empty() else self._requests.get()
        # Everybody has been answered, so that it is everybody's turn; who calls does not excuse those who do not.
        left_s = {
            broker: slot.env.timeout_s - self._silent_s[broker]
            for broker, slot in self._slots_of_brokers.items()
            if slot.env.timeout_s is not None
        }
        limit_s = max(min(left_s.values()), 0.0) if left_s else None
        started = time.monotonic()
        try:
            return self._requests.get(timeout=limit_s)
        except queue.Empty:
            pass
        finally:
            waited_s = time.monotonic() - started
            self._silent_s = {broker: silent_s + waited_s for broker, silent_s in self._silent_s.items()}
        silent = [broker for broker, left_of_one_s in left_s.items() if left_of_one_s <= (limit_s or 0.0)]
        for broker in silent:
            self._silent_s[broker] = 0.0  # who samples again waits again
        slots = [self._slots_of_brokers[broker] for broker in silent]
        found = "; ".join(
            f"{self._name(slot)}: its run() has called nothing for {slot.env.timeout_s:g} s" for slot in slots
        )
        raise EnvError(
            f"{found}; wanted get_action(), log_action() or end_episode(); pass a longer timeout_s (or None) to "
            "ExternalEnv.__init__() if it takes longer"
        )

    def _name(self, slot: EnvSlot) -> str:
        return f"the {type(slot.env).__name__} of worker {slot.worker_index}, slot {slot.index}"

    def _take_call(self, call: ActionRequest) -> int:
        """Writes what a simulator told; returns how many steps of training episodes that closed: 0 or 1."""
        slot = self._slots_of_brokers.get(call.broker)
        if slot is None:  # of one that was replaced
            return 0
        self._silent_s[call.broker] = 0.0
        if call.wakes:
            self._woken = True
            return 0
        if call.episode is None:
            raise self._fail(slot, _how_it_ended(self._name(slot), call.broker.failure), call.broker.failure)
        try:
            return self._take_step(slot, call.episode, call)
        except Exception as error:
            # The simulator's own traceback shows which of its lines gave that.
            call.broker.reply(call, None, error)
            if error is self._of_callback:
                raise
            if slot.env.forgives:
                self._give_up(slot, call.episode, call, error)
                return 0
            if isinstance(error, NonFiniteError):
                raise
            message = f"{self._name(slot)}, episode {call.episode.episode_id!r}: {error}"
            raise self._fail(slot, message, error) from error

    def _call(self, hook: str, index: int) -> None:
        """Calls a callback; what it raises is no mistake of the simulator's."""
        try:
            super()._call(hook, index)
        except Exception as error:
            self._of_callback = error
            raise

    def _give_up(self, slot: EnvSlot, told: OpenEpisode, call: ActionRequest, error: Exception) -> None:
        """Drops an episode whose caller made a mistake; the others go on."""
        what = str(error) or type(error).__name__
        _LOGGER.warning("%s, episode %r: %s; the episode is given up", self._name(slot), told.episode_id, what)
        call.broker.forget(told.episode_id)
        if told in self._indices:
            self._drop_rows(self._indices[told])
            self._leave(told, self._indices[told])

    def _fail(self, slot: EnvSlot, message: str, cause: BaseException | None) -> EnvError:
        error = EnvError(message)
        error.__cause__ = cause
        self._failures[slot.index] = error
        return error

    def _take_step(self, slot: EnvSlot, told: OpenEpisode, call: ActionRequest) -> int:
        begins = told not in self._indices
        if call.abandoned:
            if not begins:
                self._drop_rows(self._indices[told], whole=self.settings.batch_mode == "complete_episodes")
                self._leave(told, self._indices[told])
            return 0
        index = self._enter(slot, told) if begins else self._indices[told]
        if call.actions is not None:
            call = self._with_checked_actions(index, call)
        obs, episode = dict(call.obs), self._episodes[index]
        terminateds = {**call.dones, ALL: call.over and not call.truncated}
        truncateds = {ALL: call.over and call.truncated}
        if begins:
            for agent_id, reward in call.rewards.items():  # before anybody acted: of the episode, of no action
                self._agent(index, agent_id).rewarded(reward)
            if not call.over:
                self._receive(index, (self._observed(index, obs), {}, terminateds, truncateds, dict(call.infos)))
        else:
            taken, _ = self._take_result(index, (obs, dict(call.rewards), terminateds, truncateds, dict(call.infos)))
        self.rows.filter_new()
        if self._wants_steps and not begins:
            self._note_step(index, *taken)
        counts = not begins and episode.episode_id not in self._not_trained
        if call.over:
            if begins:  # one in which nobody acted is no episode, but has begun
                self._call("on_episode_end", index)
                self._explore_hook("on_episode_end", index)
                self._drop_rows(index)
            else:
                self._finish(index)
            self._leave(told, index, reported=not begins)
        else:
            self._waiting[index] = call
        return int(counts)

    def _with_checked_actions(self, index: int, call: ActionRequest) -> ActionRequest:
        """Returns a call of `log_action` with its actions as the policies' spaces have them.

        Raises:
            EnvError: If an action is not of its space; names the agent.
        """
        actions = dict(call.actions or {})
        for agent_id in call.obs:
            agent = self.rows.agents[index].get(agent_id)
            if call.dones.get(agent_id) or (agent is not None and agent.done):
                continue  # it does not act
            policy_id = self._episodes[index].policy_for(agent_id)
            policy = self.policies.get(policy_id) if agent is None else agent.collector.policy
            if policy is not None:  # an unknown one is named where the agent is made
                actions[agent_id] = _checked_action(actions[agent_id], policy.action_space, agent_id)
        return replace(call, actions=actions)

    def _enter(self, slot: EnvSlot, told: OpenEpisode) -> int:
        """Gives an episode that begins an index."""
        if not self._free:
            self._free.append(len(self.rows.agents))
            self.rows.agents.append({})
            self._episodes.append(None)  # type: ignore[arg-type]  # filled below
            self._slots_by_index.append(slot)
        index = self._indices[told] = self._free.pop()
        self._slots_by_index[index] = slot
        slot.episode += 1
        episode = self._new_episode(index, slot.episode_id)
        if not told.trains:
            self._not_trained.add(episode.episode_id)
        self._call("on_episode_start", index)
        self._explore_hook("on_episode_start", index)
        return index

    def _leave(self, told: OpenEpisode, index: int, *, reported: bool = False) -> None:
        """Frees the index of an episode."""
        del self._indices[told]
        self._waiting.pop(index, None)
        self._free.append(index)
        episode_id = self._episodes[index].episode_id
        if episode_id in self._not_trained:
            if reported:
                self.rows.finished_steps -= self._episodes[index].length
            self._drop_untrained()
            self._not_trained.discard(episode_id)
        if episode_id in self._not_reported:
            self._not_reported.discard(episode_id)
            if reported:
                self._metrics.pop()

    def _postprocess_ended(self, part: int) -> None:
        if part not in self._not_trained:
            super()._postprocess_ended(part)

    def _drop_untrained(self) -> None:
        """Takes out the closed rows of episodes that are not learned from."""
        if not self._not_trained:
            return
        for collector in self.rows.by_policy.values():
            count = len(collector.store)
            unwanted = (
                np.isin(collector.store.columns[EPS_ID][:count], list(self._not_trained))
                & collector.store.closed[:count]
            )
            if unwanted.any():
                self.rows.forget(collector, np.flatnonzero(unwanted).tolist())

    def _answer(self, actions: list[dict[Any, Any]]) -> None:
        """Lets the simulators that wait go on."""
        for index, call in list(self._waiting.items()):
            if call.actions is None and not actions[index]:
                message = "get_action() gave no observation of an agent that is not through; end the episode"
                call.broker.reply(call, None, EnvError(message))
            else:
                made = None if call.actions is not None else self._slot(index).env.to_caller(actions[index])
                call.broker.reply(call, made)
            del self._waiting[index]

    def _as_taken(
        self, collector: PolicyCollector, obs: NDArray[Any], actions: NDArray[Any], extras: dict[str, NDArray[Any]]
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Puts in the actions that simulators chose themselves, and how likely the policy finds them."""
        rows: list[int] = []
        for row, agent in enumerate(collector.waiting):
            call = self._waiting.get(agent.slot)
            if call is not None and call.actions is not None:
                if not rows:
                    actions = np.array(actions)
                actions[row] = collector.policy.from_env_action(call.actions[agent.id])
                rows.append(row)
        if not rows or not (ACTION_LOGP in extras or ACTION_PROB in extras):
            return actions, extras
        logp = _logp(collector.policy, obs, actions, extras, np.array(rows))
        made = dict(extras)
        for name, values in ((ACTION_LOGP, logp), (ACTION_PROB, np.exp(logp))):
            if name in made:
                made[name] = np.array(made[name])
                made[name][rows] = values
        return actions, made

    def _slot(self, index: int) -> EnvSlot:
        return self._slots_by_index[index]

    # --- evaluation and checkpoints ------------------------------------------------------------------------------

    def restart(self) -> None:
        """Begins anew with the episodes that begin from now on; running ones go on, but leave no trace."""
        self._metrics, self.rows.finished_steps, self.rows.early = [], 0, {}
        running = {self._episodes[index].episode_id for index in self._indices.values()}
        self._not_trained |= running
        self._not_reported |= running
        # Rows of those that are over have not been handed out: they go, too.
        over, self._not_trained = self._not_trained, self._not_trained | self.rows.over
        self._drop_untrained()
        self._not_trained = over

    def get_state(self) -> dict[str, Any]:
        """Returns the episodes not yet reported; where a simulator stands is its own affair."""
        return {
            "started": False,
            "slots": {str(slot.index): {"seed": slot.seed, "episode": slot.episode} for slot in self.slots},
            "metrics": [metric.to_state() for metric in self._metrics],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes these back; running episodes are not learned from."""
        self.restart()
        self._metrics = [RolloutMetrics.from_state(item) for item in state["metrics"]]
        for slot in self.slots:
            saved = state["slots"].get(str(slot.index))
            if saved is not None:
                slot.episode = max(slot.episode, int(saved["episode"]))


def _checked_action(action: Any, space: Any, agent_id: Any) -> Any:
    """Returns a logged action as its space has it: whole numbers for choices, finite arrays within bounds for boxes."""
    try:
        return check_observation(action, space, "log_action()", name="action")
    except Exception as error:  # a space of the user's own may raise anything
        got = f"{repr(action)[:80]} ({describe(action)})"
        raise EnvError(f"log_action(): agent {agent_id!r}: got {got}, wanted an action of {space}") from error


def _logp(
    policy: Any, obs: NDArray[Any], actions: NDArray[Any], extras: dict[str, NDArray[Any]], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Returns log π(action | observation) [n] of the given rows."""
    if ACTION_DIST_INPUTS in extras:
        return np.asarray(
            method(policy, "distribution")(extras[ACTION_DIST_INPUTS][rows]).logp(actions[rows]), np.float32
        )
    states: list[NDArray[Any]] = []
    while f"{STATE_IN_PREFIX}{len(states)}" in extras:
        states.append(extras[f"{STATE_IN_PREFIX}{len(states)}"][rows])
    before = [extras[name][rows] if name in extras else None for name in (PREV_ACTIONS, PREV_REWARDS)]
    logp = policy.compute_log_likelihoods(actions[rows], obs[rows], states, *before)
    return np.asarray(convert_to_numpy(logp), np.float32)


def _how_it_ended(name: str, failure: BaseException | None) -> str:
    if failure is None:
        return (
            f"{name}: its run() has returned; wanted a loop that goes on as long as the trainer samples (`while True:`)"
        )
    lines = "".join(traceback.format_exception(failure))
    return f"{name}: its run() raised {describe_error(failure)}\n\n{lines}"


__all__ = ["ExternalRunner"]
