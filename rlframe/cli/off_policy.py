"""What data say of a trained policy, on the command line: `rlframe evaluate RUN --off-policy DATA`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.offline.evaluation.logged_episodes import LoggedEpisodes, read_episodes
from rlframe.offline.evaluation.off_policy import (
    DECIDING,
    ESTIMATORS,
    OffPolicyReport,
    OffPolicySettings,
    evaluate_off_policy,
)
from rlframe.offline.evaluation.target_policy import TargetPolicy
from rlframe.offline.io_context import IOContext
from rlframe.offline.sources import make_reader
from rlframe.utils.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rlframe.offline.evaluation.bootstrap import Interval


@dataclass(frozen=True)
class OffPolicyOptions:
    """How a policy is judged, as the command line says it.

    Attributes:
        sources: Data, in any form that `input` takes.
        estimators: Their names, with commas between; None takes all.
        gamma: Discount; None takes the config's.
        explore: Whether the policy acts as in training.
        actions_normalized: Whether actions in the data are as policies choose them; None takes the config's
            `actions_in_input_normalized`.
        least_ess: Effective sample size, in episodes, below which weighted estimates are refused.
        seed: Of drawing episodes again.
        decide_by: The estimator that decides whether the policy is better; None takes the doubly robust one.
        deploy: Whether it is to be decided.
    """

    sources: Sequence[str]
    estimators: str | None = None
    gamma: float | None = None
    explore: bool = False
    actions_normalized: bool | None = None
    least_ess: float = OffPolicySettings.least_ess
    seed: int = 0
    decide_by: str | None = None
    deploy: bool = False


def judge(trainer: Any, options: OffPolicyOptions) -> OffPolicyReport:
    """Returns what data say of a trainer's policy.

    Args:
        trainer: With weights.
        options: What data, and how it is judged.

    Raises:
        ConfigError: If an option is wrong, or there are no such data.
        DataError: If the data cannot be read, or say nothing by any estimator, where nothing is to be decided.
    """
    names = tuple(ESTIMATORS) if options.estimators is None else tuple(options.estimators.lower().split(","))
    gamma = float(trainer.config["gamma"]) if options.gamma is None else options.gamma
    settings = OffPolicySettings(
        gamma, tuple(name.strip() for name in names), least_ess=options.least_ess, seed=options.seed
    )
    if options.decide_by is not None:
        settings.check_name(options.decide_by)
    by = OffPolicySettings(gamma, (options.decide_by or DECIDING,)).names[0]
    if options.deploy and by not in settings.names:
        raise ConfigError(
            f"--estimators: got {options.estimators}, wanted {by} among them, which decides (--decide-by)"
        )
    policies = list(trainer.workers.local_worker().policy_map)
    if policies != [DEFAULT_POLICY_ID]:
        raise DataError(
            f"--off-policy: got a run with the policies {', '.join(policies)}, wanted one with a single one"
        )
    target = TargetPolicy(trainer.get_policy(), explore=options.explore)
    report = evaluate_off_policy(target, _episodes(trainer, options), settings, trainer.config["framework"])
    if not report.estimates and not options.deploy:
        raise DataError(
            "the data cannot say what the policy is worth: "
            + "; ".join(f"{name}: {reason}" for name, reason in report.refused.items())
        )
    return report


def _episodes(trainer: Any, options: OffPolicyOptions) -> LoggedEpisodes:
    """Returns the data's episodes, as the trainer's policy takes them."""
    normalized = options.actions_normalized
    config = {**trainer.config, "input": list(options.sources), "postprocess_inputs": False}
    if normalized is not None:
        config["actions_in_input_normalized"] = normalized
    source = options.sources[0] if len(options.sources) == 1 else list(options.sources)
    reader = make_reader(source, IOContext(trainer.logdir, config, 0, trainer.workers.local_worker()))
    if not callable(getattr(reader, "read_all_files", None)):
        raise ConfigError(
            f"--off-policy: got {', '.join(options.sources)}, which a {type(reader).__name__} reads without an end; "
            "wanted files"
        )
    return read_episodes(reader.read_all_files())  # type: ignore[attr-defined]  # just asked for


def show(report: OffPolicyReport, checkpoint: Path) -> None:
    """Writes a report for people."""
    from rlframe.cli.show import print_table

    way = "draws its actions as in training" if report.explore else "acts greedily (--explore: as in training)"
    cut = f", cut at {report.time_limit:,} rows" if report.time_limit else ""
    left = f"; {report.left_out:,} without beginning or end left out" if report.left_out else ""
    level = f"{report.settings.level:.0%}"
    sys.stdout.write(
        f"data:       {report.episodes:,} episodes, {report.rows:,} rows{cut}{left}\n"
        f"the policy {way}; values are discounted by {report.settings.gamma:g}\n"
    )
    rows = [("behaviour", _text(report.behaviour), "", "")]
    for name, made in report.estimates.items():
        size = made.effective_sample_size
        rows.append((name, _text(made.value), _text(made.gain), "" if size is None else f"{size:,.1f}"))
    print_table(("estimator", f"value, {level}", f"more than the behaviour, {level}", "effective episodes"), rows)
    for name, reason in report.refused.items():
        sys.stdout.write(f"{name} is refused: {reason}\n")
    sys.stdout.write(f"checkpoint: {checkpoint}\n")


def show_as_json(report: OffPolicyReport, options: OffPolicyOptions, checkpoint: Path, verdict: Any) -> None:
    """Writes a report as one JSON object.

    Args:
        report: The report.
        options: What was asked for.
        checkpoint: Whose policy it is of.
        verdict: What `decide` said; None where nobody asked.
    """
    made = {"checkpoint": str(checkpoint), "data": list(options.sources), **report.to_dict()}
    sys.stdout.write(json.dumps(made if verdict is None else {**made, "deploy": verdict}) + "\n")


def decide(report: OffPolicyReport, name: str | None) -> dict[str, Any]:
    """Returns whether a policy is better than who made the data: `better`, `by` which estimator, `reason`.

    Args:
        report: What the data say.
        name: The estimator that decides; None takes the doubly robust one.
    """
    try:
        by = report.deciding(name)
    except DataError as error:
        return {"better": False, "by": None, "reason": str(error)}
    low, better = report.estimates[by].gain.low, report.better(by)
    said = "above 0: the policy is better" if better else "not above 0: nothing says that the policy is better"
    reason = f"by {by}, the lower end of the {report.settings.level:.0%} interval of its gain is {low:,.4g}, {said}"
    return {"better": better, "by": by, "reason": reason}


def _text(interval: Interval) -> str:
    return f"{interval.value:,.2f} [{interval.low:,.2f}, {interval.high:,.2f}]"
