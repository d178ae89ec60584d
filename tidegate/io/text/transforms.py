"""Reading and writing text files line by line: `ReadFromText` and `WriteToText`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any, Unpack

from tidegate.io.compression import Compression
from tidegate.io.file_sink.output_files import longest_ending
from tidegate.io.file_sink.sink import DEFAULT_TEMPLATE, FileSink, rolling_seconds
from tidegate.io.file_source.listing import Path, paths_of
from tidegate.io.output_names import NameTemplate, check_windows, with_address, zone_of
from tidegate.io.storage_options import StorageOptions, options_of
from tidegate.io.text.options import TextOptions, source_of
from tidegate.io.text.sink import TextSink
from tidegate.sdk.errors import BuildError, TypeCheckError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import Map, Read, Write, read_options
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import DurationLike
from tidegate.sdk.typehints.compatibility import clash
from tidegate.sdk.typehints.hints import type_name
from tidegate.sdk.typehints.signatures import signature_of
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.transforms.elementwise import MapValues


class ReadFromText(PTransform[Pipeline, PCollection[str]]):
    """Reads the lines of text files, as `str` without line ends.

    `path` is a path, a pattern (`*`, `?`, `[…]`, `**`) or several of them: local (`~` allowed), or any URL that fsspec
    supports. Files are read in the order of the list, and those of a pattern in the order of their names; a file that
    several patterns match is read once. Relative paths are resolved where the pipeline runs.

    A line ends with `\\n` or `\\r\\n` and nothing else; the last line of a file needs no end. A byte order mark at the
    start of a file is not part of its first line.

    - `compression`: `"auto"` to choose by the suffix (.gz, .bz2, .xz, .zst, .zip), or `"none"`, `"gzip"`, `"bz2"`,
      `"xz"`, `"zstd"`, `"zip"`. All members of a zip archive are read, in the order of the archive.
    - `skip_header_lines`: how many lines to skip at the start of each file (and zip member).
    - `strip_trailing_newlines=False` leaves line ends on the lines.
    - `encoding`; `errors`: what to do with bytes that can't be decoded. `"strict"` fails and names the line,
      `"replace"` inserts U+FFFD, and `"ignore"` and `"backslashreplace"` mean what they mean in Python.
    - `allow_empty`: accept a path or pattern that matches no file.
    - `min_split_size`: uncompressed files larger than this (in bytes) may be split among workers.
    - `follow=True`: look for new files every `poll_interval`, and read each of them once, also after a restart on the
      streaming runner. A file is read when it is `min_age` old (2 s; at once in object stores, which show only whole
      files) and has not changed between two looks. A file that changes after it was read is not read again, but logged
      and counted as `files_changed`. The elements are unbounded.
    - `storage_options`: arguments for the file system of a URL, as fsspec takes them: `{"endpoint_url": "…"}`. Secrets
      among them are `pydantic.SecretStr`, or references such as `"${NAME}"` to environment variables.

    Other keyword arguments are those of `tg.Read`.

    Raises BuildError when applied, if a path matches nothing; at run time, ReadError for a file that can't be read.
    """

    def __init__(self, path: Path | Iterable[Path], *, name: str | None = None, **options: Unpack[TextOptions]) -> None:
        self.label = name
        self.source = source_of("ReadFromText", paths_of(path, "ReadFromText"), options, with_filename=False)
        self.read: Read[str] = Read(self.source, name="Read", **read_options(options))

    def expand(self, input: Pipeline) -> PCollection[str]:
        return input | self.read


class ReadFromTextWithFilename(PTransform[Pipeline, PCollection[tuple[str, str]]]):
    """Like `ReadFromText`, with the same arguments, but each element is `(file, line)`. The file is a path or URL in
    the form of its pattern; a member of a zip archive is `archive.zip!member`."""

    def __init__(self, path: Path | Iterable[Path], *, name: str | None = None, **options: Unpack[TextOptions]) -> None:
        self.label = name
        of = "ReadFromTextWithFilename"
        self.source = source_of(of, paths_of(path, of), options, with_filename=True)
        self.read: Read[tuple[str, str]] = Read(self.source, name="Read", **read_options(options))

    def expand(self, input: Pipeline) -> PCollection[tuple[str, str]]:
        return input | self.read


class WriteToText(PTransform[PCollection[Any], None]):
    """Writes each element as a line of text: `str` and `bytes` unchanged, anything else as `str(element)`.

    The name of a file is `file_path_prefix`, the shard (`-00000-of-00003`) and `file_name_suffix`. Files become visible
    when the run succeeds. Until then they are under `.tidegate-<run>/` in the same folder, so a failed run doesn't
    change the output of an earlier one. A successful run replaces that output: it also removes files of the same
    prefix, template and suffix that it did not write, so that `prefix-*` never mixes two runs. (If the machine
    crashes, the `.tidegate-…` folder remains; you may delete it when its run is over.)

    A stream removes no files. On the streaming runner, it writes files at each checkpoint, named
    `<prefix>-<run>-<checkpoint><shard><suffix>`; on the direct runner, which has no checkpoints, when it stops.

    - `num_shards`: the number of files, some of which may be empty; 0 for one file per writing task.
    - `shard_name_template`: `SSS` stands for the shard's number, `NNN` for the number of shards, each with as many
      digits as it has letters. `""` means a single file named `prefix + suffix`.
    - `header`, `footer`: a line at the start and the end of each file.
    - `compression`: `"auto"` to choose by the file's name (.gz, .bz2, .xz, .zst), or `"none"`, `"gzip"`, `"bz2"`,
      `"xz"`, `"zstd"`.
    - `append_trailing_newlines=False`: write elements without line ends.
    - `format`: a function from an element to its line, a `str` or `bytes`. By default, the element itself is the line.
    - `destination`: a function from an element (before `format`) to the `str` or `int` that replaces `{destination}`
      in the prefix. `/` creates folders; a destination outside the output folder is an error that names the element.
    - `{window}` in the prefix stands for the element's window, as in `20130101T000000Z-20130102T000000Z`;
      `{window:%Y-%m-%d}` for its start in that format, and `{window.end:%H%M}` for its end. The global window is
      `global`, and has no times to format. An element in several windows is written to the files of each. Times are in
      the zone `timezone`, and formats have the codes that Python documents for `strftime`. A literal brace is written
      `{{` or `}}`.
    - `max_file_bytes`: begins a new file when the current one has about this size. Where lines are of similar size, a
      file ends between nine tenths and nine eighths of it; a compressor adds what it holds back, at most 128 KiB (bz2:
      900 kB).
    - `storage_options`: arguments for the file system of a URL, as for `ReadFromText`.
    - `roll_interval` (seconds): an element that arrives when the current file is this old begins a new one. By default,
      a file ends with the run or the checkpoint.

    A prefix with `{destination}` or `{window}` does not identify an earlier run's files; they are listed in a file
    `.tidegate-files-…` in the output folder.

    Raises BuildError when applied, if the folder isn't writable, or if another step of the pipeline writes the same
    files; WriteError at run time.
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
        max_file_bytes: int | None = None,
        roll_interval: DurationLike | None = None,
        storage_options: StorageOptions | None = None,
        name: str | None = None,
    ) -> None:
        self.label = name
        if not shard_name_template and not num_shards:
            num_shards = 1
        if not isinstance(file_path_prefix, (str, os.PathLike)):
            raise BuildError(f"WriteToText takes a path, not {shorten(file_path_prefix)}")
        self.template = template = NameTemplate.of(os.fspath(file_path_prefix))
        if format is not None and not callable(format):
            raise BuildError(f"WriteToText: format is a function of an element, not {shorten(format)}")
        self.format = format
        self.address = with_address(
            "WriteToText",
            template,
            destination,
            zone_of(timezone, "WriteToText"),
            ending=longest_ending(shard_name_template, file_name_suffix),
        )
        sink = TextSink(
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
            storage_options=options_of(storage_options, [os.fspath(file_path_prefix)], "WriteToText"),
        )
        self.sink: TextSink | FileSink = sink
        if max_file_bytes is not None or roll_interval is not None:
            seconds = rolling_seconds(roll_interval, "WriteToText")
            self.sink = dataclasses.replace(sink.files(), max_file_bytes=max_file_bytes, roll_interval=seconds)

    def expand(self, input: PCollection[Any]) -> None:
        if self.format is not None:
            self._check_format(self.format, input)
        if self.sink.addressed:
            check_windows("WriteToText", self.template, input.windowing)
            input = input | self.address
        if self.format is not None:
            step = MapValues if self.sink.addressed else Map
            input = input | step(line_of, self.format, name="Format")
        return input | Write(self.sink, name="Write")

    def _check_format(self, format: Callable[[Any], Any], input: PCollection[Any]) -> None:
        """Raise TypeCheckError if the function can't accept elements of this type or doesn't return lines."""
        if not input.pipeline.checks_types:
            return
        signature = signature_of(format)
        self.check_input(input.element_type, signature.parameter(0), f"format={name_of(format)}")
        reason = clash(signature.result, str | bytes)
        if reason:
            raise TypeCheckError(
                f"format={name_of(format)} returns {type_name(signature.result)}, "
                f"but a line is a str or bytes: {reason}"
            )


def line_of(element: Any, format: Callable[[Any], Any]) -> Any:
    """The line of an element. Raises TypeError if `format` returned something else, such as None for want of a
    `return`."""
    line = format(element)
    if not isinstance(line, str | bytes):
        raise TypeError(
            f"{name_of(format)} returned {shorten(line, 60)} as the line of an element, which must be a str or bytes"
        )
    return line
