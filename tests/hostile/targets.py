"""Names that would run something, if anybody imported or called what they name."""

from typing import Any

NAMES = (
    "os.system", "os:system", "posix.system", "subprocess.Popen", "subprocess:call", "builtins.exec", "builtins:eval",
    "importlib.import_module", "antigravity.fly", "this:s", "hostile_bait.boom", "hostile_bait:Exploration",
    "hostile_bait:Schedule", "hostile_bait:Env", "hostile_bait:Env-v0", "rlframe.cli.main:main",
    "rlframe.utils.names:importlib", "rlframe.utils.state_files.shutil.rmtree", "ctypes.CDLL", "pickle:loads",
    "..", ":", ".x", "a b:c", "__main__:__builtins__", "no_such_module_at_all:Thing", "x" * 3000 + ":y",
)  # fmt: skip
"""Each is refused, whatever key of a file names it; some are no names at all."""

OF_THE_KIND = ("hostile_bait:Exploration", "hostile_bait:Schedule", "hostile_bait:Env")
"""Those that a user's own config may name."""


#: Explorations that have the option through which something is named.
_OWNERS = {"sub_exploration": "ParameterNoise", "epsilon_schedule": "EpsilonGreedy"}


def put(config: dict[str, Any], place: str, name: str) -> None:
    """Puts a name at a dotted place of a config, with what a callable of this name needs beside it."""
    *path, last = place.split(".")
    for key in path:
        if key in _OWNERS:
            config["type"] = _OWNERS[key]
        config = config.setdefault(key, {})
    config[last] = [name] if last == "monitors" else name
    if last == "type":
        config.update(_arguments(name))


def _arguments(name: str) -> dict[str, object]:
    """Returns what a callable of this name needs to do its harm, as a config can say it."""
    return {"command": "true", "args": ["true"]} if "system" in name or "Popen" in name else {}
