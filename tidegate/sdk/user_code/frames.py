"""Places in the author's code, found on the stack and in tracebacks, without Tidegate's own frames."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Final

from tidegate.sdk.errors import visible
from tidegate.sdk.metrics import GENERATED
from tidegate.sdk.notebook import chained, frames_outside, place_of, spoken
from tidegate.sdk.user_code.source_lines import Instruction, line_of

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
    frame = _calling_frame()
    return Where("<unknown>", 0) if frame is None else Where(place_of(frame.f_code.co_filename), line_of(frame))


def calling_instruction() -> Instruction | None:
    """The instruction that the nearest frame outside Tidegate is executing."""
    frame = _calling_frame()
    return None if frame is None else Instruction(frame.f_code, frame.f_lasti)


def _calling_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((_HOME, "<frozen")):
        frame = frame.f_back
    return frame


def author_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without Tidegate's frames; None if no code of the author's was on the stack."""
    return chained(frames_outside(trace, (_HOME, GENERATED)))
