"""Notebooks, as far as they differ from scripts: code stands in cells, errors and tables are drawn by IPython.

Nothing here imports IPython: where it is not loaded, there is no notebook.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final

_HOME: Final = __file__.rsplit("sdk", 1)[0]
_CELL: Final = re.compile(r"cell In\[\d+\]")


def shell() -> Any:
    """The IPython shell of this process; None if there is none."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def in_notebook() -> bool:
    """Whether what cells give is drawn as HTML: the shell is that of a kernel, not a terminal's."""
    return hasattr(shell(), "kernel")


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
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_HOME) and (begun or kept or _CELL.fullmatch(place_of(file))):
            kept.append(trace)
        trace = trace.tb_next
    result: TracebackType | None = None
    for part in reversed(kept):
        result = TracebackType(result, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return result
