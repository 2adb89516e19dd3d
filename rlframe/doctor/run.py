"""What keeps a run from learning, seen in its results and config."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, TypeGuard

from rlframe.doctor.environment import SLOW_STEP_MS, size_of_rewards
from rlframe.doctor.finding import Finding, in_order
from rlframe.report.curves import read_curve
from rlframe.trainer.loggers import read_results

Results = Sequence[Mapping[str, Any]]

#: Five times kl_target's default; Schulman et al. 2017 halve steps at 1.5 times the target.
_LARGE_KL, _SMALL_KL = 0.1, 1e-6
_LOW_ENTROPY, _LARGE_LR, _RETURNS_PER_CLIP = 0.01, 0.01, 20
#: Rows learned per row sampled: DQN's default is 8, SAC's 256, REDQ's 20 updates a step 5,120.
_LOW_RATIO, _HIGH_RATIO = 0.25, 10_000
#: Steps that a discount sees, and how many times that an episode has.
_SHORT_SIGHT, _SIGHTS_PER_EPISODE = 5.0, 5
#: Episodes that are enough to say something of all.
_MANY_EPISODES = 50
#: How many times what returns allow a Q-value is to be.
_VALUE_LIMIT = 10
#: Iterations in which something is to be seen each time; those after which values should tell returns apart.
_RECENT, _ENOUGH = 3, 10
#: Returns that are far from 0, where values begin; the share of their variance that values which lag behind explain.
_FAR, _NOTHING_EXPLAINED = 50.0, 0.05
_NO_GRADIENT, _GRADIENTS_PER_CLIP = 1e-8, 1000
#: Learning rates, of which algorithms read some, and those in `optimization`; the entropy's may be 0.
_RATES, _SEPARATE = ("lr", "actor_lr", "critic_lr"), ("actor_learning_rate", "critic_learning_rate")
#: Spread of a batch's Q-values, in units of their size, below which they tell no action from another.
_FLAT = 1e-6


def examine_run(path: str | os.PathLike[str]) -> list[Finding]:
    """Returns what results and config of a run directory tell, what matters most first.

    Nothing is loaded that could run; `examine_trainer` looks at networks and environment, too.

    Args:
        path: The directory.

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
    parts = (_learning, _replay, _episodes, _rewards, _statistics, _speed)
    return in_order(finding for part in parts for finding in part(results, config))


