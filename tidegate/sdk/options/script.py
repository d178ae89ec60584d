"""The script of a process, whose command line is that of the pipelines made in it.

A pipeline that is made in the script itself, and is given no options, obeys the flags that the script was started with.
The script is the `__main__` module of a file, or what a command is loading. Code in any other module, a test, a
notebook and the interactive interpreter have no command line of their own, so a pipeline made there reads none.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final

_HOME: Final = __file__.rsplit("sdk", 1)[0]


class Unwound(BaseException):
    """Leaves a script that is being loaded, after its pipeline was taken. No `except Exception` of the author's stops
    it, and each `finally` is executed."""


@dataclass(frozen=True, slots=True)
class Loading:
    """A script that is executed for one of its pipelines. `take` is called with each pipeline that would run, in place
    of the run."""

    module: str
    take: Callable[[Any], Any]
    thread: int


_loading: Loading | None = None


@contextmanager
def loading(module: str, take: Callable[[Any], Any]) -> Iterator[None]:
    """Inside, this thread executes the module of that name, and the pipelines that it would run are taken."""
    global _loading
    before, _loading = _loading, Loading(module, take, threading.get_ident())
    try:
        yield
    finally:
        _loading = before


@contextmanager
def running() -> Iterator[None]:
    """Inside, pipelines run although a script is being loaded: a command does its work."""
    global _loading
    before, _loading = _loading, None
    try:
        yield
    finally:
        _loading = before


def being_loaded() -> Loading | None:
    """The script that this thread is loading."""
    return _loading if _loading is not None and _loading.thread == threading.get_ident() else None


def script_flags() -> list[str]:
    """The flags of the script, if the nearest code on the stack that isn't Tidegate's is the script's; else none."""
    return sys.argv[1:] if len(sys.argv) > 1 and called_by_script() else []


def called_by_script() -> bool:
    """Whether the nearest code on the stack that isn't Tidegate's is the script's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_HOME, "<frozen")):
        frame = frame.f_back
    return frame is not None and _is_script(frame.f_globals)


def _is_script(space: dict[str, Any]) -> bool:
    script = being_loaded()
    if script is not None:
        return space.get("__name__") == script.module
    main = sys.modules.get("__main__")
    return main is not None and vars(main) is space and "__file__" in space


@dataclass(slots=True)
class _Read:
    """What the script itself has read of its command line."""

    argv: list[str]
    names: set[str]
    all: bool = False


_read = _Read([], set())


def note_read(tokens: Sequence[str], names: Set[str] | None) -> None:
    """Options were read from these tokens: flags of these names, or None if the rest was handed back to the script."""
    global _read
    if list(tokens) != sys.argv[1:]:
        return
    if _read.argv != sys.argv:
        _read = _Read(list(sys.argv), set())
    _read.names |= names or set()
    _read.all |= names is None


def was_read(name: str) -> bool:
    """Whether the script has read the flag of that name (with `_`, and without dashes in front)."""
    return _read.argv == sys.argv and (_read.all or name in _read.names)


def end_in_words(error: KeyboardInterrupt, *lines: str) -> None:
    """Have the interpreter print these lines, instead of a traceback through Tidegate, if nobody handles `error`."""
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        if value is error:
            print(*lines, sep="\n", file=sys.stderr)
        else:
            before(kind, value, trace)

    sys.excepthook = hook
