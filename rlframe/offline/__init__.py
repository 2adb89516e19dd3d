"""Experience in files: read for learning, written while sampling, and what it says of a policy's return."""

from rlframe.offline.episode_reader import EpisodeReader
from rlframe.offline.input_reader import InputReader, ShuffledInput
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_reader import JsonReader
from rlframe.offline.json_writer import JsonWriter
from rlframe.offline.output_writer import NoopOutput, OutputWriter
from rlframe.offline.parquet_format import ParquetWriter
from rlframe.offline.sources import MixedInput

__all__ = [
    "EpisodeReader",
    "IOContext",
    "InputReader",
    "JsonReader",
    "JsonWriter",
    "MixedInput",
    "NoopOutput",
    "OutputWriter",
    "ParquetWriter",
    "ShuffledInput",
]
