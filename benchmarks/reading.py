"""What a reader walks: the files of one training step, from the environment to the weights.

python -m benchmarks.reading [DQN PPO IMPALA SAC] [--functions]

Trains each algorithm on a small environment until it learns, and notes which functions of `rlframe` run in the
iteration after that. A step is what the plan does in it: sampling, ends of episodes, postprocessing, replay, learning,
weights. What makes a result of it is no part of it (metrics, loggers, `Trainer`), nor is what ran once before:
construction, checks of the config, imports.

For each file: its lines; its lines of code, without blank ones, comments and docstrings; and how many of these stand in
functions that ran. A file with a small share makes the way longer than the step needs. `--functions` names what ran,
and how often.

The last rows: modules of `rlframe` that importing the algorithm's file loads; the policy's classes up to `Policy`.
"""

import argparse
import ast
import io
import os
import subprocess
import sys
import threading
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = f"{ROOT}/rlframe/"
WARM_UP = 3  # iterations
COMMON = {"num_workers": 0, "min_iter_time_s": 0, "seed": 0, "log_level": "ERROR"}
REPLAY = {"learning_starts": 100, "timesteps_per_iteration": 400}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "DQN": ("CartPole-v1", REPLAY | {"target_network_update_freq": 50}),
    "PPO": ("CartPole-v1", {"train_batch_size": 400, "rollout_fragment_length": 100, "num_sgd_iter": 2}),
    "IMPALA": ("CartPole-v1", {"train_batch_size": 100, "rollout_fragment_length": 50, "timesteps_per_iteration": 400}),
    "SAC": ("Pendulum-v1", REPLAY),
}
# The operator that makes an iteration's result: what runs in its calls is no part of the step.
OF_RESULTS = {
    "execution/metric_ops.py": {"CollectMetrics.__call__", "OncePerTimeInterval.__call__"},
}


class SourceFile:
    """The lines of a Python file, and which of them are code of which function."""

    def __init__(self, filename: str) -> None:
        text = Path(filename).read_text()
        tree = ast.parse(text)
        self.lines = len(text.splitlines())
        self.code = _lines_with_tokens(text) - set(_docstring_lines(tree))
        self._functions = sorted(_functions(tree))

    def name_at(self, line: int) -> str:
        """Returns the name of the outermost function around a line, with its class; "" where there is none."""
        return next((name for first, last, name in self._functions if first <= line <= last), "")

    def code_of(self, lines: set[int]) -> int:
        """Counts the lines of code of all functions that have one of `lines`."""
        ran: set[int] = set()
        for line in lines:
            spans = [range(first, last + 1) for first, last, _ in self._functions if first <= line <= last]
            ran.update(spans[0] if spans else [line])
        return len(ran & self.code)


def _lines_with_tokens(text: str) -> set[int]:
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {line for t in tokens if t.type not in silent for line in range(t.start[0], t.end[0] + 1)}


def _docstring_lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        # A string that is a statement, be it of a class, a function or beside an attribute.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield first, child.end_lineno or first, prefix + child.name
        else:
            yield from _functions(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)


class StepRecorder:
    """Counts calls of functions of `rlframe` in any thread while it is on, without those that make a result."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()  # by file and first line
        self.sources: dict[str, SourceFile] = {}
        self._thread = threading.local()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """What `sys.setprofile` calls at each call and return."""
        filename, line = frame.f_code.co_filename, frame.f_code.co_firstlineno
        if event not in ("call", "return") or not filename.startswith(PACKAGE):
            return
        depth = getattr(self._thread, "depth_in_results", 0)
        names = OF_RESULTS.get(filename.removeprefix(PACKAGE), ())
        if names and self.source(filename).name_at(line) in names:
            self._thread.depth_in_results = depth + (1 if event == "call" else -1)
        elif event == "call" and not depth:
            self.calls[filename, line] += 1

    def source(self, filename: str) -> SourceFile:
        """Returns what is known of a file, which is read once."""
        if filename not in self.sources:
            self.sources[filename] = SourceFile(filename)
        return self.sources[filename]

    def __enter__(self) -> "StepRecorder":
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def record_step(name: str) -> tuple[StepRecorder, list[str]]:
    """Returns what ran in one iteration after warm-up, and the classes from the policy's to below `Policy`."""
    from rlframe.agents.registry import get_trainer_class

    env, config = RUNS[name]
    trainer = get_trainer_class(name)(COMMON | config, env=env)
    try:
        for _ in range(WARM_UP):
            trainer.train()
        with StepRecorder() as recorder:
            next(trainer.train_exec_impl)
        classes = [kind.__name__ for kind in type(trainer.get_policy()).__mro__]
    finally:
        trainer.stop()
    return recorder, classes[: classes.index("Policy")]


def report(name: str, functions: bool) -> None:
    """Prints a row for each file of a step, those with most lines that did not run first."""
    recorder, ancestors = record_step(name)
    rows = []
    for filename in {filename for filename, _ in recorder.calls}:
        source = recorder.source(filename)
        ran = source.code_of({line for file, line in recorder.calls if file == filename})
        rows.append((len(source.code) - ran, source.lines, len(source.code), ran, filename))
    print(f"\n{name + ', one step':<45} {'lines':>6} {'code':>6} {'ran':>6}")
    for _, lines, code, ran, filename in sorted(rows, reverse=True):
        print(f"{filename.removeprefix(PACKAGE):<45} {lines:>6} {code:>6} {ran:>6}")
        if functions:
            _print_functions(recorder, filename)
    totals = [sum(row[column] for row in rows) for column in (1, 2, 3)]
    print(f"{f'{len(rows)} files':<45} {totals[0]:>6} {totals[1]:>6} {totals[2]:>6}")
    module = f"rlframe.agents.{name.lower()}.{name.lower()}"
    print(f"{f'modules loaded by {module}':<45} {modules_loaded(module):>6}")
    print(f"classes below Policy: {', '.join(ancestors)}")


def _print_functions(recorder: StepRecorder, filename: str) -> None:
    calls: Counter[str] = Counter()
    for (file, line), times in sorted(recorder.calls.items()):
        if file == filename:
            calls[recorder.source(file).name_at(line) or f"line {line}"] += times
    for function, times in calls.items():
        print(f"    {function} {times}")


def modules_loaded(module: str) -> int:
    """Counts modules of `rlframe` that a new process has after importing one of them."""
    program = f"import sys, {module}; print(sum(name.split('.')[0] == 'rlframe' for name in sys.modules))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True, cwd=ROOT)
    return int(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ALGORITHM", help=f"{', '.join(RUNS)}; all where none is named")
    parser.add_argument("--functions", action="store_true", help="name the functions that ran, with their calls")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.names or RUNS:
        report(name, arguments.functions)


if __name__ == "__main__":
    main()
