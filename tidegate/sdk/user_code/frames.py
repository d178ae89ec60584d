"""Places in the author's code, found on the stack and in tracebacks, without Tidegate's own frames."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Final

from tidegate.sdk.errors import BuildError, visible
from tidegate.sdk.metrics import GENERATED
from tidegate.sdk.notebook import chained, frames_outside, place_of, spoken
from tidegate.sdk.user_code.source_lines import Instruction, line_at, line_of

_HOME: Final = __file__.rsplit("sdk", 1)[0]
_trimming = False


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
    while frame is not None and (frame.f_code.co_filename.startswith((_HOME, "<frozen")) or _is_made_for_us(frame)):
        frame = frame.f_back
    return frame


def author_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without Tidegate's frames; None if no code of the author's was on the stack."""
    return chained([part for part in frames_outside(trace, (_HOME, GENERATED)) if not _is_made_for_us(part.tb_frame)])


def _is_made_for_us(frame: FrameType) -> bool:
    """Whether it executes a method that Python has generated for a dataclass of Tidegate's."""
    return frame.f_code.co_filename == "<string>" and str(frame.f_globals.get("__name__")).startswith("tidegate.")


def raised_at(trace: TracebackType | None) -> Where | None:
    """The innermost line of the author's in a traceback; None if no code of the author's was on the stack."""
    last = author_frames(trace)
    if last is None:
        return None
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    return Where(place_of(code.co_filename), line_at(code, last.tb_lasti) or last.tb_lineno)


def trim_refusals() -> None:
    """From now on the interpreter ends the traceback of a BuildError that nobody handles at the author's line."""
    global _trimming
    if _trimming:
        return
    _trimming = True
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        own = author_frames(trace) if isinstance(value, BuildError) else None
        if own is not None:
            trace = own
            value.__traceback__ = own
            if value.__cause__ is not None and author_frames(value.__cause__.__traceback__) is None:
                value.__cause__ = None  # Tidegate's own way of finding out
        before(kind, value, trace)

    sys.excepthook = hook
