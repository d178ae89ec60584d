"""Notebooks, as far as they differ from scripts: code stands in cells, errors and tables are drawn by IPython.

Nothing here imports IPython: where it is not loaded, there is no notebook.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

_HOME: Final = __file__.rsplit("sdk", 1)[0]
_STANDARD_LIBRARY: Final = os.path.dirname(os.__file__) + os.sep
_INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_PROMPT: Final = re.compile(r"<stdin>|<console>|<python-input-\d+>")
_CELL: Final = re.compile(r"cell In\[\d+\]")


def shell() -> Any:
    """The IPython shell of this process; None if there is none."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def in_notebook() -> bool:
    """Whether what cells give is drawn as HTML: the shell is that of a kernel, not a terminal's."""
    return hasattr(shell(), "kernel")


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a cell, or of a statement at a prompt. `cell` is the cell's own identity, where the notebook sends it:
    it is the same each time the cell is run, edited or not."""

    run: int
    cell: str | None = None
    code: CodeType | None = field(default=None, compare=False, repr=False)
    """The statement's code, kept so that no other gets its id."""


def current_execution() -> Execution | None:
    """The cell or the statement that is being executed; None in a script, where no code is run again."""
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
    """The file that code was compiled from; for a cell, `cell In[4]` in place of the temporary name it goes by."""
    if "IPython" not in sys.modules:
        return file
    name_of = getattr(getattr(shell(), "compile", None), "format_code_name", None)
    named = None if name_of is None else name_of(file)
    return file if named is None else " ".join([named[0].lower(), *named[1:]])


def spoken(file: str, line: int) -> str:
    """A place in code: `file.py:7`, or `cell In[4], line 7`."""
    return f"{file}, line {line}" if _CELL.fullmatch(file) else f"{file}:{line}"


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """Rows of text, and a line about them."""
    from html import escape

    left = ' style="text-align: left"'
    head = "".join(f"<th{left}>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td{left}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<table><caption style="text-align: left">{escape(caption)}</caption>{head}<tbody>{body}</tbody></table>'


def traceback_lines(error: BaseException) -> list[str]:
    """What a notebook shows of an error: its message, and the frames of cells and the author's modules alone."""
    cause = error.__cause__
    while cause is not None:
        cause.__traceback__ = _frames(cause.__traceback__, begun=True)
        cause = cause.__cause__
    lines = shell().InteractiveTB.structured_traceback(type(error), error, _frames(error.__traceback__), tb_offset=0)
    return list(lines)


def _frames(trace: TracebackType | None, *, begun: bool = False) -> TracebackType | None:
    """From the outermost cell on, without Tidegate's."""
    kept: list[TracebackType] = []
    for part in frames_outside(trace, (_HOME,)):
        if begun or kept or _CELL.fullmatch(place_of(part.tb_frame.f_code.co_filename)):
            kept.append(part)
    return chained(kept)


def frames_outside(trace: TracebackType | None, home: tuple[str, ...]) -> list[TracebackType]:
    """The frames of files that don't begin with `home`, without those of the standard library between two that do."""
    kept: list[TracebackType] = []
    since: int | None = None
    """How many frames were kept at the last one of `home`, while only the standard library has been met since."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(home):
            if since is not None:
                del kept[since:]
            since = len(kept)
        else:
            kept.append(trace)
            if not _is_standard_library(file):
                since = None
        trace = trace.tb_next
    return kept


def _is_standard_library(file: str) -> bool:
    return file.startswith("<frozen") or (
        file.startswith(_STANDARD_LIBRARY) and not any(folder in file for folder in _INSTALLED)
    )


def chained(parts: Sequence[TracebackType]) -> TracebackType | None:
    """A traceback of these frames alone."""
    result: TracebackType | None = None
    for part in reversed(parts):
        result = TracebackType(result, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return result
