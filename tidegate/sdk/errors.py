"""The exception hierarchy. Every message says what is wrong, where, and what to do.

`BuildError` and its subclasses are raised before anything runs; `UserCodeError` carries an exception that the author's
code raised while a pipeline ran.
"""

from __future__ import annotations

import errno
import os
from typing import Final


class TidegateError(Exception):
    """The base class: `except tg.TidegateError` catches every error that Tidegate itself raises."""

    def _render_traceback_(self) -> list[str]:
        """The traceback that IPython shows, without Tidegate's frames."""
        from tidegate.sdk.notebook import traceback_lines

        return traceback_lines(self)


class MissingAttribute(AttributeError):
    """An AttributeError for a name that Tidegate's objects and modules don't have, under Python's own name."""

    def _render_traceback_(self) -> list[str]:
        """The traceback that IPython shows, without Tidegate's frames."""
        from tidegate.sdk.notebook import traceback_lines

        return traceback_lines(self)

    def __reduce__(self) -> tuple[object, ...]:
        """Become a plain AttributeError: pickle can't find this class under its name."""
        return AttributeError, self.args


MissingAttribute.__module__, MissingAttribute.__name__ = "builtins", "AttributeError"
MissingAttribute.__qualname__ = "AttributeError"


class TidegateWarning(UserWarning):
    """A warning about code that is allowed but probably a mistake. `warnings.filterwarnings("error",
    category=tg.TidegateWarning)` turns such warnings into errors, "ignore" silences them."""


class BuildError(TidegateError):
    """A pipeline that is invalid or can't work as intended: refused while it is built or checked."""


class ExpandError(BuildError):
    """A composite's `expand` raised. `__cause__` is the original exception, whose traceback has the author's frames."""


class TypeCheckError(BuildError):
    """A step's input has an element type that the step can't take."""


class SqlError(BuildError):
    """A statement in SQL that is refused. The message has the line of the statement, with a caret under the place."""


class PicklingError(BuildError):
    """A function or value of the author's that can't be pickled, and so can't be sent to a worker."""


class UnsupportedError(BuildError):
    """A feature that the chosen runner does not support."""


class OptionsError(TidegateError):
    """An unknown flag, or an invalid value for a flag."""


class LoadError(TidegateError):
    """A compiled pipeline that can't be read: truncated, of another version, or inconsistent."""


class RunError(TidegateError):
    """A pipeline that failed while it ran."""


class UserCodeError(RunError):
    """The author's code raised. `__cause__` is the original exception, without the engine's frames.

    `step` is the label path, `where` the `file:line` at which the step was applied, `element` a short repr of the
    element being processed (None in a life-cycle method).
    """

    def __init__(self, message: str, *, step: str, where: str, element: str | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.where = where
        self.element = element

    def __reduce__(self) -> tuple[object, ...]:
        return _user_code_error, (self.args[0], self.step, self.where, self.element)


def _user_code_error(message: str, step: str, where: str, element: str | None) -> UserCodeError:
    return UserCodeError(message, step=step, where=where, element=element)


class CheckError(RunError):
    """A step broke a rule that other runners rely on, for example by mutating an element. Detected by `--checks`."""


class KeyEncodingError(RunError):
    """A key without a canonical encoding (NaN, a list, an object with no registered coder)."""


class ReadError(RunError):
    """Input that can't be read: a missing or broken file, a line that can't be decoded."""


class PositionLost(ReadError):
    """The position from which reading should resume no longer exists, for example because the system has deleted that
    data meanwhile. To go on from another position would lose data in silence, so the job fails instead."""


class WriteError(RunError):
    """Output that can't be written or committed."""


def error_text(error: BaseException) -> str:
    """`str(error)` for messages; it never raises, even if the exception's `__str__` does."""
    try:
        return str(error)
    except Exception as worse:
        return f"<an exception whose text raised {type(worse).__name__}>"


def write_failure(error: OSError, elsewhere: str, path: object = None) -> str:
    """Why a write failed: the system's message, the file, and what to do if the disk is full.

    `elsewhere` names the setting that chooses another place; `path` is used if the error names no file.
    """
    if error.errno is None:
        return error_text(error) if type(error) is OSError else f"{type(error).__name__}: {error_text(error)}"
    place = path or error.filename2 or error.filename
    reason = f"{error.strerror or os.strerror(error.errno)}{f': {place}' if place else ''}"
    if error.errno in _DISK_FULL:
        return f"{reason}; free some space there, or use {elsewhere}"
    if error.errno == errno.EFBIG:
        return f"{reason}; larger files may be allowed elsewhere, or after `ulimit -f unlimited`: use {elsewhere}"
    return reason


def access_failure(error: Exception) -> str:
    """Why a file or an object store can't be used: the system's message and the file, or what the client raised."""
    if isinstance(error, OSError):
        return write_failure(error, "another place")
    return f"{type(error).__name__}: {error_text(error)}"


_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def shorten(value: object, limit: int = 120) -> str:
    """A repr for messages, of at most `limit` characters; it never raises."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def counted(n: int, one: str, several: str = "") -> str:
    """A number with what is counted; `several` is the plural, if it is not formed by an s.

    >>> counted(1, "split is read", "splits are read"), counted(1200, "file")
    ('1 split is read', '1,200 files')
    """
    return f"{n:,} {one if n == 1 else several or f'{one}s'}"


def visible(text: str) -> str:
    """Text for one line of a terminal, a log or a picture: unprintable characters and line ends are escaped.

    Labels, names and paths may contain any characters, since they come from authors and from files.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def visible_lines(text: str) -> str:
    """Like `visible`, for text of several lines: line ends and tabs are left."""
    return "".join(letter if letter in "\n\t" else visible(letter) for letter in text)
