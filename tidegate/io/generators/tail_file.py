"""`TailFile`: the lines of a local file that other programs append to, optionally across its rotation."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal, TypeAlias, Unpack

from tidegate.io.byte_streams import PIECE, DecodeErrors
from tidegate.io.generators.lines import MAX_LINE_BYTES, LineBuffer, check_lines
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import BuildError, PositionLost, ReadError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import Read, ReadOptions
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import SECOND, Duration, DurationLike

Rotation: TypeAlias = Literal["refuse", "follow"]
Start: TypeAlias = Literal["beginning", "end"]

_HEAD: Final = 256
"""The number of bytes at a file's beginning that identify it, with its inode, which a file system may reuse."""

_ROTATED: Final = re.compile(r"[.-](?P<suffix>[\dT._-]*\d)(?:\.(?:gz|bz2|xz|zst))?")
"""The suffixes of the names of rotated files: `.1`, `-20260131`, `.2.gz`."""

_PACKED: Final = (".gz", ".bz2", ".xz", ".zst")


class TailFile(PTransform[Pipeline, PCollection[str]]):
    """The lines of a file that other programs append to, each as soon as its line end has been written.

    The position is a byte offset, the file's inode and a checksum of its first bytes. A run that resumes on the
    streaming runner continues after the last line of its checkpoint, in the same file.

    - `rotation`: what happens if the file is truncated, or another file takes its place. `"refuse"` fails with
      PositionLost. `"follow"` reads the old file to its end, wherever in the folder it was renamed to (`app.log.1`,
      `app.log-20260131`), then those that were rotated after it, then the new one. A truncated file is read again from
      its beginning, with a warning, because lines may be lost. A rotated file that was deleted or compressed before it
      was read fails with PositionLost: rotate with a delay (`delaycompress`).
    - `start`: `"end"` leaves out the lines that the file has when the run begins.
    - `poll_interval`: how long to wait before the file is read again, if nothing was appended.
    - `allow_missing`: accept a file that does not exist yet.
    - `encoding`, `errors`: as in `ReadFromText`, for encodings in which a line ends with the byte 10, as in ASCII.
    - `max_line_bytes`: a longer line is an error.

    Other keyword arguments are those of `tg.Read`. For new files in a folder, `ReadFromText(pattern, follow=True)`.
    Raises BuildError for a path that can't be followed; ReadError when running, for bytes that can't be decoded.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rotation: Rotation = "refuse",
        start: Start = "beginning",
        poll_interval: DurationLike = 0.2,
        allow_missing: bool = False,
        encoding: str = "utf-8",
        errors: DecodeErrors = "strict",
        max_line_bytes: int = MAX_LINE_BYTES,
        name: str | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise BuildError(f"TailFile needs the path of one file, not {shorten(path)}")
        seconds = Duration.of(poll_interval).micros / SECOND
        if seconds <= 0:
            raise BuildError(f"TailFile: poll_interval must be positive, but is {poll_interval!r}")
        self.label = name
        source = TailSource(
            os.path.expanduser(os.fspath(path)),
            rotation,
            start,
            seconds,
            allow_missing,
            encoding,
            errors,
            max_line_bytes,
        )
        self.read: Read[str] = Read(source, name="Read", **options)

    def expand(self, input: Pipeline) -> PCollection[str]:
        return input | self.read


@dataclass(frozen=True)
class TailSource(Source[str]):
    """See `TailFile` for what the fields mean; `poll_interval` is in seconds."""

    path: str
    rotation: Rotation = "refuse"
    start: Start = "beginning"
    poll_interval: float = 0.2
    allow_missing: bool = False
    encoding: str = "utf-8"
    errors: DecodeErrors = "strict"
    max_line_bytes: int = MAX_LINE_BYTES

    bounded = False

    @property
    def name(self) -> str:
        return f"tail of {self.path}"

    @property
    def element_type(self) -> type[str]:
        return str

    def check(self) -> None:
        check_lines("TailFile", self.encoding, self.errors, self.max_line_bytes)
        for what, value, choices in (
            ("rotation", self.rotation, ("refuse", "follow")),
            ("start", self.start, ("beginning", "end")),
        ):
            if value not in choices:
                raise BuildError(f"TailFile: {what} is {' or '.join(map(repr, choices))}, not {value!r}")
        if "://" in self.path:
            raise BuildError(f"TailFile follows a file of the local file system, which {self.path} is not")
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            if self.allow_missing:
                return
            raise BuildError(
                f"TailFile: there is no file {self.path}. If it may appear later, say allow_missing=True; new files in "
                "a folder are read by ReadFromText(pattern, follow=True)"
            ) from None
        except OSError as error:
            raise BuildError(f"TailFile: {self.path}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            kind = (
                "a folder: its files are read by ReadFromText(pattern, follow=True)" if _is_dir(status) else "no file"
            )
            raise BuildError(f"TailFile: {self.path} is {kind}")

    def local_files(self) -> Sequence[str]:
        return [os.path.abspath(self.path)]

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Position = None) -> Reader[str]:
        return _TailReader(self, position)


class _TailReader(Reader[str]):
    """Opens its file when it is made, so that its position names a file from the start.

    The position is `[offset, inode, n, crc]`: the CRC-32 of the first `n` bytes. An inode of None is a file that was
    not there yet.
    """

    def __init__(self, source: TailSource, position: Position) -> None:
        self._source = source
        self._file: BinaryIO | None = None
        self._inode: int | None = None
        self._head = (0, 0)
        self._buffer = self._new_buffer(0)
        self._size_when_replaced: int | None = None
        """The file's size at the look that found another file in its place."""
        offset, inode, *head = position or (0, None, 0, 0)
        if inode is not None:
            try:
                self._resume(offset, inode, (head[0], head[1]))
            except BaseException:
                self.close()
                raise
        elif self._open(source.path) and position is None and source.start == "end":
            assert self._file is not None
            self._buffer = self._new_buffer(_after_last_line(self._file))

    def read(self, limit: int) -> Batch:
        if self._file is None and not self._open(self._source.path):
            return self._nothing()
        if not self._buffer.has_line:
            data = self._pread(PIECE)
            if not data:
                return self._look()
            self._size_when_replaced = None
            self._buffer.add(data)
        return Batch(Block.of(self._buffer.take(limit)))

    def position(self) -> Position:
        offset = self._buffer.consumed
        if self._file is not None and self._head[0] < min(offset, _HEAD):
            self._head = _head_of(self._file, min(offset, _HEAD))
        return [offset, self._inode, *self._head]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _look(self) -> Batch:
        """What became of a file that has been read to its end."""
        assert self._file is not None
        source, read = self._source, self._buffer.consumed + len(self._buffer)
        status = os.fstat(self._file.fileno())
        if status.st_size < read or _head_of(self._file, self._head[0]) != self._head:
            self._restart(f"was truncated: it has {status.st_size:,} bytes, and {read:,} had been read")
            return self._nothing()
        there = _status(source.path)
        if there is not None and there.st_ino == self._inode:
            return self._nothing()
        if source.rotation == "refuse":
            raise self._lost("was renamed or removed" if there is None else "is another file now")
        if there is None or self._size_when_replaced != status.st_size:
            # Whoever writes may still have the old file open: it has ended when two looks find the same size.
            self._size_when_replaced = None if there is None else status.st_size
            return self._nothing()
        lines = self._buffer.take_rest()
        following = _successor(source.path, self._inode, status.st_mtime_ns)
        self._check_readable(following)
        self._open(following)
        return Batch(Block.of(lines))

    def _nothing(self) -> Batch:
        return Batch(Block.of([]), wait=self._source.poll_interval)

    def _pread(self, size: int) -> bytes:
        assert self._file is not None
        try:
            return os.pread(self._file.fileno(), size, self._buffer.consumed + len(self._buffer))
        except OSError as error:
            raise ReadError(f"{self._source.path}: can't be read: {error.strerror}") from error

    def _open(self, path: str) -> bool:
        """Open a file at its start; False if there is none."""
        try:
            file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ReadError(f"{path}: can't be opened: {error.strerror}") from error
        self.close()
        self._file = file
        self._inode = os.fstat(file.fileno()).st_ino
        self._head = (0, 0)
        self._buffer = self._new_buffer(0)
        self._size_when_replaced = None
        return True

    def _resume(self, offset: int, inode: int, head: tuple[int, int]) -> None:
        """Open the file of a position, wherever it has been renamed to, at the position's offset."""
        path = self._source.path
        candidates = [path] if self._source.rotation == "refuse" else [path, *_rotated(path)]
        for candidate in candidates:
            status = _status(candidate)
            if status is not None and status.st_ino == inode and self._open(candidate):
                assert self._file is not None
                if _head_of(self._file, head[0]) == head:
                    if status.st_size < offset:
                        self._restart(f"was truncated: it has {status.st_size:,} bytes, and {offset:,} had been read")
                    else:
                        self._buffer, self._head = self._new_buffer(offset), head
                    return
                self.close()
        if self._source.rotation == "refuse":
            raise self._lost("is no longer there" if _status(path) is None else "is another file now", offset)
        raise self._lost("is not in its folder any more, under no rotated name", offset)

    def _restart(self, what: str) -> None:
        """Read a truncated file from its beginning again, if the author said so."""
        if self._source.rotation == "refuse":
            raise self._lost(what)
        _logger().warning(
            "%s %s. It is read from its beginning; lines written before it was truncated may be lost",
            self._source.path,
            what,
        )
        self._buffer, self._head = self._new_buffer(0), (0, 0)

    def _check_readable(self, path: str) -> None:
        if path != self._source.path and path.endswith(_PACKED):
            raise PositionLost(
                f"{path} was rotated and compressed before it was read. Rotate with a delay before compressing "
                "(delaycompress), or decompress it so that the run can go on"
            )

    def _lost(self, what: str, offset: int | None = None) -> PositionLost:
        advice = "" if self._source.rotation == "follow" else ". If it is rotated, say rotation='follow'"
        offset = self._buffer.consumed if offset is None else offset
        return PositionLost(f"{self._source.path} {what}, after it had been read to byte {offset:,}{advice}")

    def _new_buffer(self, consumed: int) -> LineBuffer:
        source = self._source
        return LineBuffer(source.encoding, source.errors, source.max_line_bytes, source.path, consumed)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_dir(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode)


