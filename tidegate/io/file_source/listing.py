"""Listing: the files that match patterns, with what their stores know about each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tidegate.io import files
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk.connectors.slow_answers import told_if_slow
from tidegate.sdk.errors import BuildError, TidegateError, shorten
from tidegate.sdk.secrets.redaction import redacted
from tidegate.sdk.time import Timestamp

Path: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """A file that matched: its path or URL, its size in bytes, and when it was last written.

    `tag` identifies its content in stores that have such tags (an ETag of S3). A value that the store doesn't know is
    None.
    """

    path: str
    size: int | None = None
    modified: Timestamp | None = None
    tag: str | None = None


class Found(NamedTuple):
    """A file that matches a pattern."""

    pattern: str
    url: str
    info: files.FileInfo

    @property
    def version(self) -> str:
        """A string that changes whenever the file's content does."""
        return f"{self.info.size},{self.info.tag}"

    @property
    def metadata(self) -> FileMetadata:
        """The file as an element."""
        info = self.info
        modified = None if info.modified is None else Timestamp.of_micros(info.modified // 1000)
        return FileMetadata(self.url, info.size, modified, info.content_tag)


def paths_of(path: Path | Iterable[Path], of: str) -> tuple[str, ...]:
    """The paths and patterns that an author gave. Raises BuildError, naming the transform `of`, for anything else."""
    try:
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        found = tuple(os.fspath(path) for path in paths)
    except TypeError:
        raise BuildError(f"{of} takes a path, a pattern, or a list of them, not {shorten(path)}") from None
    if not found or not all(found):
        raise BuildError(f"{of}: the path is empty")
    return found


def matching(
    patterns: Sequence[str], allow_empty: bool, error: type[Exception], options: StorageOptions | None = None
) -> list[Found]:
    """The files of each pattern in order; a file that several patterns match is listed once.

    Raises `error` if a pattern can't be listed, or matches no file although `allow_empty` is false.
    """
    found: dict[str, Found] = {}
    for pattern in patterns:
        try:
            with told_if_slow(pattern):
                matched = files.match(pattern, options)
        except TidegateError:
            raise
        except Exception as problem:  # file systems of fsspec raise errors of their own
            raise error(redacted(f"{pattern}: {files.describe(problem)}")) from problem
        if not matched and not allow_empty:
            raise error(
                f"no file matches {pattern!r}: {explain_no_match(pattern, options)}. "
                "If there may be no such file, set allow_empty=True"
            )
        store, _ = files.store_of(pattern, options)
        for info in matched:
            file = Found(pattern, store.url(info.path), info)
            found.setdefault(file.url, file)
    return list(found.values())


def has_folder(pattern: str, options: StorageOptions | None = None) -> bool:
    """Whether the folder exists in which a pattern looks for files."""
    store, path = files.store_of(pattern, options)
    return store.names(_divided(path)[0]) is not None


def _divided(pattern: str) -> tuple[str, list[str]]:
    """The folder of a pattern up to its first `*`, `?` or `[`, and the parts behind it."""
    parts = pattern.split("/")
    magic = next((i for i, part in enumerate(parts) if files.MAGIC & set(part)), len(parts) - 1)
    return "/".join(parts[:magic]) or ("/" if pattern.startswith("/") else ""), parts[magic:]


def is_folder(pattern: str, options: StorageOptions | None = None) -> bool:
    """Whether a path, which is not the path of a file, is that of a folder."""
    store, path = files.store_of(pattern, options)
    return not files.MAGIC & set(path) and store.names(path) is not None


def explain_no_match(pattern: str, options: StorageOptions | None = None) -> str:
    """The reason why no file matches: the folder that is missing, or what the searched folder contains instead."""
    if is_folder(pattern, options):
        return f"it is a folder: for the files in it, say {files.join(pattern, '*')!r}"
    store, path = files.store_of(pattern, options)
    folder, (wanted, *rest) = _divided(path)
    shown = store.url(folder) if folder else f"{os.getcwd()} (the current folder)"
    names = store.names(folder)
    if names is None:
        return f"there is no folder {shown}"
    import difflib
    import fnmatch

    names = [name for name in names if not name.startswith(".")]
    if not rest and wanted != "**" and fnmatch.filter(names, wanted):
        head, slash, _ = pattern.rpartition("/")
        below = f"{head}{slash}**/{wanted}"
        return f"only folders match it: for the files in them, and in their folders, say {below!r}"
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.7)  # at 0.6, a common suffix is enough
    match len(names):
        case 0:
            has = ", which is empty"
        case _ if near:
            has = f"; there is {', '.join(near)}"
        case 1:
            has = "; the only name in it is not similar"
        case several:
            has = f"; none of the {several} names in it is similar"
    return f"looked in {shown}{has}"
