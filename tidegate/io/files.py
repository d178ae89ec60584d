"""The local file system and those of fsspec, behind one interface.

Authors write a path as a string: a local path (`~` and `file://` allowed) or a URL (`s3://…`, `memory://…`, also
chained as fsspec chains them). `store_of(path)` returns its `Store` and its path within the store. A `Store` has only
the operations that sources and sinks of files need. No caller depends on an atomic rename: `move` renames where the
store can, and otherwise copies one object, so that the target never appears in part.
"""

from __future__ import annotations

import datetime
import io
import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from tidegate.io.secret_paths import NO_SECRETS, SecretPaths, check_has_no_password, root_of
from tidegate.io.storage_options import StorageOptions, is_url, revealed
from tidegate.sdk.errors import BuildError, TidegateError
from tidegate.sdk.secrets.redaction import redacted
from tidegate.sdk.secrets.references import resolved_with_values

WORK_PREFIX: Final = ".tidegate-"
"""The prefix of folders with unfinished output. Patterns don't match files in them."""

MAGIC: Final = frozenset("*?[")
"""The characters that make a path a pattern."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file: its path within its store, and its size in bytes. The size of a pipe or web page is None: it is unknown
    until the file has been read.

    `tag` changes when the file is written again. It is the ETag or the time of modification; None if the store has
    neither.
    `modified` is when the file was last written (ns since 1970; None if the store does not say).
    """

    path: str
    size: int | None
    tag: str | None = None
    modified: int | None = None

    @property
    def content_tag(self) -> str | None:
        """What a store of objects identifies the content by. Such stores show whole objects only."""
        kind, _, value = (self.tag or "").partition("=")
        return value.strip('"') if kind in _CONTENT_TAGS else None

    def changed_since(self, before: FileInfo) -> bool:
        """Whether the file has been written again since `before`."""
        if before.size is not None and self.size != before.size:
            return True
        # Some stores return an ETag from one call and only a time from another: those can't be compared.
        kinds = [tag.partition("=")[0] for tag in (self.tag, before.tag) if tag is not None]
        return len(kinds) == 2 and kinds[0] == kinds[1] and self.tag != before.tag


class Store(ABC):
    """A file system. Paths are relative to the store, with `/` between folders. Operations raise FileNotFoundError for
    a missing file, and OSError or an exception of the remote file system for other failures."""

    @abstractmethod
    def find(self, path: str) -> FileInfo | None:
        """The file with exactly this path; None if there is none."""

    @abstractmethod
    def glob(self, pattern: str) -> list[FileInfo]:
        """The matching files, in no particular order; `**` matches any number of folders."""

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""

    @abstractmethod
    def info_of(self, file: BinaryIO, path: str) -> FileInfo | None:
        """The file that is open, even if another one has replaced it under its path."""

    @abstractmethod
    def create(self, path: str) -> BinaryIO:
        """Create a file for writing, and the folders it is in. It is durable only after `finish`."""

    appends: bool = False
    """Whether the store can append to a closed file."""

    forks_safely: bool = True
    """False if the store's client has threads, which a forked process would lack."""

    def append(self, path: str) -> BinaryIO:
        """Open an existing file to write at its end. Only stores with `appends` can."""
        raise NotImplementedError

    @abstractmethod
    def finish(self, file: BinaryIO) -> None:
        """Close a created file durably: once this returns, the file survives a crash."""

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Move a file, replacing `target` if it exists, and create the folders that `target` is in. Readers see the
        old target or the new one, never a part."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Remove a folder with its contents, if it exists."""

    @abstractmethod
    def remove_empty_folder(self, path: str) -> None:
        """Remove a folder, if it exists and is empty."""

    @abstractmethod
    def names(self, folder: str) -> list[str] | None:
        """The sorted names of a folder's entries; None if there is no such folder."""

    @abstractmethod
    def check_writable(self, folder: str) -> None:
        """Raise BuildError if it is certain that no file can be created in the folder. Writes nothing."""

    @abstractmethod
    def url(self, path: str) -> str:
        """The path in the form that authors write, for messages."""

    def former_url(self, path: str) -> str:
        """The form of the path in older checkpoints, where it lacked the host."""
        return self.url(path)


