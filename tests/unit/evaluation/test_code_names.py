"""Whether hooks read what only a framework's policy has."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from rlframe.evaluation.callbacks import DefaultCallbacks, MultiCallbacks, make_callbacks
from rlframe.evaluation.code_names import OF_FRAMEWORKS, reads_any_of


def values_of(policy: Any) -> Any:
    return [weight.mean() for weight in policy.model.parameters()]


class Helped(DefaultCallbacks):
    def on_episode_end(self, *, policies: Any, episode: Any, **kwargs: Any) -> None:
        episode.custom_metrics["means"] = values_of(policies["default_policy"])


class Nested(DefaultCallbacks):
    def on_sample_end(self, *, worker: Any, **kwargs: Any) -> None:
        worker.for_policy(lambda policy: policy.model.eval())


class OnDriver(DefaultCallbacks):
    def on_train_result(self, *, trainer: Any, result: Any, **kwargs: Any) -> None:
        result["model"] = str(trainer.get_policy().model)

    def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
        episode.custom_metrics["model"] = episode.length


def with_policy(name: str, info: dict[str, Any]) -> None:
    info["episode"].user_data[name] = info["policy"]["default_policy"].device


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (Helped, True),
        (Nested, True),
        (MultiCallbacks([OnDriver, Nested]), True),
        ({"on_episode_end": lambda info: values_of(info["policy"])}, True),
        ({"on_episode_end": functools.partial(with_policy, "x")}, True),
        (OnDriver, False),
        (MultiCallbacks([OnDriver]), False),
        ({"on_episode_end": print}, False),
        (None, False),
    ],
)
def test_code_that_runs_on_workers_is_looked_through(spec: Any, wanted: bool) -> None:
    assert reads_any_of(make_callbacks(spec), OF_FRAMEWORKS) is wanted
