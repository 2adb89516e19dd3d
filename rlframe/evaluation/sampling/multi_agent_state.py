"""The place of a `MultiAgentRunner` in its episodes, as state that checkpoints keep, and the way back to it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.data.columns import INFOS, OBS
from rlframe.env.agent_dicts import ALL
from rlframe.evaluation.episode import Episode
from rlframe.evaluation.episode_state import piece_of, piece_state, take_users_state, users_state
from rlframe.evaluation.metrics import RolloutMetrics

if TYPE_CHECKING:
    from rlframe.evaluation.sampling.collector import MultiAgentCollector
    from rlframe.evaluation.sampling.rollout import EnvSlot

State = dict[str, Any]


def agent_key(agent_id: Any) -> str:
    """Returns text that stands for an agent's id: `s:` and a string, `i:` and an integer, or `r:` and its repr."""
    if isinstance(agent_id, str):
        return f"s:{agent_id}"
    if isinstance(agent_id, (int, np.integer)) and not isinstance(agent_id, bool):
        return f"i:{int(agent_id)}"
    return f"r:{agent_id!r}"


class _Ids:
    """Agents' ids by their keys: of other kinds than text and integers those that were met."""

    def __init__(self) -> None:
        self._met: dict[str, Any] = {}

    def meet(self, *dicts: Mapping[Any, Any]) -> None:
        for by_agent in dicts:
            self._met.update({agent_key(agent): agent for agent in by_agent if agent != ALL})

    def find(self, key: str) -> Any:
        """Returns the id of a key; the key itself where that is not known."""
        if key in self._met:
            return self._met[key]
        kind, _, text = key.partition(":")
        return {"s": text, "r": key}[kind] if kind != "i" else int(text)

    def know(self, keys: list[str]) -> bool:
        """Returns whether the ids of all these keys are known."""
        return all(key in self._met or not key.startswith("r:") for key in keys)


# --- actions -------------------------------------------------------------------------------------------------------


def pack_actions(steps: list[dict[Any, Any]]) -> State:
    """Returns the actions of all steps as arrays: who acted in which order, and each agent's actions.

    Args:
        steps: `{agent id: action}` of each step.
    """
    numbers: dict[str, int] = {}
    who: list[int] = []
    by_agent: list[list[list[Any]]] = []
    for step in steps:
        for agent, action in step.items():
            number = numbers.setdefault(agent_key(agent), len(numbers))
            if number == len(by_agent):
                by_agent.append([])
            by_agent[number].append(tree.flatten(action))
            who.append(number)
    columns = [
        {str(leaf): np.asarray([row[leaf] for row in rows]) for leaf in range(len(rows[0]))} for rows in by_agent
    ]
    return {
        "agents": list(numbers),
        "counts": np.asarray([len(step) for step in steps], np.int64),
        "who": np.asarray(who, np.int64),
        "columns": columns,
    }


def unpack_actions(packed: State, struct_of: Callable[[str], Any]) -> list[list[tuple[str, Any]]]:
    """Returns `[(agent's key, action), ...]` of each step, from what `pack_actions` returned.

    Args:
        packed: The arrays.
        struct_of: `fn(agent's key) -> the nested structure of its actions`.
    """
    keys: list[str] = packed["agents"]
    rows = []
    for key, columns in zip(keys, packed["columns"], strict=True):
        leaves = [columns[str(leaf)] for leaf in range(len(columns))]
        struct = struct_of(key)
        rows.append(iter([tree.unflatten_as(struct, list(row)) for row in zip(*leaves, strict=True)]))
    who = iter(np.asarray(packed["who"]).tolist())
    steps = []
    for count in np.asarray(packed["counts"]).tolist():
        acting = [next(who) for _ in range(count)]
        steps.append([(keys[number], next(rows[number])) for number in acting])
    return steps


# --- saving and restoring ------------------------------------------------------------------------------------------


