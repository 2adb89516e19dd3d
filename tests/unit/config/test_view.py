"""What plans, workers and policies get as a config: read by key and by attribute, and written to by programs alone."""

import copy
import json
import pickle

import pytest

from rlframe.agents.ppo.ppo import PPOConfig
from rlframe.agents.registry import ALGORITHMS, get_trainer_class
from rlframe.config.common import CommonConfig
from rlframe.config.view import ConfigDict, declare_attribute

CONFIG = {"lambda": 0.9, "clip_param": 0.1, "model": {"fcnet_hiddens": [8]}, "env_config": {"a": {"b": 1}}, "mine": 2}


def test_a_view_has_every_key_as_item_and_as_attribute():
    view = PPOConfig.view(CONFIG)
    assert (view.lambda_, view["lambda"], view.clip_param, view.get("clip_param")) == (0.9, 0.9, 0.1, 0.1)
    assert (view.model.fcnet_hiddens, view["model"]["fcnet_hiddens"], view.model.lstm_cell_size) == ([8], [8], 256)
    assert (view.disable_preprocessor_api, view.model.time_major, view["mine"]) == (False, False, 2)
    assert view.multiagent.count_steps_by == view["multiagent"]["count_steps_by"] == "env_steps"
    assert view == {**PPOConfig.defaults(), **CONFIG, "model": {**PPOConfig.defaults()["model"], "fcnet_hiddens": [8]}}
    assert PPOConfig.view(view) is view
    with pytest.raises(AttributeError, match="no key 'clip_parm'"):
        view.clip_parm  # noqa: B018


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_declared_name_of_a_key_reads_it(name):
    declaration = get_trainer_class(name)._config_class
    view = declaration.view({})
    for field, info in declaration.model_fields.items():
        assert getattr(view, field) is view[info.alias or field], field


def test_a_view_is_read_like_a_dict():
    view = PPOConfig.view({**CONFIG, "callbacks": None})
    assert json.loads(json.dumps(view)) == {**view, "vf_clip_param": view.vf_clip_param}
    assert dict(view) == {**view} == view == pickle.loads(pickle.dumps(view))
    assert type(pickle.loads(pickle.dumps(view)).model) is type(view)


@pytest.mark.parametrize("of", [lambda view: view, lambda view: view["model"], lambda view: view.multiagent])
def test_nothing_writes_to_a_view(of):
    view = of(PPOConfig.view(CONFIG))
    before = copy.deepcopy(view)
    for write in (
        lambda: view.__setitem__("lr", 1.0),
        lambda: view.update(lr=1.0),
        lambda: view.pop(next(iter(view))),
        lambda: view.setdefault("new", 1),
        lambda: view.__delitem__(next(iter(view))),
        view.clear,
        view.popitem,
    ):
        with pytest.raises(TypeError, match=r"read-only.*validate_config.*dict\(config\)"):
            write()
    with pytest.raises(AttributeError):
        view.lr = 1.0
    assert view == before


def test_copies_of_a_view_are_plain_dicts_at_every_depth():
    view = PPOConfig.view(CONFIG)
    mine = copy.deepcopy(view)
    mine["model"]["fcnet_hiddens"].append(4)
    mine["multiagent"]["policies"] = {"a": None}
    assert type(mine) is type(mine["model"]) is type(dict(view)) is type(view.copy()) is dict
    assert (view.model.fcnet_hiddens, view.multiagent.policies) == ([8], {})


def test_a_view_shares_no_containers_with_the_config_it_shows():
    config = copy.deepcopy(CONFIG)
    view = PPOConfig.view(config)
    view["env_config"]["a"]["b"] = 3  # free-form: its owner's
    config["model"]["fcnet_hiddens"].append(1)
    assert (config["env_config"], view.model.fcnet_hiddens) == ({"a": {"b": 1}}, [8])


def test_what_a_program_writes_into_a_policys_config_is_read():
    config = ConfigDict({"clip_param": 0.1}, "rlframe.agents.ppo.ppo:DEFAULT_CONFIG")
    config["clip_param"], config["model"] = 0.5, {"fcnet_hiddens": [4]}
    assert (config.clip_param, config.model.fcnet_hiddens, config.model.use_lstm) == (0.5, [4], False)
    config["model"]["fcnet_hiddens"] = [5]
    assert (config.model.fcnet_hiddens, config.vf_loss_coeff, "vf_loss_coeff" in config) == ([5], 1.0, False)
    assert type(copy.deepcopy(config)) is type(copy.deepcopy(config)["model"]) is dict


def test_a_checked_config_is_a_mapping_too():
    config = CommonConfig.from_dict({"lr": 0.5})
    assert (config["lr"], config.get("_fake_gpus"), config["model"]["dim"]) == (0.5, False, 84)
    assert dict(config).keys() == CommonConfig.defaults().keys() == {**config}.keys()
    assert len(config) == len(CommonConfig.options())


@pytest.mark.parametrize(
    ("name", "key", "message"), [("items", "items", "a method of dicts"), ("lambda_", "lambada", "the key 'lambda'")]
)
def test_a_key_is_not_called_what_something_else_is(name, key, message):
    with pytest.raises(TypeError, match=f"{key!r} cannot be called {name!r}: that is {message}"):
        declare_attribute(name, key)
