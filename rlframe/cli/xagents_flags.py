"""xagents' flags, by what they are called here; what there is instead of those that have no counterpart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlframe.cli.flags import Flag
from rlframe.config.declaration import Section
from rlframe.utils.errors import ConfigError

#: By name with underscores, the keys that take the value; the first that the algorithm has.
_RENAMED: dict[str, tuple[str, ...]] = {
    "actor_iterations": ("line_search_steps",),
    "buffer_batch_size": ("train_batch_size",),
    "buffer_initial_size": ("learning_starts",),
    "buffer_max_size": ("replay_buffer_config.capacity",),
    "cg_iterations": ("cg_iters",),
    "clip_norm": ("clip_param",),
    "critic_iterations": ("vf_num_sgd_iter",),
    "double": ("double_q",),
    "entropy_coef": ("entropy_coeff",),
    "epsilon_decay_steps": ("exploration_config.epsilon_timesteps",),
    "epsilon_end": ("exploration_config.final_epsilon",),
    "epsilon_start": ("exploration_config.initial_epsilon",),
    "fvp_n_steps": ("fvp_sub_sampling",),
    "grad_norm": ("grad_clip",),
    "lam": ("lambda",),
    "noise_clip": ("target_noise_clip",),
    "opt_epsilon": ("adam_epsilon",),
    "policy_noise_coef": ("target_noise",),
    "ppo_epochs": ("num_sgd_iter",),
    "reward_buffer_size": ("metrics_smoothing_episodes",),
    "step_noise_coef": ("exploration_config.stddev",),
    "target_sync_steps": ("target_network_update_freq",),
    "value_loss_coef": ("vf_loss_coeff",),
}
#: What an algorithm's own train batch is, that one of minibatches is a share of.
_PIECES, _MINIBATCH_KEYS = "mini_batches", ("sgd_minibatch_size", "vf_sgd_minibatch_size")
_RATES = ("actor_lr", "critic_lr")
_NETWORKS = {"model": "model", "actor_model": "actor", "critic_model": "critic"}
_NETWORK_SUFFIX = ".cfg"

_ANSWERS = {
    "action_idx": "a policy's action is taken as it is; leave it out",
    "advantage_epsilon": "advantages are divided by their standard deviation, 1e-4 at least; leave it out",
    "beta1": "Adam's β₁ is 0.9; leave it out, or derive a policy with an optimizer_fn",
    "beta2": "Adam's β₂ is 0.999; leave it out, or derive a policy with an optimizer_fn",
    "display_precision": "figures are shown with two digits, and written in full; leave it out",
    "gradient_steps": "updates go with steps, not with episodes: --training-intensity is rows learned per row sampled",
    "log_frequency": "a line is written for each iteration: --timesteps-per-iteration says how long one is",
    "max_frame": "Atari games show the larger of two frames with preprocessor_pref 'deepmind', the default",
    "mini_batches": "the algorithm learns from a train batch as a whole; leave it out",
    "monitor_session": "--monitor wandb sends results there",
    "non_silent": "each trial writes its results to a directory of its own; leave it out",
    "opt_epsilon": "Adam's ε is the algorithm's own; leave it out",
    "preprocess": "Atari games are preprocessed without being asked (preprocessor_pref); leave it out",
    "weights": "`rlframe train --resume RUN` goes on with a run, `rlframe play RUN` plays it",
}


def names_known(declaration: type[Section], defaults: Mapping[str, Any]) -> set[str]:
    """Returns the dotted keys of an algorithm and their second names, with underscores."""
    aliases = {alias.replace("-", "_") for alias in declaration.aliases()}
    return declaration.known_keys() | set(map(str, defaults)) | aliases


@dataclass
class Translated:
    """Flags in the names used here.

    Attributes:
        flags: The flags.
        config: Keys that network files say.
        remarks: What network files say in vain.
        faults: A sentence for each flag that has no counterpart.
        pieces: Minibatches that a train batch is to be cut into, None if nothing was said.
    """

    flags: list[Flag] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    pieces: int | None = None


def translate_flags(flags: Iterable[Flag], known: set[str]) -> Translated:
    """Returns flags with xagents' names replaced where the algorithm does not know them itself.

    Args:
        flags: As typed.
        known: Dotted keys of the algorithm and their second names.
    """
    made = Translated()
    for flag in flags:
        name = flag.name.replace("-", "_")
        try:
            if is_network(flag):
                _add_network(made, flag, _NETWORKS[name], known)
            elif name == "lr" and known.issuperset(_RATES):
                _add_rates(made, flag)
            elif name in known:
                made.flags.append(flag)
            else:
                _translate(made, flag, name, known)
        except ConfigError as error:
            made.faults.append(f"--{flag.name}: {error}")
    return made


def is_network(flag: Flag) -> bool:
    """Returns whether a flag names a network file."""
    name = flag.name.replace("-", "_")
    named = name != "model" or str(flag.value).endswith(_NETWORK_SUFFIX)
    return name in _NETWORKS and flag.value is not None and named


def _add_network(made: Translated, flag: Flag, role: str, known: set[str]) -> None:
    from rlframe.cli.network_files import network_config
    from rlframe.config.nested_dict import overlay

    if flag.more:
        raise ConfigError(f"got {1 + len(flag.more)} files, wanted one: networks are searched by --model.fcnet-hiddens")
    config, remarks = network_config(Path(str(flag.value)), role, known)
    for key, value in config.items():
        if made.config.get(key, value) != value:
            raise ConfigError(
                f"its layers differ from those of the other file, {made.config[key]}; wanted the same for actor and "
                "critic of this algorithm"
            )
    made.config = overlay(made.config, config)
    made.remarks += remarks


def _add_rates(made: Translated, flag: Flag) -> None:
    """Adds the learning rate of both optimisers: these algorithms read no other."""
    if flag.more:
        raise ConfigError("actor and critic have rates of their own: search --actor-lr and --critic-lr")
    made.flags += [flag._replace(name=name) for name in _RATES]


def _translate(made: Translated, flag: Flag, name: str, known: set[str]) -> None:
    target = next((key for key in _RENAMED.get(name, ()) if key in known), None)
    if name == _PIECES and any(key in known for key in _MINIBATCH_KEYS) and not flag.more:
        made.pieces = _count(flag)
    elif target is not None:
        made.flags.append(flag._replace(name=target))
        if name == "step_noise_coef":
            made.flags.append(Flag("exploration_config.type", "GaussianNoise"))
    elif name in _ANSWERS:
        raise ConfigError(_ANSWERS[name])
    elif name in _RENAMED:
        raise ConfigError(f"is {' or '.join(_RENAMED[name])} here, which this algorithm does not have; leave it out")
    else:
        made.flags.append(flag)


def _count(flag: Flag) -> int:
    if not str(flag.value).isdecimal() or int(str(flag.value)) < 1:
        raise ConfigError(f"got {flag.value}, wanted a whole number >= 1: minibatches of a train batch")
    return int(str(flag.value))


def cut_train_batch(config: dict[str, Any], pieces: int | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config with minibatches of which so many make a train batch.

    Args:
        config: What was asked for. Not changed.
        pieces: How many; None changes nothing.
        defaults: The algorithm's defaults.
    """
    if pieces is None:
        return config
    rows = {**defaults, **config}["train_batch_size"]
    key = next(key for key in _MINIBATCH_KEYS if key in defaults)
    return {**config, key: max(1, int(rows) // pieces)}