def store_of(path: str, options: StorageOptions | None = None) -> tuple[Store, str]:
    """The store of a path or pattern, and the path within it. `options` are passed to the file system of fsspec.

    The URL and the options may refer to secrets, as in `sftp://${USER}:${PASSWORD}@host/folder`: they are resolved
    here, in each process that opens a store, and again each time; paths don't contain them (`secret_paths.py`).

    Raises BuildError for a password as plain text, or if fsspec, or its driver for the protocol, is not installed;
    RunError for a secret that this process can't resolve.
    """
    if path.startswith("file://"):
        return Local(), path.removeprefix("file://")
    if not is_url(path):
        return Local(), os.path.expanduser(path)
    check_has_no_password(path)
    url, values = resolved_with_values(path)
    try:
        import fsspec
    except ImportError:
        raise BuildError(f"{path}: reading and writing URLs needs fsspec: pip install 'tidegate[remote]'") from None
    try:
        fs, path_in_store = fsspec.url_to_fs(url, **revealed(options))
    except ImportError as error:
        raise BuildError(f"{path}: {_what_to_install(path) or redacted(str(error))}") from error
    except ValueError as error:
        raise BuildError(f"{path}: {redacted(str(error))}; a local path has no '://'") from error
    except TypeError as error:
        raise BuildError(f"{path}: storage_options don't suit this file system: {redacted(str(error))}") from error
    secrets = SecretPaths.of(values)
    return Remote(fs, secrets, root_of(path, secrets.written(path_in_store))), secrets.hidden(path_in_store)


def literal(path: str) -> str:
    """A path that is data, as `store_of` takes it: nobody who writes data can refer to a secret.

    >>> literal("s3://bucket/${HOME}/x"), literal("${HOME}/x")
    ('s3://bucket/$${HOME}/x', '${HOME}/x')
    """
    return path.replace("${", "$${") if is_url(path) else path


def _what_to_install(url: str) -> str:
    """What is missing for a URL, if that is an extra."""
    from importlib.util import find_spec

    if re.search(r"(?:^|::)https?://", url) and find_spec("aiohttp") is None:
        return "reading over HTTP needs aiohttp: pip install 'tidegate[http]'"
    return ""


def folder_of(path: str) -> str:
    """The folder that contains the path; "" for a bare name."""
    head, slash, _ = path.rpartition("/")
    return head or slash


def join(folder: str, name: str) -> str:
    """The path of `name` in `folder`; with "" as the folder, `name` itself."""
    return name if not folder else folder + name if folder.endswith("/") else f"{folder}/{name}"


def match(pattern: str, options: StorageOptions | None = None) -> list[FileInfo]:
    """The files of a path or pattern, sorted by path. If a file of exactly that name exists, `*` and `?` in it are not
    wildcards."""
    store, path = store_of(pattern, options)
    exact = store.find(path)
    if exact is not None:
        return [exact]
    if not MAGIC & set(path):
        return []
    wants_work = WORK_PREFIX in path
    files = [file for file in store.glob(path) if wants_work or f"/{WORK_PREFIX}" not in f"/{file.path}"]
    return sorted(files, key=lambda file: file.path)


def is_pattern(path: str, options: StorageOptions | None = None) -> bool:
    """Whether a path can match several files."""
    return bool(MAGIC & set(store_of(path, options)[1]))


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
                pass  # another process removed the folder, which was empty, between the two calls
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

        # An old worker may still be creating files here. The next cleanup removes those.
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
        existing = os.path.abspath(folder or ".")
        while not os.path.lexists(existing):
            existing = os.path.dirname(existing)
        if not os.path.isdir(existing):
            raise BuildError(f"can't write to {folder}: {existing} is not a folder")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise BuildError(f"can't write to {folder or '.'}: no permission to write in {existing}")
        if os.stat(existing).st_dev in _kernel_devices():  # root has the permission, and still can't create files
            raise BuildError(
                f"can't write to {folder or '.'}: {existing} belongs to a file system of the kernel, in which programs "
                "can't create files"
            )

    def url(self, path: str) -> str:
        return path


