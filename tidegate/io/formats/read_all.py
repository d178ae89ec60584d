"""The records of files whose names are elements: `ReadAllFromCsv` and its counterparts for the other formats."""

from __future__ import annotations

import dataclasses
from types import GenericAlias
from typing import Any, Unpack

from tidegate.io.compression import Compression
from tidegate.io.file_source.format import FileFormat
from tidegate.io.file_source.listing import FileMetadata
from tidegate.io.file_source.matching import ReadableFile, ReadAll
from tidegate.io.file_source.source import FileSource
from tidegate.io.formats.arrow_ipc import ArrowFormat
from tidegate.io.formats.avro import AvroFormat, reader_schema_of
from tidegate.io.formats.dead_letters import good_and_bad
from tidegate.io.formats.options import (
    ReadAllCsvOptions,
    ReadAllJsonOptions,
    ReadAllOptions,
    compression_of,
    csv_format,
    json_format,
    source_of,
)
from tidegate.io.formats.parquet import ParquetFormat
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.steps.transform import PTransform


class ReadAllFromFiles(PTransform[PCollection[Any], Any]):
    """The base of the transforms that read the records of the files that elements name."""

    def __init__(
        self,
        format: FileFormat,
        compression: Compression,
        options: ReadAllOptions,
        with_filename: bool,
        name: str | None,
    ) -> None:
        self.label = name
        self.with_filename = with_filename
        self.source = source_of(type(self).__name__, (), format, compression, options)

    def expand(self, input: PCollection[Any]) -> Any:
        source = self.source
        source.check_options()
        good_type = source.selection.shape.element_type
        if self.with_filename:
            good_type = GenericAlias(tuple, (str, good_type))
        fails = source.selection.bad_records == "fail"
        records = input | ReadAll(
            self.source_of,
            good_type if fails else Any,
            with_filename=self.with_filename,
            allow_empty=source.allow_empty,
            storage_options=source.storage_options,
            name="Files",
        )
        return records if fails else good_and_bad(records, good_type, input.pipeline.step)

    def source_of(self, file: FileMetadata) -> FileSource:
        """The source of one file."""
        source = dataclasses.replace(self.source, patterns=(file.path,), allow_empty=False)
        if isinstance(file, ReadableFile) and file.compression != "auto":
            return dataclasses.replace(source, compression=file.compression)
        return source


class ReadAllFromParquet(ReadAllFromFiles):
    """The rows of the Parquet files that each element names: a path, a pattern, or a file of `MatchFiles` or
    `ReadMatches`.

        pipeline | tg.io.MatchFiles("visits/*.parquet", follow=True) | tg.io.ReadAllFromParquet(as_=Visit)

    Files are distributed over the workers, in no order, and each is read by one of them. With `with_filename`, each
    element is `(file, record)`. The other arguments are those of `ReadFromParquet`; but without a schema, each file has
    its own columns. Raises ReadError when running, if a path matches nothing or a file can't be read.
    """

    def __init__(
        self, *, with_filename: bool = False, name: str | None = None, **options: Unpack[ReadAllOptions]
    ) -> None:
        super().__init__(ParquetFormat(), "none", options, with_filename, name)


class ReadAllFromArrow(ReadAllFromFiles):
    """The rows of the Arrow files and streams that each element names. The arguments are those of
    `ReadAllFromParquet`."""

    def __init__(
        self, *, with_filename: bool = False, name: str | None = None, **options: Unpack[ReadAllOptions]
    ) -> None:
        super().__init__(ArrowFormat(), "none", options, with_filename, name)


class ReadAllFromAvro(ReadAllFromFiles):
    """The records of the Avro files that each element names. The arguments are those of `ReadAllFromParquet`, and the
    `reader_schema` of `ReadFromAvro`."""

    def __init__(
        self,
        *,
        with_filename: bool = False,
        reader_schema: Any = None,
        name: str | None = None,
        **options: Unpack[ReadAllOptions],
    ) -> None:
        format = AvroFormat(reader_schema_of(reader_schema, "ReadAllFromAvro"))
        super().__init__(format, "none", options, with_filename, name)


class ReadAllFromJson(ReadAllFromFiles):
    """The objects of the files of JSON lines that each element names. The arguments are those of `ReadAllFromParquet`
    and of `ReadFromJson`."""

    def __init__(
        self, *, with_filename: bool = False, name: str | None = None, **options: Unpack[ReadAllJsonOptions]
    ) -> None:
        super().__init__(json_format(options), compression_of(options), options, with_filename, name)


class ReadAllFromCsv(ReadAllFromFiles):
    """The records of the CSV files that each element names. The arguments are those of `ReadAllFromParquet` and of
    `ReadFromCsv`."""

    def __init__(
        self, *, with_filename: bool = False, name: str | None = None, **options: Unpack[ReadAllCsvOptions]
    ) -> None:
        format = csv_format(options, splittable=False)
        super().__init__(format, compression_of(options), options, with_filename, name)
