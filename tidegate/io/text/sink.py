"""The sink of text files: a sink of files whose format is text."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.io import compression as _compression
from tidegate.io.compression import Compression
from tidegate.io.file_sink.output_files import OutputFiles
from tidegate.io.file_sink.sink import DEFAULT_TEMPLATE, FileSink
from tidegate.io.storage_options import StorageOptions
from tidegate.io.text.format import TextFormat
from tidegate.sdk import moved
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink


@dataclass(frozen=True, slots=True)
class TextSink(Sink[Any]):
    """Elements as lines of text files; see `WriteToText` for what the fields mean.

    Compiled pipelines store the values of these fields in this order.
    """

    prefix: str
    suffix: str = ""
    num_shards: int = 0
    template: str = DEFAULT_TEMPLATE
    header: str | None = None
    footer: str | None = None
    compression: Compression = "auto"
    append_trailing_newlines: bool = True
    encoding: str = "utf-8"
    addressed: bool = False
    storage_options: StorageOptions | None = None

    delivery = "exactly_once"

    def __getstate__(self) -> list[Any]:
        """The fields to pickle."""
        return moved.get_fields(self, 10)

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a pickled sink, also one that was stored before sinks had all of today's fields."""
        moved.set_fields(self, state)

    @property
    def name(self) -> str:
        return self.files().name

    @property
    def forks_safely(self) -> bool:  # type: ignore[override]
        return self.files().forks_safely

    def check(self) -> None:
        self.files().check()

    def local_folders(self) -> Sequence[str]:
        return self.files().local_folders()

    def writes(self) -> Hashable:
        return self.files().writes()

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        return self.files().attempt(run, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> list[str]:
        return self.files().commit(run, committables, checkpoint)

    def abort(self, run: str) -> None:
        self.files().abort(run)

    def files(self) -> FileSink:
        """The same output as a sink of files."""
        options = self.storage_options
        output = OutputFiles.of(self.prefix, self.template, self.suffix, addressed=self.addressed, options=options)
        used = _compression.of_path(output.final(self.prefix, 0, 1), self.compression)
        text = TextFormat(self.header, self.footer, used, self.append_trailing_newlines, self.encoding)
        return FileSink(
            self.prefix, self.suffix, text, self.num_shards, self.template, self.addressed, storage_options=options
        )
