"""A policy's learner info in a result: as RLlib has it since 1.6, and found where it stood before."""

import json
import pickle

import pytest
import yaml

from rlframe.utils.metrics.learner_info import LearnerInfo, as_learner_infos

TOLD = {"learner_stats": {"policy_loss": 0.5, "model": 7.0}, "model": {}, "custom_metrics": {}}


def test_statistics_are_found_without_learner_stats():
    (info,) = as_learner_infos({"left": TOLD}).values()
    assert info["learner_stats"]["policy_loss"] == info["policy_loss"] == info.get("policy_loss") == 0.5
    assert info["model"] == {}  # an entry comes before a statistic
    assert (info.get("kl"), info.get("kl", 3.0)) == (None, 3.0)
    with pytest.raises(KeyError, match="kl"):
        info["kl"]


def test_a_policys_statistics_are_in_it_and_no_other_policys_are():
    told = as_learner_infos({"left": TOLD})
    assert "policy_loss" in told["left"]
    assert "custom_metrics" in told["left"]
    assert "kl" not in told["left"]
    assert "policy_loss" not in LearnerInfo(told)


def test_it_is_a_dict_as_before_for_all_else():
    made = as_learner_infos({"left": TOLD, "right": {"loss": 1.0}, "count": 3})
    assert made == {"left": TOLD, "right": {"loss": 1.0}, "count": 3}
    assert list(made["left"]) == list(TOLD)
    assert pickle.loads(pickle.dumps(made))["left"]["policy_loss"] == 0.5
    assert json.loads(json.dumps(made)) == made
    assert yaml.safe_load(yaml.safe_dump(made)) == yaml.safe_load(yaml.dump(made)) == made
