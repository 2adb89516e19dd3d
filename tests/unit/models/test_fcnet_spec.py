import pytest

from rlframe.models.fcnet_spec import fcnet_spec
from rlframe.utils.errors import ConfigError


def layers(spec, key="outputs"):
    return [(layer["name"], layer.get("activation"), layer["units"]) for layer in spec.to_spec()[key]]


def test_fcnet_spec_defaults_share_the_hidden_layers():
    spec = fcnet_spec(2, {"fcnet_hiddens": [8, 4]})
    assert layers(spec) == [("hidden_0", "tanh", 8), ("hidden_1", "tanh", 4), ("output", "linear", 2)]
    assert layers(spec, "values") == [("value", "linear", 1)]
    assert spec.shared == 2


def test_fcnet_spec_separate_value_function_has_its_own_layers():
    spec = fcnet_spec(2, {"fcnet_hiddens": [8], "post_fcnet_hiddens": [4], "vf_share_layers": False})
    assert layers(spec, "values") == [
        ("value_hidden_0", "tanh", 8),
        ("value_hidden_1", "relu", 4),
        ("value", "linear", 1),
    ]
    assert spec.shared == 0


def test_fcnet_spec_no_outputs_ends_with_the_last_hidden_layer():
    spec = fcnet_spec(None, {"fcnet_hiddens": [8, 4], "no_final_linear": True, "free_log_std": True})
    assert layers(spec) == [("hidden_0", "tanh", 8), ("hidden_1", "tanh", 4)]
    assert spec.shared == 2


def test_fcnet_spec_no_final_linear_makes_the_last_layer_the_output():
    spec = fcnet_spec(3, {"fcnet_hiddens": [8, 4], "no_final_linear": True})
    assert layers(spec) == [("hidden_0", "tanh", 8), ("hidden_1", "tanh", 3)]
    assert spec.shared == 2


def test_fcnet_spec_no_final_linear_without_hidden_layers_has_one():
    assert layers(fcnet_spec(3, {"fcnet_hiddens": [], "no_final_linear": True})) == [("hidden_0", "tanh", 3)]


def test_fcnet_spec_no_hidden_layers_shares_the_observations():
    spec = fcnet_spec(3, {"fcnet_hiddens": []})
    assert layers(spec) == [("output", "linear", 3)]
    assert spec.shared == 0


def test_fcnet_spec_free_log_std_halves_the_output():
    assert layers(fcnet_spec(6, {"fcnet_hiddens": [], "free_log_std": True})) == [
        ("output", "linear", 3),
        ("free_log_std", None, 3),
    ]


def test_fcnet_spec_free_log_std_odd_outputs_is_refused():
    with pytest.raises(ConfigError, match=r"free_log_std=True needs an even number of outputs.*num_outputs=3"):
        fcnet_spec(3, {"free_log_std": True})


def test_fcnet_spec_without_values_has_none():
    assert fcnet_spec(2, {"fcnet_hiddens": [8]}, values=False).values is None


def test_fcnet_spec_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="Unknown activation 'gelu2'"):
        fcnet_spec(2, {"fcnet_hiddens": [8], "fcnet_activation": "gelu2"})
