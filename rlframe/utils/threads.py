"""Threads that do not burn the time of those they wait for.

Threads of one operation spin at its end until all are there: beside one busy CPU, a learner with two threads was 10 to
100 times slower than with one. So spinning is kept short (`rlframe.utils.spinning`), workers sample in one thread, and
learners have as many as their work is worth (`Threads`).
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

from rlframe.utils.cpus import THREAD_VARIABLES, WORTH_SHARING, capped, default_threads, usable_cpus

_BLAS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class _OneThread:
    """Keeps NumPy's matrix products in one thread while anybody is inside; what was set before is back behind that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1 and not any(name in os.environ for name in _BLAS_VARIABLES):
                libraries = _blas_libraries()
                self._before = [library.get_num_threads() for library in libraries]
                for library in libraries:
                    library.set_num_threads(1)

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._before:
                for library, threads in zip(_blas_libraries(), self._before, strict=True):
                    library.set_num_threads(threads)
                self._before = []


_one_thread = _OneThread()


def blas_in_one_thread() -> _OneThread:
    """Returns a context that keeps NumPy's products in one thread, unless the environment says how many they have.

    The products that policies act with gain a third by a second thread at most, and lose a hundredfold where it has to
    share its CPU; learner steps multiply in NumPy where one thread is enough for them. Remote workers have one thread
    anyway: Ray says so. The context may be entered in several threads, and within itself.
    """
    return _one_thread


@functools.cache
def _blas_libraries() -> list[Any]:
    """Returns the controllers of NumPy's BLAS; looked for once."""
    import numpy as np  # noqa: F401 - the library that is looked for
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class Threads:
    """Chooses PyTorch's threads by the work of what comes next.

    The number depends on the model and the rows alone, not on how busy the machine is: another number would round
    otherwise, and the same seed would not give the same run. What the program says has its way: `learner_threads`, else
    `OMP_NUM_THREADS` or `MKL_NUM_THREADS`, else `torch.set_num_threads`.

    Args:
        torch: The module `torch`, which these files do not import.
        work_per_row: Multiplications of a forward pass for one row; see `rlframe.policy.torch.threads`.
        asked: `config["learner_threads"]`; None chooses.
    """

    _last_set: int | None = None  # by any of them: threads are the process's

    def __init__(self, torch: Any, work_per_row: int, asked: int | None) -> None:
        self._torch, self.work_per_row = torch, work_per_row
        self.most = usable_cpus()
        self.asked = None if asked is None else capped(asked)

    def count(self, rows: int) -> int | None:
        """Returns the threads for a batch of `rows` rows; None where the program or its environment has said it."""
        if self.asked is not None:
            return self.asked
        if any(name in os.environ for name in THREAD_VARIABLES) or self._set_by_program():
            return None
        return self.most if rows * self.work_per_row >= WORTH_SHARING else 1

    def use(self, rows: int) -> None:
        """Sets PyTorch's threads for a batch of `rows` rows."""
        count = self.count(rows)
        if count is None or count == self._torch.get_num_threads():
            return
        self._torch.set_num_threads(count)
        Threads._last_set = count

    def _set_by_program(self) -> bool:
        """Returns whether the program has called `torch.set_num_threads`: it is neither PyTorch's number nor ours."""
        return self._torch.get_num_threads() not in (Threads._last_set, *default_threads())
