"""A random stream of a model's own, where users' code draws from PyTorch's global one: dropout, noise."""

from __future__ import annotations

from collections.abc import Iterator

import torch


class RandomStream:
    """A context in which PyTorch's global stream is this one; it is left as it was.

    So a checkpoint has what a model draws next, whatever else draws in the process.

    Args:
        seed: Of the stream.
        device: Where the model computes; CUDA has a stream of its own.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        made = [torch.Generator(), *([torch.Generator(device)] if device.type == "cuda" else [])]
        self._states = [generator.manual_seed(seed).get_state() for generator in made]
        self._before: list[torch.Tensor] = []
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1 and not torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            generators = list(self._globals())
            self._before = [generator.get_state() for generator in generators]
            for generator, state in zip(generators, self._states, strict=True):
                generator.set_state(state)

    def __exit__(self, *exc: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._before:
            generators = list(self._globals())
            self._states = [generator.get_state() for generator in generators]
            for generator, state in zip(generators, self._before, strict=True):
                generator.set_state(state)
            self._before = []

    def _globals(self) -> Iterator[torch.Generator]:
        yield torch.default_generator
        if self._device.type == "cuda":
            yield torch.cuda.default_generators[self._device.index or 0]

    def get_state(self) -> torch.Tensor:
        """Returns the stream's state, uint8."""
        return torch.cat(self._states)

    def set_state(self, state: torch.Tensor) -> None:
        """Takes what `get_state` returned; a stream of another device keeps what is not there."""
        sizes = [len(mine) for mine in self._states]
        parts = torch.split(state, sizes) if len(state) == sum(sizes) else (state[: sizes[0]],)
        self._states[: len(parts)] = [part.clone() for part in parts]
