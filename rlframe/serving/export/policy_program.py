"""A policy's whole way from an observation of the environment to an action for it, as a `Program`; actions are greedy.

What is written here is what `Policy.compute_single_action(..., explore=False)` and `trainer.make_actor()` do.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import gymnasium as gym
import numpy as np

from rlframe.data.columns import ACTIONS, OBS, PREV_ACTIONS, PREV_REWARDS
from rlframe.models.action_encoding import action_encoding
from rlframe.models.action_mask import LOGIT_OF_FORBIDDEN, ActionMask
from rlframe.models.complex_model import ComplexInput
from rlframe.models.dist_plan import LOG_CONCENTRATION_MAX, RAW_MAX, SMALL, DistPlan, plan_dist
from rlframe.models.layered_model import FullyConnected, LayeredModel, Vision
from rlframe.models.memory_models import AttentionBehind, LSTMBehind, MemoryBehind
from rlframe.models.modelv2 import ModelV2
from rlframe.models.networks import NetworksModel
from rlframe.models.past_views import PREV_N_ACTIONS, PREV_N_REWARDS
from rlframe.models.preprocessors import (
    AtariRamPreprocessor,
    DictFlatteningPreprocessor,
    GenericPixelPreprocessor,
    NoPreprocessor,
    OneHotPreprocessor,
    TupleFlatteningPreprocessor,
    get_preprocessor,
)
from rlframe.models.spec import LSTM, Dense, Network
from rlframe.policy.inference import Inference, NumpyInference
from rlframe.policy.own_inference import FrameworkInference, HookedInference, TensorInference
from rlframe.policy.recurrent_context import column_layout
from rlframe.serving.export.attention import AttentionUnit
from rlframe.serving.export.layers import Layers
from rlframe.serving.export.past_steps import PastSteps, add_state, give_back
from rlframe.serving.export.program import Port, Program, TracedNetwork
from rlframe.utils.errors import ConfigError
from rlframe.utils.filter import _EPSILON, MeanStdFilter, NoFilter
from rlframe.utils.numpy import FLOAT_MIN

_BORDER = 25


def policy_program(policy: Any, clip_rewards: bool | float | None = None) -> Program:
    """Returns the graph by which a policy acts.

    A network or distribution that is not built in is called in it as a whole, as `Program.network`.

    Args:
        policy: With weights and filter as they are to be.
        clip_rewards: How rewards are clipped, for policies that see past ones.

    Raises:
        ConfigError: If it acts by methods of the user's own on arrays, or by something else that cannot be written.
    """
    try:
        return _Writer(policy, clip_rewards).program()
    except _NotBuiltInError as error:
        network = _traced(policy, error)
    return _Writer(policy, clip_rewards, network).program()


class _NotBuiltInError(ConfigError):
    """There is a network or distribution in the policy that has no form as a graph."""


def _traced(policy: Any, why: _NotBuiltInError) -> TracedNetwork:
    """Returns the policy's network to be called as a whole; raises `why` where there is none."""
    file = {"torch": "network_torch", "tf": "network_tf"}.get(str(policy.framework))
    if file is None or not isinstance(policy.inference, FrameworkInference) or policy.acts_for_group:
        raise why
    made: TracedNetwork = importlib.import_module(f"rlframe.serving.export.{file}").network_of(policy)
    return made


