"""Streams of gzip, bzip2, xz and zstandard, for reading and writing, and of zip archives, for reading.

Except for zip, a file may contain several compressed streams; decompressed, it is their concatenation. Sinks rely on
this to join files without decompressing them.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO, Final, Literal, TypeAlias, cast

from tidegate.sdk.errors import BuildError

Compression: TypeAlias = Literal["auto", "none", "gzip", "bz2", "xz", "zstd", "zip"]

_SUFFIXES: Final[dict[str, Compression]] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".zip": "zip",
}
_NAMES: Final = ("auto", "none", *dict.fromkeys(_SUFFIXES.values()))


def of_path(path: str, compression: Compression) -> Compression:
    """The compression of a path: that of its suffix if `compression` is `auto`, and else `compression`."""
    if compression != "auto":
        return compression
    lower = path.lower()
    return next((found for suffix, found in _SUFFIXES.items() if lower.endswith(suffix)), "none")


def check(compression: str, of: str) -> None:
    """Raise BuildError, naming the transform `of`, for an unknown compression or one whose module is missing."""
    if compression not in _NAMES:
        raise BuildError(f"{of}: compression is one of {', '.join(map(repr, _NAMES))}, not {compression!r}")
    module = {"zstd": "zstandard", "gzip": "zlib", "bz2": "bz2", "xz": "lzma", "zip": "zlib"}.get(compression)
    if module is None:
        return
    try:
        import_module(module)
    except ImportError:
        advice = "pip install 'tidegate[zstd]'" if compression == "zstd" else "this Python was built without it"
        raise BuildError(f"{of}: {compression} needs the module {module}: {advice}") from None


def decompressing(file: BinaryIO, compression: Compression) -> BinaryIO:
    """A stream of an open file's decompressed bytes. The caller closes the file. Corrupt data raises one of the
    exceptions in `broken()`."""
    if compression == "none":
        return file
    return cast(BinaryIO, io.BufferedReader(_Decompressed(file, _decompressor(compression)), 1 << 16))


def compressor(compression: Compression) -> Any:
    """A new object with `compress(data)` and `flush()`. Its output depends on the data alone: it has no timestamp and
    no file name."""
    match compression:
        case "gzip":
            import zlib

            return zlib.compressobj(6, zlib.DEFLATED, 31)
        case "bz2":
            import bz2

            return bz2.BZ2Compressor()
        case "xz":
            import lzma

            return lzma.LZMACompressor()
        case "zstd":
            import zstandard

            return zstandard.ZstdCompressor().compressobj()
    return _Plain()


def zip_members(file: BinaryIO) -> list[tuple[str, int]]:
    """The files in a zip archive with their uncompressed sizes, in the order of the archive."""
    import zipfile

    with zipfile.ZipFile(file) as archive:
        return [(info.filename, info.file_size) for info in archive.infolist() if not info.is_dir()]


def zip_member(file: BinaryIO, name: str) -> BinaryIO:
    """A stream of one file's decompressed bytes. The caller closes the archive."""
    import zipfile

    return cast(BinaryIO, zipfile.ZipFile(file).open(name))


def broken() -> tuple[type[Exception], ...]:
    """The exceptions that decompressors raise for data that is truncated, encrypted or of another format."""
    import sys

    # bz2 raises OSError and ValueError; zipfile RuntimeError (a password is needed) and NotImplementedError.
    errors: tuple[type[Exception], ...] = (EOFError, OSError, ValueError, RuntimeError, NotImplementedError)
    # A module that has not been imported can't have raised an exception, and may not be installed.
    for module, name in (
        ("zlib", "error"),
        ("lzma", "LZMAError"),
        ("zipfile", "BadZipFile"),
        ("zstandard", "ZstdError"),
    ):
        if (loaded := sys.modules.get(module)) is not None:
            errors += (getattr(loaded, name),)
    return errors


def is_damage(error: Exception) -> bool:
    """Whether an error shows that compressed data is truncated or damaged, and not that it could not be fetched."""
    import sys

    if type(error) is OSError:  # of bz2; those of a file system have a number
        return error.errno is None
    kinds = [getattr(sys.modules[module], name) for module, name in _ERRORS if sys.modules.get(module) is not None]
    return isinstance(error, (EOFError, *kinds))


_ERRORS: Final = (("zlib", "error"), ("lzma", "LZMAError"), ("zstandard", "ZstdError"))


class _Plain:
    """The compressor of `none`: returns data unchanged."""

    def compress(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _Decompressed(io.RawIOBase):
    """The decompressed bytes of one or more consecutive compressed streams."""

    # Highly compressed data may expand a thousandfold; small pieces limit the memory this takes.
    PIECE = 1 << 14

    def __init__(self, file: BinaryIO, decompressor: Callable[[], Any]) -> None:
        self._file = file
        self._decompressor = decompressor
        self._stream: Any = None
        self._decompressed = memoryview(b"")
        self._damage: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._decompressed:
            if self._damage is not None:
                raise self._damage
            piece = self._file.read(self.PIECE)
            if not piece:
                if self._stream is not None:
                    raise EOFError("it is truncated")
                return 0
            try:
                self._decompressed = memoryview(self._feed(piece))
            except Exception as error:
                self._damage = error  # what follows can't be decompressed either
                raise
        size = min(len(self._decompressed), len(buffer))
        buffer[:size] = self._decompressed[:size]
        self._decompressed = self._decompressed[size:]
        return size

    def _feed(self, piece: bytes) -> bytes:
        decompressed = []
        while piece:
            if self._stream is None:
                # Between and after streams, zeros are padding (tapes, xz).
                piece = piece.lstrip(b"\0")
                if not piece:
                    break
                self._stream = self._decompressor()
            decompressed.append(self._stream.decompress(piece))
            if not self._stream.eof:
                break
            piece = self._stream.unused_data
            self._stream = None
        return b"".join(decompressed)


def _decompressor(compression: Compression) -> Callable[[], Any]:
    match compression:
        case "gzip":
            import zlib

            return lambda: zlib.decompressobj(31)
        case "bz2":
            import bz2

            return bz2.BZ2Decompressor
        case "xz":
            import lzma

            return lzma.LZMADecompressor
        case "zstd":
            import zstandard

            # The default limit refuses frames with a long window (`zstd --long`).
            return lambda: zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    raise AssertionError(compression)
