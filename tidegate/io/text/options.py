"""The keyword arguments that the readers of text have in common, and what they mean for a source of lines."""

from __future__ import annotations

from typing import Final, TypedDict

from tidegate.io.byte_streams import DecodeErrors
from tidegate.io.compression import Compression
from tidegate.io.file_source.following import FollowOptions, follow_of
from tidegate.io.storage_options import StorageOptions, options_of
from tidegate.io.text.source import TextSource
from tidegate.sdk.primitives import ReadOptions
from tidegate.sdk.primitives.io import DEFAULTS as DEFAULTS_OF_READ


class LineOptions(TypedDict, total=False):
    """How files are divided into lines; `ReadFromText` explains the arguments."""

    compression: Compression
    skip_header_lines: int
    strip_trailing_newlines: bool
    encoding: str
    errors: DecodeErrors
    allow_empty: bool
    storage_options: StorageOptions | None


class TextOptions(LineOptions, FollowOptions, ReadOptions, total=False):
    """How the files of a pattern are read, and which times their lines get."""

    min_split_size: int


DEFAULTS: Final[TextOptions] = {
    "compression": "auto",
    "skip_header_lines": 0,
    "strip_trailing_newlines": True,
    "encoding": "utf-8",
    "errors": "strict",
    "allow_empty": False,
    "storage_options": None,
    "min_split_size": 1 << 20,
    "follow": False,
    "poll_interval": 1.0,
    "min_age": None,
    **DEFAULTS_OF_READ,
}
"""The defaults of all arguments."""


def source_of(of: str, paths: tuple[str, ...], options: LineOptions, *, with_filename: bool) -> TextSource:
    """The source that reads these files, as the arguments of the transform `of` say. Raises BuildError for storage
    options and durations that make no sense; `TextSource.check_options` checks the other arguments."""
    given: TextOptions = {**DEFAULTS, **options}
    return TextSource(
        paths,
        compression=given["compression"],
        skip_header_lines=given["skip_header_lines"],
        strip_trailing_newlines=given["strip_trailing_newlines"],
        encoding=given["encoding"],
        errors=given["errors"],
        allow_empty=given["allow_empty"],
        min_split_size=given["min_split_size"],
        with_filename=with_filename,
        follow=follow_of(given, of),
        storage_options=options_of(given["storage_options"], paths, of),
    )
