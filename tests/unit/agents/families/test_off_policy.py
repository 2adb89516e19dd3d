"""What algorithms that replay share: each key declared once, one plan with an algorithm's own operators in it."""

from rlframe.agents.dqn.dqn import DQNConfig, validate_config
from rlframe.agents.families import off_policy
from rlframe.agents.registry import ALGORITHMS, get_trainer_class
from rlframe.config.declaration import Section

REPLAYING = [name for name in ALGORITHMS if issubclass(get_trainer_class(name)._config_class, off_policy.ReplayConfig)]


def test_all_algorithms_with_a_replay_buffer_are_of_the_family():
    with_buffer = [
        name for name in ALGORITHMS if "replay_buffer_config" in get_trainer_class(name)._config_class.options()
    ]
    assert with_buffer == REPLAYING


def test_no_key_is_declared_twice_in_the_same_words():
    declared = {}
    for name in ALGORITHMS:
        for cls in filter(is_declaration, get_trainer_class(name)._config_class.__mro__):
            for key, its_own in cls.own_options().items():
                first = declared.setdefault((key, its_own.description), cls)
                assert first is cls, f"{cls.__name__} declares {key} as {first.__name__} does; derive from what has it"


def is_declaration(cls):
    return issubclass(cls, Section)


def test_defaults_of_all_parents_are_taken_over():
    class First(off_policy.NStepConfig):
        new_defaults = {"n_step": 3}  # noqa: RUF012

    class Second(off_policy.SoftTargetConfig):
        new_defaults = {"tau": 0.5}  # noqa: RUF012

    class Both(First, Second):
        new_defaults = {"learning_starts": 7}  # noqa: RUF012

    defaults = Both.defaults()
    assert (defaults["n_step"], defaults["tau"], defaults["learning_starts"]) == (3, 0.5, 7)
    assert issubclass(Both, Section)


def test_derived_values_leave_what_was_asked_for():
    asked = {"n_step": 6, "exploration_config": {"type": "ParameterNoise"}}
    config = {**DQNConfig.defaults(), **asked, "key_of_a_program": 1}
    effective = DQNConfig.effective(config)
    assert (effective["rollout_fragment_length"], effective["batch_mode"]) == (6, "complete_episodes")
    assert (config["rollout_fragment_length"], config["batch_mode"]) == (4, "truncate_episodes")
    assert {key for key in config if effective[key] != config[key]} == {"rollout_fragment_length", "batch_mode"}
    validate_config(config)
    assert config == effective, "programs that call RLlib's function find what it wrote"
