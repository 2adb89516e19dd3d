"""The config's `input` and `output`: what each of their forms means."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlframe.offline.data_files import DATA_ENDINGS
from rlframe.offline.dataset_reader import dataset_reader
from rlframe.offline.episode_reader import EpisodeReader, PoliciesReader, episode_reader, reads_episodes
from rlframe.offline.input_reader import Batch, InputReader, ShuffledInput, give_state, state_of
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_reader import JsonReader
from rlframe.offline.json_writer import JsonWriter
from rlframe.offline.output_writer import OutputWriter
from rlframe.offline.parquet_format import ParquetWriter
from rlframe.utils import names, shared_names
from rlframe.utils.errors import ConfigError

_WRITERS = ("json", "parquet")
#: Keys of `input_config` that are read whatever the format of files is, those of files of episodes, and of "dataset".
_FILE_KEYS = ("n_step",)
_EPISODE_KEYS = (*_FILE_KEYS, "shuffle_rows", "batch_rows", "schema")
_DATASET_KEYS = ("format", "path", "paths", "loader_fn")
#: What the names began with of datasets that D4RL's package registered.
_D4RL = "d4rl."


class MixedInput(InputReader):
    """Draws each batch from one of several sources.

    Args:
        dist: Source, in any form that `input` takes, to its probability; these sum to 1.
        ioctx: What the sources' readers are made with.

    Raises:
        ConfigError: If a probability is negative, or their sum is not 1.
    """

    def __init__(self, dist: Mapping[Any, float], ioctx: IOContext) -> None:
        shares = np.asarray(list(dist.values()), np.float64)
        if not len(shares) or (shares < 0).any() or not np.isclose(shares.sum(), 1.0, rtol=0, atol=1e-6):
            raise ConfigError(f"input: got shares {dict(dist)}, wanted probabilities of sources, whose sum is 1")
        self.choices = [_reader(source, ioctx) for source in dist]
        self.p = shares / shares.sum()
        self._rng = np.random.default_rng(ioctx.seed("mixed input"))

    def next(self) -> Batch:
        """Returns the next batch of a source that is drawn."""
        return self.choices[int(self._rng.choice(len(self.choices), p=self.p))].next()

    def get_state(self) -> dict[str, Any]:
        """Returns the places of all sources, and the generator's state."""
        return {"choices": [state_of(reader) for reader in self.choices], "rng": self._rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        for reader, saved in zip(self.choices, state["choices"], strict=True):
            give_state(reader, saved)
        self._rng.bit_generator.state = state["rng"]


def register_input(name: str, input_creator: Callable[[IOContext], InputReader]) -> None:
    """Makes a name usable as `input`, in all processes.

    Args:
        name: The name.
        input_creator: `fn(IOContext) -> InputReader`.
    """
    if not isinstance(name, str) or not callable(input_creator):
        raise ConfigError(
            f"register_input: got {name!r} and {input_creator!r}, wanted a name and a function of an IOContext"
        )
    shared_names.tell("input", name, input_creator)


def _registered(name: str) -> Any:
    return shared_names.told().get(("input", name)) or shared_names.ask("input", name)


def make_reader(source: Any, ioctx: IOContext) -> InputReader:
    """Returns the reader of a source.

    Args:
        source: "sampler"; a path, glob, directory or address of files of data, "minari:" and a dataset's id, or a list
            of these; "dataset", which `input_config` describes; a dict of shares by source; a function
            `fn(IOContext) -> InputReader`; a name given to `register_input`; the dotted path of a class.
        ioctx: What the reader is made with.

    Raises:
        ConfigError: If the source is none of these, or there is nothing there; or if nothing in it reads one of the
            keys of `input_config`.
    """
    _check_input_config(source, ioctx)
    return _reader(source, ioctx)


def _check_input_config(source: Any, ioctx: IOContext) -> None:
    """Raises a ConfigError for a key of `input_config` that none of a source's readers reads."""
    kinds = [_kind_of(one, ioctx) for one in (source if isinstance(source, Mapping) else [source])]
    if None in kinds:
        return  # a reader of the user's own reads what it likes
    wanted = list(dict.fromkeys(key for keys in kinds for key in keys or ()))
    for key in sorted(ioctx.input_config.keys() - set(wanted)):
        known = f"wanted {', '.join(wanted)}" if wanted else "leave it out"
        hint = "; JSON is read line by line: for batches of other rows `rlframe data convert` it" if wanted else ""
        raise ConfigError(
            f"input_config: got {key!r}, which nothing reads with input={source!r}; {known}"
            f"{hint if key in _EPISODE_KEYS else ''}"
        )


def _kind_of(source: Any, ioctx: IOContext) -> tuple[str, ...] | None:
    """Returns the keys of `input_config` that the reader of a source reads; None of a reader of the user's own."""
    if callable(source) or (isinstance(source, str) and (_registered(source) is not None or _is_class(source))):
        return None
    if source == "sampler" or (isinstance(source, str) and source.startswith(_D4RL)):
        return ()
    if source != "dataset":
        return _EPISODE_KEYS if reads_episodes(source) else _FILE_KEYS
    given = ioctx.input_config
    if given.get("loader_fn") is not None or given.get("format") != "parquet":
        return (*_DATASET_KEYS, *_FILE_KEYS)
    return (*_DATASET_KEYS, *_EPISODE_KEYS)


def _is_class(source: str) -> bool:
    """Returns whether a text is the dotted path of a class, and not that of a file."""
    return names.spells_path(source) and not os.path.exists(source) and not source.endswith(DATA_ENDINGS)


def _reader(source: Any, ioctx: IOContext) -> InputReader:
    if isinstance(source, Mapping):
        return MixedInput(source, ioctx)
    if callable(source):
        return _made_by(source, ioctx)
    if isinstance(source, str):
        creator = _registered(source)
        if creator is not None:
            return _made_by(creator, ioctx)
        if source == "sampler":
            return ioctx.default_sampler_input()
        if source == "dataset":
            return dataset_reader(ioctx)
        if source.startswith(_D4RL):
            raise ConfigError(
                f"input={source!r}: D4RL's package is no longer kept; wanted the path of its .hdf5 file, or 'minari:' "
                f"and a Minari dataset's id, such as 'minari:D4RL/{source.removeprefix(_D4RL).split('-')[0]}/...'"
            )
        if _is_class(source):
            return _made_by(_class_at(source), ioctx)
    return file_reader(source, ioctx)


def file_reader(source: Any, ioctx: IOContext) -> JsonReader | EpisodeReader | PoliciesReader:
    """Returns the reader of files, which can also read all of them once: `read_all_files()`.

    Args:
        source: A path, glob, directory or address, "minari:" and a dataset's id, or a list of these.
        ioctx: What the reader is made with.

    Raises:
        ConfigError: If there are no such files.
        DataError: If a file is cut short, or files do not have the same columns.
    """
    return episode_reader(source, ioctx) if reads_episodes(source) else JsonReader(source, ioctx)


def _class_at(path: str) -> Any:
    try:
        return names.find(path, names.subclasses_of(InputReader))
    except names.NameNotFoundError as error:
        raise ConfigError(
            f"input={path!r}: found no file there, and {error}; wanted a path, the dotted path of a subclass of "
            "InputReader, or a name given to register_input"
        ) from error


def _made_by(creator: Any, ioctx: IOContext) -> InputReader:
    reader: Any = creator(ioctx)
    if not callable(getattr(reader, "next", None)):
        raise ConfigError(
            f"input: {creator!r} returned {reader!r} ({type(reader).__name__}), wanted an InputReader: an object with "
            "next(), which returns a batch"
        )
    made: InputReader = reader
    return made


def reader_of(ioctx: IOContext) -> InputReader | None:
    """Returns the reader that a config asks for; None for `input="sampler"`."""
    config = ioctx.config
    if config.input == "sampler":
        return None
    reader = make_reader(config.input, ioctx)
    if config.shuffle_buffer_size > 0:
        return ShuffledInput(reader, config.shuffle_buffer_size, ioctx.seed("shuffled input"))
    return reader


def writer_of(ioctx: IOContext) -> OutputWriter | None:
    """Returns the writer that a config asks for; None where it asks for none.

    Raises:
        ConfigError: If `output` is neither a directory nor a function, or the function returns no writer.
    """
    config = ioctx.config
    output: Any = config.output
    if output is None:
        return None
    if callable(output):
        made: Any = output(ioctx)
        if not callable(getattr(made, "write", None)):
            raise ConfigError(
                f"output: {output!r} returned {made!r} ({type(made).__name__}), wanted an OutputWriter: an object with "
                "write(batch)"
            )
        writer: OutputWriter = made
        return writer
    if not isinstance(output, str):
        raise ConfigError(f"output: got {output!r}, wanted a directory, 'logdir', a function of an IOContext or None")
    if output != "logdir":
        names.check_place(output, "output")
    return _writer_into(ioctx.log_dir if output == "logdir" else output, ioctx)


def _writer_into(path: str, ioctx: IOContext) -> OutputWriter:
    """Returns the writer of the format that `output_config` names."""
    config = ioctx.config
    given = dict(config.output_config)
    kind = given.pop("format", "json")
    if kind not in _WRITERS:
        raise ConfigError(f"output_config.format: got {kind!r}, wanted one of {', '.join(_WRITERS)}")
    wanted = ("compression", "group_rows") if kind == "parquet" else ("remote_interval_s",)
    unknown = sorted(given.keys() - set(wanted))
    if unknown:
        raise ConfigError(f"output_config: got {unknown[0]!r}, wanted format or {', '.join(wanted)}")
    if kind == "parquet":
        return ParquetWriter(path, ioctx, config.output_max_file_size, **given)
    return JsonWriter(path, ioctx, config.output_max_file_size, config.output_compress_columns, **given)


__all__ = ["MixedInput", "file_reader", "make_reader", "reader_of", "register_input", "writer_of"]
