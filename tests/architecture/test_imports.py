"""Who imports whom, wherever in a file the import stands: imports in functions and for type checkers count too."""

import ast
import re
import subprocess
import sys

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
    """Returns the modules of this package that a file imports: at its top, in functions, and for type checkers."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.Import):
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


def _circle(imports):
    """Returns the files of one import circle, in order; `[]` where there is none."""
    finished, way = set(), []

    def visit(name):
        if name in way:
            return way[way.index(name) :]
        if name in finished:
            return []
        way.append(name)
        for other in sorted(imports[name]):
            found = visit(other)
            if found:
                return found
        finished.add(way.pop())
        return []

    return next(filter(None, map(visit, sorted(imports))), [])


def test_no_file_imports_itself_through_others():
    assert _circle({name: imports_of(path) for name, path in FILES.items()}) == []


def test_circles_are_found_wherever_an_import_stands(tmp_path):
    lazy = tmp_path / "lazy.py"
    lazy.write_text("def f():\n    from rlframe.utils.errors import ConfigError\n    return ConfigError")
    typed = tmp_path / "typed.py"
    typed.write_text("if TYPE_CHECKING:\n    import rlframe.utils.errors")
    named = tmp_path / "named.py"
    named.write_text("importlib.import_module('rlframe.utils.errors')")
    assert [imports_of(path) for path in (lazy, typed, named)] == [{"rlframe.utils.errors"}] * 3
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_importing_an_algorithm_loads_no_workers_environments_or_policies():
    code = "import sys, rlframe.agents.dqn.dqn; print(*(m for m in sys.modules if m.split('.')[0] == 'rlframe'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not [name for name in loaded if re.match(r"rlframe\.(exploration|env|replay|losses|fast|cli)\.", name)]
    assert not loaded & {"rlframe.evaluation.rollout_worker", "rlframe.evaluation.worker_set", "rlframe.policy.policy"}
    assert len(loaded) <= 80


def test_modules_that_only_some_systems_have_are_not_counted_on():
    of_posix = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}
    for path in FILES.values():
        top = ast.parse(path.read_text()).body
        named = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
        named |= {node.module for node in top if isinstance(node, ast.ImportFrom)}
        assert not named & of_posix, path
