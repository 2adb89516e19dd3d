"""Policies that were added while a trainer ran, in its checkpoints: with the config that they had."""

import os
import sys

import numpy as np
import pytest

from rlframe.agents.pg import PGTrainer
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.exploration import EpsilonGreedy
from rlframe.utils.errors import CheckpointError
from rlframe.utils.state_files import read_state, write_state

OWN = {"gamma": 0.5, "lr": 0.123, "model": {"fcnet_hiddens": (6,)}}


def make(**more):
    multiagent = {"policies": {"main"}, "policy_mapping_fn": lambda agent: "main"}
    config = {"num_workers": 0, "train_batch_size": 40, "rollout_fragment_length": 40, "min_iter_time_s": 0, "seed": 1,
              "model": {"fcnet_hiddens": [4]}, "env_config": {"num_agents": 2}, "multiagent": multiagent}  # fmt: skip
    return PGTrainer({**config, **more}, env=MultiAgentCartPole)


def test_a_restored_policy_has_the_config_it_was_added_with(tmp_path):
    saved, other, third = make(), make(), make()
    saved.add_policy("late", config=OWN)
    other.restore(saved.save(str(tmp_path / "one")))
    third.restore(other.save(str(tmp_path / "two")))  # the entry goes on
    for trainer in (other, third):
        policy = trainer.get_policy("late")
        assert (policy.config["gamma"], policy.config["lr"], policy.config["seed"]) == (
            0.5, 0.123, saved.get_policy("late").config["seed"],
        )  # fmt: skip
        assert policy.get_weights()["hidden_0.weight"].shape == (6, 4)
        assert trainer.get_policy("main").config["gamma"] == 0.99


def test_a_config_that_a_checkpoint_cannot_hold_is_asked_for(tmp_path):
    config = {"exploration_config": {"type": EpsilonGreedy}}
    saved, other = make(), make()
    saved.add_policy("late", config=config)
    path = saved.save(str(tmp_path))
    asks = r"'late'.*exploration_config.type \(.*EpsilonGreedy.*trainer.add_policy\('late'"
    with pytest.raises(CheckpointError, match=asks):
        other.restore(path)
    assert "late" not in other.workers.local_worker().policy_map
    other.add_policy("late", config=config)
    other.restore(path)


def test_checkpoints_without_the_entry_give_the_trainers_config(tmp_path):
    saved, other = make(), make()
    saved.add_policy("late", config={"gamma": 0.5})
    state, meta = read_state(os.path.dirname(saved.save(str(tmp_path / "new"))))
    del meta["spaces"]["late"]["config"]
    write_state(tmp_path / "old", state, meta)
    other.restore(str(tmp_path / "old"))
    assert other.get_policy("late").config["gamma"] == 0.99


def test_a_restore_that_fails_leaves_no_policy_behind(tmp_path):
    saved, other = make(), make()
    saved.add_policy("late", config=OWN)
    other.train()
    state, meta = read_state(os.path.dirname(saved.save(str(tmp_path / "whole"))))
    policies = state["local_worker"]["policies"]
    weights = policies["late"]["weights"]
    weights["hidden_0.weight"] = weights["hidden_0.weight"][:, :2]
    write_state(tmp_path / "damaged", state, meta)
    before = other.get_policy("main").get_weights()
    with pytest.raises(CheckpointError, match=r"hidden_0.weight"):
        other.restore(str(tmp_path / "damaged"))
    assert set(other.workers.local_worker().policy_map) == {"main"}
    for name, array in other.get_policy("main").get_weights().items():
        np.testing.assert_array_equal(array, before[name])
    other.train()
    meta["spaces"]["late"]["action_space"] = "Discrete(9)"
    write_state(tmp_path / "foreign", state, meta)
    with pytest.raises(CheckpointError, match=r"action_space Discrete\(9\)"):
        other.restore(str(tmp_path / "foreign"))
    assert set(other.workers.local_worker().policy_map) == {"main"}


@pytest.fixture
def bait(tmp_path, monkeypatch):
    """A module with an exploration of somebody else's; it leaves a file when it is imported."""
    (tmp_path / "bait_policy.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\nfrom rlframe.exploration import Random\n"
        "class Theirs(Random):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "ran"
    sys.modules.pop("bait_policy", None)


def name_exploration(path, target, kind):
    state, meta = read_state(os.path.dirname(path))
    meta["spaces"]["late"]["config"]["exploration_config"] = {"type": kind}
    write_state(target, state, meta)
    return str(target)


def test_what_a_checkpoint_names_is_not_imported_unless_it_is_trusted(tmp_path, bait):
    saved, other = make(), make()
    saved.add_policy("late", config={"exploration_config": {"type": "Random"}})
    good = saved.save(str(tmp_path / "good"))
    hostile = name_exploration(good, tmp_path / "hostile", "bait_policy.Theirs")
    with pytest.raises(CheckpointError, match=r"names the Exploration 'bait_policy.Theirs'.*trust=True"):
        other.restore(hostile)
    assert not bait.exists()
    other.restore(good)
    assert type(other.get_policy("late").exploration).__name__ == "Random"
    other.remove_policy("late")
    other.restore(hostile, trust=True)
    assert type(other.get_policy("late").exploration).__name__ == "Theirs"


def test_what_the_program_itself_names_is_imported(tmp_path, bait):
    saved, other = make(), make(exploration_config={"type": "bait_policy.Theirs"})
    saved.add_policy("late", config={"exploration_config": {"type": "Random"}})
    other.restore(name_exploration(saved.save(str(tmp_path)), tmp_path / "same", "bait_policy.Theirs"))
    assert type(other.get_policy("late").exploration).__name__ == "Theirs"


@pytest.mark.parametrize(
    ("place", "wrong", "says"),
    [
        ("plan.metrics.counters", {"num_steps_sampled": {}}, r"TypeError: int\(\)"),
        ("local_worker.streams.main.timestep", 1e308, "timestep is|too large"),
        ("local_worker.global_vars.timestep", "x", r"global_vars.timestep is 'x', wanted a number"),
    ],
)
def test_what_only_training_would_stumble_over_is_refused(tmp_path, place, wrong, says):
    trainer = make()
    trainer.train()
    state, meta = read_state(os.path.dirname(trainer.save(str(tmp_path / "good"))))
    holder, (*path, last) = state, place.split(".")
    for key in path:
        holder = holder[key]
    holder[last] = wrong
    write_state(tmp_path / "hostile", state, meta)
    with pytest.raises(CheckpointError, match=says):
        trainer.restore(str(tmp_path / "hostile"))
    trainer.restore(str(tmp_path / "good" / "checkpoint_000001"))
    trainer.train()
