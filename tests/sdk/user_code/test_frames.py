"""The frames of a traceback that are shown to authors."""

from __future__ import annotations

import contextlib
import os

import tidegate
from tidegate.sdk.user_code.frames import author_frames

OURS = os.path.join(os.path.dirname(tidegate.__file__), "made_up.py")


def frame_names(error: BaseException) -> list[str]:
    names = []
    trace = author_frames(error.__traceback__)
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return names


def failing_in(file: str, call: str) -> list[str]:
    """The frames shown if the author calls code in `file` that enters a context manager whose body is `call`."""
    found: dict[str, object] = {"contextmanager": contextlib.contextmanager, "author": lambda: int("x")}
    source = f"@contextmanager\ndef managed():\n    {call}\n    yield\ndef enter():\n    with managed(): pass"
    exec(compile(source, file, "exec"), found)
    try:
        found["enter"]()  # type: ignore[operator]
    except Exception as error:
        return frame_names(error)
    raise AssertionError("it did not fail")


def test_frames_of_the_standard_library_between_frames_of_tidegate_are_hidden() -> None:
    assert failing_in(OURS, "1 / 0") == ["failing_in"]
    assert failing_in(OURS, "author()") == ["failing_in", "<lambda>"]


def test_frames_of_the_standard_library_that_the_author_called_are_shown() -> None:
    assert failing_in("script.py", "1 / 0") == ["failing_in", "enter", "__enter__", "managed"]
