"""Names of algorithms, where Ray has forgotten them: after `ray.shutdown()`."""

from __future__ import annotations

import sys
import threading

import pytest
import ray.tune.registry

from rlframe.agents.registry import register_trainables
from rlframe.models import ModelCatalog
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.tune.registry import get_trainable_cls


@pytest.fixture
def forgotten():
    """Ray's registry of a process without Ray, empty as it is after `ray.shutdown()`."""
    names = ray.tune.registry._global_registry._to_flush
    kept = dict(names)
    names.clear()
    yield names
    names.clear()
    names.update(kept)


def test_name_is_found_again(forgotten):
    from rlframe.agents.pg import PGTrainer

    assert get_trainable_cls("PG") is PGTrainer


def test_class_that_ray_put_there_is_replaced_and_one_of_the_programs_own_stays(forgotten, monkeypatch):
    from rlframe.agents.pg import PGTrainer

    class OfRay(ray.tune.Trainable):
        pass

    class Own(ray.tune.Trainable):
        pass

    OfRay.__module__ = "ray.rllib.algorithms.pg"
    registry = ray.tune.registry._global_registry
    registry.register(ray.tune.registry.TRAINABLE_CLASS, "PG", OfRay)
    registry.register(ray.tune.registry.TRAINABLE_CLASS, "PPO", Own)
    monkeypatch.setitem(sys.modules, "ray.rllib", ray)
    register_trainables()
    register_trainables()
    assert get_trainable_cls("PG") is PGTrainer
    assert get_trainable_cls("PPO").__name__ == "Own"


def test_what_is_registered_stands_in_rays_registry_without_a_runtime(forgotten):
    from rlframe.tune import registry

    names = registry._global_registry
    registry.register_env("corridor of a test", dict)
    assert names.contains(registry.ENV_CREATOR, "corridor of a test")
    assert names.get(registry.ENV_CREATOR, "corridor of a test") is dict
    ModelCatalog.register_custom_model("model of a test", FullyConnectedNetwork)
    assert names.get(registry.RLLIB_MODEL, "model of a test") is FullyConnectedNetwork
    lock = threading.Lock()
    registry.register_env("here alone", lambda config: lock)
    assert not names.contains(registry.ENV_CREATOR, "here alone")
