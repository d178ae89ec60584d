"""The script of a process, and its command line, which supplies the options of pipelines made in the script.

A pipeline made in the script itself without options reads the flags that the script was started with. The script is the
`__main__` module of a file, or the module that a command is loading. A pipeline made elsewhere reads no command line:
in another module, a test, a notebook or the interactive interpreter.
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
"""The exit code of a process whose command line is invalid."""

_HOME: Final = __file__.rsplit("sdk", 1)[0]


class Unwound(BaseException):
    """Ends a script that is being loaded, once its pipeline has been intercepted. The author's `except Exception`
    doesn't catch it, and each `finally` is executed."""


@dataclass(frozen=True, slots=True)
class Loading:
    """A script that is being executed for one of its pipelines. When the script runs a pipeline, `intercept` is called
    with it instead."""

    module: str
    intercept: Callable[[Any], Any]
    thread: int


_loading: Loading | None = None


@contextmanager
def loading(module: str, intercept: Callable[[Any], Any]) -> Iterator[None]:
    """A context in which this thread executes the module of that name, and the pipelines that it runs are
    intercepted."""
    global _loading
    before, _loading = _loading, Loading(module, intercept, threading.get_ident())
    try:
        yield
    finally:
        _loading = before


@contextmanager
def running() -> Iterator[None]:
    """A context in which pipelines run although a script is being loaded, for the work of the command."""
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
    """The flags of the script if the innermost caller outside Tidegate is the script, and otherwise none."""
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
    """The part of the command line that the script has read with `from_args` or `from_known_args`."""

    argv: list[str]
    names: set[str]
    all: bool = False


_read = _Read([], set())


def note_read(tokens: Sequence[str], names: Set[str] | None) -> None:
    """Record that flags of these names were read from the tokens. `names` is None if the script parses the rest."""
    global _read
    if list(tokens) != sys.argv[1:]:
        return
    if _read.argv != sys.argv:
        _read = _Read(list(sys.argv), set())
    _read.names |= names or set()
    _read.all |= names is None


def was_read(name: str) -> bool:
    """Whether the script has read the flag of that name (with `_`, and without leading dashes)."""
    return _read.argv == sys.argv and (_read.all or name in _read.names)


def replace_traceback(error: BaseException, *lines: str, code: int | None = None) -> None:
    """Let the interpreter print these lines instead of a traceback if `error` ends the process.

    `code` is the exit code of the process; by default that of Python for the error.
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


def on_misuse(error: Exception, tokens: Sequence[str], *, advised: bool = False) -> None:
    """Prepare for the end of a script whose command line is invalid. Unless the author handles the error, the process
    prints it without a traceback, with advice (unless the error is `advised` already), and exits with MISUSE. Does
    nothing if `tokens` are not the command line of the script."""
    if list(tokens) == sys.argv[1:] and _has_script() and being_loaded() is None:
        advice = [] if advised else [f"`python {sys.argv[0]} --help` lists the flags, with what each takes"]
        replace_traceback(error, f"error: {error}", *advice, code=MISUSE)


def _has_script() -> bool:
    main = sys.modules.get("__main__")
    return main is not None and "__file__" in vars(main)


def print_to_reader(text: str) -> None:
    """Print, without an error if the reader has closed standard output, as `head` does."""
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
    """Discard buffered and later output, so that the interpreter can flush standard output without an error when it
    exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
