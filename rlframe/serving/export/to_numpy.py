"""A `Program` as one Python file that needs NumPy only."""

from __future__ import annotations

import base64
import inspect
import io
import pprint
import runpy
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.serving.export import exported_policy
from rlframe.serving.export.program import Program


def write(program: Program, contract: dict[str, Any], path: Path) -> Any:
    """Writes the file, and returns how the file itself runs."""
    initial = {f"initial_{index}": state.initial for index, state in enumerate(program.states)}
    graph = {
        "nodes": program.nodes,
        "states": [
            {"input": state.given.name, "output": state.made, "initial": f"initial_{index}"}
            for index, state in enumerate(program.states)
        ],
        "reward": None if program.reward is None else program.reward.name,
    }
    stream = io.BytesIO()
    np.savez_compressed(stream, **program.constants, **initial)  # type: ignore[arg-type]  # its own keyword is none of them
    packed = base64.b64encode(stream.getvalue()).decode()
    source = inspect.getsource(exported_policy)
    for name, value in (("CONTRACT", contract), ("GRAPH", graph)):
        plain = pprint.pformat(value, width=116, compact=True, sort_dicts=False)
        source = source.replace(f"{name}: dict = {{}}\n", f"{name} = {plain}\n", 1)
    lines = "\n".join(f'    "{packed[start : start + 112]}"' for start in range(0, len(packed), 112))
    source = source.replace('ARRAYS = ""\n', f"ARRAYS = (\n{lines}\n)\n", 1)
    path.write_text(source, encoding="utf-8")
    return runpy.run_path(str(path))["Policy"]().run
