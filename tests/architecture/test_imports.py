"""Who imports whom, wherever in a file the import stands: imports in functions and for type checkers count too."""

import ast
import re

from tests.architecture.test_structure import ROOT


def _name_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_name_of(path): path for path in ROOT.rglob("*.py")}
#: What an algorithm names of another one, and why.
NAMED = {
    ("impala", "a3c"): "without V-trace, IMPALA's policies are A3C's, as in RLlib",
}


def imports_of(path):
    """Returns the modules of this package that a file imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (path, "relative import")
            found |= {f"{node.module}.{alias.name}" for alias in node.names if f"{node.module}.{alias.name}" in FILES}
            found |= {node.module} if any(f"{node.module}.{alias.name}" not in FILES for alias in node.names) else set()
    return {name for name in found if name in FILES and FILES[name] != path}


def test_an_algorithm_imports_and_names_no_other_one():
    agents = ROOT / "agents"
    others = {path.name for path in agents.iterdir() if (path / "__init__.py").exists()} - {"families"}
    met = set()
    for own in sorted(others | {"families"}):
        for path in (agents / own).rglob("*.py"):
            named = re.findall(r"\brlframe\.agents\.(\w+)", path.read_text())
            met |= {(own, other) for other in named if other in others - {own}}
    assert met == set(NAMED)
