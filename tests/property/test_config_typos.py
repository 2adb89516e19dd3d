"""Any single slip of the keyboard in any key at any depth is reported, and the key that was meant is named."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.config.merge import merge_configs
from rlframe.config.nested_dict import lookup
from rlframe.config.renames import RENAMES
from rlframe.utils.errors import ConfigError
from tests.unit.config.declarations import ToyConfig

DEFAULTS = ToyConfig.defaults()
EXPLORATION = {"type": "EpsilonGreedy"}
LETTERS = "abcdefghijklmnopqrstuvwxyz_"
KNOWN = ToyConfig.known_keys()


def keys_in_use() -> list[str]:
    """All dotted keys that may be written for the default types."""
    other_types = {key for key in KNOWN if key.startswith("exploration_config.")}
    own = {"exploration_config.epsilon_timesteps", "exploration_config.final_epsilon", "exploration_config.type"}
    return sorted((KNOWN - other_types) | own)


@st.composite
def typos(draw: st.DrawFn) -> tuple[str, str]:
    """A dotted key and the same with one letter missing, added, changed or swapped in its last part."""
    key = draw(st.sampled_from(keys_in_use()))
    section, _, leaf = key.rpartition(".")
    at = draw(st.integers(0, len(leaf) - 1))
    letter = draw(st.sampled_from(LETTERS))
    wrong = draw(
        st.sampled_from([
            leaf[:at] + leaf[at + 1 :],
            leaf[:at] + letter + leaf[at:],
            leaf[:at] + letter + leaf[at + 1 :],
            leaf[:at] + leaf[at + 1 : at + 2] + leaf[at] + leaf[at + 2 :],
        ])
    )  # fmt: skip
    return key, f"{section}.{wrong}" if section else wrong


def nest(dotted: str, value: Any) -> dict[str, Any]:
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize("outer", ["", "evaluation_config."])
@given(typo=typos())
@settings(max_examples=100, deadline=None)
def test_single_typo_is_reported_with_the_key_that_was_meant(outer: str, typo: tuple[str, str]) -> None:
    key, wrong = typo
    if wrong in KNOWN or wrong in RENAMES or not wrong.rpartition(".")[2]:
        return
    with pytest.raises(ConfigError) as caught:
        merge_configs(DEFAULTS, nest(outer + wrong, lookup(DEFAULTS, key)), ToyConfig)
    line = next(
        line for line in str(caught.value).splitlines() if line.strip().startswith(f"{outer}{wrong}: unknown key")
    )
    suggestions = line.partition("did you mean ")[2].rstrip("?").split(" or ")
    assert outer + key in suggestions