class Remote(Store):
    """A file system of fsspec. `root` is what authors write before its paths, if fsspec can't say it (`root_of`)."""

    def __init__(self, fs: Any, secrets: SecretPaths = NO_SECRETS, root: str | None = None) -> None:
        self.fs = fs
        self._secrets = secrets
        self._root = root
        self.forks_safely = not getattr(fs, "async_impl", False)  # fsspec runs asynchronous clients in a thread

    def through(self, fs: Any) -> Remote:
        """The same store through another client."""
        return Remote(fs, self._secrets, self._root)

    def find(self, path: str) -> FileInfo | None:
        path = self._secrets.revealed(path)
        self.fs.invalidate_cache(folder_of(path))
        try:
            info = self.fs.info(path)
        except FileNotFoundError:
            return None
        return None if info["type"] == "directory" else self._info(info["name"], info)

    def glob(self, pattern: str) -> list[FileInfo]:
        self.fs.invalidate_cache()
        found = self.fs.glob(self._secrets.revealed(pattern), detail=True)
        return [self._info(path, info) for path, info in found.items() if info["type"] != "directory"]

    def open(self, path: str) -> BinaryIO:
        file = self.fs.open(self._secrets.revealed(path), "rb")
        if isinstance(file, io.BytesIO):
            file = io.BytesIO(file.getvalue())  # memory:// opens one object for all, with one place to read from
        return cast(BinaryIO, file)

    def info_of(self, file: BinaryIO, path: str) -> FileInfo | None:
        details = getattr(file, "details", None)  # of the request that opened it
        return self._info(self._secrets.revealed(path), details) if isinstance(details, dict) else self.find(path)

    def create(self, path: str) -> BinaryIO:
        path = self._secrets.revealed(path)
        try:
            return cast(BinaryIO, self.fs.open(path, "wb"))
        except FileNotFoundError:
            # Not before the first try: object stores need no folders, and may create a bucket instead.
            self.fs.makedirs(folder_of(path), exist_ok=True)
            return cast(BinaryIO, self.fs.open(path, "wb"))

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def move(self, source: str, target: str) -> None:
        # An object store copies the object, which becomes visible only when it is complete, and deletes the source. If
        # the process dies before the deletion, the next attempt copies the same bytes again.
        self.fs.mv(self._secrets.revealed(source), self._secrets.revealed(target))

    def remove(self, path: str) -> None:
        path = self._secrets.revealed(path)
        try:
            self.fs.rm_file(path)
        except FileNotFoundError:
            pass
        self.fs.invalidate_cache(folder_of(path))

    def remove_folder(self, path: str) -> None:
        path = self._secrets.revealed(path)
        self.fs.invalidate_cache(path)
        try:
            self.fs.rm(path, recursive=True)
        except FileNotFoundError:
            pass

    def remove_empty_folder(self, path: str) -> None:
        path = self._secrets.revealed(path)
        self.fs.invalidate_cache(path)
        try:
            # In an object store, a folder exists only as a prefix of objects, and rmdir may remove a bucket.
            if self.fs.isdir(path) and not self.fs.ls(path, detail=False):
                self.fs.rmdir(path)
        except OSError:
            pass

    def names(self, folder: str) -> list[str] | None:
        folder = self._secrets.revealed(folder)
        self.fs.invalidate_cache(folder)
        try:
            found = [path.rstrip("/").rpartition("/")[2] for path in self.fs.ls(folder, detail=False)]
            return sorted(map(self._secrets.hidden, found))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def check_writable(self, folder: str) -> None:
        """No check: only a write would show a missing permission."""

    def url(self, path: str) -> str:
        if self._root is not None:
            return f"{self._root}/{self._secrets.written(path).lstrip('/')}"
        return self.former_url(path)

    def former_url(self, path: str) -> str:
        return self._secrets.written(str(self.fs.unstrip_protocol(self._secrets.revealed(path))))

    def _info(self, path: str, info: dict[str, Any]) -> FileInfo:
        return _remote_info(self._secrets.hidden(path), info)


def describe(error: BaseException) -> str:
    """The text of a file system's error, for the end of a message that already names the path."""
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
    return FileInfo(path, status.st_size, f"mtime={status.st_mtime_ns}", status.st_mtime_ns)


_CONTENT_TAGS: Final = ("ETag", "etag", "md5Hash", "generation")
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "Last-Modified", "created")
_TAGS: Final = (*_CONTENT_TAGS, *_TIMES)


def _remote_info(path: str, info: dict[str, Any]) -> FileInfo:
    """What fsspec says of a file; each file system has its own name for what changes when a file is written again."""
    tag = next((f"{key}={_plain(info[key])}" for key in _TAGS if info.get(key)), None)
    modified = next((_nanoseconds(info[key]) for key in _TIMES if info.get(key)), None)
    return FileInfo(path, info.get("size"), tag, modified)


def _nanoseconds(at: Any) -> int | None:
    """An instant as file systems give it: a `datetime`, seconds since 1970, ISO 8601, or as in the headers of HTTP."""
    match at:
        case bool():
            return None
        case int() | float():
            return round(at * 1e9)
        case datetime.datetime():
            return round(at.timestamp() * 1e6) * 1000
        case str():
            from email.utils import parsedate_to_datetime

            for parse in (datetime.datetime.fromisoformat, parsedate_to_datetime):
                try:
                    return _nanoseconds(parse(at))
                except ValueError:
                    pass
    return None


def _plain(tag: Any) -> str:
    """A tag as text; listings give times as seconds where other calls give datetimes."""
    seconds = tag.timestamp() if isinstance(tag, datetime.datetime) else tag
    return f"{seconds:.6f}" if isinstance(seconds, float) else str(seconds)


def _make_folders(folder: str) -> None:
    """Create a folder and its parents durably: they survive a crash."""
    created = []
    parent = folder
    while parent and not os.path.isdir(parent):
        created.append(parent)
        parent = os.path.dirname(parent)
    os.makedirs(folder, exist_ok=True)
    for path in created:
        _sync_folder(os.path.dirname(path) or ".")


def _kernel_devices() -> set[int]:
    """The devices of Linux's own file systems, in which programs can't create files."""
    return {os.stat(folder).st_dev for folder in ("/proc", "/sys") if os.path.ismount(folder)}


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
