"""Reports the error of a failed command, with the step and the author's line, and without frames of Tidegate."""

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
"""How many of the author's frames are shown; a recursion may have thousands."""

_FOREIGN: Final = tuple(
    f"{Path(str(home)).parent}{os.sep}" for home in (tidegate.__file__, click.__file__, importlib.__file__)
)
"""The folders of code that is not the author's, as absolute paths."""


def report(error: BaseException, *, debug: bool = False) -> str:
    """The text that reports an error; with `debug`, Python's full traceback."""
    if debug:
        return "".join(traceback.format_exception(error)).rstrip()
    match error:
        case UserCodeError() | ExpandError():
            lines = [f"error: {error}"]
            if error.__cause__ is not None:
                lines += _frames(error.__cause__) + _notes(error.__cause__) + _origin(error.__cause__)
        case BuildError():
            lines = [f"error: {error}", *_refused_line(error)]
        case TidegateError():
            lines = [f"error: {error}"]
        case SyntaxError():
            where = f"{error.filename}:{error.lineno}" if error.filename else "the script"
            source = _text(traceback.format_exception_only(error))[1:-1]  # between the place and the message
            lines = [f"error: {where} is not valid Python: {error.msg}", *source]
        case ModuleNotFoundError(name=str(name)) if where := _importing(error):
            lines = [
                f"error: {where} imports {name}, which is not installed",
                f"Correct the name, or install its package for {sys.executable}",
            ]
        case _:
            frames = _frames(error)
            lines = [f"error: {_last_line(error)}", *frames, *_origin(error)]
            if not frames:
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
    """The author's line that was refused. Empty if the message already has the place: that of a step, for example."""
    place = raised_at(error.__traceback__)
    if place is None or not _of_author(place.file) or getattr(error, "step", None) is not None:
        return []
    if str(place) in str(error):
        return []
    source = linecache.getline(place.file, place.line).strip()
    return [f"  at {place}: {source}" if source else f"  at {place}"]


def is_misuse(error: BaseException) -> bool:
    """Whether the error is in the command line or the target, and nothing has run yet.

    That is known from the class of the error, or because a script raised it while it was executed. The error of a
    failing run is a RunError or a fault of Tidegate, and has no frames of the script.
    """
    match error:
        case BuildError() | LoadError() | OptionsError() | SyntaxError() | ImportError():
            return True  # the target can't be imported; a failing import within a run is a UserCodeError
        case TypeError() | AttributeError() | NameError():
            return bool(_authors(error.__traceback__))
        case ValueError():  # only if Tidegate raised it: one of the author's code may be about its input
            frames = traceback.extract_tb(error.__traceback__)
            return bool(_authors(error.__traceback__)) and frames[-1].filename.startswith(_FOREIGN[0])
        case _:
            return False


def _importing(error: ImportError) -> str:
    """The author's line with the failing import; "" if the import is in other code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    is_author = frames and _of_author(frames[-1].filename)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if is_author else ""


def _notes(error: BaseException) -> list[str]:
    """The notes of an error. An error from another process has its frames as a note."""
    return _text(getattr(error, "__notes__", []))


def _origin(error: BaseException) -> list[str]:
    """The exceptions that led to this one: its causes, or those that were being handled when it was raised."""
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
