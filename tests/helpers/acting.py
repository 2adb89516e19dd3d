"""Environments that note what was seen and done, an oracle that acts again on it, and the places that act."""

from __future__ import annotations

import copy
import json
import runpy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from rlframe.cli.evaluating import play
from rlframe.cli.play_options import PlayOptions
from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.models.preprocessors import get_preprocessor
from rlframe.policy.own_inference import FrameworkInference
from rlframe.policy.recurrent_context import column_layout
from rlframe.serving.policy_service import PolicyService
from rlframe.serving.served_policy import ServedPolicy
from rlframe.utils.seeding import derive_seed

LENGTH, EPISODES = 5, 2


@dataclass
class Episode:
    """What one agent saw and did, and what it got for it before it acted again.

    Attributes:
        agent: Its id; None where there is one.
        observations: `[T]`, as the environment gave them.
        rewards: `[T]`, of the action before; None at the first.
        actions: `[T]`, as the environment got them.
    """

    agent: Any
    observations: list[Any] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)


#: Whole episodes of all environments since it was emptied.
LOG: list[Episode] = []


class Walk(gym.Env):
    """Shows what its seed says, whatever is done; pays by the step, beyond what rewards are clipped to.

    `env_config`: the spaces `observed` and `acted`.
    """

    def __init__(self, config: Any) -> None:
        self.observation_space, self.action_space = copy.deepcopy(config["observed"]), config["acted"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.observation_space.seed(derive_seed(seed))
        self.episode, self.time = Episode(None), 0
        return self._seen(None), {}

    def step(self, action: Any) -> Any:
        self.episode.actions.append(copy.deepcopy(action))
        self.time += 1
        over = self.time == LENGTH
        if over:
            LOG.append(self.episode)
            return self._sample(), 1.0, over, False, {}
        reward = (-1) ** self.time * 1.5 * self.time
        return self._seen(reward), reward, False, False, {}

    def reward(self, obs: Any, action: Any, obs_next: Any) -> Any:
        """Says what predicted steps are worth, for MBMPO: nothing."""
        del action, obs_next
        return np.zeros(len(obs))

    def _seen(self, reward: float | None) -> Any:
        seen = self._sample()
        self.episode.observations.append(copy.deepcopy(seen))
        self.episode.rewards.append(reward)
        return seen

    def _sample(self) -> Any:
        seen = self.observation_space.sample()
        if isinstance(seen, dict) and "action_mask" in seen and not seen["action_mask"].any():
            seen["action_mask"][1] = 1
        return seen


class Walks(MultiAgentEnv):
    """A `Walk` for each agent; `env_config`: `observed` and `acted` by agent, and `groups`."""

    def __init__(self, config: Any) -> None:
        self.possible_agents = list(config["observed"])
        self.observation_spaces, self.action_spaces = dict(config["observed"]), dict(config["acted"])
        self.walks = {
            agent: Walk({"observed": config["observed"][agent], "acted": config["acted"][agent]})
            for agent in self.possible_agents
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        made = {
            agent: walk.reset(seed=None if seed is None else derive_seed(seed, str(agent)))[0]
            for agent, walk in self.walks.items()
        }
        for agent, walk in self.walks.items():
            walk.episode.agent = agent
        return made, {}

    def step(self, action_dict: Any) -> Any:
        made = {agent: self.walks[agent].step(action) for agent, action in action_dict.items()}
        over = all(step[2] for step in made.values())
        seen, rewards = ({agent: step[part] for agent, step in made.items()} for part in (0, 1))
        return seen, rewards, {"__all__": over}, {"__all__": False}, {}


# --- the oracle ------------------------------------------------------------------------------------------------------


@dataclass
class Expected:
    """What a policy does in an episode, greedily.

    Attributes:
        actions: `[T]`, of the environment's space.
        states: `[T]`, the recurrent states behind each step.
    """

    actions: list[Any] = field(default_factory=list)
    states: list[list[Any]] = field(default_factory=list)


def expected(policy: Any, episode: Episode, clip_rewards: Any) -> Expected:
    """Acts through the framework's own model, one step at a time; what stands around it is written again here."""
    space = getattr(policy.observation_space, "original_space", policy.observation_space)
    preprocessor: Any = get_preprocessor(space)(space)
    way: Any = FrameworkInference(policy) if policy.framework else DenseByHand(policy)
    made = Expected()
    states = [np.asarray(state)[None] for state in policy.get_initial_state()]
    seen: dict[str, list[Any]] = {"obs": [], "actions": [], "rewards": []}
    for observation, reward in zip(episode.observations, episode.rewards, strict=True):
        obs = np.asarray(preprocessor.transform(copy.deepcopy(observation)))
        obs = _filtered(policy, obs.astype(np.float32) if obs.dtype == np.float64 else obs)
        seen["obs"].append(obs)
        if reward is not None:
            seen["rewards"].append(_clipped(reward, clip_rewards))
        columns = {"obs": obs[None], **{f"state_in_{i}": state for i, state in enumerate(states)}}
        for name, view in policy.acting_views().items():
            columns[name] = _view(policy, view, view.data_col or name, seen)
        inputs, _, states = way.run(columns, False)
        action = policy.distribution(inputs).deterministic_sample()
        seen["actions"].append(np.concatenate([np.ravel(leaf[0]) for leaf in _in_order(action)]))
        made.actions.append(_for_env(policy, action, policy.action_space_struct))
        made.states.append([state[0] for state in states])
    return made


class DenseByHand:
    """The pass of a dense network of tanh layers, for policies that have no framework's model."""

    def __init__(self, policy: Any) -> None:
        self.weights = policy.get_weights()

    def run(self, columns: Any, explore: bool) -> Any:
        x = np.asarray(columns["obs"], np.float64)
        hidden = sorted(name for name in self.weights if name.startswith("hidden") and name.endswith("weight"))
        for name in hidden:
            x = np.tanh(x @ self.weights[name].T + self.weights[name.replace("weight", "bias")])
        return x @ self.weights["output.weight"].T + self.weights["output.bias"], None, []


def _in_order(action: Any) -> list[Any]:
    if isinstance(action, dict):
        return [leaf for key in sorted(action) for leaf in _in_order(action[key])]
    return [leaf for part in action for leaf in _in_order(part)] if isinstance(action, tuple) else [action]


def _filtered(policy: Any, obs: Any) -> Any:
    if policy._obs_filter is None:
        return obs
    stats, limit = policy._obs_filter.rs, policy._obs_filter.clip or np.inf
    return np.clip((obs - stats.mean) / (stats.std + 1e-8), -limit, limit).astype(np.float32)


def _clipped(reward: float, how: Any) -> float:
    return reward if not how else float(np.sign(reward)) if how is True else float(np.clip(reward, -how, how))


def _view(policy: Any, view: Any, column: str, seen: dict[str, list[Any]]) -> Any:
    """Returns past steps as a model gets them: zeros before the episode."""
    shape, dtype = column_layout(policy, column)
    steps = []
    for shift in view.shift_arr:
        at = len(seen["obs"]) - 1 + int(shift)
        steps.append(np.reshape(seen[column][at], shape).astype(dtype) if at >= 0 else np.zeros(shape, dtype))
    return np.stack(steps)[None] if view.has_time_axis else steps[0][None]


def _for_env(policy: Any, action: Any, space: Any) -> Any:
    """Returns the first of a batch of actions as the environment gets it."""
    if isinstance(space, dict):
        return {key: _for_env(policy, action[key], part) for key, part in space.items()}
    if isinstance(space, tuple):
        return tuple(_for_env(policy, action[index], part) for index, part in enumerate(space))
    first = np.asarray(action)[0]
    if not isinstance(space, gym.spaces.Box):
        if policy.dist_type == "relaxed_one_hot":
            first = first.argmax()
        return first + getattr(space, "start", 0)
    first = first.reshape(space.shape)
    if np.issubdtype(space.dtype, np.integer):
        return np.clip(first + space.low, space.low, space.high)
    if policy.config["normalize_actions"]:
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        with np.errstate(invalid="ignore"):
            stretched = space.low + (first + 1) / 2 * (space.high - space.low)
        return np.clip(np.where(bounded, stretched, first), space.low, space.high)
    return np.clip(first, space.low, space.high) if policy.config["clip_actions"] else first


# --- the places ------------------------------------------------------------------------------------------------------


def sampler(trainer: Any) -> Iterator[tuple[Episode, list[Any] | None]]:
    """Episodes of `Trainer.evaluate`, and then of its workers with the states that they keep for learning."""
    LOG.clear()
    trainer.evaluate()
    yield from ((episode, None) for episode in LOG)
    yield from _sampled(trainer.evaluation_workers.local_worker())


def numpy_worker(trainer: Any) -> Iterator[tuple[Episode, list[Any] | None]]:
    """Episodes of a worker as remote ones are, with policies that need no framework where there are such."""
    workers, local = trainer.evaluation_workers, trainer.workers.local_worker()
    worker = RolloutWorker(**workers._worker_arguments(1), make_env=True)
    worker.add_policies({policy_id: workers._remote_spec(policy_id) for policy_id in local.policy_map})
    worker.set_weights(local.get_weights())
    worker.sync_filters(local.get_filters())
    yield from _sampled(worker)


def _sampled(worker: Any) -> Iterator[tuple[Episode, list[Any] | None]]:
    LOG.clear()
    kept = [_kept_states(worker.sample()) for _ in range(EPISODES)]
    # Episodes of several agents end together, and their states are in batches of several policies.
    yield from zip(LOG, [None] * len(LOG) if None in kept else kept, strict=True)


def _kept_states(batch: Any) -> list[Any] | None:
    """Returns the states before the sequences of one agent's episode."""
    if isinstance(batch, MultiAgentBatch) or "state_in_0" not in batch:
        return None
    return [batch[name] for name in sorted(batch) if name.startswith("state_in_")]


def played(trainer: Any) -> Iterator[tuple[Episode, list[Any] | None]]:
    """Episodes of `rlframe play`."""
    LOG.clear()
    list(play(trainer, EPISODES, PlayOptions(7, False, None, None)))
    yield from ((episode, None) for episode in LOG)


def of_groups(found: Iterator[tuple[Episode, Any]]) -> Iterator[tuple[Episode, Any]]:
    """Yields the episodes of groups of two, of those of their agents, which end one behind the other."""
    for (one, _), (other, states) in zip(found, found, strict=True):
        parts = [(one.observations, other.observations), (one.actions, other.actions)]
        observations, actions = ([tuple(pair) for pair in zip(*part, strict=True)] for part in parts)
        rewards = [None if a is None else a + b for a, b in zip(one.rewards, other.rewards, strict=True)]
        yield Episode("both", observations, rewards, actions), states


#: From a trainer, a policy's id and an episode to the actions, and the states behind each where they can be seen.
Place = Callable[[Any, str, Episode], tuple[list[Any], list[list[Any]] | None]]


def actor(trainer: Any, policy_id: str, episode: Episode) -> tuple[list[Any], list[list[Any]] | None]:
    """`Trainer.make_actor`."""
    made, actions, states = trainer.make_actor(policy_id, explore=False), [], []
    for observation, reward in zip(episode.observations, episode.rewards, strict=True):
        actions.append(made.act(copy.deepcopy(observation), reward))
        states.append(made.state)
    return actions, states


def single_actions(trainer: Any, policy_id: str, episode: Episode) -> tuple[list[Any], list[list[Any]] | None]:
    """`Trainer.compute_single_action`, with what the caller has to keep."""
    policy, actions, states, kept = trainer.get_policy(policy_id), [], [], None
    for step, observation in enumerate(episode.observations):
        past = {"prev_action": actions[-1], "prev_reward": episode.rewards[step]} if step else {}
        action, kept, _ = trainer.compute_single_action(
            copy.deepcopy(observation), kept, policy_id=policy_id, explore=False, full_fetch=True,
            **(past if policy.acting_views() else {}),
        )  # fmt: skip
        actions.append(action)
        states.append(kept)
    return actions, states


def many_actions(trainer: Any, policy_id: str, episode: Episode) -> tuple[list[Any], list[list[Any]] | None]:
    """`Trainer.compute_actions`, for an agent beside another one that begins at each step."""
    policy, actions, states, kept = trainer.get_policy(policy_id), [], [], {}
    for step, observation in enumerate(episode.observations):
        past = {"prev_action": {"a": actions[-1]}, "prev_reward": {"a": episode.rewards[step]}} if step else {}
        made, kept, _ = trainer.compute_actions(
            {"a": copy.deepcopy(observation), "b": copy.deepcopy(observation)},
            {"a": kept["a"]} if kept else {}, policy_id=policy_id, explore=False, full_fetch=True,
            **(past if policy.acting_views() else {}),
        )  # fmt: skip
        actions.append(made["a"])
        states.append(kept["a"])
    return actions, states


def served(trainer: Any, policy_id: str, episode: Episode) -> tuple[list[Any], list[list[Any]] | None]:
    """`rlframe serve`, over HTTP."""
    from rlframe.serving.web import ServiceServer

    service = PolicyService(trainer)
    with ServiceServer(service, port=0) as server:
        policy = ServedPolicy(server.url, policy_id)
        if not policy.contract()["policies"][policy_id]["needs_session"]:
            together = policy.act_many(episode.observations)
            alone = [policy.act(observation) for observation in episode.observations]
            check_alike(together, alone, "several observations in one request")
            return alone, None
        actions, states = [], []
        with policy.session() as session:
            for observation, reward in zip(episode.observations, episode.rewards, strict=True):
                actions.append(session.act(observation, reward))
                states.append(next(iter(service._sessions.values())).actor.state)
        return actions, states


def exported(trainer: Any, path: Any, policy_id: str, episode: Episode) -> tuple[list[Any], list[list[Any]] | None]:
    """A file of `rlframe export --to numpy`."""
    policy = runpy.run_path(str(path))["Policy"]()
    recurrent = trainer.get_policy(policy_id).num_state_tensors()
    actions, states = [], []
    for observation, reward in zip(episode.observations, episode.rewards, strict=True):
        actions.append(policy.act(observation, reward))
        states.append([policy._states[f"state_in_{index}"][0] for index in range(recurrent)])
    return actions, states


def run_by_contract(to: str, path: Any, episode: Episode, recurrent: int) -> tuple[list[Any], list[list[Any]]]:
    """A file of `rlframe export --to onnx`, `torchscript` or `savedmodel`, called by what `contract.json` says alone.

    The first `recurrent` states are the networks' own; past actions and rewards are behind them.
    """
    contract = json.loads((path.parent / "contract.json").read_text(encoding="utf-8"))
    ports, made_ports = contract["observations"], contract["actions"]
    run = _LOADERS[to](path, contract)
    states = {port["name"]: _initial(port) for port in contract["states"]}
    actions, kept = [], []
    for observation, reward in zip(episode.observations, episode.rewards, strict=True):
        feeds = {port["name"]: np.asarray(_at(observation, port["path"]), port["dtype"])[None] for port in ports}
        feeds |= states
        if contract["reward"]:
            feeds[contract["reward"]["name"]] = np.array([reward or 0.0], np.float32)
        made = run(feeds)
        states = {port["name"]: made[port["output"]] for port in contract["states"]}
        actions.append(_nested([(port["path"], made[port["name"]][0]) for port in made_ports]))
        kept.append([states[f"state_in_{index}"][0] for index in range(recurrent)])
    return actions, kept


def _initial(port: dict[str, Any]) -> Any:
    return np.broadcast_to(np.asarray(port["initial"], port["dtype"]), port["shape"])[None].copy()


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def _nested(parts: list[tuple[list[Any], Any]]) -> Any:
    """Returns paths with their leaves as what they lead through; numbers are the places of tuples."""
    if not parts[0][0]:
        return parts[0][1]
    below: dict[Any, list[tuple[list[Any], Any]]] = {}
    for (key, *rest), leaf in parts:
        below.setdefault(key, []).append((rest, leaf))
    made = {key: _nested(inner) for key, inner in below.items()}
    return tuple(made.values()) if isinstance(parts[0][0][0], int) else made


def _onnx(path: Any, contract: Any) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    taken, names = {port.name for port in session.get_inputs()}, _outputs(contract)

    def run(feeds: Any) -> Any:
        made = session.run(names, {name: feed for name, feed in feeds.items() if name in taken})
        return dict(zip(names, made, strict=True))

    return run


def _torchscript(path: Any, contract: Any) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch's, of all that is TorchScript
        loaded: Any = torch.jit.load(str(path))
    reward = [contract["reward"]] if contract["reward"] else []
    ports = [*contract["observations"], *contract["states"], *reward]

    def run(feeds: Any) -> Any:
        made = loaded(*(torch.from_numpy(feeds[port["name"]]) for port in ports))
        return {name: part.detach().numpy() for name, part in zip(_outputs(contract), made, strict=True)}

    return run


def _savedmodel(path: Any, contract: Any) -> Any:
    from rlframe.utils.quiet_tf import tf

    del contract
    module = tf.saved_model.load(str(path))
    act = module.signatures["serving_default"]

    def run(feeds: Any) -> Any:
        assert module is not None  # which holds the variables
        return {name: part.numpy() for name, part in act(**{key: tf.constant(x) for key, x in feeds.items()}).items()}

    return run


def _outputs(contract: Any) -> list[str]:
    return [port["name"] for port in contract["actions"]] + [state["output"] for state in contract["states"]]


#: From a format, a file's path and contract to what runs it: arrays by name to arrays by name.
_LOADERS: dict[str, Callable[[Any, Any], Any]] = {"onnx": _onnx, "torchscript": _torchscript, "savedmodel": _savedmodel}


def check_alike(got: Any, wanted: Any, where: str) -> None:
    """Raises unless actions or states, nested or not, are equal: choices exactly, numbers to 1e-4 of their size."""
    if isinstance(wanted, dict):
        assert set(got) == set(wanted), where
        for key, part in wanted.items():
            check_alike(got[key], part, f"{where}: {key}")
    elif isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted), where
        for index, part in enumerate(wanted):
            check_alike(got[index], part, f"{where}: {index}")
    elif np.issubdtype(np.asarray(wanted).dtype, np.integer):
        np.testing.assert_array_equal(got, wanted, err_msg=where)
    else:
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=where)
