"""Places in the author's code, found on the stack and in tracebacks by skipping Tidegate's own frames."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Final

from tidegate.sdk.errors import BuildError, visible
from tidegate.sdk.metrics import GENERATED
from tidegate.sdk.notebook import chained, format_place, frames_outside, place_of
from tidegate.sdk.user_code.source_lines import Instruction, line_at, line_of

_PACKAGE: Final = __file__.rsplit("sdk", 1)[0]
_GENERATED: Final = (GENERATED, "<tidegate ")
"""How the names of files begin of which generated code seems to be: loops, and functions that compute expressions."""
_trimming = False


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the author's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return format_place(visible(self.file), self.line)


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
    while frame is not None and (
        frame.f_code.co_filename.startswith((_PACKAGE, "<frozen")) or _is_generated_method(frame)
    ):
        frame = frame.f_back
    return frame


def author_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without Tidegate's frames; None if no frame of the author's is in it."""
    return chained(
        [part for part in frames_outside(trace, (_PACKAGE, *_GENERATED)) if not _is_generated_method(part.tb_frame)]
    )


def _is_generated_method(frame: FrameType) -> bool:
    """Whether the frame executes a method that Python generated for one of Tidegate's dataclasses."""
    return frame.f_code.co_filename == "<string>" and str(frame.f_globals.get("__name__")).startswith("tidegate.")


def raised_at(trace: TracebackType | None) -> Where | None:
    """The author's innermost line in a traceback; None if no frame of the author's is in it."""
    last = author_frames(trace)
    if last is None:
        return None
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    return Where(place_of(code.co_filename), line_at(code, last.tb_lasti) or last.tb_lineno)


def trim_refusals() -> None:
    """Install an exception hook that ends the traceback of an uncaught BuildError at the author's line."""
    global _trimming
    if _trimming:
        return
    _trimming = True
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        trimmed = author_frames(trace) if isinstance(value, BuildError) else None
        if trimmed is not None:
            trace = trimmed
            value.__traceback__ = trimmed
            if value.__cause__ is not None and author_frames(value.__cause__.__traceback__) is None:
                value.__cause__ = None  # an exception that only Tidegate's code raised and caught
        before(kind, value, trace)

    sys.excepthook = hook
