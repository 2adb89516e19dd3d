"""Models whose memory is a window over what they gave at their last steps, as RLlib's attention declares it.

Such a model has the views `state_in_i` of `state_out_i` with a shift like "-50:-1": its `forward` gets the states of
the last 50 steps, and gives that of each new one. Elsewhere a state is what goes in and comes out alike. So the window
is the state here: an array `[N, ...]` that moves on by the steps of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def keep_windows(model: Any) -> None:
    """Gives a model that declares windows its `state_windows`, and an initial state of that shape."""
    sizes: list[int] = []
    initial: list[NDArray[Any]] = []
    views = model.view_requirements
    while (view := views.get(f"state_in_{len(sizes)}")) is not None:
        if view.data_col != f"state_out_{len(sizes)}" or not view.has_time_axis or view.space is None:
            return
        sizes.append(len(view.shift_arr))
        initial.append(np.zeros((sizes[-1], *view.space.shape), np.float32))
    if sizes:
        model.state_windows = tuple(sizes)
        model.get_initial_state = partial(_copies, initial)


def moved_on(windows: Sequence[Tensor], given: Sequence[Tensor], seq_lens: Tensor | None) -> list[Tensor]:
    """Returns the windows behind the sequences.

    Args:
        windows: What was seen at the first step of each sequence, `[S, N, ...]` each.
        given: The state of every step, padded, `[S · T, ...]` each.
        seq_lens: Lengths of the sequences, int `[S]`; None where each has one step.
    """
    if len(windows) != len(given):
        return list(given)  # whoever tries the model says what is wrong
    made = []
    for window, steps in zip(windows, given, strict=True):
        new = steps[:, None] if seq_lens is None else ops.split_sequences(steps, seq_lens)
        made.append(ops.concat([window, new], 1)[:, -int(window.shape[1]) :])
    return made


def _copies(initial: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [state.copy() for state in initial]


class NewestState(np.ndarray):
    """The last step's row of a window, which is what RLlib gives of it: programs append it to a window of their own.

    Attributes:
        window: All of it, which a policy takes where the row comes back as a state.
    """

    window: NDArray[Any]

    @classmethod
    def of(cls, window: NDArray[Any]) -> NDArray[Any]:
        """Returns the newest row of a window, or the window itself where it is empty."""
        if not len(window):
            return window
        row: NewestState = window[-1].view(cls)
        row.window = window
        return row

    def copy(self, order: Any = "C") -> Any:
        """Returns a copy that comes back as a state, too."""
        window = getattr(self, "window", None)  # which parts of a row and what is computed of it have not
        return super().copy(order) if window is None else NewestState.of(window.copy(order))

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        """Pickles the window, of which the row is a part."""
        window = getattr(self, "window", None)
        return super().__reduce__() if window is None else (NewestState.of, (window,))
