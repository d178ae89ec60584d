"""Connectors, and the interfaces for an author's own.

`tg.Read` reads any `Source`, and `tg.Write` writes to any `Sink`; the connectors here use nothing else. A connector
imports third-party packages only when it is used.
"""

from typing import Any

from tidegate.io.delta.reading import ReadFromDelta
from tidegate.io.delta.writing import WriteToDelta
from tidegate.io.file_source.listing import FileMetadata
from tidegate.io.file_source.matching import MatchAll, MatchFiles, ReadableFile, ReadMatches
from tidegate.io.formats.read_all import (
    ReadAllFromArrow,
    ReadAllFromAvro,
    ReadAllFromCsv,
    ReadAllFromJson,
    ReadAllFromParquet,
)
from tidegate.io.formats.reading import (
    ReadFromArrow,
    ReadFromAvro,
    ReadFromCsv,
    ReadFromJson,
    ReadFromParquet,
)
from tidegate.io.formats.writing.transforms import (
    WriteToArrow,
    WriteToAvro,
    WriteToCsv,
    WriteToJson,
    WriteToParquet,
)
from tidegate.io.generators.async_iterators import FromAsyncIterator
from tidegate.io.generators.iterables import FromIterable
from tidegate.io.generators.sequence import GenerateSequence
from tidegate.io.generators.socket_lines import ReadFromSocket
from tidegate.io.generators.tail_file import TailFile
from tidegate.io.records.problems import BadRecord
from tidegate.io.spark import ReadFromSpark, WriteToSpark
from tidegate.io.text.read_all import ReadAllFromText
from tidegate.io.text.transforms import ReadFromText, ReadFromTextWithFilename, WriteToText
from tidegate.sdk.connectors.sinks import Attempt, Committable, Delivery, Sink, StagedFile, in_order
from tidegate.sdk.connectors.sources import (
    AsyncReader,
    Batch,
    Columns,
    Discovery,
    Position,
    Reader,
    SimpleSource,
    Source,
    Split,
    SplitEnumerator,
)
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import PositionLost

__all__ = [
    "FromAsyncIterator",
    "FromIterable",
    "GenerateSequence",
    "MatchAll",
    "MatchFiles",
    "ReadAllFromArrow",
    "ReadAllFromAvro",
    "ReadAllFromCsv",
    "ReadAllFromJson",
    "ReadAllFromParquet",
    "ReadAllFromText",
    "ReadFromArrow",
    "ReadFromAvro",
    "ReadFromCsv",
    "ReadFromDelta",
    "ReadFromJson",
    "ReadFromParquet",
    "ReadFromSocket",
    "ReadFromSpark",
    "ReadFromText",
    "ReadFromTextWithFilename",
    "ReadMatches",
    "TailFile",
    "WriteToArrow",
    "WriteToAvro",
    "WriteToCsv",
    "WriteToDelta",
    "WriteToJson",
    "WriteToParquet",
    "WriteToSpark",
    "WriteToText",
    "FileMetadata",
    "ReadableFile",
    "Source",
    "SimpleSource",
    "Reader",
    "AsyncReader",
    "SplitEnumerator",
    "Discovery",
    "PositionLost",
    "Split",
    "BadRecord",
    "Batch",
    "Columns",
    "Block",
    "Position",
    "Sink",
    "Attempt",
    "Committable",
    "StagedFile",
    "Delivery",
    "in_order",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    from tidegate.sdk.beam_names import IO, no_such

    raise no_such("tidegate.io", "tg.io", name, IO, __all__)
