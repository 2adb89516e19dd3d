from rlframe.config.exploration import EXPLORATIONS
from rlframe.config.reference import ReferenceRow, reference, render_markdown, variant_rows
from tests.unit.config.declarations import ToyConfig


def rows() -> dict[str, ReferenceRow]:
    return {row.key: row for row in reference(ToyConfig)}


def test_reference_has_every_key_with_dotted_names() -> None:
    assert set(ToyConfig.defaults()) <= set(rows())
    assert {"model.fcnet_hiddens", "multiagent.policies", "Q_model.dim", "replay_buffer_config.capacity"} <= set(rows())
    assert "exploration_config.epsilon_timesteps" in rows()


def test_reference_row_says_everything_about_a_key() -> None:
    assert rows()["n_step"] == ReferenceRow(
        "n_step", "an integer >= 1", "1", "env steps", "Rewards summed.", "Sutton & Barto 2018, eq. 7.1"
    )
    assert rows()["exploration_config.epsilon_timesteps"].default == "10000"
    assert rows()["exploration_config.initial_epsilon"].default == "1.0"
    assert rows()["sample_collector"].note.startswith("samples are collected in columns")


def test_reference_every_key_has_a_meaning_and_a_type() -> None:
    assert [key for key, row in rows().items() if not row.meaning.endswith(".") or not row.type] == []


def test_render_markdown_makes_one_line_for_each_row() -> None:
    lines = render_markdown(reference(ToyConfig)).splitlines()
    assert len(lines) == len(reference(ToyConfig)) + 2
    assert (
        "| `n_step` | `1` | Rewards summed. (Sutton & Barto 2018, eq. 7.1) *An integer >= 1, in env steps.* |" in lines
    )
    assert all(line.count(" | ") == 2 for line in lines[2:])


def test_render_markdown_escapes_bars() -> None:
    assert r"a \| b" in render_markdown([ReferenceRow("k", "t", "1", "", "a | b", "")])


def test_variant_rows_list_every_exploration() -> None:
    assert set(variant_rows(EXPLORATIONS)) == set(EXPLORATIONS.sections)
    assert "temperature" in {row.key for row in variant_rows(EXPLORATIONS)["SoftQ"]}
