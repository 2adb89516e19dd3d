"""Faults of a config: what is wrong with one key, in a line that says what was got, what is wanted and what is near."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_MAX_REPR = 60
_ALIKE = 0.6
"""Ratio of difflib from which two names are alike."""
_ELSEWHERE = 0.6
"""What standing in another section counts, in edits: an exact name elsewhere beats a slip here, not by much."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a config.

    Attributes:
        key: Dotted key, or "" for a sentence about several keys.
        text: What was got and what is wanted.
        near: Known dotted keys that may have been meant.
    """

    key: str
    text: str
    near: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Returns the line that is shown."""
        line = f"{self.key}: {self.text}" if self.key else self.text
        return line + did_you_mean(self.near)

    def as_written(self, names: Mapping[str, str]) -> Fault:
        """Returns the same fault under the name that the user wrote.

        Args:
            names: Other names that were written, by the names used here.
        """
        written = names.get(self.key)
        return self if written is None else replace(self, key=f"{written} (here {self.key})")

    def below(self, section: str) -> Fault:
        """Returns the same fault, seen from outside the section it was found in."""
        near = tuple(f"{section}.{key}" for key in self.near)
        key, text = (f"{section}.{self.key}", self.text) if self.key else ("", f"{section}: {self.text}")
        return replace(self, key=key, text=text, near=near)


def fault_list(faults: Iterable[Fault]) -> str:
    """Returns the message of a ConfigError: all faults, each once, below their number."""
    lines = list(dict.fromkeys(str(fault) for fault in faults))
    header = "1 fault in the config:" if len(lines) == 1 else f"{len(lines)} faults in the config:"
    return "\n  ".join([header, *lines])


def unknown_key(key: str, prefix: str, known: Collection[str], siblings: Collection[str]) -> Fault:
    """Returns the fault of a key that nobody declared, with the nearest known keys.

    Args:
        key: The key as it was written.
        prefix: The section it was found in, with a dot at its end, or "".
        known: All known dotted keys.
        siblings: The known dotted keys of that section.
    """
    if prefix + key in known and "." not in key:  # declared for another `type` of the same section
        return Fault(prefix + key, f"unknown key for this type, which takes {', '.join(sorted(siblings))}")
    if "." in key and key in known:  # {"model.fcnet_hiddens": ...}: the dots belong to the notation
        return Fault(prefix + key, f"unknown key; nest it: {_nested(key)}")
    here = other_librarys_key(prefix + key, known)
    if here:
        return Fault(prefix + key, f"unknown key; here it is called {' or '.join(here)}")
    meant = _STABLE_BASELINES.get(prefix + key)
    if meant:
        return Fault(prefix + key, f"unknown key; what it is called here, {' or '.join(meant)}, this algorithm lacks")
    near = nearest_keys(prefix + key, known)
    if prefix and siblings and not near:
        names = sorted(sibling.removeprefix(prefix) for sibling in siblings)
        return Fault(prefix + key, f"unknown key; {prefix[:-1]} takes {', '.join(names)}")
    return Fault(prefix + key, "unknown key", near)


def other_librarys_key(key: str, known: Collection[str]) -> tuple[str, ...]:
    """Returns the known keys that mean what Stable-Baselines3 calls `key`; none where it has no such key."""
    return tuple(name for name in _STABLE_BASELINES.get(key, ()) if name in known)


#: What Stable-Baselines3 calls things, and what they are here, the most specific first.
_STABLE_BASELINES = {
    "activation_fn": ("model.fcnet_activation",),
    "batch_size": ("sgd_minibatch_size", "train_batch_size"),
    "buffer_size": ("replay_buffer_config.capacity",),
    "clip_range": ("clip_param",),
    "clip_range_vf": ("vf_clip_param",),
    "device": ("num_gpus",),
    "ent_coef": ("entropy_coeff",),
    "exploration_final_eps": ("exploration_config.final_epsilon",),
    "exploration_fraction": ("exploration_config.epsilon_timesteps",),
    "exploration_initial_eps": ("exploration_config.initial_epsilon",),
    "features_extractor_class": ("model.custom_model",),
    "gae_lambda": ("lambda",),
    "gradient_steps": ("training_intensity",),
    "learning_rate": ("lr",),
    "max_grad_norm": ("grad_clip",),
    "n_envs": ("num_envs_per_worker",),
    "n_epochs": ("num_sgd_iter",),
    "n_steps": ("rollout_fragment_length",),
    "net_arch": ("model.fcnet_hiddens",),
    "policy_kwargs": ("model",),
    "policy_kwargs.activation_fn": ("model.fcnet_activation",),
    "policy_kwargs.net_arch": ("model.fcnet_hiddens",),
    "target_kl": ("kl_target",),
    "target_update_interval": ("target_network_update_freq",),
    "tensorboard_log": ("logger_config",),
    "train_freq": ("rollout_fragment_length",),
    "verbose": ("log_level",),
    "vf_coef": ("vf_loss_coeff",),
}


