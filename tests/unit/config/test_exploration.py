from typing import Any

import pytest

from rlframe.config.common import CommonConfig
from rlframe.config.exploration import EXPLORATIONS
from rlframe.config.merge import merge_configs
from rlframe.utils.errors import ConfigError


@pytest.mark.parametrize("name", sorted(EXPLORATIONS.sections))
def test_exploration_defaults_name_their_type(name: str) -> None:
    assert EXPLORATIONS.sections[name].defaults()["type"] == name


@pytest.mark.parametrize("name", sorted(EXPLORATIONS.sections))
def test_exploration_defaults_pass_the_check(name: str) -> None:
    defaults = EXPLORATIONS.sections[name].defaults()
    config = merge_configs(CommonConfig.defaults(), {"exploration_config": defaults}, CommonConfig)
    assert config["exploration_config"] == defaults


def test_exploration_defaults_are_those_of_the_reference() -> None:
    assert EXPLORATIONS.sections["OrnsteinUhlenbeckNoise"].defaults() == {
        "type": "OrnsteinUhlenbeckNoise", "random_timesteps": 1000, "stddev": 0.1, "initial_scale": 1.0,
        "final_scale": 0.02, "scale_timesteps": 10_000, "scale_schedule": None, "ou_theta": 0.15, "ou_sigma": 0.2,
        "ou_base_scale": 0.1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"type": "EpsilonGreedy", "final_epsilon": 1.5}, ".final_epsilon: got 1.5 (float), wanted a number in"),
        ({"type": "EpsilonGreedy", "epsilon_timesteps": "many"}, ".epsilon_timesteps: got 'many' (str), wanted an"),
        ({"type": "EpsilonGreedy", "epsilon_schedule": "slow"}, ".epsilon_schedule: got 'slow' (str), wanted a"),
        ({"type": "SoftQ", "temperature": 0}, ".temperature: got 0.0 (float), wanted a number > 0"),
        ({"type": 3}, "exploration_config.type: got 3 (int), wanted one of"),
        ({"type": None}, "exploration_config.type: got None, wanted one of"),
        ("EpsilonGreedy", "exploration_config: got 'EpsilonGreedy' (str), wanted a dict"),
    ],
)  # fmt: skip
def test_exploration_fault_is_named(section: Any, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        merge_configs(CommonConfig.defaults(), {"exploration_config": section}, CommonConfig)
    assert line in str(caught.value)


@pytest.mark.parametrize("schedule", [0.5, [[0, 1.0], [10, 0.1]], len, {"type": "LinearSchedule"}])
def test_exploration_schedule_takes_what_makes_a_schedule(schedule: Any) -> None:
    section = {"type": "EpsilonGreedy", "epsilon_schedule": schedule}
    merge_configs(CommonConfig.defaults(), {"exploration_config": section}, CommonConfig)
