"""The tree of errors. Every message says what is wrong, where, and what to do.

`BuildError` and its kin are raised before anything runs; `UserCodeError` carries what the author's own
code raised while a pipeline ran.
"""

from __future__ import annotations

import errno
import os
from typing import Final


class TidegateError(Exception):
    """The root: `except tg.TidegateError` catches whatever Tidegate itself raises."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows of it in place of a traceback with Tidegate's own frames."""
        from tidegate.sdk.notebook import traceback_lines

        return traceback_lines(self)


class TidegateWarning(UserWarning):
    """Something that is allowed and seldom meant. `warnings.filterwarnings("error", category=tg.TidegateWarning)` makes
    errors of them, "ignore" silences them."""


class BuildError(TidegateError):
    """A pipeline that can't mean what its author wants: refused while it is built or checked."""


class ExpandError(BuildError):
    """A composite's `expand` raised. `__cause__` is the original exception, with the author's frames alone."""


class TypeCheckError(BuildError):
    """Two steps meet whose element types can't agree."""


class PicklingError(BuildError):
    """A function or value of the author's that can't travel to where it must run."""


class UnsupportedError(BuildError):
    """A feature the chosen runner does not have, by name."""


class OptionsError(TidegateError):
    """An unknown flag, or a value that a flag can't take."""


class LoadError(TidegateError):
    """A compiled pipeline that can't be read: truncated, of another version, or inconsistent."""


class RunError(TidegateError):
    """A pipeline that failed while it ran."""


class UserCodeError(RunError):
    """The author's own code raised. `__cause__` is the original exception, engine frames trimmed.

    `step` is the label path, `where` the `file:line` at which the step was applied, `element` a short repr of
    the element in hand (None at a life-cycle method).
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
    """A step broke a rule that other runners rely on: it mutated an element, say. Found by `--checks`."""


class KeyEncodingError(RunError):
    """A key without a canonical encoding (NaN, a list, an object with no registered coder)."""


class ReadError(RunError):
    """Input that can't be read: a missing or broken file, a line that can't be decoded."""


class WriteError(RunError):
    """Output that can't be written or committed."""


def said(error: BaseException) -> str:
    """What an exception says, for messages: its text, and never itself an error."""
    try:
        return str(error)
    except Exception as worse:
        return f"<an exception whose text raised {type(worse).__name__}>"


def unwritten(error: OSError, elsewhere: str, path: object = None) -> str:
    """Why something could not be written: what the system says, of which file, and what helps where it has no room.

    `elsewhere` is what may be given instead of the place, `path` what the system may not have named.
    """
    if error.errno is None:
        return said(error) if type(error) is OSError else f"{type(error).__name__}: {said(error)}"
    place = path or error.filename2 or error.filename
    told = f"{error.strerror or os.strerror(error.errno)}{f': {place}' if place else ''}"
    if error.errno in _NO_ROOM:
        return f"{told}; make room there, or give {elsewhere}"
    if error.errno == errno.EFBIG:
        return f"{told}; files may be larger elsewhere, or after `ulimit -f unlimited`: give {elsewhere}"
    return told


def unusable(error: Exception) -> str:
    """Why a file or a store can't be used: what the system says, and of which file, or what a client raised."""
    if isinstance(error, OSError):
        return unwritten(error, "another place")
    return f"{type(error).__name__}: {said(error)}"


_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def shorten(value: object, limit: int = 120) -> str:
    """A repr for messages: at most `limit` characters, and never itself an error."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def visible(text: str) -> str:
    """Text for a line of a terminal, a log or a picture: what is not printable, line ends too, as Python escapes it.

    Labels, names and paths are whatever their author, or a file from elsewhere, makes them.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def visible_lines(text: str) -> str:
    """The same for text of several lines, whose ends and tabs stay."""
    return "".join(letter if letter in "\n\t" else visible(letter) for letter in text)
