import ast
import re

import pytest

from rlframe.models.conv_sizes import filters_for, plan_convs
from rlframe.utils.errors import ConfigError

MNIH = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]


@pytest.mark.parametrize(
    ("paddings", "pads", "features"),
    [
        ([None, None, None], [(2, 2, 2, 2), (1, 2, 1, 2), None], 64 * 9 * 9),  # as RLlib has them
        (["valid", "valid", "valid"], [None, None, None], 64 * 7 * 7),  # Mnih et al. 2015
        (["valid", None, "same"], [None, (1, 1, 1, 1), (1, 1, 1, 1)], 64 * 10 * 10),
    ],
)
def test_a_filter_s_padding_is_the_one_it_names(paddings, pads, features):
    filters = [layer if name is None else [*layer, name] for layer, name in zip(MNIH, paddings, strict=True)]
    plans, width = plan_convs((84, 84, 4), filters, reduce=False)
    assert [plan.padding for plan in plans] == pads
    assert width == features


@pytest.mark.parametrize("size", [(96, 96), (50, 50), (10, 10), (1, 3), (13, 12), (210, 160), (600, 7)])
def test_the_filters_that_the_answer_on_an_unknown_size_names_fit_it(size):
    with pytest.raises(ConfigError) as raised:
        filters_for((*size, 3), None)
    named = ast.literal_eval(re.search(r"such as (\[\[.*\]\]), or", str(raised.value))[1])
    plans, features = plan_convs((*size, 3), named)
    assert features == 256
    assert max(plans[-1].kernel) <= 12