def _learning(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    info, steps = results[-1].get("info") or {}, results[-1].get("timesteps_total") or 0
    starts = config.get("learning_starts") or 0
    if not info.get("num_steps_trained"):
        text = f"nothing was learned from: {steps} env steps, learning_starts {starts}"
        yield Finding("not_learning_yet", text, "learning_starts, smaller; or a longer run")
    yield from _rates(config)
    for policy_id, own in _own_configs(config).items():
        set_here = {key: value for key, value in own.items() if key in _RATES}
        if set_here:
            yield from _of_one(policy_id, _rates({**config, **set_here}, keys=tuple(set_here)))


def _rates(config: Mapping[str, Any], keys: Sequence[str] | None = None) -> Iterator[Finding]:
    """Yields learning rates that are 0, or larger than any default; of `keys` (None: all) those that are read."""
    separate = config.get("optimization") or {}
    read = ("actor_lr", "critic_lr") if separate or "critic_lr" in config else ("lr",)
    rates = {key: config.get(key) for key in read if keys is None or key in keys}
    if keys is None:
        rates |= {f"optimization.{key}": separate.get(key) for key in _SEPARATE}
    scheduled = bool(config.get("lr_schedule"))
    for key, rate in rates.items():
        if key == "lr" and scheduled:
            continue
        if rate == 0 and isinstance(rate, Real) and not isinstance(rate, bool):
            yield Finding("lr_zero", f"{key} is 0", key)
        elif isinstance(rate, float) and rate > _LARGE_LR:
            text = f"{key} is {rate:g}; the algorithms' defaults are 0.00005 to 0.001"
            yield Finding("lr_large", text, f"{key}, smaller")


def _own_configs(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns what the policies of several agents have in configs of their own, by policy."""
    policies = (config.get("multiagent") or {}).get("policies")
    if not isinstance(policies, Mapping):
        return {}
    found = {}
    for policy_id, spec in policies.items():
        own = spec[3] if isinstance(spec, (tuple, list)) and len(spec) > 3 else getattr(spec, "config", None)
        found[str(policy_id)] = own if isinstance(own, Mapping) else {}
    return found


def _of_one(policy_id: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yields findings as those of one of several policies."""
    for finding in findings:
        named = finding.evidence.startswith(f"{policy_id}: ")
        text = finding.evidence if named else f"{policy_id}: {finding.evidence}"
        yield replace(finding, evidence=text, policy=policy_id)


def _replay(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields whether rows of a replay buffer are learned from too seldom or too often, and targets that stand still."""
    if not config.get("replay_buffer_config") or config.get("input", "sampler") != "sampler":
        return
    if config.get("tau") == 0:
        yield Finding("target_frozen", "tau is 0: the target networks never move", "tau, 0.005 or so; 1 copies")
    learning = [row for row in results if (row.get("info") or {}).get("num_steps_trained")]
    if len(learning) < 2:  # the first learns in a part of its steps alone
        return
    trained = learning[-1]["info"]["num_steps_trained"] - learning[0]["info"]["num_steps_trained"]
    sampled = (learning[-1].get("timesteps_total") or 0) - (learning[0].get("timesteps_total") or 0)
    ratio = trained / sampled if sampled else math.nan
    if ratio < _LOW_RATIO:
        text = f"{ratio:.3g} rows are learned per row sampled: most are never seen"
        yield Finding("replay_ratio_low", text, "training_intensity, larger (8 is usual for DQN, 256 for SAC)")
    if ratio > _HIGH_RATIO:
        text = f"{ratio:.3g} rows are learned per row sampled: values fit what few rows there are"
        yield Finding("replay_ratio_high", text, "training_intensity, smaller (8 is usual for DQN, 256 for SAC)")
    period, steps = config.get("target_network_update_freq"), results[-1].get("timesteps_total") or 0
    if _finite(period) and period > steps > 10 * (config.get("learning_starts") or 0) and config.get("tau", 1.0) == 1.0:
        text = f"the target network was never updated in {steps} env steps"
        yield Finding("target_frozen", text, f"target_network_update_freq, now {period:g}: smaller")


def _episodes(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    last = results[-1]
    steps, episodes = last.get("timesteps_total") or 0, last.get("episodes_total") or 0
    if not episodes and config.get("input", "sampler") == "sampler":
        yield Finding("no_episode", f"no episode ended in {steps} env steps", "horizon, or the environment")
    exploration = config.get("exploration_config") or {}
    wanted = exploration.get("epsilon_timesteps")
    if wanted and exploration.get("type") == "EpsilonGreedy" and wanted > 10 * steps:
        text = f"epsilon falls over {wanted} env steps, of which the run has had {steps}"
        yield Finding("exploring_still", text, "exploration_config.epsilon_timesteps, smaller")
    horizon, length = config.get("horizon"), last.get("episode_len_mean")
    ends = (last.get("hist_stats") or {}).get("episode_lengths") or []
    if horizon and len(ends) > 1 and min(ends) >= horizon:
        text = f"all of the last {len(ends)} episodes were cut by horizon {horizon}: what comes later is never seen"
        yield Finding("horizon_cuts", text, "horizon, larger")
    gamma = config.get("gamma")
    if _finite(gamma) and _finite(length) and 0 <= gamma < 1:
        sight = 1 / (1 - gamma)
        if sight <= _SHORT_SIGHT and length >= _SIGHTS_PER_EPISODE * sight:
            text = f"gamma {gamma:g} sees about {sight:.2g} steps ahead, and episodes have {length:.0f}"
            yield Finding("gamma_small", text, "gamma, nearer to 1 (0.99 is usual)")
    means = {row.get(key) for row in results for key in ("episode_reward_min", "episode_reward_max")} - {None}
    if episodes >= _MANY_EPISODES and len(means) == 1 and all(map(_finite, means)):
        text = f"all {episodes} episodes had the return {means.pop():g}: nothing tells a better action"
        yield Finding("returns_constant", text, "the reward, or exploration_config")


def _rewards(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    total, length = results[-1].get("episode_reward_mean"), results[-1].get("episode_len_mean")
    if config.get("normalize_values") or config.get("clip_rewards") or not _finite(total) or not _finite(length):
        return
    size = abs(total) / max(length, 1)
    # Where rewards cancel out, or come at the end alone, their mean over steps says nothing of their being small.
    yield from (finding for finding in size_of_rewards(size) if finding.name == "large_rewards")


def _speed(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    waited = (results[-1].get("sampler_perf") or {}).get("mean_env_wait_ms")
    step_ms = waited / max(config.get("num_envs_per_worker") or 1, 1) if _finite(waited) else 0.0
    if step_ms > SLOW_STEP_MS:
        text = f"a step of the environment takes {step_ms:.3g} ms"
        yield Finding("slow_env", text, "num_workers, larger; or a faster step()", "docs/cluster.md")


def _statistics(results: Results, config: Mapping[str, Any]) -> Iterator[Finding]:
    learners: Mapping[str, Any] = (results[-1].get("info") or {}).get("learner") or {}
    for policy_id, learner in learners.items():
        stats = learner.get("learner_stats") or {}
        lost = [name for name, value in stats.items() if value is None or not _finite(value)]
        if lost and "cur_lr" in stats:
            yield Finding("not_finite", f"{policy_id}: {', '.join(lost)} not finite", "lr, smaller; grad_clip")
        own = {**config, **_own_configs(config).get(policy_id, {})}
        found = [
            *_of_policy(policy_id, stats, own, improving=_improving(results)),
            *_lasting(policy_id, results),
            *_lagging(policy_id, results, own, alone=len(learners) == 1),
            *_gradients(policy_id, stats, own),
            *_values(policy_id, stats, _returns_of(policy_id, results[-1], alone=len(learners) == 1), own),
        ]
        yield from found if len(learners) == 1 else _of_one(policy_id, found)
    returns = max((abs(row.get("episode_reward_mean") or 0.0) for row in results[-1:]), default=0.0)
    clip, normalised = config.get("vf_clip_param"), config.get("normalize_values")
    if _finite(clip) and normalised is False and returns > _RETURNS_PER_CLIP * clip:
        text = f"returns are about {returns:.3g}, and values may move by vf_clip_param {clip:g} in a batch"
        yield Finding("value_clip", text, "vf_clip_param, larger; or normalize_values: True")


def _of_policy(
    policy_id: str, stats: Mapping[str, Any], config: Mapping[str, Any], *, improving: bool
) -> Iterator[Finding]:
    kl, rate = stats.get("kl"), config.get("lr")
    entropy = stats.get("entropy", stats.get("policy_entropy"))
    if _finite(kl) and 0 <= kl < _SMALL_KL and rate:
        yield Finding("kl_small", f"{policy_id}: kl is {kl:.3g}: the policy does not move", "lr, larger; reward scale")
    sure = _finite(entropy) and 0 <= entropy < _LOW_ENTROPY  # of Gaussians, it may be below 0
    if sure and "vf_explained_var" in stats and not improving:
        text = f"{policy_id}: entropy is {entropy:.3g}: one action is always taken"
        yield Finding("entropy_collapse", text, "entropy_coeff, larger; lr, smaller")


def _lasting(policy_id: str, results: Results) -> Iterator[Finding]:
    """Yields what is of no account in a single iteration."""
    recent = [_stats_of(row, policy_id) for row in results[-_RECENT:]]
    divergences = [stats.get("kl") for stats in recent]
    if all(_finite(kl) and kl > _LARGE_KL for kl in divergences):
        text = f"{policy_id}: kl is {divergences[-1]:.3g} in the last iteration, wanted below {_LARGE_KL}"
        yield Finding("kl_large", text, "lr or num_sgd_iter, smaller")
    foreseen = [stats.get("vf_explained_var") for stats in recent]
    if len(recent) == _RECENT and all(_finite(share) and share < -0.5 for share in foreseen):
        text = f"{policy_id}: vf_explained_var is {foreseen[-1]:.3g}: values are worse than their mean"
        yield Finding("values_wrong", text, "vf_clip_param, larger; model.vf_share_layers: False; smaller rewards")


def _lagging(policy_id: str, results: Results, config: Mapping[str, Any], *, alone: bool) -> Iterator[Finding]:
    """Yields whether values have told nothing of returns that are far from where values begin, and PopArt is off."""
    recent, last = results[-_ENOUGH:], results[-1]
    foreseen = [_stats_of(row, policy_id).get("vf_explained_var") for row in recent]
    told = not all(_finite(share) and -0.5 <= share < _NOTHING_EXPLAINED for share in foreseen)
    total = last.get("episode_reward_mean") if alone else (last.get("policy_reward_mean") or {}).get(policy_id)
    if not _may_normalize(config) or len(recent) < _ENOUGH or told or _improving(results):
        return
    if _finite(total) and abs(total) > _FAR:
        text = f"{policy_id}: returns are about {total:.3g}, of which values have told nothing for {_ENOUGH} iterations"
        yield Finding("values_lag", text, "normalize_values: True; or smaller rewards")


def _may_normalize(config: Mapping[str, Any]) -> bool:
    """Whether values are not normalised, and the algorithm, as it is set, would take `normalize_values`."""
    bootstraps = "vtrace" in config and not (config["vtrace"] and config.get("vtrace_drop_last_ts"))
    alone = "keep_local_weights_in_sync" not in config  # DD-PPO's workers learn each for themselves
    return config.get("normalize_values") is False and alone and not config.get("microbatch_size") and not bootstraps


def _stats_of(row: Mapping[str, Any], policy_id: str) -> Mapping[str, Any]:
    learner = ((row.get("info") or {}).get("learner") or {}).get(policy_id) or {}
    return learner.get("learner_stats") or {}


def _gradients(policy_id: str, stats: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Finding]:
    norm, clip = stats.get("grad_gnorm"), config.get("grad_clip")
    if _finite(norm) and norm < _NO_GRADIENT:
        text = f"{policy_id}: the gradient's norm is {norm:.3g}: nothing is learned"
        yield Finding("gradients_vanish", text, "the reward, or model.fcnet_activation")
    # Of those that are clipped before they are measured, the norm is at most grad_clip.
    if _finite(norm) and _finite(clip) and norm > _GRADIENTS_PER_CLIP * clip:
        text = f"{policy_id}: the gradient's norm is {norm:.3g}, of which grad_clip {clip:g} leaves a thousandth"
        yield Finding("gradients_clipped", text, "smaller rewards; grad_clip, larger")


def _returns_of(policy_id: str, row: Mapping[str, Any], *, alone: bool) -> list[tuple[float, float]]:
    """Returns (return, length in steps) of the last episodes; of one of several policies, of its best and its worst."""
    if alone:
        ends, lengths = ((row.get("hist_stats") or {}).get(key) or [] for key in ("episode_reward", "episode_lengths"))
        return list(zip(ends, lengths, strict=True)) if len(ends) == len(lengths) else []
    length = row.get("episode_len_mean")
    bounds = [(row.get(f"policy_reward_{end}") or {}).get(policy_id) for end in ("min", "max")]
    return [(total, length) for total in bounds if _finite(total) and _finite(length)]


def _values(
    policy_id: str, stats: Mapping[str, Any], returns: Sequence[tuple[float, float]], config: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yields whether Q-values are beyond what any return of these rewards can be, or the same for all."""
    gamma, value = config.get("gamma"), stats.get("mean_q")
    least, most_q = stats.get("min_q"), stats.get("max_q")
    if _finite(value) and _finite(least) and _finite(most_q) and most_q - least <= _FLAT * max(1.0, abs(value)):
        text = f"{policy_id}: all Q-values of a batch are {value:.3g}: no action is better than another"
        yield Finding("values_flat", text, "learning rates, smaller, and begin anew; the reward")
    if not _finite(value) or not _finite(gamma) or not returns or gamma >= 1:
        return
    horizon = 1 / (1 - gamma)
    rewards = max(abs(total) / max(length, 1) for total, length in returns)
    # Entropy is a part of SAC's values: at most what a policy as random as it is wanted to be collects.
    alpha, entropy = stats.get("alpha_value"), stats.get("target_entropy")
    bonus = abs(alpha * entropy) if _finite(alpha) and _finite(entropy) else 0.0
    most = max(1.0, *(abs(total) for total, _ in returns), rewards * horizon) + bonus * horizon
    if abs(value) > _VALUE_LIMIT * most:
        text = f"{policy_id}: mean_q is {value:.3g}, and returns allow {most:.3g}: values feed on themselves"
        yield Finding("values_grow", text, _how_values_are_held(config))


def _how_values_are_held(config: Mapping[str, Any]) -> str:
    """Returns which keys hold the values of an algorithm."""
    if "double_q" in config:
        return "target_network_update_freq, larger; lr, smaller; double_q: True"
    rate = "optimization.critic_learning_rate" if config.get("optimization") else "critic_lr"
    return f"{rate}, smaller; tau, smaller; twin_q: True"


def _improving(results: Results) -> bool:
    """Whether the last mean return is above the first, and near the best of the run."""
    means = [mean for row in results if _finite(mean := row.get("episode_reward_mean"))]
    return len(means) > 1 and means[-1] > means[0] and means[-1] >= max(means) - 0.1 * (max(means) - min(means))


def _finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, Real) and math.isfinite(value)
