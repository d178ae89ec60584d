"""Compressed files as streams of bytes: gzip, bzip2, xz and zstandard alike, and zip for reading.

All of them but zip allow several compressed streams one after another in one file, and mean their concatenation.
Reading follows that; writing uses it, so that files can be joined without being decompressed.
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
    """What `auto` means for a path, by its suffix; anything else as given."""
    if compression != "auto":
        return compression
    lower = path.lower()
    return next((found for suffix, found in _SUFFIXES.items() if lower.endswith(suffix)), "none")


def check(compression: str, of: str) -> None:
    """BuildError for a compression that doesn't exist, or whose package is missing (`of` says where it is used)."""
    if compression not in _NAMES:
        raise BuildError(f"{of}: compression is one of {', '.join(map(repr, _NAMES))}, not {compression!r}")
    module = {"zstd": "zstandard", "gzip": "zlib", "bz2": "bz2", "xz": "lzma", "zip": "zlib"}.get(compression)
    if module is None:
        return
    try:
        import_module(module)
    except ImportError:
        cure = "pip install 'tidegate[zstd]'" if compression == "zstd" else "this Python was built without it"
        raise BuildError(f"{of}: {compression} needs the module {module}: {cure}") from None


def decompressing(file: BinaryIO, compression: Compression) -> BinaryIO:
    """The plain bytes of an open file, which stays the caller's to close. What is broken raises one of `broken()`."""
    if compression == "none":
        return file
    return cast(BinaryIO, io.BufferedReader(_Decompressed(file, _decompressor(compression)), 1 << 16))


def compressor(compression: Compression) -> Any:
    """A fresh object with `compress(data)` and `flush()`, whose output depends on the data alone (no time, no name)."""
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
    """The files in a zip archive, in its order, with their uncompressed sizes."""
    import zipfile

    with zipfile.ZipFile(file) as archive:
        return [(info.filename, info.file_size) for info in archive.infolist() if not info.is_dir()]


def zip_member(file: BinaryIO, name: str) -> BinaryIO:
    """The plain bytes of one file in a zip archive, which stays the caller's to close."""
    import zipfile

    return cast(BinaryIO, zipfile.ZipFile(file).open(name))


def broken() -> tuple[type[Exception], ...]:
    """The exceptions of the decompressors for data of another format, truncated or encrypted."""
    import sys

    # bz2 raises OSError and ValueError; zipfile RuntimeError (a password is needed) and NotImplementedError.
    errors: tuple[type[Exception], ...] = (EOFError, OSError, ValueError, RuntimeError, NotImplementedError)
    # A module that has not been imported can't have raised, and may not be installed.
    for module, name in (
        ("zlib", "error"),
        ("lzma", "LZMAError"),
        ("zipfile", "BadZipFile"),
        ("zstandard", "ZstdError"),
    ):
        if (loaded := sys.modules.get(module)) is not None:
            errors += (getattr(loaded, name),)
    return errors


class _Plain:
    """No compression, in the form of one."""

    def compress(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _Decompressed(io.RawIOBase):
    """One or several compressed streams, one after another, as one stream of plain bytes."""

    # Small pieces bound what a highly compressed one becomes in memory.
    PIECE = 1 << 14

    def __init__(self, file: BinaryIO, new: Callable[[], Any]) -> None:
        self._file = file
        self._new = new
        self._stream: Any = None
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._plain:
            piece = self._file.read(self.PIECE)
            if not piece:
                if self._stream is not None:
                    raise EOFError("it ends in the middle: it was cut short")
                return 0
            self._plain = memoryview(self._feed(piece))
        size = min(len(self._plain), len(buffer))
        buffer[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size

    def _feed(self, piece: bytes) -> bytes:
        plain = []
        while piece:
            if self._stream is None:
                # Zeros between and after streams are padding (tapes, xz).
                piece = piece.lstrip(b"\0")
                if not piece:
                    break
                self._stream = self._new()
            plain.append(self._stream.decompress(piece))
            if not self._stream.eof:
                break
            piece = self._stream.unused_data
            self._stream = None
        return b"".join(plain)


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

            # Without this, a frame written with a long window is refused (`zstd --long`).
            return lambda: zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    raise AssertionError(compression)
