"""Units of networks that do nothing, whatever is observed: in the acting network, in values and in critics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTIONS, OBS
from rlframe.doctor.finding import Finding
from rlframe.models.actor import as_rows, bind_layer
from rlframe.models.actor_layers import normalize_activation
from rlframe.models.networks import NetworksModel
from rlframe.models.spec import Dense, Network, NoisyDense, layer_from_spec
from rlframe.policy.policy import Policy
from rlframe.serving.export.exported_policy import OPERATIONS
from rlframe.serving.export.exporting import feeds_of
from rlframe.serving.export.layers import MEMORY, Layers
from rlframe.serving.export.policy_program import policy_program
from rlframe.serving.export.program import Port, Program
from rlframe.serving.export.recorded import Step
from rlframe.utils.errors import ConfigError

#: Share of a layer's units that alarms. A third is usual in healthy networks of 256 units on small environments.
_MOST_LOST = 0.9
#: Distance from a tanh's limits at which its slope is 2 %, and how far a memory's unit moves at least.
_SATURATED, _MOVES = 0.99, 1e-4
#: Rows at once: images of many make large arrays.
_ROWS = 50
_Layer = tuple[str, str, NDArray[Any]]


def units_without_effect(
    policy: Policy, episodes: Sequence[Sequence[Step]], clip_rewards: bool | float | None = None
) -> list[Finding]:
    """Returns whether a layer's units are nearly all dead or saturated.

    Args:
        policy: Its acting network (dense layers, convolutions, memories, attention), the dense layers of its values and
            of its critics are looked at. Models of a program's own are not.
        episodes: What it saw, one step of an episode after the other.
        clip_rewards: How rewards are clipped, for policies that see past ones.
    """
    found: list[Finding] = []
    for parts in (_acting(policy, episodes, clip_rewards), _values(policy, episodes), _critics(policy, episodes)):
        for name, activation, outputs in parts:
            found += _of_layer(f"layer {name}", activation, outputs)
    return found


def _acting(policy: Policy, episodes: Sequence[Sequence[Step]], clip_rewards: bool | float | None) -> Iterator[_Layer]:
    """Yields what each layer gives on the way from observations to actions."""
    try:
        program = policy_program(policy, clip_rewards)
    except ConfigError:  # acts by something of a program's own
        return
    if program.network is not None:
        return
    given: dict[str, list[NDArray[Any]]] = {made: [] for _, _, made in program.layers}
    run = _along_episodes if program.states or program.reward else _by_rows
    for values in run(program, episodes):
        for made, rows in given.items():
            rows.append(values[made])
    for name, activation, made in program.layers:
        yield name, activation, np.concatenate(given[made])


def _by_rows(program: Program, episodes: Sequence[Sequence[Step]]) -> Iterator[dict[str, Any]]:
    steps = [step for episode in episodes for step in episode]
    for start in range(0, len(steps), _ROWS):
        yield _run(program, feeds_of(program, steps[start : start + _ROWS]))


def _along_episodes(program: Program, episodes: Sequence[Sequence[Step]]) -> Iterator[dict[str, Any]]:
    for steps in episodes:
        states = {state.given.name: state.initial[None] for state in program.states}
        for step in steps:
            values = _run(program, {**feeds_of(program, [step]), **states})
            states = {state.given.name: values[state.made] for state in program.states}
            yield values


def _run(program: Program, feeds: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Returns all that a program computes, by name."""
    values: dict[str, Any] = {**program.constants, **feeds}
    with np.errstate(all="ignore"):  # networks that are beyond all bounds are what is looked for
        for kind, inputs, made, attributes in program.nodes:
            operation: Callable[..., Any] = OPERATIONS[kind]  # type: ignore[assignment]  # a file free of annotations
            values[made] = operation(*(values[name] for name in inputs), **attributes)
    return values


def _values(policy: Policy, episodes: Sequence[Sequence[Step]]) -> Iterator[_Layer]:
    """Yields what the layers of a value function give that is a chain of dense layers of its own."""
    describe = getattr(policy, "actor_spec", None)
    spec = None if describe is None else describe()
    if spec is None or policy.is_recurrent() or not spec.get("values"):
        return
    weights, x = policy.get_weights(), as_rows(_observed(policy, episodes))
    shared = int(spec.get("shared", 0))
    for index, described in enumerate([*spec["outputs"][:shared], *spec["values"]]):
        layer = layer_from_spec(described)
        x = bind_layer(layer, weights, None)(x)
        if index >= shared and isinstance(layer, (Dense, NoisyDense)):
            yield f"{layer.name} of the values", normalize_activation(layer.activation), x


def _critics(policy: Policy, episodes: Sequence[Sequence[Step]]) -> Iterator[_Layer]:
    """Yields what the layers of networks beside the acting one give, of observations and actions drawn at random."""
    model = getattr(policy, "model", None)
    if not isinstance(model, NetworksModel) or model.encoder is not None or model.view is not None:
        return
    obs = as_rows(_observed(policy, episodes)).astype(np.float32)
    for name, part in model.parts.items():
        if name == model.acting or not isinstance(part, Network) or not set(part.inputs) <= {OBS, ACTIONS}:
            continue
        drawn = np.random.default_rng(0).uniform(-1.0, 1.0, (len(obs), part.inputs.get(ACTIONS, 0)))
        inputs = {OBS: obs, ACTIONS: drawn.astype(np.float32)}
        if part.inputs.get(OBS, 0) not in (0, obs.shape[1]):  # those of several agents side by side
            continue
        program = Program(observations=[Port(key, "float32", (width,)) for key, width in part.inputs.items()])
        layers = Layers(program, policy.get_weights())
        layers.chain(program.beside(list(part.inputs)), part.layers, f"{name}.")
        values = _run(program, {key: inputs[key] for key in part.inputs})
        yield from ((layer, activation, values[made]) for layer, activation, made in program.layers)


def _observed(policy: Policy, episodes: Sequence[Sequence[Step]]) -> NDArray[Any]:
    """Returns what the policy saw, preprocessed and filtered, `[N, ...]`."""
    return np.stack([policy._observed(step.observation) for episode in episodes for step in episode])


def _of_layer(where: str, activation: str, outputs: NDArray[Any]) -> Iterator[Finding]:
    change = "lr, smaller, and begin anew; model.fcnet_activation: tanh"
    if outputs.ndim == 4:  # [N, C, H, W]
        change = "pixels in [0, 1] instead of [0, 255], by a wrapper; lr, smaller, and begin anew"
        outputs = outputs.transpose(0, 2, 3, 1).reshape(-1, outputs.shape[1])
    count = outputs.shape[1]
    if activation in ("relu", "relu6"):
        dead = int((outputs.max(axis=0) <= 0).sum())
        if dead >= _MOST_LOST * count:
            text = f"{where}: {dead} of {count} units are 0 whatever is observed"
            yield Finding("dead_units", text, change)
    if activation == MEMORY:
        still = int((np.ptp(outputs, axis=0) <= _MOVES).sum())
        if still >= _MOST_LOST * count:
            text = f"{where}: {still} of {count} units of the memory are the same whatever is observed"
            yield Finding("dead_units", text, "lr, smaller, and begin anew; grad_clip")
    if activation in ("tanh", "softsign"):
        lost = int((np.abs(outputs).min(axis=0) >= _SATURATED).sum())
        if lost >= _MOST_LOST * count:
            text = f"{where}: {lost} of {count} units are at their limits whatever is observed"
            yield Finding("saturated_units", text, 'lr, smaller, and begin anew; observation_filter: "MeanStdFilter"')
