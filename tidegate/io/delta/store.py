"""The files of a table: those of this machine's file system, or those that the client library reaches by URL.

Objects in a store that is reached by URL are read and written by the library's own client, with the same options as the
table's log.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any, BinaryIO, cast

from tidegate.io import files
from tidegate.io.delta.location import Location


def store_of(location: Location) -> tuple[files.Store, str]:
    """The store of a table, and the path in it of the table's folder."""
    if location.is_local:
        return files.Local(), location.client_url
    return ClientStore(location), ""


class ClientStore(files.Store):
    """The objects below a table, through the client library. Paths are relative to the table."""

    forks_safely = False

    def __init__(self, location: Location) -> None:
        from deltalake.fs import DeltaStorageHandler

        self._location = location
        self._client: Any = DeltaStorageHandler(location.client_url, location.client_options())
        # The library's own methods to copy and to write fail (1.6.6): they pass on arguments that are refused.
        self._handler = self._client._handler

    def find(self, path: str) -> files.FileInfo | None:
        (info,) = self._client.get_file_info([path])
        return files.FileInfo(path, info.size, None, info.mtime_ns) if info.is_file else None

    def glob(self, pattern: str) -> list[files.FileInfo]:
        raise NotImplementedError("a table's log says which files it has")

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self._client.open_input_file(path))

    def info_of(self, file: BinaryIO, path: str) -> files.FileInfo | None:
        return files.FileInfo(path, cast(Any, file).size())

    def create(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _Upload(self._handler.open_output_stream(path, None)))

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def move(self, source: str, target: str) -> None:
        self._handler.copy_file(source, target)
        self.remove(source)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._client.delete_file(path)

    def remove_folder(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._client.delete_dir(path)

    def remove_empty_folder(self, path: str) -> None:
        """Nothing: a folder exists only as a prefix of objects."""

    def names(self, folder: str) -> list[str] | None:
        from pyarrow.fs import FileSelector

        found = self._client.get_file_info_selector(FileSelector(folder, allow_not_found=True))
        return sorted(info.base_name for info in found) or None

    def check_writable(self, folder: str) -> None:
        """No check: only a write would show a missing permission."""

    def url(self, path: str) -> str:
        return files.join(self._location.shown, path)


class _Upload(io.RawIOBase):
    """An object that is written; it appears when it is closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._stream.write(content)
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._stream.close()
