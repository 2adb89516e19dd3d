"""Attacks by run directories and config files: what the command line says to them, in this process."""

import contextlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from rlframe.cli.commands import app
from tests.hostile import damage, targets
from tests.hostile.watch import Tally, attack

SMALL = (
    "--num-workers", "0", "--rollout-fragment-length", "10", "--train-batch-size", "10", "--model.fcnet-hiddens", "[4]",
)  # fmt: skip
#: What is done with each run directory.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("report", "RUN", "-o", "OUT/report.html"),
    ("plot", "RUN", "-o", "OUT/plot.png"),
    ("compare", "RUN", "GOOD"),
    ("evaluate", "RUN", "--episodes", "1", "--max-steps", "5"),
    ("play", "RUN", "--max-steps", "5", "--best"),
    ("train", "--resume", "RUN", "--stop-iters", "4"),
)
_RUN_FILES = ("run.json", "params.json", "plan.json", "machine.json")
#: Files of a run, and which commands (by their place in COMMANDS) read each.
_READERS = {
    "run.json": (0, 1, 2, 3, 4, 5), "params.json": (0, 5), "result.jsonl": (0, 1, 2, 5), "progress.csv": (5,),
    "plan.json": (0,), "machine.json": (0,), "checkpoints/checkpoint_000003/state.json": (3, 5),
    "checkpoints/checkpoint_000003/manifest.json": (3, 5), "h.parquet": (5,),
}  # fmt: skip


def command(*words: str) -> None:
    """Runs a command line as a user sees it.

    Raises:
        Exception: What was not answered with a sentence.
    """
    from rlframe.utils.errors import ConfigError

    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if "Traceback" in done.output:
        raise RuntimeError(f"a traceback was printed: {done.output[-300:]}")
    if done.exit_code:
        raise ConfigError(done.stderr or done.stdout)


def make_run(directory: Path) -> Path:
    """Returns a small run, with everything that a run directory can hold."""
    run = directory / "good"
    command("train", "pg", "--env", "CartPole-v1", "--run-dir", str(run), "--seed", "1", "--stop-iters", "3",
            "--checkpoint-freq", "1", "--evaluation-interval", "2", "--evaluation-num-episodes", "1",
            "--history", str(run.with_suffix(".parquet")), *SMALL)  # fmt: skip
    shutil.move(run.with_suffix(".parquet"), run / "h.parquet")
    return run


def attack_by_runs(directory: Path, tally: Tally, stride: int = 1, seed: int = 0) -> None:
    """Reports, plots, compares, plays and resumes run directories that are damaged or name things."""
    rng = random.Random(seed)
    good = make_run(directory)
    run = directory / "run"
    for number, (name, act, readers) in enumerate(_damages(run, good, rng)):
        if number % stride:
            continue
        for reader in readers:
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(good, run)
            _own_history(run)
            act()
            places = {"RUN": str(run), "GOOD": str(good)}
            words = [places.get(word, word.replace("OUT", str(directory))) for word in COMMANDS[reader]]
            ends, said = attack(lambda words=words: command(*words))  # type: ignore[misc]
            if ends == "refused" and (len(said.splitlines()) > 12 or len(said) > 5000):
                ends = "unclear"
            tally.add("run directories", f"{words[0]}: {name}", ends, said)
    _attack_videos(directory, good, tally)


def _own_history(run: Path) -> None:
    spec = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**spec, "history": str(run / "h.parquet")}))


def _damages(run: Path, good: Path, rng: random.Random) -> Iterator[tuple[str, Callable[[], Any], tuple[int, ...]]]:
    for file, readers in _READERS.items():
        path = run / file
        size = (good / file).stat().st_size
        for name, act in (*damage.texts(path), *damage.kinds(path), *damage.cuts(path, size, rng, 4)):
            yield f"{file}: {name}", act, readers
    for file in _RUN_FILES:
        content = json.loads((good / file).read_text())
        for name, changed in damage.wrong_values(content, rng, 30):
            act = _writer(run / file, json.dumps(changed))
            yield f"{file}: {name}", act, _READERS[file]
    rows = [json.loads(line) for line in (good / "result.jsonl").read_text().splitlines()]
    for name, changed in damage.wrong_values(rows, rng, 60):
        text = "".join(json.dumps(row) + "\n" for row in changed) if isinstance(changed, list) else json.dumps(changed)
        yield f"result.jsonl: {name}", _writer(run / "result.jsonl", text), _READERS["result.jsonl"]
    spec = json.loads((good / "run.json").read_text())
    for place in ("algorithm", "env", "config.exploration_config.type", "config.model.custom_model", "config.callbacks",
                  "config.model.custom_preprocessor", "config.evaluation_config.env", "config.lr_schedule.type",
                  "config.extra_python_environs_for_worker.LD_PRELOAD", "history", "monitors"):  # fmt: skip
        for name in rng.sample(targets.NAMES, 8):
            changed = json.loads(json.dumps(spec))
            targets.put(changed, place, name)
            yield f"run.json: {place} = {name[:40]}", _writer(run / "run.json", json.dumps(changed)), (3, 5)


