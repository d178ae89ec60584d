"""Checkpoints in a folder of this machine: renaming makes a file appear whole, linking makes a name be taken once."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tidegate.runners.streaming.storage.base import checked_name
from tidegate.sdk.private_files import owner_only

_PART: Final = ".part"
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalStorage:
    """A folder. What is written is flushed to the disk, and so is the folder that names it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    @property
    def root(self) -> Path:
        """The folder."""
        return self._directory

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

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
        path = self._path(name)
        part = self._part(path, data, settled=False)
        try:
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def put_file(self, name: str, path: Path) -> None:
        self.put(name, path.read_bytes())

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
        with contextlib.suppress(OSError):  # not empty, as a rule
            if path.parent != self._directory:
                path.parent.rmdir()

    def _path(self, name: str) -> Path:
        return self._directory / checked_name(name)

    def _files(self, folder: str) -> Iterator[str]:
        """Every file under a folder. What can't be listed is an error, never nothing; only a folder that isn't there,
        or is deleted meanwhile, has no files."""
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

    def _part(self, path: Path, data: bytes, *, settled: bool = True) -> Path:
        """The data on the disk under a name that nobody looks at; or, not `settled`, on its way there."""
        part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}{_PART}")
        try:
            _make_folder(path.parent, settled=settled)
            _write_new(part, data, path, settled=settled)
        except FileNotFoundError:  # whoever deleted the folder's last file took the folder, too
            _make_folder(path.parent, settled=settled)
            _write_new(part, data, path, settled=settled)
        return part

    def _create_in_place(self, path: Path, data: bytes) -> bool:
        """On a file system without hard links: the name is taken first, so a crash may leave it with less data."""
        try:
            _write_new(path, data, path)
        except FileExistsError:
            return False
        _flush_folder(path.parent)
        return True


def _write_new(path: Path, data: bytes, named: Path, *, settled: bool = True) -> None:
    """A new file, if `settled` on the disk when this returns, or none. FileExistsError if it is there already; of a
    disk that is full the system does not say what was to be written, so this does: the file it is to be."""
    try:
        with open(path, "xb", opener=owner_only) as file:
            try:
                file.write(data)
                file.flush()
                if settled:
                    os.fsync(file.fileno())
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    except OSError as error:
        error.filename = str(named)
        raise


def _make_folder(folder: Path, *, settled: bool = True) -> None:
    """Make a folder and those above it; if `settled`, the names of new ones are flushed to the disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, settled=settled)
    folder.mkdir(exist_ok=True)
    if settled:
        _flush_folder(folder.parent)


def _flush_folder(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # its last file was deleted meanwhile, by who had a right to
        _flush(folder)


def _flush(path: Path) -> None:
    """Have a file's data, or a folder's names, on the disk. Where that fails the system does not say of what, so this
    does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
