"""The script of a process, whose command line is that of the pipelines made in it.

A pipeline that is made in the script itself, and is given no options, obeys the flags that the script was started with.
The script is the `__main__` module of a file, or what a command is loading. Code in any other module, a test, a
notebook and the interactive interpreter have no command line of their own, so a pipeline made there reads none.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final

MISUSE: Final = 2
"""The exit code of a process whose command line can't be obeyed."""

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
    """The flags of the script if the innermost caller outside Tidegate is the script; else none."""
    return sys.argv[1:] if len(sys.argv) > 1 and called_by_script() else []


def called_by_script() -> bool:
    """Whether the innermost caller outside Tidegate is the script."""
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
    """The part of its command line that the script itself has read."""

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


def end_in_words(error: BaseException, *lines: str, code: int | None = None) -> None:
    """Have the interpreter print these lines, instead of a traceback through Tidegate, if nobody handles `error`.

    `code` is what the process then exits with; None: what Python exits with after such an error.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        if value is not error:
            before(kind, value, trace)
            return
        for line in lines:
            print(line, file=sys.stderr)
        if code is not None:
            raise SystemExit(code)  # the interpreter exits with the code that its hook raises

    sys.excepthook = hook


def misused(error: Exception, tokens: Sequence[str], *, advised: bool = False) -> None:
    """Note that a command line can't be obeyed. If it is the script's, whoever typed it gets the error in words, what
    to do (`advised`: the error says it), and the exit code of misuse, unless the author handles the error."""
    if list(tokens) == sys.argv[1:] and _has_script() and being_loaded() is None:
        advice = [] if advised else [f"`python {sys.argv[0]} --help` lists the flags, with what each takes"]
        end_in_words(error, f"error: {error}", *advice, code=MISUSE)


def _has_script() -> bool:
    main = sys.modules.get("__main__")
    return main is not None and "__file__" in vars(main)


def print_to_reader(text: str) -> None:
    """Print, also to a reader that has read enough and gone: `head`, say."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard_stdout()


def reader_is_gone() -> bool:
    """Whether standard output is a pipe whose reader has closed it."""
    import select

    try:
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (AttributeError, OSError):  # no poll on this platform
        return False


def discard_stdout() -> None:
    """Throw away what is still to be printed, so that the end of the process finds nothing to complain of."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
