"""A policy that `rlframe export --to numpy` wrote. Needs NumPy, and nothing of rlframe.

from policy import Policy

policy = Policy()
action = policy.act(observation)            # at each step of an episode
action = policy.act(observation, reward)    # the last action's reward, for policies that see it
policy.reset()                              # where another episode begins
actions = policy.act_many(observations)     # of policies without memory
"""

# mypy: ignore-errors
# Copied as it is into the files, which stay free of annotations.
import base64
import io
import math

import numpy as np

CONTRACT: dict = {}
GRAPH: dict = {}
ARRAYS = ""


def _erf(x):
    """Abramowitz and Stegun's 7.1.26, to 1.5e-7."""
    size = np.abs(x).astype(np.float64)
    t = 1.0 / (1.0 + 0.3275911 * size)
    tail = np.polyval([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0], t)
    return (np.sign(x) * (1.0 - tail * np.exp(-size * size))).astype(x.dtype)


def _selu(x):
    scaled = np.where(x > 0, x, x.dtype.type(1.6732632423543772) * np.expm1(np.minimum(x, 0)))
    return (scaled * x.dtype.type(1.0507009873554805)).astype(x.dtype)


def _sigmoid(x):
    half = x.dtype.type(0.5)
    return np.tanh(x * half) * half + half


def _softmax(x, axis):
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def _slice(x, starts, ends, axes):
    places = [slice(None)] * x.ndim
    for start, end, axis in zip(starts, ends, axes, strict=True):
        places[axis] = slice(start, end)
    return x[tuple(places)]


def _one_hot(x, depth, values, axis):  # noqa: ARG001  it is the last one
    return np.where(x[..., None] == np.arange(depth), values[1], values[0])


def _conv(x, weights, bias, strides, pads):
    """Convolutions of images [B, C, H, W] with weights [out, C, h, w]."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weights.shape[2:], (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1]].transpose(0, 2, 3, 1, 4, 5)
    rows = windows.reshape(math.prod(windows.shape[:3]), -1)
    made = rows @ weights.reshape(len(weights), -1).T + bias
    return made.reshape(*windows.shape[:3], -1).transpose(0, 3, 1, 2)


#: What each operation does; names and meanings are those of ONNX.
OPERATIONS = {
    "Identity": lambda x: x,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Greater": np.greater,
    "Where": np.where,
    "MatMul": np.matmul,
    "Exp": np.exp,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
    "Erf": _erf,
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "LeakyRelu": lambda x, alpha: np.where(x < 0, x * x.dtype.type(alpha), x),
    "Elu": lambda x: np.maximum(x, 0) + np.expm1(np.minimum(x, 0)),
    "Selu": _selu,
    "Sigmoid": _sigmoid,
    "Softplus": lambda x: np.logaddexp(x, x.dtype.type(0)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softmax": _softmax,
    "ReduceMean": lambda x, axes: x.mean(tuple(axes.tolist()), keepdims=True),
    "ReduceSum": lambda x, axes: x.sum(tuple(axes.tolist()), keepdims=True),
    "ArgMax": lambda x, axis, keepdims: x.argmax(axis, keepdims=bool(keepdims)),
    "OneHot": _one_hot,
    "Cast": lambda x, to: x.astype(to),
    "Reshape": lambda x, shape: x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape.tolist())]),
    "Transpose": lambda x, perm: x.transpose(perm),
    "Slice": _slice,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Conv": _conv,
}


class Policy:
    """Acts greedily: the preprocessor, the observation filter, the networks and the action bounds are inside."""

    def __init__(self, contract=None, graph=None, arrays=None):
        self.contract = CONTRACT if contract is None else contract
        self._graph = GRAPH if graph is None else graph
        self._arrays = _unpacked(ARRAYS) if arrays is None else arrays
        self._steps = 0
        self.reset()

    def reset(self):
        """Begins an episode: nothing has been seen or done."""
        self._steps = 0
        self._states = {said["input"]: self._arrays[said["initial"]][None] for said in self._graph["states"]}

    def act(self, observation, reward=None):
        """Returns the action for one observation, as the environment has both.

        Args:
            observation: Without batch dimension.
            reward: What the last action brought. Only policies that see it need it, from an episode's second step on.

        Raises:
            ValueError: If the observation has another shape, or the reward is missing.
        """
        feeds = {port["name"]: self._part(observation, port)[None] for port in self.contract["observations"]}
        if self._graph["reward"] is not None:
            if self._steps and reward is None:
                raise ValueError(
                    "the policy sees past rewards; wanted act(observation, reward) with the reward of the last action, "
                    "got none (call reset() where an episode begins)"
                )
            feeds[self._graph["reward"]] = np.array([reward or 0.0], np.float32)
        made = self.run({**feeds, **self._states})
        self._states = {said["input"]: made[said["output"]] for said in self._graph["states"]}
        self._steps += 1
        return self._nested(made, 0)

    def act_many(self, observations):
        """Returns the actions for a list of observations that have nothing to do with each other.

        Raises:
            ValueError: If the policy has memory, or an observation another shape.
        """
        if self._graph["states"] or self._graph["reward"] is not None:
            raise ValueError("the policy acts from what it saw before; wanted act(observation) for each step")
        ports = self.contract["observations"]
        made = self.run({port["name"]: np.stack([self._part(o, port) for o in observations]) for port in ports})
        return [self._nested(made, index) for index in range(len(observations))]

    def run(self, feeds):
        """Returns the graph's outputs by name, arrays [B, ...], for its inputs by name."""
        values = {**self._arrays, **feeds}
        with np.errstate(over="ignore"):
            for kind, inputs, output, attributes in self._graph["nodes"]:
                values[output] = OPERATIONS[kind](*(values[name] for name in inputs), **attributes)
        names = [port["name"] for port in self.contract["actions"]] + [s["output"] for s in self._graph["states"]]
        return {name: values[name] for name in names}

    def _part(self, observation, port):
        for key in port["path"]:
            observation = observation[key]
        part, wanted = np.asarray(observation), tuple(port["shape"])
        if part.dtype == object or part.shape != wanted:
            raise ValueError(f"{port['name']}: got an array of shape {part.shape}, wanted {wanted} ({port['dtype']})")
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            raise ValueError(f"{port['name']}: got NaN or infinity, wanted numbers")
        return part.astype(port["dtype"])

    def _nested(self, made, index):
        """Returns one row of the action's parts, nested as the environment's action is."""
        ports = self.contract["actions"]
        if not ports[0]["path"]:
            return made[ports[0]["name"]][index]
        return _assembled([(port["path"], made[port["name"]][index]) for port in ports])


def _assembled(parts):
    """Returns [(path, leaf)] as nested dicts and tuples; keys of tuples are numbers."""
    if not parts[0][0]:
        return parts[0][1]
    by_key = {}
    for (key, *rest), leaf in parts:
        by_key.setdefault(key, []).append((rest, leaf))
    children = {key: _assembled(inner) for key, inner in by_key.items()}
    return tuple(children.values()) if isinstance(parts[0][0][0], int) else children


def _unpacked(text):
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as arrays:
        return dict(arrays)
