"""Names under which programs of RLlib 1.10 to 1.13 look for what a result has."""

import copy
import pickle

import pytest
import yaml
from ray.tune.utils import flatten_dict

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.pg import PGTrainer
from rlframe.trainer.results import Info, Result
from rlframe.utils.metrics.learner_info import LearnerInfo
from tests.helpers.envs import Counting


class Reads(DefaultCallbacks):
    def on_train_result(self, *, trainer, result, **kwargs):
        result["seen"] = (result["num_env_steps_sampled"], result["sampler_results"]["episode_len_mean"])


def test_newer_names_are_found_and_are_no_keys():
    config = {"num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 40, "callbacks": Reads}
    result = PGTrainer(config, env=Counting).train()
    assert result["seen"] == (40, result["episode_len_mean"])
    assert result["sampler_results"]["hist_stats"] is result["hist_stats"]
    for name in (
        "num_env_steps_sampled",
        "num_env_steps_trained",
        "num_agent_steps_sampled",
        "num_agent_steps_trained",
    ):
        assert result[name] == result["info"][name] == result["counters"][name] == result.get(name) == 40
        assert name in result
        assert name in result["info"]
    assert result["num_env_steps_sampled_this_iter"] == result["num_env_steps_trained_this_iter"] == 40
    assert not {"sampler_results", "counters", "num_env_steps_sampled"} & set(result)
    assert "sampler_results" in result
    flat = flatten_dict(result)  # what Tune's stop criteria look into
    assert "num_env_steps_sampled" in flat
    assert flat["num_env_steps_sampled"] == 40
    assert "num_env_steps" not in flat
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), result.copy()):
        assert other["counters"] == result["counters"]
    assert yaml.safe_load(yaml.safe_dump({"result": result.copy() | {"config": None, "info": result["info"]}}))
    for learned in (Info(a=1), LearnerInfo(a=1)):
        written = yaml.dump(learned, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
        assert yaml.safe_load(written) == {"a": 1}
    for name in ("episode_rewards_mean", "num_env_steps"):
        assert name not in result
        assert result.get(name, 7) == 7
        with pytest.raises(KeyError, match=name):
            result[name]
        with pytest.raises(KeyError, match=name):
            result["info"][name]


def test_an_info_of_a_plans_own_may_be_anything():
    assert Result(info="text").get("counters") is None
