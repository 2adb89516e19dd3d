"""What is said of weights that come from another network."""

import numpy as np
import pytest

from rlframe.models.rllib_names import fitting_weights


def test_a_value_function_with_layers_of_its_own_on_one_side_is_named():
    shared = {"hidden_0.weight": np.ones((2, 3)), "value.weight": np.ones((1, 2))}
    apart = {**shared, "value_hidden_0.weight": np.ones((2, 3))}
    for wanted, given in ((shared, apart), (apart, shared)):
        with pytest.raises(ValueError, match=r"model\.vf_share_layers differs .* set it in both configs$"):
            fitting_weights({name: array.shape for name, array in wanted.items()}, given, owner="PPOTFPolicy")
