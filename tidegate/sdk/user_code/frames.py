"""Places in the author's code, found on the stack and in tracebacks, without Tidegate's own frames."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Final

from tidegate.sdk.errors import visible
from tidegate.sdk.metrics import GENERATED
from tidegate.sdk.notebook import place_of, spoken
from tidegate.sdk.user_code.source_lines import line_of

_HOME: Final = __file__.rsplit("sdk", 1)[0]


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the author's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return spoken(visible(self.file), self.line)


def caller() -> Where:
    """The nearest line on the stack outside Tidegate: where the author applied a step."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HOME) and not file.startswith("<frozen"):
            return Where(place_of(file), line_of(frame))
        frame = frame.f_back
    return Where("<unknown>", 0)


def author_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without Tidegate's frames; None if no code of the author's was on the stack."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((_HOME, GENERATED)):
            kept.append(trace)
        trace = trace.tb_next
    result: TracebackType | None = None
    for part in reversed(kept):
        result = TracebackType(result, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return result