def _head_of(file: BinaryIO, size: int) -> tuple[int, int]:
    """The CRC-32 of a file's first `size` bytes, or of all of them if there are fewer, and how many it covers."""
    data = os.pread(file.fileno(), size, 0) if size else b""
    return len(data), zlib.crc32(data)


def _after_last_line(file: BinaryIO) -> int:
    """The offset behind the last line end of a file; 0 if there is none."""
    end = os.fstat(file.fileno()).st_size
    while end:
        start = max(0, end - PIECE)
        at = os.pread(file.fileno(), end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _rotated(path: str) -> list[str]:
    """The files in the folder whose names are those of rotated predecessors."""
    folder, base = os.path.split(path)
    names = [name for name in os.listdir(folder or ".") if name.startswith(base)]
    return [os.path.join(folder, name) for name in names if _ROTATED.fullmatch(name[len(base) :])]


def _successor(path: str, inode: int | None, modified: int) -> str:
    """The file that was begun after the one with this inode, which was last written at `modified` (ns)."""
    found = []
    for candidate in _rotated(path):
        status = _status(candidate)
        if status is not None:
            found.append((status.st_mtime_ns, _age(candidate.removeprefix(path)), candidate, status.st_ino))
    found.sort()
    inodes = [entry[3] for entry in found]
    later = found[inodes.index(inode) + 1 :] if inode in inodes else [entry for entry in found if entry[0] > modified]
    # A compressed copy has its original's time.
    return next((entry[2] for entry in later if entry[0] > modified or not entry[2].endswith(_PACKED)), path)


def _age(suffix: str) -> tuple[int, str]:
    """What orders rotated files that were last written at the same time: `.2` is older than `.1`, dates ascend."""
    found = _ROTATED.fullmatch(suffix)
    assert found is not None
    number = found["suffix"]
    return (-int(number), "") if number.isdecimal() and len(number) < 6 else (0, number)


def _logger() -> Any:
    import logging

    return logging.getLogger("tidegate")
