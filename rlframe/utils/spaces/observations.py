"""Checks one observation against its space, casts it safely, and names exactly what is wrong with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlframe.utils.errors import EnvError, NonFiniteError
from rlframe.utils.spaces.repeated import Repeated

_Array = NDArray[Any]
_LOGGER = logging.getLogger("rlframe")
#: Spaces whose bounds an observation has left, and that a warning told of.
_TOLD: set[str] = set()


class _Lenient(str):
    """Where an observation is from whose floats may leave their bounds.

    Attributes:
        faults: What is to be said of those that do.
    """

    faults: list[str]


def check_observation(obs: Any, space: spaces.Space[Any], where: str = "observation", *, name: str = "obs") -> Any:
    """Returns `obs` as its space declares it, or raises naming the leaf that does not fit.

    Floats are cast to the float type of the space, integers and booleans to its integer type where that loses
    nothing; lists become arrays. Values are compared with the bounds after the cast; one unit in the last place
    beyond a bound is rounding, and is put back onto the bound.

    NaN and infinity raise `NonFiniteError`; any other fault of structure, shape, type or value raises `EnvError`.

    Args:
        obs: What the environment returned.
        space: The environment's observation space (or, with another `name`, any other space).
        where: What is being checked, e.g. `"reset() of worker 1, slot 0"`; begins the error message.
        name: What the value is called in the error message.

    Returns:
        The observation: arrays for Box, MultiDiscrete and MultiBinary (the same array if nothing had to change), a
        NumPy integer for Discrete, a tuple for Tuple, a dict in the order of the space for Dict.
    """
    return _check(space, obs, where, name)


def check_sampled(obs: Any, space: spaces.Space[Any], where: str, *, first: bool) -> Any:
    """Returns what `check_observation` does, but lets floats leave their bounds later, with one warning for a space.

    Environments that are otherwise sound do so at times, after hours perhaps: Gymnasium's LunarLander-v3 when it flies
    up.

    Args:
        obs: What the environment returned.
        space: The environment's observation space.
        where: What is being checked; begins the message.
        first: Whether the episode begins with it: then it has to be within the bounds.
    """
    if first:
        return check_observation(obs, space, where)
    lenient = _Lenient(where)
    lenient.faults = []
    taken = check_observation(obs, space, lenient)
    if lenient.faults and (space_text := str(space)) not in _TOLD:
        _TOLD.add(space_text)
        _LOGGER.warning("%s It is taken as it is, and not said again.", lenient.faults[0])
    return taken


def fits_space(obs: Any, space: spaces.Space[Any]) -> bool:
    """Tells whether `check_observation` would accept `obs`."""
    try:
        check_observation(obs, space)
    except (EnvError, NonFiniteError):
        return False
    return True


def describe(value: Any) -> str:
    """Returns the type of a value in words, with shape and dtype where it has them: `float32 array of shape (4,)`."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    if isinstance(value, (tuple, list, Mapping)):
        return f"{type(value).__name__} of length {len(value)}"
    return type(value).__name__


def refuse_reset_pair(obs: Any, what: str) -> None:
    """Raises EnvError where a whole `(observation, info)` of `reset()` stands for an observation that is no tuple."""
    if type(obs) is tuple and len(obs) == 2 and isinstance(obs[1], dict):
        raise EnvError(
            f"{what} is a tuple of two, the second a dict: that is what reset() returns; pass the observation alone: "
            "obs, info = env.reset()"
        )


def _member(path: str, key: Any) -> str:
    return f'{path}["{key}"]' if isinstance(key, str) else f"{path}[{key!r}]"


def _element(path: str, index: tuple[Any, ...]) -> str:
    return f"{path}[{', '.join(str(int(i)) for i in index)}]" if index else path


def _first(bad: _Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])


def _more(bad: _Array) -> str:
    count = int(np.count_nonzero(bad)) - 1
    return f" (and {count} more like it)" if count else ""


