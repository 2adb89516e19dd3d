"""How long OpenMP's threads spin while they wait: a module of its own, as `import rlframe` needs nothing else."""

from __future__ import annotations

import os
import sys

#: Variables that say how OpenMP's threads wait; any of them is the user's word.
_WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
#: Rounds, some microseconds: enough for threads of one operation that end together, too few to burn a time slice.
_SPIN_ROUNDS = "1000"


def shorten_spinning() -> None:
    """Lets OpenMP's threads sleep soon where they wait, unless the environment says how they wait.

    The library reads the variable when it is loaded: with PyTorch. It holds for processes that this one starts, too.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _WAIT_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = _SPIN_ROUNDS