class _Writer:
    def __init__(self, policy: Any, clip_rewards: bool | float | None, network: TracedNetwork | None = None) -> None:
        self.policy, self._clip_rewards = policy, clip_rewards
        self.made = Program(network=network)
        self._past: PastSteps

    def program(self) -> Program:
        policy, made = self.policy, self.made
        if made.network is None and (policy.numpy_dist is None or not _acts_as_built(policy)):
            raise _NotBuiltInError(_why(policy, "acts by functions or a distribution of its own"))
        observed = self._observed()
        recurrent = [add_state(made, np.asarray(state, np.float32)) for state in policy.get_initial_state()]
        self._past = PastSteps(made, policy, observed, self._clip_rewards)
        names = [state.given.name for state in recurrent]
        if made.network is None:
            layers = Layers(made, policy.get_weights(), names)
            raw = self._likeliest_parts(self._network(layers, observed))
            after = layers.after
        else:
            raw, after = self._called(observed, names)
        for state, value in zip(recurrent, after, strict=True):
            give_back(made, state, value)
        self._act(raw)
        return made

    def _called(self, observed: str, states: list[str]) -> tuple[list[str], list[str]]:
        """Adds the call of a traced network; returns the parts of the policy's action, and the states behind it."""
        made, policy = self.made, self.policy
        obs = made.cast(observed, column_layout(policy, OBS)[1])
        call = made.add("Network", [obs, *states, *self._past.columns.values()])
        count = 1 if not acts_by_hooks(policy) else len(_leaves(policy.action_space))
        parts = [made.add("Part", [call], index=index) for index in range(count + len(states))]
        raw = parts[:count] if acts_by_hooks(policy) else self._likeliest_parts(parts[0])
        return raw, parts[count:]

    # --- observations ------------------------------------------------------------------------------------------

    def _observed(self) -> str:
        """Adds the inputs, preprocessor and filter; returns the preprocessed observations `[B, ...]`."""
        policy, made = self.policy, self.made
        space = policy.observation_space
        if policy._obs_preprocessor is None:
            x = self._leaf(space, ())
        else:
            x = self._preprocessed(policy._obs_preprocessor, ())
            if space.shape is not None and len(space.shape) != 1:
                x = made.rows(x, *space.shape)
        held = policy._obs_filter
        if held is None or type(held) is NoFilter:
            return x
        if not isinstance(held, MeanStdFilter):
            raise refusal(policy, f"has the observation filter {type(held).__name__}")
        if not held.rs.n:
            return made.cast(x, np.float32)
        x = made.cast(x, np.float64)
        if held.demean:
            x = made.math("Sub", x, held.rs.mean, np.float64)
        if held.destd:
            x = made.math("Div", x, held.rs.std + _EPSILON, np.float64)
        if held.clip is not None:
            x = made.clip(x, -held.clip, held.clip, np.float64)
        return made.cast(x, np.float32)

    def _leaf(self, space: Any, path: tuple[Any, ...]) -> str:
        """Adds an input for a part of the observation, and returns its name."""
        if space.shape is None or space.dtype is None:
            raise refusal(self.policy, f"observes {space}, which has no fixed shape")
        name = "_".join(["obs", *("".join(c if c.isalnum() else "_" for c in str(key)) for key in path)])
        while any(port.name == name for port in self.made.observations):
            name += "_"
        self.made.observations.append(Port(name, np.dtype(space.dtype).name, tuple(space.shape), path))
        return name

    def _preprocessed(self, preprocessor: Any, path: tuple[Any, ...]) -> str:
        """Returns float32 rows `[B, size]` of what a preprocessor gives."""
        made, kind = self.made, type(preprocessor)
        if kind in (DictFlatteningPreprocessor, TupleFlatteningPreprocessor):
            pairs = zip(preprocessor.keys, preprocessor.preprocessors, strict=True)
            return made.beside([self._preprocessed(child, (*path, key)) for key, child in pairs])
        wanted = (NoPreprocessor, OneHotPreprocessor, GenericPixelPreprocessor, AtariRamPreprocessor)
        if kind not in wanted:
            raise refusal(self.policy, f"has the preprocessor {kind.__name__}")
        x = self._leaf(preprocessor._obs_space, path)
        if kind is OneHotPreprocessor:
            columns = made.rows(made.cast(x, np.int64), len(preprocessor._sizes))
            columns = made.math("Sub", columns, preprocessor._start, np.int64)
            return self._one_hot_columns(columns, preprocessor._sizes)
        if kind is GenericPixelPreprocessor:
            return self._screen(x, preprocessor)
        x = made.rows(made.cast(x, np.float32), preprocessor.size)
        if kind is AtariRamPreprocessor:
            x = made.math("Div", made.math("Sub", x, 128.0), 128.0)
        return x

    def _one_hot_columns(self, columns: str, sizes: Any) -> str:
        """Returns integers `[B, n]`, counted from 0, as one-hot rows side by side."""
        made = self.made
        single = [made.add("Reshape", [made.columns(columns, i, i + 1), made.constant([-1], np.int64)])
                  for i in range(len(sizes))]  # fmt: skip
        return made.beside([made.one_hot(column, int(size)) for column, size in zip(single, sizes, strict=True)])

    def _screen(self, x: str, preprocessor: Any) -> str:
        """Adds `GenericPixelPreprocessor`: borders off, averaged down, scaled."""
        made = self.made
        bounds = [made.constant([n], np.int64) for n in (_BORDER, preprocessor._obs_space.shape[0] - _BORDER, 1)]
        x = made.add("Transpose", [made.cast(made.add("Slice", [x, *bounds]), np.float32)], perm=[0, 3, 1, 2])
        if preprocessor._grayscale:
            x = made.add("ReduceMean", [x, made.constant([1], np.int64)])
        rows = made.add("MatMul", [made.constant(preprocessor._rows), x])
        x = made.add("Transpose", [made.math("MatMul", rows, preprocessor._columns.T)], perm=[0, 2, 3, 1])
        scaled = made.math("Div", made.math("Sub", x, preprocessor.offset), preprocessor.unit)
        return made.rows(scaled, preprocessor.size)

    # --- past steps --------------------------------------------------------------------------------------------

    def _past_steps(self, actions: str, rewards: str, counts: tuple[int, int]) -> list[str]:
        """Returns what a memory sees of so many steps before, as rows; the first two are names of columns."""
        made, parts = self.made, []
        if counts[0]:
            encoding = action_encoding(self.policy.action_space)
            columns = made.rows(self._past.columns[actions], counts[0] * len(encoding))
            for index, size in enumerate([*encoding] * counts[0]):
                column = made.columns(columns, index, index + 1)
                if size:
                    flat = made.add("Reshape", [made.cast(column, np.int64), made.constant([-1], np.int64)])
                    parts.append(made.one_hot(flat, size))
                else:
                    parts.append(made.cast(column, np.float32))
        return [*parts, made.rows(self._past.columns[rewards], counts[1])] if counts[1] else parts

    # --- networks ----------------------------------------------------------------------------------------------

    def _network(self, layers: Layers, observed: str) -> str:
        """Adds the model, and returns the distribution's inputs `[B, K]`."""
        if self.policy.acts_for_group:
            return self._group(layers, observed)
        own = getattr(self.policy, "acting_layers", None)  # a policy without a framework's model says its layers
        if own is not None:
            return layers.chain(self._flat(observed, math.prod(self.policy.observation_space.shape)), own)
        model = self.policy.model
        made = self._model(layers, model, observed, "")
        heads: Any = getattr(model, "acting_heads", list)()
        if heads is None:
            raise self._foreign(model)
        return layers.chain(made, heads)

    def _flat(self, x: str, size: int) -> str:
        return self.made.rows(self.made.cast(x, np.float32), size)

    def _model(self, layers: Layers, model: Any, observed: str, prefix: str) -> str:
        """Adds a built-in model whose weights have names with a prefix; returns its outputs."""
        own = type(model)
        if isinstance(model, ActionMask) and own.forward is ActionMask.forward:
            return self._masked(layers, model, observed, prefix)
        if isinstance(model, NetworksModel) and own.forward is NetworksModel.forward:
            spec = model.parts[model.acting]
            if not isinstance(spec, Network) or model.view is not None:
                raise self._foreign(model)
            x = (
                self._flat(observed, math.prod(self.policy.observation_space.shape)) if model.encoder is None
                else self._model(layers, model.encoder, observed, f"{prefix}encoder.")
            )  # fmt: skip
            return layers.chain(x, spec.layers, f"{prefix}{model.acting}.")
        if isinstance(model, LSTMBehind) and own.forward is LSTMBehind.forward:
            parts = [self._model(layers, model.inner, observed, f"{prefix}inner.")]
            counts = int(model.use_prev_action), int(model.use_prev_reward)
            parts += self._past_steps(PREV_ACTIONS, PREV_REWARDS, counts)
            x = layers.chain(self.made.beside(parts), [LSTM("lstm", model.cell_size)], prefix)
            return self._model(layers, model.heads, x, f"{prefix}heads.")
        if isinstance(model, AttentionBehind) and own.forward is AttentionBehind.forward:
            return self._attention(layers, model, observed, prefix)
        if isinstance(model, LayeredModel) and own.forward is LayeredModel.forward:
            inputs = own._layer_inputs
            if inputs is ComplexInput._layer_inputs:
                return layers.chain(self._parts(layers, model, observed, prefix), model._spec.outputs, prefix)
            if inputs in (LayeredModel._layer_inputs, FullyConnected._layer_inputs, Vision._layer_inputs):
                x = observed if isinstance(model, Vision) else self._flat(observed, math.prod(model.obs_space.shape))
                return layers.chain(x, model._spec.outputs, prefix)
        raise self._foreign(model)

    def _foreign(self, model: Any) -> _NotBuiltInError:
        return _NotBuiltInError(_why(self.policy, f"has the model {_name(model)}"))

    def _attention(self, layers: Layers, model: AttentionBehind, observed: str, prefix: str) -> str:
        parts = [self._model(layers, model.inner, observed, f"{prefix}inner.")]
        parts += self._past_steps(PREV_N_ACTIONS, PREV_N_REWARDS, (model.past_actions, model.past_rewards))
        x = layers.chain(self.made.beside(parts), [Dense("embedding", "linear", model.width)], prefix)
        for index in range(len(model.units)):
            unit = AttentionUnit(layers, f"{prefix}units.{index}.", model.model_config)
            x, after = unit.step(x, layers.states.pop(0))
            layers.after.append(after)
        return self._model(layers, model.heads, x, f"{prefix}heads.")

    def _masked(self, layers: Layers, model: ActionMask, observed: str, prefix: str) -> str:
        made, original = self.made, self.policy.observation_space.original_space
        places = _places(original)
        flat = self._flat(observed, math.prod(self.policy.observation_space.shape))
        parts = made.columns(flat, *places[model._key])
        logits = self._model(layers, model.network, parts, f"{prefix}network.")
        if not model._masking:
            return logits
        allowed = made.math("Greater", made.columns(flat, *places["action_mask"]), 0.5)
        return made.add("Where", [allowed, logits, made.constant(LOGIT_OF_FORBIDDEN)])

    def _parts(self, layers: Layers, model: Any, observed: str, prefix: str) -> str:
        """Returns the features of a nested observation with images in it."""
        made, start, features = self.made, 0, []
        flat = self._flat(observed, math.prod(self.policy.observation_space.shape))
        for part in model._parts:
            convs = () if part.convolutions is None else [part.image]
            size = math.prod(convs[0].shape) if convs else part.size
            x = made.columns(flat, start, start + size)
            features.append(layers.chain(x, convs, prefix))
            start += size
        return made.beside(features)

    def _group(self, layers: Layers, observed: str) -> str:
        """Adds the network that the agents of a group share, with their masks; returns `[B, N · A]`."""
        made, spec = self.made, self.policy.numpy_spec()
        if not isinstance(spec, dict) or "n_agents" not in spec:
            raise self._foreign(self.policy.model)
        agents, size = int(spec["n_agents"]), math.prod(self.policy.observation_space.shape)
        by_agent = made.rows(made.cast(observed, np.float32), size // agents)
        layers.states = [made.rows(name, made.states[i].given.shape[-1]) for i, name in enumerate(layers.states)]
        values = layers.chain(made.columns(by_agent, *spec["obs"]), spec["outputs"])
        if spec["mask"] is not None:
            allowed = made.math("Greater", made.columns(by_agent, *spec["mask"]), 0.5)
            values = made.add("Where", [allowed, values, made.constant(FLOAT_MIN)])
        return made.rows(values, sum(plan_dist(part).dim for part in self.policy.action_space.spaces))

    # --- actions -----------------------------------------------------------------------------------------------

    def _likeliest_parts(self, inputs: str) -> list[str]:
        """Returns the likeliest action of the policy's distribution, in the policy's space, by part."""
        raw, start = [], 0
        for plan in self._plans(_leaves(self.policy.action_space)):
            raw.append(self._likeliest(plan, self.made.columns(inputs, start, start + plan.dim)))
            start += plan.dim
        return raw

    def _act(self, raw: list[str]) -> None:
        """Adds what makes the policy's action one of the environment, and remembers it."""
        policy, made, config = self.policy, self.made, self.policy.config
        leaves = _leaves(policy.action_space)
        flat = ""
        if self._past.wants_actions:
            dtype = column_layout(policy, ACTIONS)[1]
            flat = made.beside([
                made.rows(made.cast(x, dtype), max(math.prod(leaf.shape or ()), 1))
                for x, (_, leaf) in zip(raw, leaves, strict=True)
            ])  # fmt: skip
        self._past.acted(flat)
        for x, (path, space) in zip(raw, leaves, strict=True):
            name = "_".join(["action", *("".join(c if c.isalnum() else "_" for c in str(key)) for key in path)])
            made.actions.append(Port(name, np.dtype(space.dtype).name, tuple(space.shape), path))
            made.name_last(self._for_env(x, space, bool(config.normalize_actions), bool(config.clip_actions)), name)

    def _plans(self, leaves: list[tuple[tuple[Any, ...], Any]]) -> list[DistPlan]:
        if self.policy.acts_for_group:
            return [plan_dist(space) for _, space in leaves]
        plan = plan_dist(self.policy.action_space, self.policy.dist_type)
        return list(plan.children) or [plan]

    def _likeliest(self, plan: DistPlan, x: str) -> str:
        """Returns `deterministic_sample` of a distribution, in the policy's space."""
        made, half = self.made, plan.dim // 2
        if plan.kind == "categorical":
            return made.add("ArgMax", [x], axis=1, keepdims=0)
        if plan.kind == "multi_categorical":
            chosen, start = [], 0
            for size in plan.options["input_lens"]:
                part = made.columns(x, start, start + size)
                chosen.append(made.rows(made.add("ArgMax", [part], axis=1, keepdims=0), 1))
                start += size
            return made.rows(made.beside(chosen), *plan.options["shape"])
        if plan.kind == "diag_gaussian":
            return made.columns(x, 0, half)
        if plan.kind == "squashed_gaussian":
            return made.add("Tanh", [made.clip(made.columns(x, 0, half), -RAW_MAX, RAW_MAX)])
        if plan.kind == "beta":
            positive = made.math("Add", made.add("Softplus", [x]), 1.0)
            alpha, beta = made.columns(positive, 0, half), made.columns(positive, half, 2 * half)
            return made.add("Div", [alpha, made.add("Add", [alpha, beta])])
        if plan.kind == "dirichlet":
            logs = made.cast(made.math("Min", x, LOG_CONCENTRATION_MAX), np.float64)
            weights = made.math("Max", made.add("Exp", [logs]), SMALL, np.float64)
            total = made.add("ReduceSum", [weights, made.constant([1], np.int64)])
            return made.cast(made.add("Div", [weights, total]), np.float32)
        if plan.kind == "tanh":
            return made.rows(made.add("Tanh", [x]), *plan.options["shape"])
        if plan.kind == "relaxed_one_hot":
            return made.add("Softmax", [x], axis=1)
        assert plan.kind == "deterministic", plan.kind
        return x

    def _for_env(self, x: str, space: Any, unsquash: bool, clip: bool) -> str:
        """Returns what `Policy.to_env_actions` does."""
        made, dtype = self.made, np.dtype(space.dtype)
        if self.policy._acts_in_points:
            x = made.add("ArgMax", [x], axis=1, keepdims=0)
        start = getattr(space, "start", None)
        if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)) and np.any(start):
            x = made.math("Add", x, start, np.int64)
        if not isinstance(space, gym.spaces.Box):
            return made.cast(x, dtype)
        x = made.rows(x, *space.shape)
        if np.issubdtype(dtype, np.integer):
            x = made.math("Add", x, space.low, np.int64) if unsquash else x
            return made.cast(made.clip(x, space.low, space.high, np.int64) if unsquash or clip else x, dtype)
        if not (unsquash or clip):
            return made.cast(x, dtype)
        x = made.cast(x, dtype)
        if unsquash:
            bounded = np.logical_and(space.bounded_below, space.bounded_above)
            low, high = np.where(bounded, space.low, 0), np.where(bounded, space.high, 0)
            share = made.clip(made.math("Add", made.math("Mul", x, 0.5, dtype), 0.5, dtype), 0, 1, dtype)
            other = made.add("Sub", [made.constant(1, dtype), share])
            stretched = made.add("Add", [made.math("Mul", other, low, dtype), made.math("Mul", share, high, dtype)])
            all_bounded = bool(bounded.all())
            x = stretched if all_bounded else made.add("Where", [made.constant(bounded, np.bool_), stretched, x])
        return made.clip(x, space.low, space.high, dtype)


