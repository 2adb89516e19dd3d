"""What keeps a trainer from learning, seen in its networks and environment while its policy acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.doctor.environment import examine_env, hidden_by_clipping
from rlframe.doctor.finding import Finding, in_order
from rlframe.doctor.run import Results, examine_results
from rlframe.env.adapt import adapt_env
from rlframe.env.env_context import EnvContext
from rlframe.env.wrappers.atari_wrappers import with_preprocessing
from rlframe.models.actor import as_rows, bind_layer, normalize_activation
from rlframe.models.spec import Dense, NoisyDense, layer_from_spec
from rlframe.policy.policy import Policy
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError

#: Share of a layer's units that alarms. A third is usual in healthy networks of 256 units on small environments.
_MOST_LOST = 0.9
#: Distance from a tanh's limits at which its slope is 2 %.
_SATURATED = 0.99
_ACTED_STEPS = 500
#: What random steps say, and results of the whole run say better.
_KNOWN_FROM_RESULTS = frozenset({"no_end", "no_reward", "small_rewards"})


def examine_trainer(
    trainer: Any, results: Results, *, num_steps: int = 2000, config: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Returns what is likely to keep a trainer from learning, what matters most first.

    Beside what `examine_results` sees, an environment of its own is stepped at random and by the policy, and the units
    of the networks that act are counted. Environments of several agents, external ones, and networks that are not
    chains of dense layers are left out.

    Args:
        trainer: Built, with weights; it is not changed.
        results: Of its `train()`, oldest first; at least one.
        num_steps: Random steps, in env steps.
        config: That it trained with, where it was built with another one; None is the trainer's own.

    Raises:
        EnvError: If its environment cannot be made.
    """
    config = trainer.config if config is None else config
    found = examine_results(results, config)
    env = _own_env(trainer)
    if env is None:
        return found
    try:
        of_env = examine_env(env, num_steps=num_steps, config=config)
        if results[-1].get("episodes_total"):
            of_env = [finding for finding in of_env if finding.name not in _KNOWN_FROM_RESULTS]
        if not any(finding.name == "invalid" for finding in of_env):
            of_env += examine_policy(trainer, env, config)
    finally:
        env.close()
    return in_order([*found, *of_env])


def examine_policy(trainer: Any, env: Any, config: Mapping[str, Any]) -> list[Finding]:
    """Returns what shows while a trainer's policy acts: units without effect, rewards clipped to one size.

    Args:
        trainer: With weights.
        env: Of one agent; stepped.
        config: That it trained with.
    """
    observations, rewards = _act(trainer, env)
    clipping = config.get("clip_rewards")
    found = units_without_effect(trainer.get_policy(), observations)
    if clipping is not None and clipping is not False and rewards.any():
        found += hidden_by_clipping(rewards, clipping)
    return found


def _own_env(trainer: Any) -> Any:
    """Returns an environment of the trainer's, adapted; None where it is none of one agent."""
    local = trainer.workers.local_worker()
    if trainer.env_creator is None or "default_policy" not in local.policy_map:
        return None
    try:
        creator: Any = with_preprocessing(trainer.env_creator, {**trainer.config, "in_evaluation": True})
        made = creator(EnvContext(dict(trainer.config.get("env_config") or {})))
    except Exception as error:
        raise EnvError(f"the environment cannot be made: {type(error).__name__}: {error}") from error
    try:
        return adapt_env(made)
    except (ConfigError, EnvError):  # vectorised, external, of several agents: its fault would have shown in training
        return None


def _act(trainer: Any, env: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns what the policy saw, preprocessed and filtered `[N, ...]`, and the raw rewards, float64 `[N]`."""
    actor, policy = trainer.make_actor(), trainer.get_policy()
    observation, _ = env.reset(seed=0)
    actor.reset()
    seen: list[Any] = []
    rewards: list[float] = []
    reward: float | None = None
    for _ in range(_ACTED_STEPS):
        seen.append(policy._observed(observation))
        try:
            observation, step_reward, terminated, truncated, _ = env.step(actor.act(observation, reward))
        except NonFiniteError:  # weights that are NaN: the results tell
            break
        reward = float(step_reward)
        rewards.append(reward)
        if terminated or truncated:
            observation, _ = env.reset()
            actor.reset()
            reward = None
    return np.stack(seen), np.array(rewards)


def units_without_effect(policy: Policy, observations: NDArray[Any]) -> list[Finding]:
    """Returns whether a layer's units are nearly all dead or saturated.

    Args:
        policy: Whose acting and value networks are looked at; none where they are no chains of dense layers.
        observations: As the policy sees them, preprocessed and filtered. `[N, ...]`.
    """
    describe = getattr(policy, "actor_spec", None)
    spec = None if describe is None else describe()
    if spec is None or "outputs" not in spec:
        return []
    weights, chain = policy.get_weights(), spec["outputs"]
    chains = {"": chain, "values: ": [*chain[: int(spec.get("shared", 0))], *(spec.get("values") or ())]}
    found: list[Finding] = []
    for title, layers in chains.items():
        for name, activation, outputs in _hidden(layers, weights, as_rows(observations)):
            found += _of_layer(f"{title}layer {name}", activation, outputs)
    return found


def _hidden(
    layers: Sequence[Any], weights: Mapping[str, NDArray[Any]], x: NDArray[Any]
) -> Iterator[tuple[str, str, NDArray[Any]]]:
    """Yields name, activation and outputs `[N, units]` of each hidden layer of a chain."""
    for described in layers:
        layer = layer_from_spec(described)
        x = bind_layer(layer, weights, None)(x)
        if isinstance(layer, (Dense, NoisyDense)):
            yield layer.name, normalize_activation(layer.activation), x


def _of_layer(where: str, activation: str, outputs: NDArray[Any]) -> Iterator[Finding]:
    count = outputs.shape[1]
    if activation in ("relu", "relu6"):
        dead = int((outputs.max(axis=0) <= 0).sum())
        if dead >= _MOST_LOST * count:
            text = f"{where}: {dead} of {count} units are 0 whatever is observed"
            yield Finding("dead_units", text, "lr, smaller, and begin anew; model.fcnet_activation: tanh")
    if activation in ("tanh", "softsign"):
        lost = int((np.abs(outputs).min(axis=0) >= _SATURATED).sum())
        if lost >= _MOST_LOST * count:
            text = f"{where}: {lost} of {count} units are at their limits whatever is observed"
            yield Finding("saturated_units", text, 'lr, smaller, and begin anew; observation_filter: "MeanStdFilter"')