def nearest_keys(dotted: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """Returns the known dotted keys nearest to `dotted`, the best first; ties and near ties are all given.

    The last part is compared, so a key that stands in the wrong section is found where it belongs. One outside of
    sections stands for those of its name in sections.
    """
    candidates = sorted(known)
    scored = _scored(dotted, candidates, _slips) or _scored(dotted, candidates, _unlikeness)
    best = min((score for score, _ in scored), default=0.0)
    near = [key for score, key in sorted(scored) if score <= best + 0.5]
    return tuple(key for key in near if "." not in key or key.rpartition(".")[2] not in near)[:limit]


def is_slip(key: str, known: Iterable[str]) -> bool:
    """Returns whether a key is a known one with a slip of the keyboard in it."""
    return bool(_scored(key, known, _slips))


def did_you_mean(names: Iterable[str]) -> str:
    """Returns "; did you mean a or b?", or "" where there are no names."""
    text = " or ".join(names)
    return f"; did you mean {text}?" if text else ""


def near_choice(value: Any, choices: Iterable[Any]) -> str:
    """Returns "; did you mean 'x'?" for a string that is near to a choice, else ""."""
    if not isinstance(value, str):
        return ""
    return did_you_mean(map(repr, nearest_keys(value, [choice for choice in choices if isinstance(choice, str)])))


def got(value: Any) -> str:
    """Returns "got <value>", shortened, with its type where the value does not show it."""
    if value is None or isinstance(value, bool | type):
        return f"got {shorten(value)}"
    return f"got {shorten(value)} ({type(value).__name__})"


def shorten(value: Any) -> str:
    """Returns `repr(value)` in at most 60 characters, whatever the object does."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a user's __repr__ must not hide the fault
        text = f"<{type(value).__name__} object>"
    return text if len(text) <= _MAX_REPR else f"{text[: _MAX_REPR - 3]}..."


def _nested(dotted: str) -> str:
    """Returns how a dotted key is written in a config: {'model': {'fcnet_hiddens': ...}}."""
    text = "..."
    for part in reversed(dotted.split(".")):
        text = f"{{{part!r}: {text}}}"
    return text


def _scored(dotted: str, known: Iterable[str], distance: Callable[[str, str], float | None]) -> list[tuple[float, str]]:
    """Returns the keys that are alike, with how far they are."""
    section, _, leaf = dotted.rpartition(".")
    scored = []
    for key in known:
        key_section, _, key_leaf = key.rpartition(".")
        apart = distance(leaf.lower(), key_leaf.lower())
        if apart is not None:
            scored.append((apart + (_ELSEWHERE if key_section != section else 0.0), key))
    return scored


def _slips(got_leaf: str, known_leaf: str) -> float | None:
    """Returns the number of slips of the keyboard between two names, or None where there are too many."""
    if got_leaf == known_leaf:
        return 0.0
    allowed = max(1, min(len(got_leaf), len(known_leaf)) // 4)
    if abs(len(got_leaf) - len(known_leaf)) > allowed:
        return None
    edits = _edit_distance(got_leaf, known_leaf)
    return float(edits) if edits <= allowed else None


def _unlikeness(got_leaf: str, known_leaf: str) -> float | None:
    """Returns how far names are apart that have words in common, in another order or number; None if they have not."""
    matcher = difflib.SequenceMatcher(None, got_leaf, known_leaf)
    if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
        return None
    ratio = matcher.ratio()
    return 10.0 * (1.0 - ratio) if ratio >= _ALIKE else None


def _edit_distance(one: str, other: str) -> int:
    """Returns the number of insertions, deletions, substitutions and swaps of neighbours between two words."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, above, row = row, before, [i]
        for j, b in enumerate(other, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]
