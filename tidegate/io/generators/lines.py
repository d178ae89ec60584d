"""Lines out of bytes that arrive in pieces."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from tidegate.sdk.errors import BuildError, ReadError

DecodeErrors: TypeAlias = Literal["strict", "replace", "ignore", "backslashreplace"]

PIECE: Final = 1 << 17
"""Bytes that are read at a time."""

MAX_LINE_BYTES: Final = 1 << 26
"""The default of the longest line: 64 MiB."""


class LineBuffer:
    r"""The bytes that have arrived, of which whole lines are taken.

    >>> buffer = LineBuffer("utf-8", "strict", 1000, "a.log")
    >>> buffer.add(b"one\r\ntwo\nthr")
    >>> buffer.take(10), buffer.consumed
    (['one', 'two'], 9)
    >>> buffer.take_rest()
    ['thr']
    """

    def __init__(self, encoding: str, errors: DecodeErrors, max_line_bytes: int, name: str, consumed: int = 0) -> None:
        self.consumed = consumed
        """How many bytes the lines taken so far had, with their line ends."""
        self._encoding = encoding
        self._errors = errors
        self._max_line_bytes = max_line_bytes
        self._name = name
        self._pieces: list[bytes] = []
        self._size = 0
        self._has_line = False

    def __len__(self) -> int:
        """How many bytes have arrived and are in no line that was taken."""
        return self._size

    @property
    def has_line(self) -> bool:
        """Whether a line is complete."""
        return self._has_line

    def add(self, data: bytes) -> None:
        """Append what has arrived. Raises ReadError for a line that is too long."""
        self._pieces.append(data)
        self._size += len(data)
        self._has_line = self._has_line or b"\n" in data
        if not self._has_line and self._size > self._max_line_bytes:
            raise ReadError(
                f"{self._name}: the line at byte {self.consumed:,} has no end within {self._max_line_bytes:,} bytes. "
                "If lines may be so long, raise max_line_bytes"
            )

    def take(self, limit: int) -> list[str]:
        """Up to `limit` whole lines, without their line ends. Raises ReadError for bytes that can't be decoded."""
        if not self._has_line:
            return []
        data = b"".join(self._pieces)
        rest = data.split(b"\n", limit)[-1] if data.count(b"\n") > limit else data[data.rfind(b"\n") + 1 :]
        lines = self._decoded(data[: len(data) - len(rest)])
        self._keep(rest)
        return lines[:-1]

    def take_rest(self) -> list[str]:
        """The last line, which has no line end, if there is one."""
        lines = self._decoded(b"".join(self._pieces)) if self._size else []
        self._keep(b"")
        return lines

    def clear(self) -> None:
        """Forget what has arrived and is in no line that was taken."""
        self._pieces, self._size, self._has_line = [], 0, False

    def _keep(self, rest: bytes) -> None:
        self.consumed += self._size - len(rest)
        self._pieces, self._size, self._has_line = ([rest] if rest else []), len(rest), b"\n" in rest

    def _decoded(self, data: bytes) -> list[str]:
        try:
            text = data.decode(self._encoding, self._errors)
        except UnicodeDecodeError as error:
            bad = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end][:4])
            raise ReadError(
                f"{self._name}, byte {self.consumed + error.start:,}: {bad} is not {self._encoding}. If the lines are "
                "in another encoding, say so with encoding=…; errors='replace' puts U+FFFD in the place of what can't "
                "be decoded"
            ) from error
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        return text.split("\n")


def check_lines(of: str, encoding: str, errors: str, max_line_bytes: int) -> None:
    """Raise BuildError for arguments by which lines can't be decoded."""
    try:
        ends_lines = "\n".encode(encoding) == b"\n"
    except (LookupError, TypeError):
        raise BuildError(f"{of}: {encoding!r} is not an encoding that Python knows; 'utf-8' is the usual one") from None
    if not ends_lines:
        raise BuildError(f"{of}: lines in {encoding} can't be told apart as they arrive: they don't end with byte 0x0a")
    choices = ("strict", "replace", "ignore", "backslashreplace")
    if errors not in choices:
        raise BuildError(f"{of}: errors is one of {', '.join(map(repr, choices))}, not {errors!r}")
    if type(max_line_bytes) is not int or max_line_bytes < 1:
        raise BuildError(f"{of}: max_line_bytes is a whole number from 1 on, not {max_line_bytes!r}")
