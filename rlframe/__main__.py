"""`python -m rlframe`: the `rlframe` script, where it is not on the path."""

from __future__ import annotations

from rlframe.cli.main import main

if __name__ == "__main__":
    main()