def _writer(path: Path, text: str) -> Callable[[], Any]:
    return lambda: path.write_text(text, encoding="utf-8", errors="surrogatepass")


def _attack_videos(directory: Path, good: Path, tally: Tally) -> None:
    """Puts links below `videos`, and looks for what they lead to in the page."""
    secret = directory / "secret.txt"
    secret.write_text("SECRET" * 100)
    for name, target in (("a file", secret), ("a folder", directory), ("zeros", "/dev/zero"), ("itself", "a.mp4")):
        run = directory / "filmed"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(good, run)
        if name == "a folder":
            shutil.copy(secret, directory / "secret.mp4")
            (run / "videos").symlink_to(target)
        else:
            (run / "videos").mkdir()
            (run / "videos" / "a.mp4").symlink_to(target)
        page = directory / "filmed.html"
        ends, said = attack(lambda run=run, page=page: command("report", str(run), "-o", str(page)))  # type: ignore[misc]
        import base64

        if page.exists() and base64.b64encode(b"SECRET" * 10).decode()[:40] in page.read_text():
            ends = "changed"
        tally.add("links below videos", name, ends, said)


# --- names in pages and pictures --------------------------------------------------------------------------------------

NASTY = (
    "</script><script>alert(1)</script>", "<!--<script>", "<!--", "]]>", "<img src=x onerror=alert(1)>", "\u2028\u2029",
    "$x$", "$", "$\\frac{", "\\$", "_hidden", "%s{0}", "a\nb", "a\tb", "'\"`", "&lt;&amp;", "__proto__", "constructor",
    "x" * 5000, "é漢😀", "\x1b[31m", "\x00", "{{7*7}}", "__DATA__",
)  # fmt: skip


def attack_by_texts(directory: Path, tally: Tally, stride: int = 1, seed: int = 0) -> None:
    """Puts texts into every name that a page or a picture shows."""
    del seed  # nothing is drawn
    good = make_run(directory)
    spec, machine, plan = (json.loads((good / f"{name}.json").read_text()) for name in ("run", "machine", "plan"))
    number = 0
    for nasty in NASTY:
        for where in ("algorithm", "env", "config key", "config value", "machine", "plan", "directory"):
            number += 1
            if number % stride:
                continue
            run = directory / ("all" if where != "directory" else nasty.replace("/", "").replace("\0", "0")[:100])
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(good, run)
            changed = json.loads(json.dumps(spec))
            if where in ("algorithm", "env"):
                changed[where] = nasty
            elif where.startswith("config"):
                changed["config"][nasty if where == "config key" else "gamma"] = nasty
            (run / "run.json").write_text(json.dumps(changed))
            if where == "machine":
                (run / "machine.json").write_text(json.dumps({**machine, nasty: nasty}))
            if where == "plan":
                (run / "plan.json").write_text(
                    json.dumps(plan).replace('"name": "', '"name": ' + json.dumps(nasty)[:-1])
                )
            for words in (("report", str(run), str(good)), ("plot", str(run), str(good))):
                out = directory / ("page.html" if words[0] == "report" else "picture.svg")
                out.unlink(missing_ok=True)
                ends, said = attack(lambda words=words, out=out: command(*words, "-o", str(out)))  # type: ignore[misc]
                if ends == "harmless" and words[0] == "report" and not _is_whole(out):
                    ends = "changed"
                tally.add("texts in pages and plots", f"{words[0]}: {where} = {nasty[:30]!r}", ends, said)
            shutil.rmtree(run)


def _is_whole(page: Path) -> bool:
    """Tells whether the block that holds the data can hold no tag, and says what it shall."""
    text = page.read_text(encoding="utf-8")
    block = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    return "<" not in block and bool(json.loads(block)["runs"]) and text.count("<script") == 2


# --- config files -----------------------------------------------------------------------------------------------------

