"""What stands for TensorFlow where it is not installed, so that programs that serve both frameworks can be imported."""

from __future__ import annotations

from types import FunctionType
from typing import Any, NoReturn

_ADVICE = "needs TensorFlow, which is not installed: pip install 'rlframe[tf]', or set framework='torch'"


class _AbsentBase:
    """The base of classes that derive from TensorFlow's: they can be defined, but not made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 (takes what the real one takes)
        MissingTensorFlow.refuse(type(self).__name__)


class MissingTensorFlow:
    """TensorFlow, or something in it, where it is not installed: all of it has a name, and nothing can be called.

    Classes derive from it and functions are decorated with it, as when a module is imported. What is called says what
    to install.

    Args:
        name: Its dotted name.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str = "tensorflow") -> None:
        self._name = name

    def __getattr__(self, name: str) -> MissingTensorFlow:
        """Returns what stands for the attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        return MissingTensorFlow(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a function that is decorated as it is.

        Raises:
            ModuleNotFoundError: If it is called with anything else.
        """
        if len(args) != 1 or kwargs or not isinstance(args[0], FunctionType):
            self.refuse(f"{self._name}()")
        return args[0]

    @staticmethod
    def refuse(what: str) -> NoReturn:
        """Raises a `ModuleNotFoundError` that says what needs TensorFlow, and what to do."""
        raise ModuleNotFoundError(f"{what} {_ADVICE}", name="tensorflow")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Returns what a class derives from in its place."""
        return (_AbsentBase,)

    def __instancecheck__(self, instance: Any) -> bool:
        """Nothing is an instance of it."""
        return False

    def __or__(self, other: Any) -> Any:
        """Returns the other of two annotated types."""
        return other

    __ror__ = __or__

    def __repr__(self) -> str:
        """Tells its name."""
        return f"<{self._name}, which is not installed>"


__all__ = ["MissingTensorFlow"]
