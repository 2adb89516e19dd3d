"""What keeps a run from learning, seen in its results and config."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeGuard

from rlframe.doctor.finding import Finding
from rlframe.report.curves import read_curve
from rlframe.trainer.loggers import read_results

Results = Sequence[Mapping[str, Any]]

#: Five times kl_target's default; Schulman et al. 2017 halve steps at 1.5 times the target.
_LARGE_KL, _SMALL_KL = 0.1, 1e-6
_LOW_ENTROPY, _LARGE_LR, _RETURNS_PER_CLIP = 0.01, 0.01, 20


def examine_run(path: str | os.PathLike[str]) -> list[Finding]:
    """Returns what is likely to keep a run from learning, what matters most first.

    Args:
        path: Its directory.

    Raises:
        ConfigError: If it is none, is damaged, or has no result yet.
    """
    curve = read_curve(path)
    return examine_results(read_results(curve.path), curve.params)


def examine_results(results: Results, config: Mapping[str, Any]) -> list[Finding]:
    """Returns what results and config tell, what matters most first.

    Args:
        results: Of `Trainer.train()`, oldest first; at least one.
        config: The trainer's, complete.
    """
    return [*_learning(results, config), *_episodes(results, config), *_statistics(results, config)]


def _learning(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    info, steps = results[-1].get("info") or {}, results[-1].get("timesteps_total") or 0
    starts = config.get("learning_starts") or 0
    if not info.get("num_steps_trained"):
        text = f"nothing was learned from: {steps} env steps, learning_starts {starts}"
        yield Finding("not_learning_yet", text, "learning_starts, smaller; or a longer run")
    rate = config.get("lr")
    if rate == 0 and not config.get("lr_schedule") and not config.get("optimization"):
        yield Finding("lr_zero", "lr is 0", "lr")
    elif isinstance(rate, float) and rate > _LARGE_LR and not config.get("lr_schedule"):
        yield Finding("lr_large", f"lr is {rate:g}; the algorithms' defaults are 0.00005 to 0.0005", "lr, smaller")


def _episodes(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    steps = results[-1].get("timesteps_total") or 0
    if not results[-1].get("episodes_total"):
        yield Finding("no_episode", f"no episode ended in {steps} env steps", "horizon, or the environment")
    exploration = config.get("exploration_config") or {}
    wanted = exploration.get("epsilon_timesteps")
    if wanted and exploration.get("type") == "EpsilonGreedy" and wanted > 10 * steps:
        text = f"epsilon falls over {wanted} env steps, of which the run has had {steps}"
        yield Finding("exploring_still", text, "exploration_config.epsilon_timesteps, smaller")


def _statistics(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    learners: Mapping[str, Any] = (results[-1].get("info") or {}).get("learner") or {}
    for policy_id, learner in learners.items():
        stats = learner.get("learner_stats") or {}
        lost = [name for name, value in stats.items() if value is None or not _finite(value)]
        if lost and "cur_lr" in stats:
            yield Finding("not_finite", f"{policy_id}: {', '.join(lost)} not finite", "lr, smaller; grad_clip")
        yield from _of_policy(policy_id, stats, config)
    returns = max((abs(row.get("episode_reward_mean") or 0.0) for row in results[-1:]), default=0.0)
    clip, normalised = config.get("vf_clip_param"), config.get("normalize_values")
    if _finite(clip) and normalised is False and returns > _RETURNS_PER_CLIP * clip:
        text = f"returns are about {returns:.3g}, and values may move by vf_clip_param {clip:g} in a batch"
        yield Finding("value_clip", text, "vf_clip_param, larger; or normalize_values: True")


def _of_policy(policy_id: str, stats: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Finding]:
    kl, entropy, rate = stats.get("kl"), stats.get("entropy"), config.get("lr")
    if _finite(kl) and kl > _LARGE_KL:
        text = f"{policy_id}: kl is {kl:.3g} in the last iteration, wanted below {_LARGE_KL}"
        yield Finding("kl_large", text, "lr or num_sgd_iter, smaller")
    if _finite(kl) and 0 <= kl < _SMALL_KL and rate:
        yield Finding("kl_small", f"{policy_id}: kl is {kl:.3g}: the policy does not move", "lr, larger; reward scale")
    sure = _finite(entropy) and 0 <= entropy < _LOW_ENTROPY  # of Gaussians, it may be below 0
    if sure and "vf_explained_var" in stats and not _solved(stats):
        text = f"{policy_id}: entropy is {entropy:.3g}: one action is always taken"
        yield Finding("entropy_collapse", text, "entropy_coeff, larger; lr, smaller")
    foreseen = stats.get("vf_explained_var")
    if _finite(foreseen) and foreseen < -0.5:
        text = f"{policy_id}: vf_explained_var is {foreseen:.3g}: values are worse than their mean"
        yield Finding("values_wrong", text, "vf_clip_param, larger; model.vf_share_layers: False; smaller rewards")


def _solved(stats: Mapping[str, Any]) -> bool:
    """Whether values are foreseen well, as they are where a sure policy is a good one."""
    return bool(stats["vf_explained_var"] is not None and stats["vf_explained_var"] > 0.5)


def _finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, Real) and math.isfinite(value)
