"""Text files, a line an element: `ReadFromText` and `WriteToText`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tidegate.io.byte_streams import DecodeErrors
from tidegate.io.compression import Compression
from tidegate.io.file_sink.sink import DEFAULT_TEMPLATE
from tidegate.io.output_names import NameTemplate, with_address, zone_of
from tidegate.io.text.sink import TextSink
from tidegate.io.text.source import TextSource
from tidegate.sdk.errors import BuildError, TypeCheckError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import Map, Read, Write
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.typehints.compatibility import clash
from tidegate.sdk.typehints.hints import type_name
from tidegate.sdk.typehints.signatures import signature_of
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.transforms.elementwise import MapValues

Path: TypeAlias = str | os.PathLike[str]


class ReadFromText(PTransform[Pipeline, PCollection[str]]):
    """The lines of text files, as `str`, without their line ends.

    `path` is a path, a pattern (`*`, `?`, `[…]`, `**`) or several of them: local (`~` allowed) or any URL that fsspec
    knows. Files are read in the order of the list, those of a pattern by name; a file that is named twice is read
    once. Relative paths are resolved where the pipeline runs.

    A line ends with `\\n` or `\\r\\n` and nothing else; the last one may lack its end. A byte order mark at the start
    of a file is not part of its first line.

    - `compression`: `"auto"` goes by the suffix (.gz, .bz2, .xz, .zst, .zip); or `"none"`, `"gzip"`, `"bz2"`, `"xz"`,
      `"zstd"`, `"zip"`. All members of a zip archive are read, in its order.
    - `skip_header_lines`: so many at the start of each file (and zip member) are left out.
    - `strip_trailing_newlines=False` keeps the line ends.
    - `encoding`, `errors`: `"strict"` fails at what can't be decoded, naming the line; `"replace"` puts U+FFFD there;
      `"ignore"` and `"backslashreplace"` as Python's.
    - `allow_empty`: a pattern without a file is no error.
    - `min_split_size`: plain files above it (in bytes) may be cut, so that several workers read them at once.

    Raises BuildError when applied, if a path matches nothing; ReadError when running, for what is broken.
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        compression: Compression = "auto",
        skip_header_lines: int = 0,
        strip_trailing_newlines: bool = True,
        encoding: str = "utf-8",
        errors: DecodeErrors = "strict",
        allow_empty: bool = False,
        min_split_size: int = 1 << 20,
        name: str | None = None,
    ) -> None:
        self.label = name
        self.source = TextSource(
            _paths(path),
            compression=compression,
            skip_header_lines=skip_header_lines,
            strip_trailing_newlines=strip_trailing_newlines,
            encoding=encoding,
            errors=errors,
            allow_empty=allow_empty,
            min_split_size=min_split_size,
        )

    def expand(self, input: Pipeline) -> PCollection[str]:
        return input | Read(self.source, name="Read")


class ReadFromTextWithFilename(PTransform[Pipeline, PCollection[tuple[str, str]]]):
    """As `ReadFromText`, with the same arguments; each element is `(file, line)`. The file is named as its pattern
    names it, a zip archive's member `archive.zip!member`."""

    def __init__(self, path: Path | Iterable[Path], *, name: str | None = None, **options: Any) -> None:
        self.label = name
        self.source = dataclasses.replace(ReadFromText(path, **options).source, with_filename=True)

    def expand(self, input: Pipeline) -> PCollection[tuple[str, str]]:
        return input | Read(self.source, name="Read")


