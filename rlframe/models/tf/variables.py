"""Objects that own named variables: what `torch.nn.Module` is there, as far as models need it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rlframe.models.tf.misc import initial_rng, normc
from rlframe.models.tf.named_variables import NamedVariables
from rlframe.utils.quiet_tf import tf

# What a name may not contain where TensorFlow is to show it.
_FOREIGN = re.compile(r"[^A-Za-z0-9_.\\/-]")
# Attributes of the owner's own; models of programs have attributes such as `_weights` and `_registered` themselves.
_WEIGHTS, _REGISTERED = "_variables_added", "_variables_registered"
#: Attribute with views of an owner's variables, which no copy takes along: they would be the original's.
VIEWS = "_keras_views"
_BY_NAME = "_variables_by_name"


class VariableOwner:
    """Finds the variables in its attributes and gives them names that are the same in every process.

    In order: those of `add_weight`, under the names given there; those of other owners in attributes (also in lists
    and dicts), as "<attribute>.<name>"; those of Keras layers and models in attributes, as
    "<attribute>.<index>.<variable's name>", because the names of the layers count up with every layer of the process;
    `tf.Variable`s in attributes, by the attribute's name; those that are made by name, see `NamedVariables`; and those
    of `register_variables` that were not found otherwise, as "registered.<index>". A variable found twice keeps the
    first name.
    """

    #: Attributes that are not searched.
    _NOT_SEARCHED: tuple[str, ...] = (_WEIGHTS, _REGISTERED, VIEWS, _BY_NAME)

    def add_weight(self, name: str, value: Any, trainable: bool = True) -> Any:
        """Makes a variable of the owner's.

        Args:
            name: Such as "hidden_0.weight". Arrays are laid out as in PyTorch, so that both frameworks share them:
                `[out, in]` for dense layers, `[out, in, height, width]` for convolutions.
            value: Initial value; its dtype is the variable's.
            trainable: Whether gradients change it.

        Returns:
            The `tf.Variable`.

        Raises:
            ValueError: If there is one of this name.
        """
        weights = self.__dict__.setdefault(_WEIGHTS, {})
        if name in weights:
            raise ValueError(f"{type(self).__name__} has a weight {name!r} already.")
        shown = _FOREIGN.sub("_", name).lstrip("_")
        weights[name] = tf.Variable(np.asarray(value), trainable=trainable, name=shown or None)
        return weights[name]

    def add_dense(self, name: str, in_size: int, out_size: int, std: float = 1.0) -> None:
        """Makes `<name>.weight [out, in]`, normal with rows of the norm `std`, and `<name>.bias [out]`, zeros."""
        self.add_weight(f"{name}.weight", normc(initial_rng(), out_size, in_size, std))
        self.add_weight(f"{name}.bias", np.zeros(out_size, np.float32))

    def get_weight(self, name: str) -> Any:
        """Returns a variable that `add_weight` made."""
        return self.__dict__.get(_WEIGHTS, {})[name]

    def dense(self, name: str, x: Any) -> Any:
        """Returns x Wᵀ + b with `<name>.weight` and, where there is one, `<name>.bias`. `[B, in]` to `[B, out]`."""
        weights = self.__dict__.get(_WEIGHTS, {})
        y = tf.matmul(x, weights[f"{name}.weight"], transpose_b=True)
        bias = weights.get(f"{name}.bias")
        return y if bias is None else tf.nn.bias_add(y, bias)

    def register_variables(self, variables: Iterable[Any]) -> None:
        """Makes variables known that lie in no attribute of the owner's."""
        self.__dict__.setdefault(_REGISTERED, []).extend(variables)

    def variables_by_name(self) -> NamedVariables:
        """Returns what the owner makes by name, as programs for TensorFlow 1 do."""
        made: NamedVariables = self.__dict__.setdefault(_BY_NAME, NamedVariables())
        return made

    def named_variables(self) -> dict[str, Any]:
        """Returns the variables there are now by name, in a stable order; layers not yet built have none."""
        return {name: _tf_variable(variable) for name, variable in self._found().items()}

    def named_trainable_variables(self) -> dict[str, Any]:
        """Returns those of `named_variables` that gradients change."""
        return {name: _tf_variable(variable) for name, variable in self._found().items() if variable.trainable}

    def seeds(self) -> dict[str, KerasSeed]:
        """Returns what random layers of Keras' draw from, such as dropout, by name: variables that are no weights."""
        found: dict[str, KerasSeed] = {}
        for number, owner in enumerate(self.networks()):
            for name, value in owner.__dict__.items():
                leaves = () if name in owner._NOT_SEARCHED else _leaves(name, value)
                for path, layer in ((path, leaf) for path, leaf in leaves if _is_keras(leaf)):
                    weights = {id(weight) for weight in layer.weights}
                    others = [variable for variable in layer.variables if id(variable) not in weights]
                    found |= {f"{number}.{path}.{index}": KerasSeed(each) for index, each in enumerate(others)}
        return found

    def networks(self) -> Iterator[VariableOwner]:
        """Yields the owner and those in its attributes, each once."""
        yield from self._owned(set())

    def _owned(self, seen: set[int]) -> Iterator[VariableOwner]:
        seen.add(id(self))
        yield self
        for name, value in self.__dict__.items():
            for _, leaf in () if name in self._NOT_SEARCHED else _leaves(name, value):
                if isinstance(leaf, VariableOwner) and id(leaf) not in seen:
                    yield from leaf._owned(seen)

    def _found(self) -> dict[str, Any]:
        """Returns TensorFlow's and Keras' variables by name, each once."""
        found: dict[str, Any] = {}
        seen: set[int] = set()
        for name, variable in self._search(set()):
            if id(_tf_variable(variable)) in seen:
                continue
            if name in found:
                raise ValueError(f"{type(self).__name__} has two variables named {name!r}; rename an attribute.")
            seen.add(id(_tf_variable(variable)))
            found[name] = variable
        return found

    def _search(self, owners: set[int]) -> Iterator[tuple[str, Any]]:
        """Yields (name, variable), some of them perhaps twice; `owners` are those that were searched before."""
        owners.add(id(self))
        yield from self.__dict__.get(_WEIGHTS, {}).items()
        attributes = [(name, value) for name, value in self.__dict__.items() if name not in self._NOT_SEARCHED]
        leaves = [(name, list(_leaves(name, value))) for name, value in attributes]
        for _, below in leaves:
            for path, leaf in below:
                if isinstance(leaf, VariableOwner) and id(leaf) not in owners:
                    yield from ((f"{path}.{name}", variable) for name, variable in leaf._search(owners))
        for attribute, below in leaves:
            weights = [weight for _, leaf in below if _is_keras(leaf) for weight in leaf.weights]
            weights = [weight for weight in weights if not getattr(weight, "is_view", False)]
            yield from ((f"{attribute}.{index}.{weight.name}", weight) for index, weight in enumerate(weights))
        for _, below in leaves:
            yield from ((path, leaf) for path, leaf in below if isinstance(leaf, tf.Variable))
        if _BY_NAME in self.__dict__:
            yield from self.variables_by_name().items()
        registered = self.__dict__.get(_REGISTERED, [])
        yield from ((f"registered.{index}", variable) for index, variable in enumerate(registered))

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to copy or pickle: symbolic results of the last trace stay behind."""
        kept = {key: value for key, value in self.__dict__.items() if key != VIEWS}
        return {key: None if tf.is_symbolic_tensor(value) else value for key, value in kept.items()}


class KerasSeed:
    """A state of a random stream of Keras', as `tf.random.Generator` shows its own.

    Args:
        variable: Keras' variable.
    """

    def __init__(self, variable: Any) -> None:
        self.state = _tf_variable(variable)

    def reset(self, state: Any) -> None:
        """Takes the state."""
        self.state.assign(state)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields ("<path>.<key or index>…", what lies there) of nested lists, tuples and dicts; of others, themselves."""
    if isinstance(value, dict | list | tuple):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(f"{path}.{key}", child)
    else:
        yield path, value


def _is_keras(value: Any) -> bool:
    """Whether `value` is a Keras layer or model, told without importing Keras."""
    return hasattr(type(value), "trainable_weights") and hasattr(type(value), "weights")


def _tf_variable(variable: Any) -> Any:
    """Returns the `tf.Variable` that a Keras variable stands for."""
    return variable if isinstance(variable, tf.Variable) else variable.value
