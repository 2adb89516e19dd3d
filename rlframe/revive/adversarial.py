"""Adversarial learning of a decision graph: generators make rollouts that discriminators shall take for logged rows.

An iteration of the trainer is an epoch: a supervised step over logged rows, rollouts of the whole graph from logged
rows, a step of each node's discriminator, whose verdict is the reward, and PPO on these rollouts.

Source: Ho and Ermon 2016, "Generative Adversarial Imitation Learning", algorithm 1, with PPO in the place of TRPO, and
for each node of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.ppo.ppo import PPOConfig
from rlframe.config.options import option
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    OBS,
    REWARDS,
    VALUE_TARGETS,
    VF_PREDS,
)
from rlframe.data.returns import gae
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.multi_gpu_train_ops import MultiGPUTrainOneStep
from rlframe.execution.rollout_ops import ParallelRollouts, StandardizeFields
from rlframe.execution.train_ops import TrainOneStep
from rlframe.policy.policy_spec import PolicySpec
from rlframe.revive.adversarial_policies import LOGGED
from rlframe.revive.metrics import learned_mask, logged_state
from rlframe.revive.node_policy import NODE_MASK
from rlframe.revive.nodes import DONE
from rlframe.revive.supervised import GraphBCConfig, graph_trainer_config, learned_member
from rlframe.revive.venv_model import VirtualEnv, node_inputs
from rlframe.trainer.template import build_trainer
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import entropy_seed, make_rng

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet
    from rlframe.revive.data import GraphData, Windows
    from rlframe.revive.graph import DecisionGraph

__all__ = ["GraphGAILConfig", "GraphGAILTrainer", "NodeRollouts", "adversarial_trainer_config", "discriminator_of",
           "sample_rollouts"]  # fmt: skip

#: Largest reward of a step: a discriminator that is sure says more than it knows.
MOST_REWARD = 5.0
_MINIBATCH = 512


class GraphGAILConfig(GraphBCConfig, PPOConfig):
    """Keys of adversarial learning of a graph's nodes: those of supervised learning, of PPO, and of discriminators."""

    new_defaults: ClassVar[Any] = {
        "lr": 4e-5, "clip_param": 0.2, "vf_clip_param": math.inf, "kl_coeff": 0.0, "gamma": 0.99, "lambda": 0.95,
        "num_sgd_iter": 2, "sgd_minibatch_size": _MINIBATCH, "train_batch_size": 1024, "normalize_values": False,
    }  # fmt: skip

    matcher_hidden_features: int = option(64, "Width of discriminators.", low=1)
    matcher_hidden_layers: int = option(2, "Their hidden layers.", low=1)
    d_lr: float = option(6e-4, "Learning rate of discriminators, and of the generators' values.", above=0)
    d_steps: int = option(1, "Passes of discriminators over an epoch's rows.", low=1)
    supervised_minibatch_size: int = option(256, "Rows of an update of the supervised step.", unit="rows", low=1)
    fintune: int = option(1, "Supervised passes over the log before rollouts; 0 makes none.", low=0)
    finetune_fre: int = option(1, "Epochs from one of them to the next.", unit="epochs", low=1)
    rollouts: int = option(64, "Rollouts of an epoch.", unit="trajectories", low=1)
    rollout_horizon: int = option(100, "Length of rollouts.", unit="steps", low=2)
    matcher_loss_high: float = option(1.2, "A discriminator's loss above which its generator waits.", low=0)
    matcher_loss_low: float = option(0.3, "A discriminator's loss below which it waits.", low=0)
    mae_reward_weight: float = option(
        0.25, "Weight in rewards of the distance from what was logged at the step, ranges having the length 2.", low=0
    )


def discriminator_of(node: str) -> str:
    """Returns the id of the policy that is a node's discriminator."""
    return f"discriminator of {node}"


@dataclass
class NodeRollouts:
    """What a node did in rollouts, T steps of B.

    Attributes:
        obs: What it saw, float32 `[T, B, D]`.
        actions: Its values as they were drawn, in the learned space, float32 `[T, B, width]`.
        dist_inputs: What its network gave, float32 `[T, B, K]`.
        logp: Log-densities of the values, float32 `[T, B]`.
        told: What the discriminator sees: `obs` beside the values, within their ranges, float32 `[T, B, D + width]`.
        error: Mean distance of the values from those logged at the step; 0 where none was, float32 `[T, B]`.
    """

    obs: Any = field(default_factory=list)
    actions: Any = field(default_factory=list)
    dist_inputs: Any = field(default_factory=list)
    logp: Any = field(default_factory=list)
    told: Any = field(default_factory=list)
    error: Any = field(default_factory=list)

    def stacked(self) -> NodeRollouts:
        """Returns lists of steps as arrays."""
        return NodeRollouts(*(np.stack(steps) for steps in vars(self).values()))


