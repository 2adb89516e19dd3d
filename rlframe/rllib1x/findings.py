"""What is told of a program that is rewritten, and which of RLlib's names are here."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

PATHS_PAGE = "docs/rllib1.md"
CONFIG_PAGE = "docs/reference/config.md"


@dataclass(frozen=True, order=True)
class Note:
    """What a person must decide.

    Attributes:
        line: The line of the program that it is about, from 1; in a notebook, of its code cells put together.
        text: One sentence.
        page: The page that says more.
    """

    line: int
    text: str
    page: str = PATHS_PAGE


def missing_names(module: str, names: Sequence[str]) -> dict[str, str]:
    """Returns why names cannot be imported from a module of rlframe: by name, a sentence. Empty if all can.

    Args:
        module: The module, as `rlframe.agents.ppo`.
        names: The names; none of them asks for the module alone.
    """
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        return dict.fromkeys(names or ("",), str(error))
    faults = {}
    for name in names:
        try:
            getattr(found, name)
        except AttributeError as error:
            if (below := missing_names(f"{module}.{name}", ())) and name != "*":
                faults[name] = str(error) if " " in str(error) else below[""]
        except ImportError as error:
            faults[name] = str(error)
    return faults
