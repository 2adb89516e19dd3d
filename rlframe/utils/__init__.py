"""Helpers that stand below everything else; names are loaded when they are first used."""

# No `from __future__ import annotations` here: it would hide the submodule of that name.

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.utils.annotations import DeveloperAPI, PublicAPI, override
    from rlframe.utils.deprecation import deprecation_warning
    from rlframe.utils.filter import Filter
    from rlframe.utils.framework import try_import_tf, try_import_tfp, try_import_torch
    from rlframe.utils.nested import add_mixins, deep_update, force_list, force_tuple, merge_dicts
    from rlframe.utils.numpy import fc, lstm, one_hot, relu, sigmoid, softmax
    from rlframe.utils.schedules import LinearSchedule, PiecewiseSchedule, PolynomialSchedule
    from rlframe.utils.test_utils import (
        check,
        check_compute_single_action,
        check_learning_achieved,
        check_train_results,
        framework_iterator,
    )

_BY_MODULE = {
    "annotations": ("DeveloperAPI", "PublicAPI", "override"),
    "deprecation": ("deprecation_warning",),
    "filter": ("Filter",),
    "framework": ("try_import_tf", "try_import_tfp", "try_import_torch"),
    "nested": ("add_mixins", "deep_update", "force_list", "force_tuple", "merge_dicts"),
    "numpy": ("fc", "lstm", "one_hot", "relu", "sigmoid", "softmax"),
    "schedules": ("LinearSchedule", "PiecewiseSchedule", "PolynomialSchedule"),
    "test_utils": (
        "check",
        "check_compute_single_action",
        "check_learning_achieved",
        "check_train_results",
        "framework_iterator",
    ),
}
_NAMES = {name: f"rlframe.utils.{module}" for module, names in _BY_MODULE.items() for name in names}

__all__ = [
    "DeveloperAPI",
    "Filter",
    "LinearSchedule",
    "PiecewiseSchedule",
    "PolynomialSchedule",
    "PublicAPI",
    "add_mixins",
    "check",
    "check_compute_single_action",
    "check_learning_achieved",
    "check_train_results",
    "deep_update",
    "deprecation_warning",
    "fc",
    "force_list",
    "force_tuple",
    "framework_iterator",
    "lstm",
    "merge_dicts",
    "one_hot",
    "override",
    "relu",
    "sigmoid",
    "softmax",
    "try_import_tf",
    "try_import_tfp",
    "try_import_torch",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
