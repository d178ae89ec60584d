"""Where checkpoints are kept: a folder of this machine, or a store that fsspec knows.

Two things are asked of a store: a file is there whole or not at all, and of many who create one name exactly one
succeeds. A folder gives both by renaming and linking, an object store by a conditional put. A store with neither is
refused, for a checkpoint in it could be torn without a sign.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.streaming.checkpoint.manifest import loads
from tidegate.runners.streaming.worker.environment import Storage
from tidegate.sdk.errors import OptionsError, RunError
from tidegate.sdk.private_files import owner_only

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_PART: Final = ".part"
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_CONDITIONAL: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})


def open_storage(url: str) -> Storage:
    """The store at a URL, or the folder of a path. OptionsError if checkpoints can't be kept there."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalStorage(Path(url))
    if scheme in ("file", "local"):
        return LocalStorage(Path(rest))
    if scheme == "memory":
        raise OptionsError(
            f"checkpoints can't be kept at {url}: that is the memory of one process, and a job has several. "
            "Use a local folder"
        )
    return FsspecStorage(url)


def copy_savepoint(source: Storage, target: Storage, name: str, data: bytes) -> Generator[None, None, None]:
    """Copy what a manifest names from one store to another, file by file, and then, under `name`, the manifest."""
    for file, size, _ in loads(data).files():
        content = source.read(file)
        if len(content) != size:
            raise RunError(f"{file} has {len(content)} bytes, not {size}: it is damaged")
        target.write(file, content)
        yield
    target.write(name, data)


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

    def settle(self, names: Iterable[str]) -> None:
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
        return self._directory / _checked(name)

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


class FsspecStorage:
    """An object store, with one put for each file. OptionsError if the store has no conditional put."""

    def __init__(self, url: str) -> None:
        self._fs, self._root = _file_system(url)

    def read(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(self._path(name)))

    def write(self, name: str, data: bytes) -> None:
        self._fs.pipe_file(self._path(name), data)

    def put(self, name: str, data: bytes) -> None:
        self.write(name, data)

    def put_file(self, name: str, path: Path) -> None:
        self._fs.put_file(str(path), self._path(name))

    def settle(self, names: Iterable[str]) -> None:
        """A put of a store is durable when it returns."""

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
        """A put of a store is there whole or not at all."""
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
        return f"{self._root.rstrip('/')}/{_checked(name)}"


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
    """Every file under a folder. An object store lists them all at once; what fsspec would find by walking is walked
    here, since its own walk omits what it can't list."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    kind = type(fs)
    walks = kind.find is AbstractFileSystem.find or getattr(kind, "_find", None) is AsyncFileSystem._find
    if not walks:
        return list(fs.find(start))
    files, folders = [], [start]
    while folders:
        folder = folders.pop()
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            for info in fs.ls(folder, detail=True):
                if info["type"] != "directory":
                    files.append(info["name"])
                elif info["name"].strip("/") != folder.strip("/"):
                    folders.append(info["name"])
    return files


def _takes_mode(kind: Any) -> bool:
    """Whether `pipe_file` can be told to create only. Asynchronous stores have it under another name."""
    from inspect import signature

    for put in (getattr(kind, "_pipe_file", None), kind.pipe_file):
        if put is not None and "mode" in signature(put).parameters:
            return True
    return False


def _is_there(error: Exception) -> bool:
    """Whether a store refused a conditional put because the name exists: HTTP 409 or 412, as clients tell it."""
    code = getattr(error, "status_code", None) or getattr(error, "code", None)
    response = getattr(error, "response", None)
    if code is None and isinstance(response, dict):
        code = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return code in (409, 412) or "PreconditionFailed" in str(error)


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name!r} is not a name within a checkpoint directory")
    return str(path)


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