def acts_by_hooks(policy: Any) -> bool:
    """Returns whether a distribution or functions of the user's own choose the action, by tensors of the framework."""
    return isinstance(policy.inference, HookedInference)


def _acts_as_built(policy: Any) -> bool:
    """Returns whether no code of the user's own stands between network and action."""
    way: Inference = policy.inference
    hooks = getattr(policy, "_has_acting_hooks", None)
    return (type(way) in (FrameworkInference, TensorInference) or isinstance(way, NumpyInference)) and not (
        hooks and hooks()
    )


def _places(space: Any) -> dict[Any, tuple[int, int]]:
    """Returns where the parts of a Dict lie in its flat observations."""
    preprocessor: Any = get_preprocessor(space)(space)
    ends = np.cumsum([child.size for child in preprocessor.preprocessors]).tolist()
    return dict(zip(preprocessor.keys, zip([0, *ends[:-1]], ends, strict=True), strict=True))


def _leaves(space: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Returns the leaves of an action space, in the order of its distribution."""
    if isinstance(space, gym.spaces.Dict):
        return [leaf for key, part in sorted(space.spaces.items()) for leaf in _leaves(part, (*path, key))]
    if isinstance(space, gym.spaces.Tuple):
        return [leaf for index, part in enumerate(space.spaces) for leaf in _leaves(part, (*path, index))]
    return [(path, space)]


def _name(model: Any) -> str:
    memory = isinstance(model, MemoryBehind)
    known = isinstance(model, ModelV2) and type(model).__module__.startswith("rlframe.")
    return f"{type(model).__name__}{'' if known or memory else ', which is not built in'}"


def refusal(policy: Any, why: str) -> ConfigError:
    """Returns the error for a policy that cannot be written."""
    return ConfigError(_why(policy, why))


def _why(policy: Any, why: str) -> str:
    return f"export: {type(policy).__name__} {why}, which is not written as a file; serve it instead: rlframe serve RUN"