class ResumableRunner:
    """What a `MultiAgentRunner` saves of itself, and how it goes on from there.

    Attributes and methods that are only declared here are the runner's.
    """

    slots: list[EnvSlot]
    rows: MultiAgentCollector
    policies: Mapping[str, Any]
    _started: bool
    _metrics: list[RolloutMetrics]
    _episodes: list[Any]
    _parts: list[int]
    _unchecked: set[Any]
    _cut: dict[int, int]
    _idle: list[int]
    _observation_fn: Any
    mapping: Callable[[], Any]
    hooks: Any
    _begin: Callable[[int], None]
    _call: Callable[[str, int], None]
    _drop_rows: Callable[[int], None]
    _new_episode: Callable[[int, int], Any]
    _restore_agent: Callable[[int, Any, Mapping[str, Any]], Any]

    def get_state(self) -> State:
        """Returns the place of every environment, unfinished rows, agents' memories, and episodes not yet reported."""
        slots: State = {}
        for slot in self.slots:
            actions = slot.actions_of_game() if self._started else None
            slots[str(slot.index)] = {
                "seed": slot.seed,
                "episode": slot.episode,
                "replayable": actions is not None,
                "actions": {} if actions is None else pack_actions(actions),
                "lives": [] if actions is None else [len(life or ()) for life in slot.lives],
            }
        state: State = {
            "started": self._started,
            "slots": slots,
            "metrics": [metric.to_state() for metric in self._metrics],
        }
        if not self._started:
            return state
        return {
            **state,
            "episodes": [self._episode_state(index) for index in range(len(self.slots))],
            "sides": [_collector_state(collector) for collector in self.rows.by_policy.values()],
            "names": [[episode, number, agent_key(agent)] for (episode, number), agent in self.rows.names.items()],
            "over": sorted(self.rows.over),
            "early": [
                [part, policy_id, *piece_state(batch)]
                for part, batches in self.rows.early.items()
                for policy_id, batch in batches.items()
            ],
            "ended": [[part, steps] for part, steps in self.rows.steps_of.items()],
            "parts": list(self._parts),
            "fragments": self.rows.fragments,
            "infos_lost": any(
                INFOS in collector.store.columns and len(collector.store) for collector in self.rows.by_policy.values()
            ),
            "unchecked": sorted(self._unchecked),
        }

    def _episode_state(self, index: int) -> State:
        episode = self._episodes[index]
        return {
            "id": episode.episode_id,
            "length": episode.length,
            "users": users_state(episode),
            "agents": [
                {
                    "key": agent_key(agent.id),
                    "policy": agent.collector.policy_id,
                    "memory_index": agent.memory_index,
                    "row": agent.row,
                    "turn": agent.turn,
                    "total": agent.total,
                    "done": agent.done,
                    "hanging": getattr(episode._views.get(agent.id), "hanging", None),
                }
                for agent in self.rows.agents[index].values()
            ],
        }

    def set_state(self, state: State) -> None:
        """Goes on from what `get_state` returned: each environment is replayed to where it stood.

        An environment that does not come to the same observations is not deterministic: that is said as a warning, and
        a new episode begins there, as it does in an environment whose agents' ids cannot be told from what they look
        like.
        """
        self._started = False
        self._cut, self._idle = {}, [0] * len(self.slots)  # of steps that were left half-way
        self.rows.finished_steps, self.rows.steps_of = 0, {}
        self._metrics = [RolloutMetrics.from_state(item) for item in state["metrics"]]
        for slot in self.slots:
            saved = state["slots"].get(str(slot.index))
            if saved is not None:
                slot.seed, slot.episode = int(saved["seed"]), int(saved["episode"])
        known = all(collector["policy"] in self.policies for collector in state.get("sides", []))
        if not state["started"] or len(state["slots"]) != len(self.slots) or not known:
            return
        self._take_rows(state)
        lost = [index for index in range(len(self.slots)) if not self._bring_back(index, state)]
        for index in lost:
            warnings.warn(
                f"{self.slots[index].where()} did not come back to where it was saved: it is not deterministic given "
                "its seed and actions, or its agents' ids are neither text nor numbers; a new episode begins there",
                stacklevel=3,
            )
            # After all are back: this moves rows, and saved row numbers are those from before.
            self._drop_rows(index)
            self._begin(index)
        self._started = True

    def _take_rows(self, state: State) -> None:
        """Takes the rows and memories of each policy."""
        self.rows.by_policy, self.rows.running = {}, {}
        self.rows.names = {(int(episode), int(number)): _Ids().find(key) for episode, number, key in state["names"]}
        self.rows.over = set(state["over"])
        self.rows.fragments = int(state.get("fragments", 0))
        self.rows.steps_of = {int(part): int(steps) for part, steps in state.get("ended", [])}
        self.rows.finished_steps = sum(self.rows.steps_of.values())
        self.rows.early = {}
        for part, policy_id, columns, infos in state.get("early", []):
            wanted = self.policies[policy_id].train_columns
            self.rows.early.setdefault(int(part), {})[policy_id] = piece_of(columns, infos, wanted)
        for part in self.rows.steps_of:  # what users' code kept of episodes that are over is not saved
            self.rows.running[part] = Episode(
                self.policies, self.mapping(), episode_id=part, env_id=part >> 36 & 0xFFF, worker=self.hooks.worker
            )
        self._parts = [int(part) for part in state["parts"]]
        self._unchecked = set(state["unchecked"])
        self.rows.agents = [{} for _ in self.slots]
        self._episodes = [None for _ in self.slots]  # filled by the caller
        for saved in state["sides"]:
            collector = self.rows.add(saved["policy"])
            collector.store.set_state(saved["store"])
            collector.unfiltered = len(collector.store)
            collector.free_indices, collector.num_indices = (
                [int(index) for index in saved["free_indices"]],
                int(saved["num_indices"]),
            )
            if collector.memory is not None and saved["memory"]:
                collector.memory.set_state(saved["memory"])

    def _bring_back(self, index: int, state: State) -> bool:
        """Replays one environment and takes its agents back; returns whether it is where it was."""
        slot, saved = self.slots[index], state["episodes"][index]
        policies = {agent["key"]: agent["policy"] for agent in saved["agents"]}
        ids = _Ids()
        obs = _replay(slot, state["slots"][str(slot.index)], ids, lambda key: self.policies[policies[key]])
        slot.episode = int(state["slots"][str(slot.index)]["episode"])
        episode = self._new_episode(index, int(saved["id"]))
        episode.length = int(saved["length"])
        for number, agent in enumerate(saved["agents"]):
            agent_id = ids.find(agent["key"])
            self.rows.names[episode.episode_id, number] = agent_id
            episode._policy_of[agent_id] = agent["policy"]
            made = self._restore_agent(index, agent_id, agent)
            if made.total is not None:
                episode.agent_rewards[agent_id, agent["policy"]] = made.total
                episode.total_reward += made.total
            if made.row >= made.collector.store.acted_up_to:
                made.collector.waiting.append(made)
        for collector in self.rows.by_policy.values():
            collector.waiting.sort(key=lambda agent: agent.row)
        if obs is None or not ids.know(list(policies)):
            return False
        self._call("on_episode_start", index)
        take_users_state(episode, saved.get("users", {}))
        for agent in saved["agents"]:
            episode._view(ids.find(agent["key"])).hanging = agent.get("hanging")
        return self._same(index, obs)

    def _same(self, index: int, obs: dict[Any, Any]) -> bool:
        """Returns whether the agents that wait for an action have the observations that they had."""
        if self._observation_fn is not None:
            return True  # what it has made of them may hang on what it keeps itself
        for agent in self.rows.agents[index].values():
            if agent.row < 0 or agent.row < agent.collector.store.acted_up_to or agent.collector.filter is not None:
                continue
            raw = obs.get(agent.id)
            if raw is None:
                return False
            wanted = agent.collector.store.columns[OBS][agent.row]
            got: NDArray[Any] = np.asarray(
                raw if agent.collector.preprocess is None else agent.collector.preprocess.transform(raw)
            )
            if got.shape != wanted.shape or not np.array_equal(got.astype(wanted.dtype), wanted, equal_nan=True):
                return False
        return True


def _collector_state(collector: Any) -> State:
    return {
        "policy": collector.policy_id,
        "store": collector.store.get_state(),
        "memory": None if collector.memory is None else collector.memory.get_state(),
        "free_indices": list(collector.free_indices),
        "num_indices": collector.num_indices,
    }


def _replay(slot: EnvSlot, saved: State, ids: _Ids, policy_of: Callable[[str], Any]) -> dict[Any, Any] | None:
    """Repeats a slot's episode; returns the last observations by agent, or None where that is not possible."""
    if not saved["replayable"] or int(saved["episode"]) < 0:
        return None
    steps = iter(unpack_actions(saved["actions"], lambda key: policy_of(key).action_space_struct))
    result: dict[Any, Any] | None = None
    for count in slot.rewind(saved):
        obs, infos = slot.begin()
        ids.meet(obs, infos)
        result = obs
        for step in islice(steps, count):
            if result is None or not ids.know([key for key, _ in step]):
                return None
            actions = {ids.find(key): action for key, action in step}
            slot.record(actions)
            obs, rewards, terminateds, truncateds, infos = slot.env.step(actions)
            ids.meet(obs, rewards, infos)
            result = None if terminateds[ALL] or truncateds.get(ALL) else obs
    return result
