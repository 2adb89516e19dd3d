"""The names that RLlib 1.x gave the parameters of its default networks, and its weights under ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_DENSE, _NOISY = "_model.0", "q_func/{}_value/{}"


class _Layer(NamedTuple):
    """What RLlib called a layer of ours: in torch, in TensorFlow, and a noisy one in TensorFlow.

    In the names, `{0}` is the layer's number, `{1}` the next one, `{2}` the place of a convolution behind its padding,
    and `{3}` the number of convolutions. Where there are several names, networks differ.
    """

    torch: tuple[str, ...] = ()
    tf: tuple[str, ...] = ()
    noisy: str = ""


def _head(letter: str, ours: str, tf: str) -> dict[str, _Layer]:
    """Returns the layers of DQN's advantages or state values."""
    module, action = ("advantage_module", "action") if letter == "A" else ("value_module", "state")
    hidden, noisy = f"{module}.dueling_{letter}_{{0}}", "hidden_{0}" if letter == "A" else "dueling_hidden_{0}"
    output, last = f"{module}.{letter}", "output" if letter == "A" else "dueling_output"
    return {
        rf"{ours}_(\d+)": _Layer((f"{hidden}.{_DENSE}", hidden), (tf,), _NOISY.format(action, noisy)),
        f"{ours}_output": _Layer((f"{output}.{_DENSE}", output), (f"{ours}_output",), _NOISY.format(action, last)),
    }


def _network(ours: str, sac: str, ddpg: str, copy: str) -> dict[str, _Layer]:
    """Returns the layers of an actor or a critic: SAC's module in torch, DDPG's and its layers', TensorFlow's count."""
    module, hidden, output = ddpg.split()
    layers = ("actor_hidden_{0}", "actor_out") if ours == "actor" else (f"{hidden}_{{0}}", output)
    return {
        rf"{ours}\.hidden_(\d+)": _Layer(
            (f"{sac}._hidden_layers.{{0}}.{_DENSE}", f"{module}.{hidden}_{{0}}.{_DENSE}"),
            (layers[0], f"fc_{{1}}{copy}"),
        ),
        rf"{ours}\.output": _Layer(
            (f"{sac}._logits.{_DENSE}", f"{module}.{output}.{_DENSE}"), (layers[1], f"fc_out{copy}")
        ),
    }


_LAYERS = {
    re.compile(pattern): layer
    for pattern, layer in {
        r"(?:inner\.)?hidden_(\d+)": _Layer((f"_hidden_layers.{{0}}.{_DENSE}",), ("fc_{1}", "fc_out")),
        r"output": _Layer((f"_logits.{_DENSE}", "_logits._model.1"), ("fc_out", "conv_out")),
        r"free_log_std": _Layer(("_append_free_log_std",)),
        r"value_hidden_(\d+)": _Layer((f"_value_branch_separate.{{0}}.{_DENSE}",), ("fc_value_{1}",)),
        r"value": _Layer(
            (f"_value_branch.{_DENSE}", f"_value_branch_separate.{{3}}.{_DENSE}"), ("value_out", "conv_value_out")
        ),
        r"(?:inner\.)?convs\.convs\.(\d+)\._model\.(\d)": _Layer(("_convs.{0}._model.{2}",), ("conv{1}", "conv_out")),
        r"value_convs\.convs\.(\d+)\._model\.(\d)": _Layer(
            ("_value_branch_separate.{0}._model.{2}",), ("conv_value_{1}",)
        ),
        r"lstm": _Layer(("lstm",), ("lstm/lstm_cell",)),
        r"heads\.output": _Layer((f"_logits_branch.{_DENSE}",), ("logits",)),
        r"heads\.value": _Layer((f"_value_branch.{_DENSE}",), ("values",)),
        **_head("A", "advantage", "hidden_{0}"),
        **_head("V", "state_value", "state_value_{0}"),
        **_network("actor", "action_model", "policy_model action action_out", ""),
        **_network("q", "q_net", "q_model q_hidden q_out", "_1"),
        **_network("twin_q", "twin_q_net", "twin_q_model twin_q_hidden twin_q_out", "_2"),
    }.items()
}