@singledispatch
def _check(space: spaces.Space[Any], obs: Any, where: str, path: str) -> Any:
    if not isinstance(space, spaces.Space):
        raise EnvError(
            f"{where}: the space of {path} is {space!r} ({describe(space)}); wanted a space of gymnasium.spaces. "
            "Declare it as one; spaces of the old gym are converted by `rlframe.env.adapt.convert_space`."
        )
    if not space.contains(obs):
        raise EnvError(
            f"{where}: {path} is {repr(obs)[:80]} ({describe(obs)}), which is outside of {space}. "
            "Return a member of the space, or declare another space."
        )
    return obs


@_check.register(spaces.Box)
def _check_box(space: spaces.Box, obs: Any, where: str, path: str) -> _Array:
    array = _to_array(obs, space.shape, np.dtype(space.dtype), where, path)
    array = _cast(array, np.dtype(space.dtype), where, path)
    return _into_bounds(array, space.low, space.high, where, path)


@_check.register(spaces.MultiDiscrete)
def _check_multi_discrete(space: spaces.MultiDiscrete, obs: Any, where: str, path: str) -> _Array:
    array = _to_array(obs, space.shape, np.dtype(space.dtype), where, path)
    array = _cast(array, np.dtype(space.dtype), where, path)
    low = np.broadcast_to(np.asarray(getattr(space, "start", 0)), space.shape)
    return _into_bounds(array, low, low + space.nvec - 1, where, path)


@_check.register(spaces.MultiBinary)
def _check_multi_binary(space: spaces.MultiBinary, obs: Any, where: str, path: str) -> _Array:
    array = _to_array(obs, space.shape, np.dtype(space.dtype), where, path)
    array = _cast(array, np.dtype(space.dtype), where, path)
    return _into_bounds(array, np.zeros(space.shape), np.ones(space.shape), where, path)


@_check.register(spaces.Discrete)
def _check_discrete(space: spaces.Discrete, obs: Any, where: str, path: str) -> Any:
    array = _to_array(obs, (), np.dtype(space.dtype), where, path)
    value = int(_cast(array, np.dtype(space.dtype), where, path))
    low, high = int(space.start), int(space.start + space.n) - 1
    if not low <= value <= high:
        raise EnvError(
            f"{where}: {path} is {value}, {'below' if value < low else 'above'} its bound "
            f"{low if value < low else high} ({space}). Return a member of the space, or declare a larger one."
        )
    return np.dtype(space.dtype).type(value)


@_check.register(spaces.Tuple)
def _check_tuple(space: spaces.Tuple[Any], obs: Any, where: str, path: str) -> tuple[Any, ...]:
    wanted = len(space.spaces)
    if not isinstance(obs, (tuple, list, np.ndarray)) or len(obs) != wanted:
        raise EnvError(f"{where}: {path} is a {describe(obs)}; wanted a tuple of length {wanted} ({space}).")
    return tuple(_check(sub, obs[i], where, _member(path, i)) for i, sub in enumerate(space.spaces))


@_check.register(spaces.Dict)
def _check_dict(space: spaces.Dict, obs: Any, where: str, path: str) -> dict[str, Any]:
    wanted = list(space.spaces)
    if not isinstance(obs, Mapping):
        raise EnvError(f"{where}: {path} is a {describe(obs)}; wanted a dict with the keys {wanted}.")
    missing = [key for key in wanted if key not in obs]
    surplus = [key for key in obs if key not in space.spaces]
    if missing or surplus:
        faults = [f"lacks {missing}"] * bool(missing) + [f"has the undeclared {surplus}"] * bool(surplus)
        raise EnvError(f"{where}: {path} {' and '.join(faults)}; wanted exactly the keys {wanted}.")
    return {key: _check(sub, obs[key], where, _member(path, key)) for key, sub in space.spaces.items()}