def sample_rollouts(
    venv: VirtualEnv, data: GraphData, windows: Windows, rng: np.random.Generator
) -> tuple[dict[str, NodeRollouts], NDArray[np.bool_]]:
    """Returns what networks do in rollouts from the first rows of windows, all values drawn, and which steps count.

    Args:
        venv: Its first member moves on.
        data: Whose windows they are; external factors are theirs.
        windows: Some of its rows.
        rng: Of the draws.

    Returns:
        By node; and bool `[T, B]`, False behind a trajectory's end, and where the environment itself has ended.
    """
    graph, member = venv.graph, venv.members[0]
    networks = [name for name in graph.order if graph.nodes[name].role == "network"]
    found = {name: NodeRollouts() for name in networks}
    counts, goes_on = [], np.ones(windows.valid.shape[1], np.bool_)
    carried: Mapping[str, NDArray[Any]] = {}
    for step, valid in enumerate(windows.valid):
        values = {**logged_state(data, windows, step), **carried}
        counts.append(valid & goes_on)
        for name in graph.order:
            if name not in found:
                values[name] = venv.node_infer(name, values)
                continue
            scaler, seen = graph.scalers[name], node_inputs(graph, graph.nodes[name], values)
            drawn = member[name].distribution(seen, rng)
            actions = drawn.sample()
            values[name] = scaler.unscale(actions, clip=True)
            node, made = found[name], scaler.scale(values[name])
            node.obs.append(seen)
            node.actions.append(actions)
            node.dist_inputs.append(drawn.inputs)
            node.logp.append(drawn.logp(actions))
            node.told.append(np.concatenate([seen, made * scaler.fit], -1, dtype=np.float32))
            known = learned_mask(scaler, windows.mask[name][step])
            apart = np.abs(made - scaler.scale(windows.arrays[name][step])) * known
            node.error.append(apart.sum(-1) / np.maximum(known.sum(-1), 1))
        if DONE in values:
            goes_on = goes_on & (values[DONE][:, 0] <= 0.5)
        carried = venv.next_state(values)
    return {name: node.stacked() for name, node in found.items()}, np.stack(counts)


class _Generators:
    """What operators of the plan know: the workers, and which nodes learn."""

    def __init__(self, workers: WorkerSet, config: GraphGAILConfig) -> None:
        self.workers, self.config = workers, config
        local: Any = workers.local_worker()
        trained = set(local.policies_to_train)
        self.local, self.nodes = local, [node for node in local.input_reader.columns if node in trained]


