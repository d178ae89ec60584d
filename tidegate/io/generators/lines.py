"""A buffer that splits bytes into lines as they arrive."""

from __future__ import annotations

from typing import Final

from tidegate.io.byte_streams import DecodeErrors, check_encoding
from tidegate.sdk.errors import BuildError, ReadError

MAX_LINE_BYTES: Final = 1 << 26
"""The default of the maximum length of a line: 64 MiB."""


class LineBuffer:
    r"""Buffers bytes, and returns complete lines.

    >>> buffer = LineBuffer("utf-8", "strict", 1000, "a.log")
    >>> buffer.add(b"one\r\ntwo\nthr")
    >>> buffer.take(10), buffer.consumed
    (['one', 'two'], 9)
    >>> buffer.take_rest()
    ['thr']
    """

    def __init__(self, encoding: str, errors: DecodeErrors, max_line_bytes: int, name: str, consumed: int = 0) -> None:
        self.consumed = consumed
        """The number of bytes in the lines that have been returned, with their line ends."""
        self._encoding = encoding
        self._errors = errors
        self._max_line_bytes = max_line_bytes
        self._name = name
        self._pieces: list[bytes] = []
        self._size = 0
        self._has_line = False

    def __len__(self) -> int:
        """The number of buffered bytes."""
        return self._size

    @property
    def has_line(self) -> bool:
        """Whether the buffer contains a complete line."""
        return self._has_line

    def add(self, data: bytes) -> None:
        """Append bytes to the buffer. Raises ReadError for a line that is too long."""
        self._pieces.append(data)
        self._size += len(data)
        self._has_line = self._has_line or b"\n" in data
        if not self._has_line and self._size > self._max_line_bytes:
            raise ReadError(
                f"{self._name}: the line at byte {self.consumed:,} has no end within {self._max_line_bytes:,} bytes. "
                "If lines may be so long, raise max_line_bytes"
            )

    def take(self, limit: int) -> list[str]:
        """Remove and return up to `limit` complete lines, without line ends. Raises ReadError for bytes that can't be
        decoded."""
        if not self._has_line:
            return []
        data = b"".join(self._pieces)
        rest = data.split(b"\n", limit)[-1] if data.count(b"\n") > limit else data[data.rfind(b"\n") + 1 :]
        lines = self._decoded(data[: len(data) - len(rest)])
        self._retain(rest)
        return lines[:-1]

    def take_rest(self) -> list[str]:
        """Remove and return the last line, which has no line end; [] if the buffer is empty."""
        lines = self._decoded(b"".join(self._pieces)) if self._size else []
        self._retain(b"")
        return lines

    def clear(self) -> None:
        """Discard the buffered bytes."""
        self._pieces, self._size, self._has_line = [], 0, False

    def _retain(self, rest: bytes) -> None:
        self.consumed += self._size - len(rest)
        self._pieces, self._size, self._has_line = ([rest] if rest else []), len(rest), b"\n" in rest

    def _decoded(self, data: bytes) -> list[str]:
        try:
            text = data.decode(self._encoding, self._errors)
        except UnicodeDecodeError as error:
            invalid = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end][:4])
            raise ReadError(
                f"{self._name}, byte {self.consumed + error.start:,}: {invalid} is not valid {self._encoding}. If the "
                "lines are in another encoding, pass encoding=…; errors='replace' replaces bytes that can't be decoded "
                "by U+FFFD"
            ) from error
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        return text.split("\n")


def check_lines(of: str, encoding: str, errors: str, max_line_bytes: int) -> None:
    """Raise BuildError, naming the transform `of`, for arguments with which lines can't be split or decoded."""
    check_encoding(encoding, of)
    if "\n".encode(encoding) != b"\n":
        raise BuildError(f"{of}: lines in {encoding} can't be split as they arrive: they don't end with the byte 0x0a")
    choices = ("strict", "replace", "ignore", "backslashreplace")
    if errors not in choices:
        raise BuildError(f"{of}: errors is one of {', '.join(map(repr, choices))}, not {errors!r}")
    if type(max_line_bytes) is not int or max_line_bytes < 1:
        raise BuildError(f"{of}: max_line_bytes must be a whole number of at least 1, not {max_line_bytes!r}")