#: Our parameters of a layer -> RLlib's of a noisy layer, in torch and in TensorFlow.
_NOISY_PARAMETERS = {
    "weight": ("w", "fc_w"),
    "bias": ("b", "fc_b"),
    "weight_sigma": ("sigma_w", "sigma_w"),
    "bias_sigma": ("sigma_b", "sigma_b"),
}
_TORCH_LSTM = {"weight_ih": ("weight_ih_l0",), "weight_hh": ("weight_hh_l0",), "bias": ("bias_ih_l0", "bias_hh_l0")}
_TF = {"weight": "kernel", "weight_ih": "kernel", "weight_hh": "recurrent_kernel", "bias": "bias"}

#: What RLlib's networks have, and others do not use: value heads of DQN and SAC and before an LSTM, targets, bounds of
#: actions, Curiosity's.
_UNUSED = re.compile(
    r"((action_model|(twin_)?q_net)\.)?_value_branch|_curiosity_|.*\btarget_|policy_model\.action_out_squashed\."
    r"|(.*/)?(log_alpha_\d+|(actor_hidden_\d+|actor_out)_\d+/\w+|sequential_\d+/(twin_)?q_\w+/\w+)(:0)?$|(.*/)?((value_out|fc_value_\d+|conv_value_\w+|dense)(_\d+)?"
    r"|(fc_\d+|fc_out|hidden_\d+|conv\d+|conv_out)_\d+)/\w+(:0)?$"
)
#: Layers that TensorFlow named by counting, as they come in a Q-network.
_COUNTED = re.compile(r"(?:.*/)?dense(?:_(\d+))?/(kernel|bias)")
_TRANSPOSED = ("weight", "weight_sigma", "weight_ih", "weight_hh")


def fitting_weights(wanted: Mapping[str, tuple[int, ...]], given: Any, *, owner: str) -> Mapping[str, Any]:
    """Returns weights that have the names and shapes wanted, translated from RLlib 1.x's where they have its names.

    Args:
        wanted: Name -> shape.
        given: Name -> array.
        owner: Whose weights they are, for the error message.

    Raises:
        ValueError: If names or shapes do not fit.
    """
    named = named_in_order(wanted, given) if isinstance(given, (list, tuple)) else given
    if not isinstance(named, Mapping):
        raise ValueError(
            f"weights of {owner} do not fit: got a {type(given).__name__}, wanted names and arrays; those of an "
            "eager TensorFlow policy of RLlib 1.x are {v.name: v.numpy() for v in policy.model.variables()} there"
        )
    weights = given = named
    missing, surplus = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    if missing or surplus:
        translated = weights_of_rllib(wanted, given)
        if translated is None:
            raise ValueError(
                f"weights of {owner} do not fit: missing {missing[:4] or 'none'}, unknown {surplus[:4] or 'none'}; "
                f"they must come from a policy with the same model and spaces{_hint(wanted, given)}"
            )
        weights = translated
    for name, shape in wanted.items():
        got = tuple(np.shape(weights[name]))
        if got != shape:
            raise ValueError(f"weights of {owner} do not fit: {name} is {got}, wanted {shape}")
    return weights


def _hint(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    free = any(name.endswith("log_std") for name in wanted) and not any(name.endswith("log_std") for name in given)
    if free:
        return "; for deviations that depend on the state, RLlib's default, set model.free_log_std=False"
    apart = [any(name.startswith("value_hidden") for name in names) for names in (wanted, given)]
    if apart[0] != apart[1]:
        return "; model.vf_share_layers differs (False by default in PPO, True elsewhere): set it in both configs"
    return ""


def named_in_order(wanted: Mapping[str, Any], given: Sequence[Any]) -> dict[str, Any] | None:
    """Returns the weights of an eager TensorFlow policy of RLlib 1.x, which are a list, by RLlib's names.

    Args:
        wanted: Our parameters.
        given: Arrays in the order of the Keras model, layer by layer: outputs' and values' of each depth in turn.

    Returns:
        None where they are not those of a fully connected network.
    """
    depths = len({name for name in wanted if re.fullmatch(r"hidden_\d+\.bias", name)})
    columns = ["fc_", "fc_value_"] if "value_hidden_0.bias" in wanted else ["fc_"]
    layers = [f"{column}{depth}" for depth in range(1, depths + 1) for column in columns] + ["fc_out", "value_out"]
    ours = [name for name in wanted if not name.startswith("popart.")]
    if not len(ours) == len(given) == 2 * len(layers) or not {"output.bias", "value.bias"} <= set(ours):
        return None
    return dict(zip((f"{layer}/{part}" for layer in layers for part in ("kernel", "bias")), given, strict=True))


def weights_of_rllib(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, Any]) -> dict[str, Array] | None:
    """Returns weights of a policy of RLlib 1.x under the names and in the layout of ours.

    Torch's state dict is understood, and the dict of a TensorFlow policy: of fully connected networks, convolutions
    without `post_fcnet_hiddens`, both with an LSTM behind them, and DQN's heads.

    Args:
        wanted: Our parameters: name -> shape.
        given: RLlib's: name -> array.

    Returns:
        One array for each parameter wanted; None where the names are not RLlib's, or some are missing or left over.
    """
    known = _by_every_name(wanted, given)
    used: set[str] = set()
    made: dict[str, Array] = {}
    for name, shape in wanted.items():
        if name.startswith("popart."):
            made[name] = np.full(shape, float(name.endswith("weight")), np.float32)
            continue
        for sources, transposed in _places(name, wanted):
            if all(source in known for source in sources):
                arrays = [np.asarray(given[known[source]]) for source in sources]
                made[name] = _laid_out(sum(arrays[1:], arrays[0]), transposed, shape)
                fresh = {known[source] for source in sources}
                if fresh & used:
                    return None  # one layer of theirs cannot be two of ours
                used |= fresh
                break
        else:
            return None
    return None if any(not _UNUSED.match(name) for name in given if name not in used) else made


