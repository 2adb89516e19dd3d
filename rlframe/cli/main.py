"""The `rlframe` script: `train | play | evaluate | serve | export | plot | compare | tournament | tune | report | ...`.

Next to nothing is imported before `main` runs, so that Ctrl-C is answered in the first second as well.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.cli.app import app

__all__ = ["app", "main"]

_INTERRUPTED = 130


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlframe.cli.commands import app

    return app


def main() -> None:
    """Runs the command line; the entry point of the `rlframe` script."""
    try:
        from rlframe.cli.commands import run

        sys.exit(run())
    except KeyboardInterrupt:
        sys.stderr.write("aborted\n")
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
