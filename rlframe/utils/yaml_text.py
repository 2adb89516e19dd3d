"""Values written as YAML or JSON: plain ones only, with 1e-4 a number, and no more of them than memory holds."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rlframe.utils.errors import ConfigError
from rlframe.utils.files import MOST_DEPTH, check_plain, parse_json

#: Values that one text may stand for.
_MOST_NODES = 100_000


def write_as_dicts(*kinds: type[dict[Any, Any]]) -> None:
    """Lets programs write subclasses of dict as YAML, by any of its dumpers; it knows none of its own accord."""
    for name in ("Dumper", "SafeDumper", "CDumper", "CSafeDumper"):  # those in C are not built everywhere
        for kind in kinds if hasattr(yaml, name) else ():
            getattr(yaml, name).add_representer(kind, yaml.representer.SafeRepresenter.represent_dict)


def parse_yaml(text: str, *, json_only: bool = False, where: str = "value", unique: bool = False) -> Any:
    """Returns the value that a YAML or JSON text spells, with 1e-4 a number.

    Args:
        text: The text.
        json_only: Whether YAML is none.
        where: It comes from, for messages.
        unique: Whether a key that YAML says twice in one map is an error.

    Raises:
        ConfigError: If the text is neither.
    """
    try:
        # A SafeLoader's subclass: it makes plain values only.
        value = parse_json(text) if json_only else yaml.load(text, _UniqueKeys if unique else _Loader)
        check_plain(value)
        return value
    except RecursionError:
        raise ConfigError(f"{where}: cannot be read: it nests deeper than {MOST_DEPTH} levels") from None
    except (ValueError, OverflowError, yaml.YAMLError) as error:
        raise ConfigError(f"{where}: cannot be read: {' '.join(str(error).split())}") from error


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but for numbers: there 1e-4 and 1e6 are texts, and everybody means numbers.

    References (`*name`) count with all that they stand for: a few lines of them can stand for more than memory holds.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = self._size = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Returns the next node, after counting what it stands for."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        begun = self._size
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self.anchors and event.anchor not in self._sizes:
                raise yaml.YAMLError(f"*{event.anchor} stands for something that it is a part of")
            self._size += self._sizes.get(str(event.anchor), 1)
        else:
            self._size += 1
        self._depth += 1
        if self._size > _MOST_NODES or self._depth > MOST_DEPTH:
            raise yaml.YAMLError(f"it stands for more than {_MOST_NODES:,} values, or nests deeper than {MOST_DEPTH}")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if getattr(event, "anchor", None) is not None:
            self._sizes[event.anchor] = self._size - begun
        return node


_FLOAT = re.compile(r"[-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*|\d[\d_]*)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# After the resolver of integers, so that those stay integers.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{_FLOAT.pattern})$"), list("-+0123456789."))


class _UniqueKeys(_Loader):
    """The same, which refuses what is said twice in one map; keys that come by `<<` are said elsewhere."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Returns a map's node, after a look at its keys."""
        node: Any = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice; write it once")
                seen.add((key.tag, key.value))
        return node