def keras_name(name: str) -> str | None:
    """Returns what RLlib called a parameter of ours in TensorFlow, without the policy's scope; None without a name."""
    return next((sources[0] for sources, _ in _places(name, ()) if "/" in sources[0]), None)


def _places(name: str, names: Any) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yields where a parameter may be: RLlib's names, whose arrays are added up, and whether they are transposed."""
    ours, _, parameter = name.rpartition(".")
    for pattern, layer in _LAYERS.items():
        match = pattern.fullmatch(ours)
        if match is None:
            continue
        number, place = (*match.groups(), None, None)[:2]
        convs = sum(other.startswith("value_convs.") and other.endswith(".bias") for other in names)
        numbers = (number, int(number or 0) + 1, place, convs)
        transposed = parameter in _TRANSPOSED
        for theirs in layer.torch:
            parts = _TORCH_LSTM.get(parameter, (parameter,)) if ours == "lstm" else (parameter,)
            yield tuple(f"{theirs}.{part}".format(*numbers) for part in parts), False
            if parameter in _NOISY_PARAMETERS:
                yield (f"{theirs}.{_NOISY_PARAMETERS[parameter][0]}".format(*numbers),), transposed
        for theirs in layer.tf if parameter in _TF else ():
            yield (f"{theirs}/{_TF[parameter]}".format(*numbers),), transposed
        if layer.noisy and parameter in _NOISY_PARAMETERS:
            yield (f"{layer.noisy}_{_NOISY_PARAMETERS[parameter][1]}".format(*numbers),), transposed
    if ours == "free_log_std":
        yield ("log_std",), False
    if name == "log_alpha":
        yield (name,), False


def _by_every_name(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Returns the given names by themselves and by what is left of them without leading scopes, the shortest first."""
    known: dict[str, str] = {}
    for name in sorted(given, key=lambda name: (name.count("/"), len(name))):
        parts = name.removesuffix(":0").split("/")
        for start in range(len(parts)):
            known.setdefault("/".join(parts[start:]), name)
    counted = sorted({int(match[1] or 0) for match in map(_COUNTED.match, given) if match})
    heads = (re.fullmatch(r"(state_value_\w+|advantage_output)\.bias", name) for name in wanted)
    slots = [match[1] for match in heads if match]
    for slot, number in zip(slots, counted, strict=False):
        for part in ("kernel", "bias"):
            theirs = known.get(f"dense_{number}/{part}" if number else f"dense/{part}")
            if theirs is not None:
                known[f"{slot}/{part}"] = theirs
    return known


def _laid_out(array: Array, transposed: bool, shape: tuple[int, ...]) -> Array:
    """Returns an array of RLlib's as ours lie: [out, in] and [out, in, height, width]; 1×1 convolutions are dense."""
    if transposed:
        array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
    if array.ndim == 4 and len(shape) == 2 and array.shape[2:] == (1, 1):
        array = array[:, :, 0, 0]
    array = np.ascontiguousarray(array)
    return array if shape else array.reshape(array.shape[1:])  # RLlib's log_alpha is [1] in torch
