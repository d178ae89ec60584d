"""Matches patterns of local paths. Unlike `glob`, it raises an error for a folder that can't be listed, instead of
treating it as empty."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
from collections.abc import Iterator
from typing import Final

_MAGIC: Final = re.compile(r"[*?\[]")


def paths_like(pattern: str) -> list[str]:
    """The matching files and folders, without repetitions. `**` matches any number of folders, and hidden names match
    only patterns that begin with a dot. Raises OSError if a folder that has to be searched can't be listed."""
    segments = [segment for segment in pattern.split("/") if segment]
    return list(dict.fromkeys(_matching("/" if pattern.startswith("/") else "", segments)))


def _matching(folder: str, segments: list[str]) -> Iterator[str]:
    if not segments:
        return
    first, *rest = segments
    if first == "**":
        yield from _matching(folder, rest)
        for name, is_folder in _names(folder):
            if not name.startswith("."):
                path = os.path.join(folder, name)
                if not rest:
                    yield path
                if is_folder:
                    yield from _matching(path, segments)
    elif _MAGIC.search(first):
        for name, is_folder in _names(folder):
            if fnmatch.fnmatchcase(name, first) and (first.startswith(".") or not name.startswith(".")):
                path = os.path.join(folder, name)
                if not rest:
                    yield path
                elif is_folder:
                    yield from _matching(path, rest)
    elif rest:
        yield from _matching(os.path.join(folder, first), rest)
    else:
        path = os.path.join(folder, first)
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        yield path


def _names(folder: str) -> list[tuple[str, bool]]:
    """The names in a folder, each with whether it is a folder. A link to itself is no folder."""
    try:
        with os.scandir(folder or ".") as entries:
            return [(entry.name, _is_folder(entry)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:
            return []
        raise


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise
