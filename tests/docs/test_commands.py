"""The command lines on pages exist: their options are known, their configs are checked, their scripts are there."""

import re
import shlex

import pytest
import typer

from rlframe.cli.app import CONFIG_FLAGS
from rlframe.cli.commands import app
from rlframe.cli.game_runs import read_settings, seat_players
from rlframe.cli.revive_runs import _parameters
from rlframe.cli.stop import StopCriterion
from rlframe.cli.train_command import GAMES, Request, make_spec
from rlframe.cli.tune_command import _domains
from tests.docs.test_pages import DOCS, README, ROOT, blocks

COMMANDS = typer.main.get_command(app)


def command_lines():
    """Returns the lines of the pages' shell blocks that call rlframe or Python, without comments."""
    text = "\n".join(block for page in (README, *DOCS) for block in blocks(page, "bash"))
    whole = re.sub(r'python -c "\n.*?\n?"$', "", text, flags=re.S | re.M)
    parts = [part.strip() for line in whole.splitlines() for part in line.split("&&")]
    return sorted({part.split("  #")[0].strip() for part in parts if re.match(r"(rlframe|python \w+/)", part)})


def context_of(words):
    """Returns the command that words call, and what it parses of them."""
    command = COMMANDS
    while getattr(command, "commands", None):
        command, words = command.commands[words[0]], words[1:]
    return command.make_context(command.name, list(words))


@pytest.mark.parametrize("line", command_lines())
def test_command_line_is_understood(line):
    words = [word for word in shlex.split(re.sub(r"\$\(.*?\)", "CHECKPOINT", line)) if word != "--help"]
    if words[0] == "python":
        assert (ROOT / words[1]).exists()
        return
    context = context_of(words[1:])
    given, flags = context.params, context.meta.get(CONFIG_FLAGS, [])
    if "data_file" in given:  # rlframe revive train
        _parameters(context)
        return
    if context.info_name not in ("train", "tune") or given.get("resume"):
        assert not flags
        return
    if given["algo"] == GAMES:
        path = given["config"] and ROOT / given["config"]
        assert seat_players(read_settings(path, flags, {"env": given["env"]}))
        return
    searched = flags if context.info_name == "tune" else []
    if given["config"] is None:
        own = [] if searched else flags
        spec = make_spec(Request(given["algo"], given["env"] or "Any-v0", None, own, StopCriterion(), given["preset"]))
        if searched:
            _domains(searched, spec.algorithm, spec.config)


def test_an_option_that_is_none_is_found():
    with pytest.raises(Exception, match="no-such-option"):
        test_command_line_is_understood("rlframe evaluate runs/dqn --no-such-option 3")
    with pytest.raises(Exception, match="no-such-key"):
        test_command_line_is_understood("rlframe train DQN --env CartPole-v1 --no-such-key 3")


def test_every_command_is_on_the_page_of_the_command_line():
    page = (ROOT / "docs" / "command_line.md").read_text()
    assert not [name for name in COMMANDS.commands if not re.search(rf"\brlframe {name}\b|`{name}`", page)]
