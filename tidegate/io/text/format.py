"""The format of text files: a line for each element, and perhaps a header and a footer."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tidegate.io import compression as _compression
from tidegate.io.byte_streams import check_encoding
from tidegate.io.compression import Compression
from tidegate.io.file_sink.byte_stream import ByteStreamWriter, compressed, empty_stream
from tidegate.io.file_sink.format import FileFormat, FileWriter
from tidegate.sdk.errors import BuildError, WriteError, shorten

_BYTE_ORDER_MARKS: Final = {
    "utf-8-sig": ("utf-8", codecs.BOM_UTF8),
    "utf-16": ("utf-16-le", codecs.BOM_UTF16_LE),
    "utf-32": ("utf-32-le", codecs.BOM_UTF32_LE),
}


@dataclass(frozen=True, slots=True)
class TextFormat(FileFormat):
    """Elements as lines; see `WriteToText` for what the fields mean. The compression is never `auto`."""

    header: str | None = None
    footer: str | None = None
    compression: Compression = "none"
    append_trailing_newlines: bool = True
    encoding: str = "utf-8"

    name: ClassVar[str] = "text"
    transform: ClassVar[str] = "WriteToText"
    appends: ClassVar[bool] = True

    def check(self, path: str) -> None:
        check_encoding(self.encoding, self.transform)
        if self.compression == "zip":
            raise BuildError(f"{self.transform}: zip files are only read; write gzip, bz2, xz or zstd")
        _compression.check(self.compression, self.transform)
        for what, line in (("header", self.header), ("footer", self.footer)):
            try:
                (line or "").encode(self.encoding)
            except UnicodeEncodeError as error:
                raise BuildError(
                    f"{self.transform}: the {what} can't be written as {self.encoding}: {error}"
                ) from error

    def writers(self, sink: str) -> Callable[[], FileWriter]:
        encoding, _ = self._codec()
        head, foot = self._head(), self._foot()
        line_end = "\n" if self.append_trailing_newlines else ""
        return lambda: _TextWriter(head, foot, self.compression, sink, encoding, line_end)

    def empty(self) -> bytes:
        return empty_stream(self._head(), self._foot(), self.compression)

    def _codec(self) -> tuple[str, bytes]:
        """The encoding of lines, and the mark at the start of a file."""
        name = codecs.lookup(self.encoding).name
        return _BYTE_ORDER_MARKS.get(name, (name, b""))

    def _head(self) -> bytes:
        encoding, mark = self._codec()
        line = "" if self.header is None else self.header + "\n"
        return compressed(mark + line.encode(encoding), self.compression)

    def _foot(self) -> bytes:
        line = "" if self.footer is None else self.footer + "\n"
        return compressed(line.encode(self._codec()[0]), self.compression)


class _TextWriter(ByteStreamWriter):
    def __init__(
        self, head: bytes, foot: bytes, compression: Compression, sink: str, encoding: str, line_end: str
    ) -> None:
        super().__init__(head, foot, compression)
        self._sink = sink
        self._encoding = encoding
        self._line_end = line_end

    def encode(self, values: Sequence[Any]) -> bytes:
        end, encoding = self._line_end, self._encoding
        try:
            return (end.join(values) + end).encode(encoding)
        except TypeError:
            pass  # not all are strings
        except UnicodeEncodeError:
            pass  # find out which
        lines = []
        tail = end.encode(encoding)
        for value in values:
            try:
                lines.append(value if isinstance(value, bytes) else str(value).encode(encoding))
            except UnicodeEncodeError as error:
                raise WriteError(
                    f"{self._sink}: {shorten(value)} can't be written as {encoding}: {error.reason}. "
                    "encoding='utf-8' can write all but lone surrogates"
                ) from error
        return tail.join(lines) + tail
