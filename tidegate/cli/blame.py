"""The output of a failed command: the error, its step, the author's line; no frames of Tidegate."""

from __future__ import annotations

import importlib
import linecache
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import click

import tidegate
from tidegate.sdk.errors import (
    BuildError,
    ExpandError,
    LoadError,
    OptionsError,
    TidegateError,
    UserCodeError,
    visible_lines,
)
from tidegate.sdk.user_code.frames import author_frames, raised_at

MOST_FRAMES: Final = 6
"""The innermost frames of the author's are enough to find the place; recursion may have thousands."""

_FOREIGN: Final = tuple(
    f"{Path(str(home)).parent}{os.sep}" for home in (tidegate.__file__, click.__file__, importlib.__file__)
)
"""Folders whose code is not the author's, wherever they are, and whatever other folders are called."""


def report(error: BaseException, *, debug: bool = False) -> str:
    """The text for an error; with `debug` everything Python knows of it."""
    if debug:
        return "".join(traceback.format_exception(error)).rstrip()
    match error:
        case UserCodeError() | ExpandError():
            lines = [f"error: {error}"]
            if error.__cause__ is not None:
                lines += _frames(error.__cause__) + _told_by(error.__cause__) + _origin(error.__cause__)
        case BuildError():
            lines = [f"error: {error}", *_refused_line(error)]
        case TidegateError():
            lines = [f"error: {error}"]
        case SyntaxError():
            where = f"{error.filename}:{error.lineno}" if error.filename else "the script"
            shown = _text(traceback.format_exception_only(error))[1:-1]  # between where it is and what it is
            lines = [f"error: {where} is no valid Python: {error.msg}", *shown]
        case ModuleNotFoundError(name=str(name)) if where := _importing(error):
            lines = [
                f"error: {where} imports {name}, which is not there",
                f"Correct the name, or install what provides it for {sys.executable}",
            ]
        case _:
            own = _frames(error)
            lines = [f"error: {_last_line(error)}", *own, *_origin(error)]
            if not own:
                lines.append("This is a fault of Tidegate, or of a package it uses; --debug shows where")
    return visible_lines("\n".join(lines))


def _frames(error: BaseException) -> list[str]:
    """The author's frames, innermost last."""
    shown = _authors(error.__traceback__)
    if not shown:
        return []
    left_out = len(shown) - MOST_FRAMES
    heading = "in your code, the innermost call last" + (f" ({left_out} outer ones left out)" if left_out > 0 else "")
    return [f"{heading}:", *_text(traceback.format_list(shown[-MOST_FRAMES:]))]


def _refused_line(error: BuildError) -> list[str]:
    """The author's line that was refused before it was part of a step, whose own place the message would have."""
    place = raised_at(error.__traceback__)
    if place is None or not _of_author(place.file) or getattr(error, "step", None) is not None:
        return []
    if str(place) in str(error):
        return []
    source = linecache.getline(place.file, place.line).strip()
    return [f"  at {place}: {source}" if source else f"  at {place}"]


def is_misuse(error: BaseException) -> bool:
    """Whether the target, or the command line, has to be corrected before anything can run.

    Beside the errors that say so by their class, these are the mistakes of a script that is being executed. What a
    failing run raises has no frames of the script's: it is a RunError, or a fault of Tidegate's.
    """
    match error:
        case BuildError() | LoadError() | OptionsError() | SyntaxError() | ImportError():
            return True  # a target that can't be imported has not run; what fails to import in a run is a UserCodeError
        case TypeError() | AttributeError() | NameError():
            return bool(_authors(error.__traceback__))
        case ValueError():  # refused by Tidegate; a ValueError of the author's own code may be about its input
            frames = traceback.extract_tb(error.__traceback__)
            return bool(_authors(error.__traceback__)) and frames[-1].filename.startswith(_FOREIGN[0])
        case _:
            return False


def _importing(error: ImportError) -> str:
    """The author's line with the import that has failed; "" if it isn't one of the author's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    own = frames and _of_author(frames[-1].filename)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if own else ""


def _told_by(error: BaseException) -> list[str]:
    """The notes of an error. One that comes from another process has its frames as a note."""
    return _text(getattr(error, "__notes__", []))


def _origin(error: BaseException) -> list[str]:
    """The exception that the author's code was handling, or raised this one from."""
    lines: list[str] = []
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while earlier is not None and len(lines) < 3:
        place = _innermost(earlier.__traceback__)
        lines.append(f"caused by {_last_line(earlier)}{place}")
        earlier = earlier.__cause__ or (None if earlier.__suppress_context__ else earlier.__context__)
    return lines


def _innermost(trace: TracebackType | None) -> str:
    shown = _authors(trace)
    return f"  ({shown[-1].filename}:{shown[-1].lineno})" if shown else ""


def _authors(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(author_frames(trace)) if _of_author(frame.filename)]


def _of_author(file: str) -> bool:
    return not file.startswith((*_FOREIGN, "<frozen", "<tidegate:"))


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].rstrip()


def _text(parts: list[str]) -> list[str]:
    return [line for part in parts for line in part.rstrip().splitlines()]