_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)
_CONFIG_TEXTS = {
    **{name: data.decode("latin-1") for name, data in damage.TEXTS.items()},
    "bomb": _BOMB, "a value of a bomb": _BOMB + "env_config: {x: *m}\n", "cycle": "env_config: &a {b: *a}\n",
    "list cycle": "model: &a [*a]\n", "merge cycle": "a: &a {<<: *a}\n", "deep YAML": "model: " + "[" * 5000,
    "deep blocks": "".join(" " * n + "a:\n" for n in range(600)),
    "python tag": "lr: !!python/object/apply:os.system [x]",
    "python name": "env: !!python/name:os.system", "two documents": "lr: 1\n---\nlr: 2\n", "tabs": "\tlr: 1",
    "a set": "lr: !!set {1, 2}", "binary": "lr: !!binary aGVsbG8=", "a date": "lr: 2020-01-01",
    "key is a list": "[1]: 2",
    "key is null": "null: 2", "key is a number": "5: 2", "NUL": "lr: \0", "long number": "seed: " + "9" * 6000,
    "sexagesimal": "seed: 1:30:00", "long octal": "seed: 0o" + "7" * 6000, "long key": "x" * 100_000 + ": 1",
    "experiments": "a: {run: PG}\nb: {run: PG}", "an experiment of nothing": "a: {run: null}",
    "an experiment's config": "a: {run: PG, config: [1]}", "an experiment's stop": "a: {run: PG, stop: 5}",
    "stop at text": "a: {run: PG, stop: {training_iteration: x}}", "freq": "a: {run: PG, checkpoint_freq: x}",
    "keep": "a: {run: PG, keep_checkpoints_num: {}}", "run is a list": "a: {run: [1]}", "env is a list": "env: [1]",
    "env is a dict": "env: {a: 1}", "env is a number": "env: 5", "env is true": "env: true", "undefined alias": "a: *b",
    "anchors by the thousand": "\n".join(f"k{n}: &x{n} 1" for n in range(3000)),
}  # fmt: skip
_NAMED = (
    "exploration_config.type", "exploration_config", "exploration_config.epsilon_schedule.type",
    "lr_schedule.type", "lr_schedule", "model.custom_model", "input",
    "model.custom_action_dist", "model.custom_preprocessor", "callbacks", "env", "evaluation_config.env", "output",
    "logger_config.type", "observation_filter", "custom_eval_function", "env_task_fn", "multiagent.policy_mapping_fn",
    "multiagent.policies.a",
)  # fmt: skip
#: Keys whose values decide how long a run takes, which is the user's own matter.
_SIZES = ("batch", "steps", "fragment", "num_", "_freq", "interval", "buffer", "time", "episodes", "hiddens", "dim")


def attack_by_configs(directory: Path, tally: Tally, stride: int = 1, seed: int = 0) -> None:
    """Trains for one iteration with config files that are no config, or name what must not be called."""
    from rlframe.agents.pg import DEFAULT_CONFIG

    rng = random.Random(seed)
    file, run = directory / "config.yaml", directory / "run"
    cases: list[tuple[str, Callable[[], Any]]] = [(name, _writer(file, text)) for name, text in _CONFIG_TEXTS.items()]
    file.write_text("lr: 0.1\n")
    cases += [(name, act) for name, act in damage.kinds(file)]
    for place in _NAMED:
        for name in rng.sample([name for name in targets.NAMES if name not in targets.OF_THE_KIND], 9):
            changed: dict[str, Any] = {}
            targets.put(changed, place, name)
            cases.append((f"{place} = {name[:40]}", _writer(file, yaml.safe_dump(changed))))
    keys = sorted(key for key in DEFAULT_CONFIG if not any(word in key for word in _SIZES))
    for key in keys:
        wrong = rng.choice([value for value in damage.WRONG if value not in (None, True, -1)])
        cases.append((f"{key} = {wrong!r}"[:80], _writer(file, json.dumps({key: wrong}))))
    for number, (name, act) in enumerate(cases):
        if number % stride:
            continue
        shutil.rmtree(run, ignore_errors=True)
        with contextlib.suppress(OSError):
            shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
        file.write_text("lr: 0.1\n")
        act()
        words = ["train", "pg", "--config", str(file), "--run-dir", str(run), "--stop-iters", "1", *SMALL]
        words += [] if "env" in name else ["--env", "CartPole-v1"]
        ends, said = attack(lambda words=words: command(*words), may_import=True)  # type: ignore[misc]
        tally.add("config files", name, ends, said)
