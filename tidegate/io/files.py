"""File systems: this machine's, and those that fsspec can reach, behind one interface.

A path is a string as authors write it: a local path (`~` and `file://` allowed) or a URL (`s3://…`, `memory://…`,
also chained as fsspec chains them). `store_of(path)` says where it lives and how it is called there; a `Store` has
the few operations that sources and sinks of files need. None of them relies on an atomic rename across a store that
has none: `move` makes the target appear whole, by renaming where that works and else by copying one object.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from tidegate.sdk.errors import BuildError, TidegateError

WORK_PREFIX: Final = ".tidegate-"
"""Folders of unfinished output start with it; patterns don't look into them."""

_MAGIC: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file: its path within its store, and its size in bytes (None: unknown until read, a pipe or web page).

    `tag` differs when the file has been written again: its ETag, or when it was modified; None where a store has none.
    """

    path: str
    size: int | None
    tag: str | None = None

    def changed_since(self, before: FileInfo) -> bool:
        """Whether this file is another one than `before`, which had its name."""
        if before.size is not None and self.size != before.size:
            return True
        # Some stores tell an ETag in one call, and only a time in another: those can't be compared.
        kinds = [tag.partition("=")[0] for tag in (self.tag, before.tag) if tag is not None]
        return len(kinds) == 2 and kinds[0] == kinds[1] and self.tag != before.tag


class Store(ABC):
    """A place for files. Paths are the store's own, with `/` between folders. Missing files are FileNotFoundError,
    all other trouble is OSError or what the remote file system raises."""

    @abstractmethod
    def find(self, path: str) -> FileInfo | None:
        """The file of exactly this name."""

    @abstractmethod
    def glob(self, pattern: str) -> list[FileInfo]:
        """The files that match, in no order; `**` matches any folders."""

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """For reading."""

    @abstractmethod
    def info_of(self, file: BinaryIO, path: str) -> FileInfo | None:
        """What an opened file is: the one that is read, even if another has taken its path."""

    @abstractmethod
    def create(self, path: str) -> BinaryIO:
        """For writing, with the folders it needs; `finish` makes it last."""

    appends: bool = False
    """Whether a closed file can be opened again for appending."""

    def append(self, path: str) -> BinaryIO:
        """A created file again, for writing at its end; only where the store `appends`."""
        raise NotImplementedError

    @abstractmethod
    def finish(self, file: BinaryIO) -> None:
        """Closes a created file: when this returns, it survives a crash."""

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """`target` is `source`, whole, whatever it was before; `source` is gone. Makes the folders that it needs."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Removes a file, if it is there."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Removes a folder and all in it, if it is there."""

    @abstractmethod
    def remove_empty_folder(self, path: str) -> None:
        """Removes a folder if it is there and empty."""

    @abstractmethod
    def names(self, folder: str) -> list[str] | None:
        """The names directly in a folder, sorted; None if there is no such folder."""

    @abstractmethod
    def check_writable(self, folder: str) -> None:
        """BuildError when files can surely not be written there. Writes nothing."""

    @abstractmethod
    def url(self, path: str) -> str:
        """The path as authors write it, for messages."""


def store_of(path: str) -> tuple[Store, str]:
    """The store of a path or pattern, and its name there. BuildError when fsspec, or its driver for the protocol,
    is missing."""
    if path.startswith("file://"):
        return Local(), path.removeprefix("file://")
    if "://" not in path and "::" not in path:
        return Local(), os.path.expanduser(path)
    try:
        import fsspec
    except ImportError:
        raise BuildError(f"{path}: reading and writing URLs needs fsspec: pip install 'tidegate[remote]'") from None
    try:
        fs, own = fsspec.url_to_fs(path)
    except ImportError as error:
        raise BuildError(f"{path}: {error}") from error
    except ValueError as error:
        raise BuildError(f"{path}: {error}; a local path has no '://'") from error
    return Remote(fs), own


def folder_of(path: str) -> str:
    """The folder a path of some store lies in; "" for a bare name."""
    head, slash, _ = path.rpartition("/")
    return head or slash


def join(folder: str, name: str) -> str:
    """`name` in `folder`, "" being where relative paths start."""
    return name if not folder else folder + name if folder.endswith("/") else f"{folder}/{name}"


def match(pattern: str) -> list[FileInfo]:
    """The files of a path or pattern, sorted by name. A path that exists is taken literally, `*` and all."""
    store, path = store_of(pattern)
    exact = store.find(path)
    if exact is not None:
        return [exact]
    if not _MAGIC & set(path):
        return []
    wants_work = WORK_PREFIX in path
    files = [file for file in store.glob(path) if wants_work or f"/{WORK_PREFIX}" not in f"/{file.path}"]
    return sorted(files, key=lambda file: file.path)


def explain_no_match(pattern: str) -> str:
    """Why no file matches: what is in the folder that was looked in, or which folder is not there."""
    store, path = store_of(pattern)
    parts = path.split("/")
    magic = next((i for i, part in enumerate(parts) if _MAGIC & set(part)), len(parts) - 1)
    folder, wanted = "/".join(parts[:magic]) or ("/" if path.startswith("/") else ""), parts[magic]
    shown = store.url(folder) if folder else f"{os.getcwd()} (the current folder)"
    names = store.names(folder)
    if names is None:
        return f"there is no folder {shown}"
    if magic == len(parts) - 1 and wanted in names:
        return f"it is a folder: for the files in it, say {join(pattern.rstrip('/'), '*')}"
    names = [name for name in names if not name.startswith(".")]
    import difflib

    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.7)  # at 0.6, a common suffix is enough
    match len(names):
        case 0:
            has = ", which is empty"
        case _ if near:
            has = f"; there is {', '.join(near)}"
        case 1:
            has = "; its only name is not like it"
        case several:
            has = f"; none of its {several} names is like it"
    return f"looked in {shown}{has}"


class Local(Store):
    """The file system of this machine."""

    appends = True

    def find(self, path: str) -> FileInfo | None:
        return _local_info(path)

    def glob(self, pattern: str) -> list[FileInfo]:
        from tidegate.io.globbing import paths_like

        infos = (_local_info(path) for path in paths_like(pattern))
        return [info for info in infos if info is not None]

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def info_of(self, file: BinaryIO, path: str) -> FileInfo | None:
        return _info_of_status(path, os.fstat(file.fileno()))

    def create(self, path: str) -> BinaryIO:
        folder = os.path.dirname(path)
        for _ in range(10):
            if folder:
                os.makedirs(folder, exist_ok=True)
            try:
                return open(path, "wb", buffering=1 << 18)
            except FileNotFoundError:
                pass  # someone swept the folder, empty at that moment, between the two calls
        return open(path, "wb", buffering=1 << 18)

    def append(self, path: str) -> BinaryIO:
        return open(path, "ab", buffering=1 << 18)

    def finish(self, file: BinaryIO) -> None:
        with file:
            file.flush()
            os.fsync(file.fileno())

    def move(self, source: str, target: str) -> None:
        folder = os.path.dirname(target) or "."
        if not os.path.isdir(folder):
            _make_folders(folder)
        os.replace(source, target)
        _sync_folder(folder)

    def remove(self, path: str) -> None:
        try:
            os.remove(path)
        except FileNotFoundError:
            pass

    def remove_folder(self, path: str) -> None:
        import shutil

        # A straggler may still be adding files, which the next sweep will remove.
        shutil.rmtree(path, ignore_errors=True)

    def remove_empty_folder(self, path: str) -> None:
        try:
            os.rmdir(path)
        except OSError:
            pass

    def names(self, folder: str) -> list[str] | None:
        try:
            return sorted(os.listdir(folder or "."))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def check_writable(self, folder: str) -> None:
        there = os.path.abspath(folder or ".")
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        if not os.path.isdir(there):
            raise BuildError(f"can't write to {folder}: {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise BuildError(f"can't write to {folder or '.'}: no permission to write in {there}")
        if os.stat(there).st_dev in _devices_of_kernel():  # where root has the permission, and yet can make no file
            raise BuildError(f"can't write to {folder or '.'}: {there} is the kernel's, and holds no files of others")

    def url(self, path: str) -> str:
        return path


class Remote(Store):
    """A file system of fsspec."""

    def __init__(self, fs: Any) -> None:
        self.fs = fs

    def find(self, path: str) -> FileInfo | None:
        self.fs.invalidate_cache(folder_of(path))
        try:
            info = self.fs.info(path)
        except FileNotFoundError:
            return None
        return None if info["type"] == "directory" else _remote_info(info["name"], info)

    def glob(self, pattern: str) -> list[FileInfo]:
        found = self.fs.glob(pattern, detail=True)
        return [_remote_info(path, info) for path, info in found.items() if info["type"] != "directory"]

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self.fs.open(path, "rb"))

    def info_of(self, file: BinaryIO, path: str) -> FileInfo | None:
        details = getattr(file, "details", None)  # of the request that opened it
        return _remote_info(path, details) if isinstance(details, dict) else self.find(path)

    def create(self, path: str) -> BinaryIO:
        try:
            return cast(BinaryIO, self.fs.open(path, "wb"))
        except FileNotFoundError:
            # Only now: object stores need no folders, and may take a wish for one as one for a bucket.
            self.fs.makedirs(folder_of(path), exist_ok=True)
            return cast(BinaryIO, self.fs.open(path, "wb"))

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def move(self, source: str, target: str) -> None:
        # On object stores: a copy within the store, which appears whole, and a delete. If the delete is lost, the
        # next try copies the same bytes again.
        self.fs.mv(source, target)

    def remove(self, path: str) -> None:
        try:
            self.fs.rm_file(path)
        except FileNotFoundError:
            pass
        self.fs.invalidate_cache(folder_of(path))

    def remove_folder(self, path: str) -> None:
        self.fs.invalidate_cache(path)
        try:
            self.fs.rm(path, recursive=True)
        except FileNotFoundError:
            pass

    def remove_empty_folder(self, path: str) -> None:
        self.fs.invalidate_cache(path)
        try:
            # Object stores have no folders but for the objects in them, and rmdir may mean a bucket there.
            if self.fs.isdir(path) and not self.fs.ls(path, detail=False):
                self.fs.rmdir(path)
        except OSError:
            pass

    def names(self, folder: str) -> list[str] | None:
        self.fs.invalidate_cache(folder)
        try:
            return sorted(path.rstrip("/").rpartition("/")[2] for path in self.fs.ls(folder, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def check_writable(self, folder: str) -> None:
        """Only writing would show."""

    def url(self, path: str) -> str:
        return str(self.fs.unstrip_protocol(path))


def describe(error: BaseException) -> str:
    """An error of the file system for the end of a message: its own words, without the path told twice."""
    if isinstance(error, TidegateError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _local_info(path: str) -> FileInfo | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _info_of_status(path, status)


def _info_of_status(path: str, status: os.stat_result) -> FileInfo | None:
    import stat

    if stat.S_ISDIR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        return FileInfo(path, None)
    return FileInfo(path, status.st_size, f"mtime={status.st_mtime_ns}")


_TAGS: Final = ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "mtime", "created")


def _remote_info(path: str, info: dict[str, Any]) -> FileInfo:
    """What fsspec says of a file; each file system has its own name for what changes when a file is written again."""
    tag = next((f"{key}={info[key]}" for key in _TAGS if info.get(key)), None)
    return FileInfo(path, info.get("size"), tag)


def _make_folders(folder: str) -> None:
    """Make a folder and those it lies in, so that they survive a crash."""
    made = []
    there = folder
    while there and not os.path.isdir(there):
        made.append(there)
        there = os.path.dirname(there)
    os.makedirs(folder, exist_ok=True)
    for path in made:
        _sync_folder(os.path.dirname(path) or ".")


def _devices_of_kernel() -> set[int]:
    """The file systems of Linux in which programs make no files."""
    return {os.stat(folder).st_dev for folder in ("/proc", "/sys") if os.path.ismount(folder)}


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
