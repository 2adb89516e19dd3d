"""One thread at a time in a policy: what a model keeps of a forward pass is that of the pass before it."""

from __future__ import annotations

import threading
from typing import Any

_MAKING = threading.Lock()
_Reentrant: Any = type(threading.RLock())


class PolicyLock(_Reentrant):  # type: ignore[misc]
    """A lock that the thread which holds it may take again; a copy or a pickle of a policy gets one of its own."""

    def __reduce__(self) -> tuple[type[PolicyLock], tuple[()]]:
        return PolicyLock, ()


class OwnLock:
    """The lock of a policy, made when it is first asked for: constructors of users' own may act already.

    Held by whoever acts or learns: between a model's forward pass and its `value_function()`, which tells of the pass
    before, another thread's pass would change what is learned. So it was in RLlib.
    """

    def __get__(self, policy: Any, cls: type) -> Any:
        if policy is None:
            return self
        with _MAKING:
            return vars(policy).setdefault("_policy_lock", PolicyLock())
