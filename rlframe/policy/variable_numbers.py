"""Numbers that programs for RLlib know as variables: they read them by `.numpy()`, and some set them by `.assign()`."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import Self


class VariableNumber(float):
    """A number of a policy, as it was when it was asked for, that can also be read and set as a variable of TensorFlow.

    A copy of it, and what is pickled, is a plain float.
    """

    _policy: Any
    _name: str

    @classmethod
    def of(cls, policy: Any, name: str, value: float) -> Self:
        """Returns the number that a policy has under a name."""
        made = cls(value)
        made._policy, made._name = policy, name
        return made

    def numpy(self) -> np.float32:
        """Returns the number as RLlib's variables told it."""
        return np.float32(self)

    def value(self) -> float:
        """Returns the plain number."""
        return float(self)

    read_value = value

    def assign(self, value: Any, read_value: bool = True) -> float:
        """Sets the policy's number, and the rate of its optimisers where it is the learning rate.

        Args:
            value: A number, or a tensor of one.
            read_value: Accepted for programs that say it.
        """
        del read_value
        number = float(value)
        setattr(self._policy, self._name, number)
        if self._name == "cur_lr":
            self._policy.set_learning_rate(number)
        return number

    def assign_add(self, delta: Any) -> float:
        """Adds to the policy's number; see `assign`."""
        return self.assign(self + float(delta))

    def assign_sub(self, delta: Any) -> float:
        """Takes away from the policy's number; see `assign`."""
        return self.assign(self - float(delta))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Computes with the plain number, whose product with float32 is float32; NumPy takes a subclass for float64."""
        plain = (float(each) if isinstance(each, VariableNumber) else each for each in inputs)
        return getattr(ufunc, method)(*plain, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)

    def __copy__(self) -> float:
        return float(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> float:
        return float(self)


class ShownAsVariable:
    """An attribute of policies: a plain number for the code inside (`vars(policy)`), a `VariableNumber` for programs.

    What is no number, such as the tensor that stands there while TensorFlow traces a loss, is given as it is.
    """

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, policy: Any, owner: type[Any] | None = None) -> Any:
        if policy is None:
            return self
        try:
            value = vars(policy)[self._name]
        except KeyError:
            raise AttributeError(f"{type(policy).__name__!r} object has no attribute {self._name!r}") from None
        number = isinstance(value, (int, float, np.number))
        return VariableNumber.of(policy, self._name, float(value)) if number else value

    def __set__(self, policy: Any, value: Any) -> None:
        vars(policy)[self._name] = float(value) if isinstance(value, VariableNumber) else value

    def __delete__(self, policy: Any) -> None:
        vars(policy).pop(self._name, None)


class _Count(int):
    def numpy(self) -> np.int64:
        """Returns the count as RLlib's variable told it."""
        return np.int64(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class GlobalStep:
    """`policy.global_step`, the count of updates; a variable of the program's own takes its place when it is set."""

    def __get__(self, policy: Any, owner: type[Any] | None = None) -> Any:
        return self if policy is None else _Count(policy.num_updates)
