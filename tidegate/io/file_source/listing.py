"""Listing: the files that match patterns, with what their stores know about each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tidegate.io import files
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk.errors import BuildError, shorten
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
            matched = files.match(pattern, options)
        except OSError as problem:
            raise error(f"{pattern}: {files.describe(problem)}") from problem
        if not matched and not allow_empty:
            raise error(
                f"no file matches {pattern!r}: {files.explain_no_match(pattern, options)}. "
                "If there may be no such file, set allow_empty=True"
            )
        store, _ = files.store_of(pattern, options)
        for info in matched:
            file = Found(pattern, store.url(info.path), info)
            found.setdefault(file.url, file)
    return list(found.values())
