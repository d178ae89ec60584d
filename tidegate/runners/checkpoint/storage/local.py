"""Checkpoints in a local folder: renaming makes writes atomic, and hard-linking lets only one process create a name."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from tidegate.runners.checkpoint.storage.base import checked_name
from tidegate.sdk.private_files import owner_only

_PART: Final = ".part"
_PIECE: Final = 1 << 20
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalStorage:
    """A local folder. A write flushes both the file and the folder that names it to the disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    @property
    def root(self) -> Path:
        """The folder."""
        return self._directory

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def open(self, name: str) -> BinaryIO:
        return self._path(name).open("rb")

    def write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        part = self._part(path, data)
        try:
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)

    def put(self, name: str, data: bytes) -> None:
        self._put(name, data)

    def put_file(self, name: str, path: Path) -> None:
        self._put(name, path)

    def sync(self, names: Iterable[str]) -> None:
        paths = [self._path(name) for name in names]
        for path in paths:
            _flush(path)
        folders = {folder for path in paths for folder in path.relative_to(self._directory).parents}
        for folder in folders:
            _flush(self._directory / folder)

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        part = self._part(path, data)
        try:
            os.link(part, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._create_in_place(path, data)
        finally:
            part.unlink(missing_ok=True)
        _flush_folder(path.parent)
        return True

    def unfinished(self, folder: str) -> list[str]:
        return sorted(name for name in self._files(folder) if name.endswith(_PART))

    def list(self, folder: str) -> list[str]:
        return sorted(name for name in self._files(folder) if not name.endswith(_PART))

    def delete(self, name: str) -> None:
        path = self._path(name)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # usually not empty
            if path.parent != self._directory:
                path.parent.rmdir()

    def _put(self, name: str, data: bytes | Path) -> None:
        path = self._path(name)
        part = self._part(path, data, sync=False)
        try:
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _path(self, name: str) -> Path:
        return self._directory / checked_name(name)

    def _files(self, folder: str) -> Iterator[str]:
        """Every file under a folder. A folder that can't be listed is an error; one that does not exist, or is deleted
        while it is listed, has no files."""
        folders = [folder]
        while folders:
            within = folders.pop()
            try:
                with os.scandir(self._path(within) if within else self._directory) as entries:
                    found = [(entry.name, entry.is_dir()) for entry in entries]
            except FileNotFoundError:
                continue
            for name, is_folder in found:
                path = f"{within}/{name}" if within else name
                if is_folder:
                    folders.append(path)
                else:
                    yield path

    def _part(self, path: Path, data: bytes | Path, *, sync: bool = True) -> Path:
        """Write the data, or the contents of the file at a path, under a temporary name, which `list` leaves out.
        `sync`: flush it to the disk."""
        part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}{_PART}")
        try:
            _make_folder(path.parent, sync=sync)
            _write_new(part, data, path, sync=sync)
        except FileNotFoundError:  # another process deleted the folder's last file, and the folder with it
            _make_folder(path.parent, sync=sync)
            _write_new(part, data, path, sync=sync)
        return part

    def _create_in_place(self, path: Path, data: bytes) -> bool:
        """On a file system without hard links: create the file, then write it, so a crash may leave it incomplete."""
        try:
            _write_new(path, data, path)
        except FileExistsError:
            return False
        _flush_folder(path.parent)
        return True


def _write_new(path: Path, data: bytes | Path, final: Path, *, sync: bool = True) -> None:
    """Write a new file, and leave none if that fails. FileExistsError if it exists.

    An error of a full disk names no file, so this one names `final`, the file's final name.
    """
    try:
        with open(path, "xb", opener=owner_only) as file:
            try:
                if isinstance(data, Path):
                    with data.open("rb") as source:
                        shutil.copyfileobj(source, file, _PIECE)
                else:
                    file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    except OSError as error:
        error.filename = str(final)
        raise


def _make_folder(folder: Path, *, sync: bool = True) -> None:
    """Make a folder and its parents. `sync`: flush the names of new ones to the disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, sync=sync)
    folder.mkdir(exist_ok=True)
    if sync:
        _flush_folder(folder.parent)


def _flush_folder(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # the folder's last file has been deleted, and the folder with it
        _flush(folder)


def _flush(path: Path) -> None:
    """Flush a file's data, or a folder's names, to the disk. An error of `fsync` names no file, so this names it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
