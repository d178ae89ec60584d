"""The differences between notebooks and scripts: code is in cells, and IPython renders errors and tables.

Nothing here imports IPython: a process that has not loaded it is not a notebook.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

_PACKAGE: Final = __file__.rsplit("sdk", 1)[0]
_STANDARD_LIBRARY: Final = os.path.dirname(os.__file__) + os.sep
_INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_PROMPT: Final = re.compile(r"<stdin>|<console>|<python-input-\d+>")
_CELL: Final = re.compile(r"cell In\[\d+\]")


def shell() -> Any:
    """The IPython shell of this process; None if there is none."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def in_notebook() -> bool:
    """Whether results of cells are rendered as HTML: the shell belongs to a kernel, not to a terminal."""
    return hasattr(shell(), "kernel")


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a cell, or of a statement at a prompt. `cell` is the cell's id, if the notebook sends one: it is the
    same each time the cell is run, even after an edit."""

    run: int
    cell: str | None = None
    code: CodeType | None = field(default=None, compare=False, repr=False)
    """The statement's code, referenced here so that no other object can get its id."""


def current_execution() -> Execution | None:
    """The cell or statement that is being executed; None in a script, which is never run again in the same process."""
    ipython = shell()
    if ipython is not None:
        message = ipython.get_parent() if hasattr(ipython, "get_parent") else {}
        return Execution(ipython.execution_count, message.get("metadata", {}).get("cellId"))
    if not hasattr(sys, "ps1"):
        return None
    statement: CodeType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _PROMPT.fullmatch(frame.f_code.co_filename) and frame.f_code.co_name == "<module>":
            statement = frame.f_code
        frame = frame.f_back
    return None if statement is None else Execution(id(statement), code=statement)


def place_of(file: str) -> str:
    """The file that code was compiled from; for a cell, `cell In[4]` instead of its temporary file name."""
    if "IPython" not in sys.modules:
        return file
    name_of = getattr(getattr(shell(), "compile", None), "format_code_name", None)
    named = None if name_of is None else name_of(file)
    return file if named is None else " ".join([named[0].lower(), *named[1:]])


def format_place(file: str, line: int) -> str:
    """A place in code: `file.py:7`, or `cell In[4], line 7`."""
    return f"{file}, line {line}" if _CELL.fullmatch(file) else f"{file}:{line}"


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """An HTML table of text, with a caption."""
    from html import escape

    left = ' style="text-align: left"'
    head = "".join(f"<th{left}>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td{left}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<table><caption style="text-align: left">{escape(caption)}</caption>{head}<tbody>{body}</tbody></table>'


def traceback_lines(error: BaseException) -> list[str]:
    """An error as a notebook shows it: its message, with only the frames of cells and the author's modules."""
    cause = error.__cause__
    while cause is not None:
        cause.__traceback__ = _author_frames(cause.__traceback__, in_cell=True)
        cause = cause.__cause__
    frames = _author_frames(error.__traceback__)
    return list(shell().InteractiveTB.structured_traceback(type(error), error, frames, tb_offset=0))


def _author_frames(trace: TracebackType | None, *, in_cell: bool = False) -> TracebackType | None:
    """The frames from the outermost cell on, or all if the traceback begins `in_cell`, without Tidegate's."""
    found: list[TracebackType] = []
    for part in frames_outside(trace, (_PACKAGE,)):
        if in_cell or found or _CELL.fullmatch(place_of(part.tb_frame.f_code.co_filename)):
            found.append(part)
    return chained(found)


def frames_outside(trace: TracebackType | None, excluded: tuple[str, ...]) -> list[TracebackType]:
    """The frames of files whose names don't begin with `excluded`.

    Frames of the standard library between two excluded ones are left out as well.
    """
    found: list[TracebackType] = []
    since: int | None = None
    """The number of frames found before the last excluded one, if only the standard library has been called since."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(excluded):
            if since is not None:
                del found[since:]
            since = len(found)
        else:
            found.append(trace)
            if not _is_standard_library(file):
                since = None
        trace = trace.tb_next
    return found


def _is_standard_library(file: str) -> bool:
    return file.startswith("<frozen") or (
        file.startswith(_STANDARD_LIBRARY) and not any(folder in file for folder in _INSTALLED)
    )


def chained(parts: Sequence[TracebackType]) -> TracebackType | None:
    """A traceback with only these frames."""
    result: TracebackType | None = None
    for part in reversed(parts):
        result = TracebackType(result, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return result
