"""Checkpoints in an object store that fsspec supports and that offers a conditional put.

Each file is written by one put, so writes are atomic; and of several processes that create the same name, a conditional
put lets exactly one succeed.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from tidegate.runners.checkpoint.storage.base import checked_name
from tidegate.sdk.errors import OptionsError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_IN_MEMORY: Final = 16 << 20
"""A downloaded file that is longer goes to a temporary file."""
_PIECE: Final = 4 << 20
_CONDITIONAL: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})


class FsspecStorage:
    """An object store, with one put for each file. OptionsError if the store has no conditional put."""

    def __init__(self, url: str) -> None:
        self._fs, self._root = _file_system(url)

    def read(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(self._path(name)))

    def open(self, name: str) -> BinaryIO:
        """Download a file, to the disk if it is long, so that it can be read twice: once for its checksum."""
        local = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - the caller closes it
        try:
            with self._fs.open(self._path(name), "rb", cache_type="readahead") as remote:
                shutil.copyfileobj(remote, local, _PIECE)
            local.seek(0)
        except BaseException:
            local.close()
            raise
        return local

    def write(self, name: str, data: bytes) -> None:
        self._fs.pipe_file(self._path(name), data)

    def put(self, name: str, data: bytes) -> None:
        self.write(name, data)

    def put_file(self, name: str, path: Path) -> None:
        self._fs.put_file(str(path), self._path(name))

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: a put is durable when it returns."""

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._fs.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        except Exception as error:
            if _is_there(error):
                return False
            raise
        return True

    def unfinished(self, folder: str) -> list[str]:
        """None: a put is atomic."""
        return []

    def list(self, folder: str) -> list[str]:
        self._fs.invalidate_cache()
        start = self._path(folder) if folder else self._root
        prefix = self._root.strip("/") + "/"
        try:
            found = _found(self._fs, start)
        except FileNotFoundError:
            return []
        return sorted(name.strip("/").removeprefix(prefix) for name in found)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{checked_name(name)}"


def _file_system(url: str) -> tuple[AbstractFileSystem, str]:
    scheme = url.partition("://")[0]
    try:
        from fsspec import get_filesystem_class
        from fsspec.core import url_to_fs

        kind: Any = get_filesystem_class(scheme)
    except ImportError as error:
        raise OptionsError(f"checkpoints at {url} need a package that is not installed: {error}") from None
    except ValueError as error:
        raise OptionsError(f"checkpoints can't be kept at {url}: {error}") from None
    if scheme not in _CONDITIONAL or not _takes_mode(kind):
        raise OptionsError(
            f"checkpoints can't be kept at {url}: {kind.__name__} offers neither an atomic rename nor a conditional "
            "put, so a crash could leave one torn. Use a local folder, or a current version of s3fs, gcsfs or adlfs "
            "with s3://, gs:// or abfs://"
        )
    fs, root = url_to_fs(url, use_listings_cache=False)
    return fs, str(root)


def _found(fs: AbstractFileSystem, start: str) -> list[str]:
    """Every file under a folder. An object store lists them all at once. Where fsspec would walk the folders, they are
    walked here instead, because its own walk omits folders that it can't list."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    kind = type(fs)
    walks = kind.find is AbstractFileSystem.find or getattr(kind, "_find", None) is AsyncFileSystem._find
    if not walks:
        return list(fs.find(start))
    files, folders = [], [start]
    while folders:
        folder = folders.pop()
        with contextlib.suppress(FileNotFoundError):  # deleted since its parent was listed
            for info in fs.ls(folder, detail=True):
                if info["type"] != "directory":
                    files.append(info["name"])
                elif info["name"].strip("/") != folder.strip("/"):
                    folders.append(info["name"])
    return files


def _takes_mode(kind: Any) -> bool:
    """Return whether `pipe_file` has a mode for creating only. Asynchronous stores have it under another name."""
    from inspect import signature

    for put in (getattr(kind, "_pipe_file", None), kind.pipe_file):
        if put is not None and "mode" in signature(put).parameters:
            return True
    return False


def _is_there(error: Exception) -> bool:
    """Return whether a store refused a conditional put because the name exists: HTTP 409 or 412, as clients report
    it."""
    code = getattr(error, "status_code", None) or getattr(error, "code", None)
    response = getattr(error, "response", None)
    if code is None and isinstance(response, dict):
        code = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return code in (409, 412) or "PreconditionFailed" in str(error)
