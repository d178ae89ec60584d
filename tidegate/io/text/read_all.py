"""`ReadAllFromText`: the lines of files whose names are elements."""

from __future__ import annotations

import dataclasses
from typing import Any, Unpack

from tidegate.io.file_source.listing import FileMetadata
from tidegate.io.file_source.matching import ReadableFile, ReadAll
from tidegate.io.text.options import LineOptions, source_of
from tidegate.io.text.source import TextSource
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.steps.transform import PTransform


class ReadAllFromText(PTransform[PCollection[Any], PCollection[Any]]):
    """The lines of the files that each element names: a path, a pattern, or a file of `MatchFiles` or `ReadMatches`.

    Files are distributed over the workers, in no order. With `with_filename` each element is `(file, line)`. The other
    arguments are those of `ReadFromText`. Raises ReadError when running, if a path matches nothing.
    """

    def __init__(self, *, with_filename: bool = False, name: str | None = None, **options: Unpack[LineOptions]) -> None:
        self.label = name
        self.allow_empty = options.pop("allow_empty", False)
        self.source = source_of("ReadAllFromText", (), options, with_filename=with_filename)

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