@_check.register(Repeated)
def _check_repeated(space: Repeated, obs: Any, where: str, path: str) -> list[Any]:
    if not isinstance(obs, (tuple, list, np.ndarray)) or len(obs) > space.max_len:
        raise EnvError(f"{where}: {path} is a {describe(obs)}; wanted a list of at most {space.max_len} items.")
    return [_check(space.child_space, item, where, _member(path, i)) for i, item in enumerate(obs)]


def _to_array(obs: Any, shape: tuple[int, ...], dtype: np.dtype[Any], where: str, path: str) -> _Array:
    """Returns `obs` as an array of `shape`, of whatever numeric type it has."""
    wanted = f"wanted a {dtype} array of shape {shape}" if shape else f"wanted one {dtype} number"
    if not isinstance(obs, np.ndarray):
        if obs is None or isinstance(obs, (str, bytes, Mapping, set)):
            raise EnvError(f"{where}: {path} is {repr(obs)[:80]} ({describe(obs)}); {wanted}.")
        refuse_reset_pair(obs, f"{where}: {path}")
        try:
            obs = np.asarray(obs)
        except ValueError as error:  # a ragged list
            raise EnvError(f"{where}: {path} is a {describe(obs)} that is no array ({error}); {wanted}.") from error
    array: _Array = obs
    if array.dtype.kind == "O" and all(isinstance(each, (int, float, np.number)) for each in array.flat):
        array = np.array(array.tolist())  # what is stacked of Python's numbers; gym's spaces had it, too
    if array.dtype.kind not in "fiub":
        raise EnvError(f"{where}: {path} has dtype {array.dtype} ({describe(obs)}); {wanted}.")
    if array.shape != shape:
        hint = " Reshape it, or declare the shape that the environment returns."
        raise EnvError(f"{where}: {path} has shape {array.shape}; {wanted}.{hint}")
    return array


def _cast(array: _Array, dtype: np.dtype[Any], where: str, path: str) -> _Array:
    """Returns `array` as `dtype`, refusing what would change a value by more than float rounding."""
    if array.dtype.kind == "f":
        finite = np.isfinite(array)
        if not finite.all():
            index = _first(~finite)
            raise NonFiniteError(
                f"{where}: {_element(path, index)} is {array[index]}{_more(~finite)}; observations must be finite. "
                "Look for a division by zero or an overflow in the environment."
            )
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    lost = ~np.isfinite(cast) if dtype.kind == "f" else cast != array
    if lost.any():
        index = _first(lost)
        if array.dtype.kind == "f" and dtype.kind != "f" and array[index] % 1:
            raise EnvError(
                f"{where}: {_element(path, index)} is {array[index]} ({array.dtype}); the space declares {dtype}, and "
                f"floats are not rounded silently{_more(lost)}. Return whole numbers, or declare a float dtype."
            )
        raise EnvError(
            f"{where}: {_element(path, index)} is {array[index]} ({array.dtype}), which {dtype} cannot "
            f"hold{_more(lost)}. Declare a space of a wider dtype, or clip the value."
        )
    return cast


def _into_bounds(array: _Array, low: _Array, high: _Array, where: str, path: str) -> _Array:
    """Returns `array`, with values that are one ulp outside put onto their bound; raises for those further out."""
    if ((array >= low) & (array <= high)).all():
        return array
    lower, upper = low, high
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            lower, upper = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    bad = (array < lower) | (array > upper)
    if not bad.any():
        return np.asarray(np.clip(array, low, high))
    index = _first(bad)
    below = bool(array[index] < low[index])
    fault = (
        f"{where}: {_element(path, index)} is {array[index]}, {'below' if below else 'above'} its bound "
        f"{(low if below else high)[index]} (dtype {array.dtype}){_more(bad)}. "
        "Clip the value in the environment, or widen the bounds of its space."
    )
    if isinstance(where, _Lenient) and array.dtype.kind == "f":
        where.faults.append(fault)
        return array
    raise EnvError(fault)
