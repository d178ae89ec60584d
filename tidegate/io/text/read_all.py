"""`ReadAllFromText`: the lines of files whose names are elements."""

from __future__ import annotations

import dataclasses
from typing import Any

from tidegate.io.byte_streams import DecodeErrors
from tidegate.io.compression import Compression
from tidegate.io.file_source.listing import FileMetadata
from tidegate.io.file_source.matching import ReadableFile, ReadAll
from tidegate.io.storage_options import StorageOptions, options_of
from tidegate.io.text.source import TextSource
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.steps.transform import PTransform


class ReadAllFromText(PTransform[PCollection[Any], PCollection[Any]]):
    """The lines of the files that each element names: a path, a pattern, or a file of `MatchFiles` or `ReadMatches`.

    Files are distributed over the workers, in no order. With `with_filename` each element is `(file, line)`. The other
    arguments are those of `ReadFromText`. Raises ReadError when running, if a path matches nothing.
    """

    def __init__(
        self,
        *,
        with_filename: bool = False,
        compression: Compression = "auto",
        skip_header_lines: int = 0,
        strip_trailing_newlines: bool = True,
        encoding: str = "utf-8",
        errors: DecodeErrors = "strict",
        allow_empty: bool = False,
        storage_options: StorageOptions | None = None,
        name: str | None = None,
    ) -> None:
        self.label = name
        self.allow_empty = allow_empty
        self.source = TextSource(
            (),
            compression=compression,
            skip_header_lines=skip_header_lines,
            strip_trailing_newlines=strip_trailing_newlines,
            encoding=encoding,
            errors=errors,
            with_filename=with_filename,
            storage_options=options_of(storage_options, (), "ReadAllFromText"),
        )

    def expand(self, input: PCollection[Any]) -> PCollection[Any]:
        self.source.check_options("ReadAllFromText")
        lines: PCollection[Any] = input | ReadAll(
            self.source_of,
            self.source.element_type,
            allow_empty=self.allow_empty,
            storage_options=self.source.storage_options,
            name="Files",
        )
        return lines

    def source_of(self, file: FileMetadata) -> TextSource:
        """The source of one file."""
        source = dataclasses.replace(self.source, patterns=(file.path,))
        if isinstance(file, ReadableFile) and file.compression != "auto":
            return dataclasses.replace(source, compression=file.compression)
        return source
