"""Files written in two phases: parts in a work folder, moved to their final names by the commit.

Each attempt writes its parts under `<folder>/.tidegate-<run>/<sink>/<attempt>/` (`attempt.py`). A part is complete: a
file of its format, which the commit moves or joins with others (`commit.py`).

With `addressed`, elements are `(address, value)` and the prefix is a template (`output_names.py`).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.io import files
from tidegate.io.file_sink.attempt import FileAttempt, Layout
from tidegate.io.file_sink.commit import FileCommit
from tidegate.io.file_sink.format import FileFormat
from tidegate.io.file_sink.output_files import OutputFiles, longest_ending
from tidegate.io.first_contact import check_writable
from tidegate.io.output_names import NameTemplate, check_lengths
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk import moved
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink
from tidegate.sdk.errors import BuildError, WriteError, shorten
from tidegate.sdk.time import DurationLike, duration_micros

DEFAULT_TEMPLATE: Final = "-SSSSS-of-NNNNN"


@dataclass(frozen=True, slots=True)
class FileSink(Sink[Any]):
    """Elements in files of some format.

    `num_shards` is 0 for one file for each writing task. A file is finished, and another one begun, when it has about
    `max_file_bytes` bytes or when an element arrives after `roll_interval` seconds; at the latest when the attempt is
    prepared.
    """

    prefix: str
    suffix: str
    format: FileFormat
    num_shards: int = 0
    template: str = DEFAULT_TEMPLATE
    addressed: bool = False
    max_file_bytes: int | None = None
    roll_interval: float | None = None
    storage_options: StorageOptions | None = None

    delivery = "exactly_once"

    def __getstate__(self) -> list[Any]:
        """The fields to pickle."""
        return moved.get_fields(self, 8)

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a pickled sink, also one that was stored before sinks had all of today's fields."""
        moved.set_fields(self, state)

    @property
    def name(self) -> str:
        return f"{self.format.name} {self.prefix}{self.template}{self.suffix}"

    @property
    def forks_safely(self) -> bool:  # type: ignore[override]
        return self._output().store.forks_safely

    def check(self) -> None:
        transform = self.format.transform
        if not self.prefix:
            raise BuildError(f"{transform}: there is no path to write to")
        if type(self.num_shards) is not int or self.num_shards < 0:
            raise BuildError(
                f"{transform}: num_shards is a whole number, 0 to leave it to the runner, not {self.num_shards!r}"
            )
        if self.num_shards != 1 and "S" not in self.template:
            raise BuildError(
                f"{transform}: with shard_name_template={self.template!r} all shards would have the same name: "
                "it needs an S, the shard's number, or num_shards=1"
            )
        for what, text in (("shard_name_template", self.template), ("file_name_suffix", self.suffix)):
            if "/" in text:
                raise BuildError(f"{transform}: {what}={text!r} may not have a '/': folders go into the prefix")
        self._check_rolling()
        try:
            if self.addressed:
                check_lengths(f"{NameTemplate.of(self.prefix).fixed_folder}/", 0)
            else:
                check_lengths(self.prefix, longest_ending(self.template, self.suffix))
        except ValueError as error:
            raise BuildError(f"{transform}: {error}") from error
        output = self._output()
        path = output.final(output.prefix, 0, 1)
        self.format.check(path)
        check_writable(output.store, output.folder)
        if not self.addressed and isinstance(output.store, files.Local) and os.path.isdir(path):
            raise BuildError(f"{transform}: can't write the file {path}: it is a folder")

    def local_folders(self) -> Sequence[str]:
        output = self._output()
        return [output.folder] if isinstance(output.store, files.Local) else []

    def writes(self) -> Hashable:
        return self._output().identity

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        output = self._output()
        layout = Layout(
            self.prefix, self.format, self.num_shards or 1, self.addressed, self.max_file_bytes, self.roll_interval
        )
        return FileAttempt(layout, lambda: self._output().store, output.work(run), task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> list[str]:
        try:
            return FileCommit(self._output(), self.format, self.num_shards, run).commit(committables, checkpoint)
        except WriteError:
            raise
        except Exception as error:  # a remote file system raises what it likes
            raise WriteError(f"{self.prefix}: the output can't be committed: {files.describe(error)}") from error

    def abort(self, run: str) -> None:
        try:
            self._output().remove_work(run)
        except Exception as error:
            raise WriteError(f"{self.prefix}: can't remove unfinished output: {files.describe(error)}") from error

    def _output(self) -> OutputFiles:
        return OutputFiles.of(
            self.prefix, self.template, self.suffix, addressed=self.addressed, options=self.storage_options
        )

    def _check_rolling(self) -> None:
        transform = self.format.transform
        size, interval = self.max_file_bytes, self.roll_interval
        if size is not None and (type(size) is not int or size < 1):
            raise BuildError(f"{transform}: max_file_bytes is a whole number of bytes from 1 on, not {size!r}")
        if interval is not None and not interval > 0:
            raise BuildError(f"{transform}: roll_interval is a length of time above 0, not {interval!r} seconds")
        if self.num_shards and (size is not None or interval is not None):
            raise BuildError(
                f"{transform}: num_shards={self.num_shards} fixes the number of files, and max_file_bytes= and "
                "roll_interval= begin new ones: leave one of them out"
            )


def rolling_seconds(interval: DurationLike | None, transform: str) -> float | None:
    """The seconds of an author's `roll_interval`. Raises BuildError for anything but a length of time."""
    if interval is None:
        return None
    try:
        return duration_micros(interval) / 1_000_000
    except (TypeError, ValueError) as error:
        raise BuildError(
            f"{transform}: roll_interval is a length of time in seconds, not {shorten(interval)}"
        ) from error