class WriteToText(PTransform[PCollection[Any], None]):
    """Each element as a line: `str` as it is, `bytes` unchanged, anything else as `str(element)`.

    Files are named `file_path_prefix`, then the shard (`-00000-of-00003`), then `file_name_suffix`. They appear when
    the run has succeeded: until then everything is under `.tidegate-<run>/` beside them, so a failed run leaves what an
    earlier one wrote as it was. Success replaces it: files of the same prefix, template and suffix that this run did
    not write are removed, so that `prefix-*` is never a mixture of two runs. (Should the machine die, its
    `.tidegate-…` folder stays; it may be deleted when its run is over.)

    A stream removes none. On the streaming runner it writes files at each checkpoint,
    `<prefix>-<run>-<checkpoint><shard><suffix>`; on direct, which has no checkpoints, once, when it stops.

    - `num_shards`: how many files, some of them empty if need be; 0: one for each task that writes.
    - `shard_name_template`: runs of `S` become the shard's number, runs of `N` how many there are, in as many digits.
      `""` means one file with exactly the name `prefix + suffix`.
    - `header`, `footer`: a line at the start and the end of each file.
    - `compression`: `"auto"` goes by the file's name (.gz, .bz2, .xz, .zst); or `"none"`, `"gzip"`, `"bz2"`, `"xz"`,
      `"zstd"`.
    - `append_trailing_newlines=False`: elements follow each other directly.
    - `format`: a function of an element that gives its line, `str` or `bytes`; else the element is its own line.
    - `destination`: a function of an element, as it is before `format`, that gives a `str` (or `int`), which takes the
      place of `{destination}` in the prefix. `/` makes folders; what would lead out of them is an error that names the
      element.
    - `{window}` in the prefix is the element's window, as `20130101T000000Z-20130102T000000Z`; `{window:%Y-%m-%d}` its
      start in that format, `{window.end:%H%M}` its end; `global` in the global window. An element in several windows
      is in the files of each. `timezone` says in which zone they are written. The format's codes are those that
      Python documents for `strftime`. A literal brace is written `{{` or `}}`.

    Where prefixes differ, files of an earlier run are those listed in its `.tidegate-files-…` beside them.

    Raises BuildError when applied, if the folder can't be written to, or if another step of the pipeline writes the
    same files; WriteError when running.
    """

    def __init__(
        self,
        file_path_prefix: Path,
        file_name_suffix: str = "",
        *,
        num_shards: int = 0,
        shard_name_template: str = DEFAULT_TEMPLATE,
        header: str | None = None,
        footer: str | None = None,
        compression: Compression = "auto",
        append_trailing_newlines: bool = True,
        encoding: str = "utf-8",
        format: Callable[[Any], str | bytes] | None = None,
        destination: Callable[[Any], str | int] | None = None,
        timezone: str = "UTC",
        name: str | None = None,
    ) -> None:
        self.label = name
        if not shard_name_template and not num_shards:
            num_shards = 1
        if not isinstance(file_path_prefix, (str, os.PathLike)):
            raise BuildError(f"WriteToText takes a path, not {shorten(file_path_prefix)}")
        template = NameTemplate.of(os.fspath(file_path_prefix))
        if format is not None and not callable(format):
            raise BuildError(f"WriteToText: format is a function of an element, not {shorten(format)}")
        self.format = format
        self.address = with_address("WriteToText", template, destination, zone_of(timezone, "WriteToText"))
        self.sink = TextSink(
            template.prefix if template.placeholders else template.filled(()),
            file_name_suffix,
            num_shards=num_shards,
            template=shard_name_template,
            header=header,
            footer=footer,
            compression=compression,
            append_trailing_newlines=append_trailing_newlines,
            encoding=encoding,
            addressed=bool(template.placeholders),
        )

    def expand(self, input: PCollection[Any]) -> None:
        if self.format is not None:
            self._check_format(self.format, input)
        if self.sink.addressed:
            input = input | self.address
        if self.format is not None:
            step = MapValues if self.sink.addressed else Map
            input = input | step(line_of, self.format, name="Format")
        return input | Write(self.sink, name="Write")

    def _check_format(self, format: Callable[[Any], Any], input: PCollection[Any]) -> None:
        """Raise TypeCheckError where types tell that it can't take the elements, or gives no lines."""
        if not input.pipeline.checks_types:
            return
        signature = signature_of(format)
        self.check_input(input.element_type, signature.parameter(0), f"format={name_of(format)}")
        reason = clash(signature.result, str | bytes)
        if reason:
            raise TypeCheckError(
                f"format={name_of(format)} gives {type_name(signature.result)}, and a line is a str or bytes: {reason}"
            )


def line_of(element: Any, format: Callable[[Any], Any]) -> Any:
    """The line of an element. TypeError for what is none: `None`, say, of a function without `return`."""
    line = format(element)
    if not isinstance(line, str | bytes):
        raise TypeError(
            f"{name_of(format)} gave {shorten(line, 60)} as the line of an element, which is a str or bytes"
        )
    return line


def _paths(path: Path | Iterable[Path]) -> tuple[str, ...]:
    try:
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        return tuple(os.fspath(path) for path in paths)
    except TypeError:
        raise BuildError(f"ReadFromText takes a path, a pattern, or a list of them, not {shorten(path)}") from None
