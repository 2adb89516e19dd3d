"""Searches over parameters: trials on a Ray cluster, each in a folder of its own, gone on with where they were."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlframe.revive.configuration import Configuration, Searched
from rlframe.revive.stages import Inputs, PolicyStage, RunFiles, details_of, learn_environment, load_environments
from rlframe.revive.workspace import StageRecord, Workspace
from rlframe.tune.trial_pool import Finished, TrialPool
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import derive_seed, make_rng

Stage = Literal["venv", "policy"]
_POLL_S = 0.5
_ORDERS = 100.0  # a range whose ends differ by this factor is searched by orders of magnitude


class Sampler:
    """Draws parameters for trials; trial 0 has the defaults.

    Args:
        space: What varies.
        algorithm: "random", "grid" or "optuna".
        seed: Of the draws.
        larger: Whether larger metrics are better.
        defaults: Values of trial 0.
    """

    def __init__(
        self, space: Mapping[str, Searched], algorithm: str, seed: int, larger: bool, defaults: Mapping[str, Any]
    ) -> None:
        self.space, self.algorithm, self.seed, self.defaults = dict(space), algorithm, seed, dict(defaults)
        self._asked: dict[str, Any] = {}
        self._study = _study(larger) if algorithm == "optuna" else None

    def ask(self, trial: int) -> dict[str, Any] | None:
        """Returns the values of a trial; None where the grid has no more. Pauses change none of them."""
        if trial == 0 or not self.space:
            return dict(self.defaults) if trial == 0 else None
        if self.algorithm == "grid":
            return next(islice(_grid(self.space), trial - 1, None), None)
        if self._study is not None:
            self._study.sampler = _tpe(derive_seed(self.seed, "search", trial))  # no draw twice in resumed searches
            asked = self._study.ask()
            self._asked[str(trial)] = asked
            return {name: _suggested(asked, name, one) for name, one in self.space.items()}
        rng = make_rng(self.seed, "search", trial)
        return {name: _drawn(rng, one) for name, one in self.space.items()}

    def tell(self, trial: int, values: Mapping[str, Any], metric: float) -> None:
        """Takes the metric of a trial, also of one that an earlier run has finished; NaN failed."""
        if self._study is None:
            return
        import optuna

        asked = self._asked.pop(str(trial), None)
        good = math.isfinite(metric)
        state = optuna.trial.TrialState.COMPLETE if good else optuna.trial.TrialState.FAIL
        if asked is not None:
            self._study.tell(asked, metric if good else None, state=state)
            return
        inside = set(values) == set(self.space) and all(_within(self.space[name], values[name]) for name in values)
        if not good or not inside:
            return  # the study learns nothing of it
        distributions = {name: _distribution(one) for name, one in self.space.items()}
        made = optuna.trial.create_trial(params=dict(values), distributions=distributions, value=metric)
        self._study.add_trial(made)


class Search:
    """The trials of a stage.

    Args:
        workspace: Of the run; it must be seen under the same path by all machines of the cluster.
        stage: Which stage.
        files: Of the run.
        config: Parameters; those of the stage vary.
        target: Which node the policy decides.
    """

    def __init__(
        self, workspace: Workspace, stage: Stage, files: RunFiles, config: Configuration, target: str | None
    ) -> None:
        self.workspace, self.stage, self.files, self.config, self.target = workspace, stage, files, config, target
        base, space = config.base, config.search_space(stage)
        defaults = {name: getattr(config, stage)[name] for name in space}
        algorithm = base[f"{stage}_search_algo"]
        self.sampler = Sampler(space, algorithm, base.global_seed, stage == "policy", defaults)
        self.record = workspace.stage(stage)
        self.record.total_num_of_trials = int(base[f"train_{stage}_trials"])
        self._values: dict[str, dict[str, Any]] = {}

    def run(self, pool: TrialPool, better: Callable[[str, Path], None]) -> StageRecord:
        """Runs the trials that have not ended yet or have failed, and returns the record.

        Args:
            pool: Where they are run.
            better: Called with a trial and its folder when it is the best so far.
        """
        record, parallel = self.record, self.config.base.parallel_num
        if any("parameters" not in said for said in record.trials.values()):  # the stage ran without a search
            record.trials, record.num_of_trial, record.best_id, record.best_metric = {}, 0, None, None
        ended = {trial: said for trial, said in record.trials.items() if "error" not in said}
        for trial, said in sorted(ended.items(), key=lambda item: int(item[0])):
            self.sampler.tell(int(trial), said["parameters"], math.nan if said["metric"] is None else said["metric"])
        waiting = (trial for trial in range(record.total_num_of_trials) if str(trial) not in ended)
        slots = pool.cpus if parallel == "auto" else int(parallel)
        while True:
            while pool.running < slots and not self.workspace.stop_asked():
                following = next(waiting, None)
                if following is None or not self._start(pool, following):
                    break
            if not pool.running:
                return record
            for finished in pool.finished(_POLL_S):
                self._note(finished, better)

    def _folder(self, trial: str) -> Path:
        return self.workspace.trials / f"{self.stage}_{trial}"

    def _start(self, pool: TrialPool, trial: int) -> bool:
        """Starts a trial; returns whether there was one."""
        values = self._values_of(trial)
        if values is None:
            return False
        tried = self.config.with_values(self.stage, values)
        self._values[str(trial)] = values
        places = str(self._folder(str(trial))), str(self.workspace.directory)
        pool.start(str(trial), run_trial, self.stage, places, self.files, tried.to_dict(), self.target)
        return True

    def _values_of(self, trial: int) -> dict[str, Any] | None:
        """Returns the parameters of a trial: those that it began with, where an earlier run began it."""
        name = f"trials/{self.stage}_{trial}.json"
        if (self.workspace.directory / name).exists():
            return self.workspace.read(name)
        asked = self.sampler.ask(trial)
        if asked is not None:
            self.workspace.write(name, asked)
        return asked

    def _note(self, finished: Finished, better: Callable[[str, Path], None]) -> None:
        trial, record = finished.key, self.record
        about: dict[str, Any] = {"parameters": self._values.pop(trial), "traj_dir": str(self._folder(trial))}
        metric = math.nan
        if finished.error is not None:
            about["error"] = finished.error
        else:
            metric, details = finished.result
            about |= {"node": finished.node, **details}
        if record.add(trial, metric, self.stage == "policy", **about):
            better(trial, self._folder(trial))
        if about.get("stopped"):  # the same command goes on with it
            del record.trials[trial]
            record.num_of_trial = len(record.trials)
        else:
            self.sampler.tell(int(trial), about["parameters"], metric)
        said = finished.error or f"metric {metric:.5g}{', stopped' if about.get('stopped') else ''}"
        self.workspace.log(f"{self.stage} trial {trial} {about['parameters']}: {said}")
        self.workspace.set_stage(self.stage, record)


def run_trial(
    stage: Stage, places: tuple[str, str], files: RunFiles, config: Mapping[str, Any], target: str | None
) -> tuple[float, dict[str, Any]]:
    """Carries a trial out, in a worker process; returns its metric and what else is known of it.

    Args:
        stage: Of which stage it is.
        places: Its folder, and that of the run.
        files: Of the run.
        config: `Configuration.to_dict()`.
        target: Which node the policy decides.
    """
    workspace, configuration, place = Workspace(places[1]), Configuration.from_dict(config), Path(places[0])
    inputs = Inputs(files, configuration)

    def go_on(_: str) -> bool:
        return not workspace.stop_asked()

    if stage == "venv":
        learned = learn_environment(inputs, configuration, place, go_on)
        return learned.metric, {"stopped": workspace.stop_asked(), "metrics": learned.metrics}
    policy_stage = PolicyStage(inputs, load_environments(workspace.venv), target)

    def keep(progress: Any) -> None:
        progress.model.save(place / ("policy" if progress.half == "train" else "policy_val"))

    result = policy_stage.run(configuration, keep, go_on)
    return result.metric, details_of(result)


def _grid(space: Mapping[str, Searched]) -> Iterator[dict[str, Any]]:
    points = [
        np.linspace(one.values[0], one.values[1], 3).tolist() if one.mode == "continuous" else one.values
        for one in space.values()
    ]
    for values in product(*points):
        yield dict(zip(space, values, strict=True))


def _within(one: Searched, value: Any) -> bool:
    return bool(one.values[0] <= value <= one.values[1]) if one.mode == "continuous" else value in one.values


def _by_orders(one: Searched) -> bool:
    low, high = one.values
    return bool(low > 0 and high / low >= _ORDERS**0.5)


def _drawn(rng: np.random.Generator, one: Searched) -> Any:
    if one.mode != "continuous":
        return one.values[int(rng.integers(len(one.values)))]
    low, high = one.values
    return float(math.exp(rng.uniform(math.log(low), math.log(high))) if _by_orders(one) else rng.uniform(low, high))


def _study(larger: bool) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            "venv_search_algo: Optuna is not installed; pip install 'rlframe[tune]', or random"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize" if larger else "minimize")


def _tpe(seed: int) -> Any:
    import optuna

    return optuna.samplers.TPESampler(seed=seed % 2**32)


def _suggested(asked: Any, name: str, one: Searched) -> Any:
    if one.mode == "continuous":
        return asked.suggest_float(name, one.values[0], one.values[1], log=_by_orders(one))
    return asked.suggest_categorical(name, one.values)


def _distribution(one: Searched) -> Any:
    import optuna

    if one.mode == "continuous":
        return optuna.distributions.FloatDistribution(one.values[0], one.values[1], log=_by_orders(one))
    return optuna.distributions.CategoricalDistribution(one.values)
