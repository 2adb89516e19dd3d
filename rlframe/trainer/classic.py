"""What trainers have of the design before `setup`: an `_init` of their own."""

from __future__ import annotations

from typing import Any


class ClassicTrainerMixin:
    """A trainer may build its own parts in `_init`, and have no workers and no plan; it has a `step` then."""

    #: Hook of subclasses, `_init(self, config, env_creator)`: builds what their `step` needs in place of policies,
    #: workers and a plan. None here, so that it is seen whether there is one, also of a class that was pickled.
    _init: Any = None
    config: dict[str, Any]
    env_creator: Any

    def _builds_itself(self) -> bool:
        """Calls `_init` where a subclass has one, and returns whether that was so."""
        if self._init is None:
            return False
        self._init(self.config, self.env_creator)
        return True