class SupervisedStep(_Generators):
    """Has generators learn from logged rows, in every `finetune_fre`-th epoch; the rows go on.

    Args:
        workers: The WorkerSet.
        config: Reads `fintune`, `finetune_fre` and `supervised_minibatch_size`.
    """

    def __init__(self, workers: WorkerSet, config: GraphGAILConfig) -> None:
        super().__init__(workers, config)
        self._count = 0
        self._step = TrainOneStep(workers, self.nodes, max(config.fintune, 1), config.supervised_minibatch_size)

    def __call__(self, batch: MultiAgentBatch) -> MultiAgentBatch:
        """Learns from the rows, if it is time to."""
        if self.config.fintune and self._count % self.config.finetune_fre == 0:
            self._step(batch)
        self._count += 1
        return batch

    def get_state(self) -> dict[str, Any]:
        """Returns the count of epochs, and the order's generator."""
        return {"count": self._count, "step": self._step.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self._count = state["count"]
        self._step.set_state(state["step"])


class MatchRollouts(_Generators):
    """Makes rollouts, has discriminators learn to tell them from logged rows, and rewards them.

    Takes logged rows by node; gives rollouts with advantages by node, without the nodes that wait.

    Args:
        workers: The WorkerSet.
        config: Reads the keys of rollouts, discriminators and advantages.
    """

    def __init__(self, workers: WorkerSet, config: GraphGAILConfig) -> None:
        super().__init__(workers, config)
        self._rng = make_rng(entropy_seed() if config.seed is None else config.seed, "adversarial rollouts")
        self._losses: dict[str, float] = {}
        discriminators = [discriminator_of(node) for node in self.nodes]
        self._tell = TrainOneStep(workers, discriminators, config.d_steps, _MINIBATCH)

    def __call__(self, batch: MultiAgentBatch) -> MultiAgentBatch:
        """Returns the rollouts that are learned from."""
        data = self.local.input_reader.data
        venv = VirtualEnv(data.graph, [learned_member(_Trained(self.workers), live=True)])
        windows = data.windows(self.config.rollout_horizon + 1, self.config.rollouts, self._rng)
        rollouts, counts = sample_rollouts(venv, data, windows, self._rng)
        self._learn_to_tell(batch, rollouts, counts)
        high = self.config.matcher_loss_high
        learning = [node for node in self.nodes if self._losses.get(node, 0.0) <= high]
        parts = {node: self._rewarded(node, rollouts[node], counts) for node in learning}
        return MultiAgentBatch({node: rows for node, rows in parts.items() if rows.count}, int(counts.sum()))

    def _learn_to_tell(self, batch: MultiAgentBatch, rollouts: Mapping[str, NodeRollouts], counts: Any) -> None:
        """Has the discriminators learn that do not wait; notes the losses of all."""
        parts = {discriminator_of(node): self._both(node, batch, rollouts[node], counts) for node in self.nodes}
        waits = {node for node in self.nodes if self._losses.get(node, math.inf) < self.config.matcher_loss_low}
        learns = {name: rows for name, rows in parts.items() if name not in {discriminator_of(node) for node in waits}}
        if learns:
            self._tell(MultiAgentBatch(learns, max(rows.count for rows in learns.values())))
        for node in self.nodes:
            policy, rows = self.local.policy_map[discriminator_of(node)], parts[discriminator_of(node)]
            logits, logged = policy.logits(rows[OBS]), rows[LOGGED] > 0
            told = (np.logaddexp(0.0, -logits[logged]), np.logaddexp(0.0, logits[~logged]))
            self._losses[node] = float(sum(losses.mean() if len(losses) else 0.0 for losses in told))

    def _both(self, node: str, batch: MultiAgentBatch, rollouts: NodeRollouts, counts: Any) -> SampleBatch:
        """Returns logged and generated rows of a node, as many of both where there are; rows not logged whole aside."""
        scaler, logged = self.local.input_reader.data.graph.scalers[node], batch.policy_batches[node]
        generated = rollouts.told[counts]
        fitted = np.asarray(scaler.fit)
        whole = np.flatnonzero((np.asarray(logged[NODE_MASK])[:, fitted] > 0).all(-1))
        rows = self._rng.permutation(whole)[: len(generated)]
        seen = np.concatenate([logged[OBS][rows], logged[ACTIONS][rows] * fitted], -1, dtype=np.float32)
        kinds = np.repeat(np.array([1.0, 0.0], np.float32), (len(seen), len(generated)))
        return SampleBatch({OBS: np.concatenate([seen, generated]), LOGGED: kinds})

    def _rewarded(self, node: str, made: NodeRollouts, counts: NDArray[np.bool_]) -> SampleBatch:
        """Returns the steps of a node that count, with rewards and advantages."""
        config, steps = self.config, len(counts)
        discriminator, generator = self.local.policy_map[discriminator_of(node)], self.local.policy_map[node]

        def by_step(rows: Any) -> NDArray[np.float32]:
            return np.asarray(rows, np.float32).reshape(steps, -1)

        logits = by_step(discriminator.logits(made.told.reshape(-1, made.told.shape[-1])))
        rewards = np.clip(logits, -MOST_REWARD, MOST_REWARD) - config.mae_reward_weight * made.error
        values = by_step(generator.values_of(made.obs.reshape(-1, made.obs.shape[-1])))
        following = np.concatenate([values[1:], np.zeros_like(values[:1])])
        cut = np.ones_like(counts)  # where the next step does not count; the last one is there for its values alone
        cut[:-2] = ~counts[1:-1]
        last = np.arange(steps)[:, None] == steps - 1
        advantages, targets = gae(
            np.asarray(rewards, np.float32), values, following, last & counts, cut, config.gamma, config["lambda"]
        )
        kept = counts & ~last if steps > 1 else counts
        columns = {
            OBS: made.obs, ACTIONS: made.actions, ACTION_DIST_INPUTS: made.dist_inputs, ACTION_LOGP: made.logp,
            VF_PREDS: values, REWARDS: rewards, ADVANTAGES: advantages, VALUE_TARGETS: targets,
        }  # fmt: skip
        return SampleBatch({name: np.asarray(column, np.float32)[kept] for name, column in columns.items()})

    def get_state(self) -> dict[str, Any]:
        """Returns the generators of draws and orders, and the discriminators' last losses."""
        return {"rng": self._rng.bit_generator.state, "losses": dict(self._losses), "tell": self._tell.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self._rng.bit_generator.state, self._losses = state["rng"], dict(state["losses"])
        self._tell.set_state(state["tell"])


@dataclass(frozen=True)
class _Trained:
    """What `learned_member` asks of a trainer."""

    workers: Any


def execution_plan(workers: WorkerSet, config: GraphGAILConfig) -> LocalIterator[Any]:
    """Reads logged rows, learns from them supervised, has discriminators tell rollouts from them, and learns by PPO."""
    config = GraphGAILConfig.view(config)
    match = MatchRollouts(workers, config)
    learn = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(SupervisedStep(workers, config))
        .for_each(match)
        .for_each(StandardizeFields([ADVANTAGES]))
        .for_each(
            MultiGPUTrainOneStep(
                workers,
                sgd_minibatch_size=config.sgd_minibatch_size,
                num_sgd_iter=config.num_sgd_iter,
                policies=match.nodes,
            )
        )
    )
    return StandardMetricsReporting(learn, workers, config)


DEFAULT_CONFIG: dict[str, Any] = GraphGAILConfig.defaults()

GraphGAILTrainer = build_trainer(
    name="GraphGAIL",
    config_class=GraphGAILConfig,
    policies={"torch": "rlframe.revive.adversarial_policies:GeneratorTorchPolicy"},
    execution_plan=execution_plan,
)


def check_learnable(graph: DecisionGraph) -> None:
    """Looks whether there is a node that learns.

    Raises:
        ConfigError: All networks of the graph are frozen.
    """
    networks = [name for name in graph.order if graph.nodes[name].role == "network"]
    if set(networks) <= set(graph.frozen):
        raise ConfigError(
            f"{graph.source}: nodes: {', '.join(networks)}: all networks have freeze, so there is nothing for revive_p "
            "to learn; wanted one without"
        )


def adversarial_trainer_config(
    data: GraphData, settings: Any, horizon: int, *, local: bool = True, seed: int = 0
) -> dict[str, Any]:
    """Returns the config of a `GraphGAILTrainer` for data.

    Args:
        data: What to learn from; its graph has ranges.
        settings: The venv part of a `Configuration`, of the algorithm `revive_p`.
        horizon: Length of rollouts, steps.
        local: As of `graph_trainer_config`.
        seed: Of weights, batches and draws.

    Raises:
        ConfigError: All networks of the graph are frozen.
    """
    from rlframe.revive import adversarial_policies

    config = graph_trainer_config(data, settings, local=local, seed=seed)
    agents = config["multiagent"]
    check_learnable(data.graph)
    generators = list(agents["policies_to_train"])
    for node in generators:
        spec = agents["policies"][node]
        width = spec.observation_space.shape[0] + spec.action_space.shape[0]
        space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        agents["policies"][discriminator_of(node)] = PolicySpec(
            adversarial_policies.DiscriminatorTorchPolicy, space, gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        )
    agents["policies_to_train"] = [*generators, *map(discriminator_of, generators)]
    rows = min(config["timesteps_per_iteration"], len(data))  # of a supervised step: an epoch of `bc`
    return {
        **config,
        "train_batch_size": rows, "rollout_fragment_length": rows, "timesteps_per_iteration": rows * settings.g_steps,
        "supervised_minibatch_size": min(settings.bc_batch_size, rows), "lr": settings.g_lr,
        "sgd_minibatch_size": min(_MINIBATCH, rows), "num_sgd_iter": settings.ppo_runs,
        "clip_param": settings.ppo_epsilon, "gamma": settings.gae_gamma, "lambda": settings.gae_lambda,
        "rollouts": settings.revive_batch_size, "rollout_horizon": horizon,
        **{name: settings[name] for name in (
            "matcher_hidden_features", "matcher_hidden_layers", "d_lr", "d_steps", "fintune", "finetune_fre",
            "matcher_loss_high", "matcher_loss_low", "mae_reward_weight",
        )},
    }  # fmt: skip
