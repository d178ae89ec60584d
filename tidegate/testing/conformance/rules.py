"""Runs checks one after another, and says which rule was broken, what was seen, and what to do.

A check is a function of a case; the first line of its docstring is the rule. It calls the connector through `Calls`,
so that an exception or a call that doesn't return becomes a message instead of a traceback or a test that hangs.
"""

from __future__ import annotations

import contextvars
import inspect
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tidegate.sdk.errors import BuildError, error_text
from tidegate.sdk.user_code.by_value import pickle_by_value

T = TypeVar("T")
C = TypeVar("C")

_LOOK: Final = 0.05
"""Seconds between two looks at whether a call has returned."""


class RuleBroken(AssertionError):
    """A connector broke a rule of the interface. The message names the check, and `check` is that name."""

    check = ""


class NotApplicable(Exception):
    """Raised by a check that has nothing to check; its text is the reason."""


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """The checks that passed, and those that did not run, each with the reason."""

    passed: tuple[str, ...]
    skipped: Mapping[str, str]


def broken(seen: str, advice: str) -> RuleBroken:
    """The error for a rule that was broken, as a check raises it."""
    return RuleBroken(f"  seen: {seen}\n  what to do: {advice}")


@dataclass(slots=True)
class Calls:
    """Calls into the connector. `patience` is how many seconds one call may last."""

    patience: float
    _current: tuple[str, float] | None = field(default=None)

    def __call__(self, what: str, fn: Callable[..., T], *args: Any) -> T:
        """The result of a call that must not fail."""
        result, error = self.outcome(what, fn, *args)
        if error is not None:
            raise broken(
                f"{what} raised {type(error).__name__}: {error_text(error)}",
                "see the exception above, which is the cause of this one; nothing should fail here",
            ) from error
        return result  # type: ignore[return-value]

    def outcome(self, what: str, fn: Callable[..., T], *args: Any) -> tuple[T | None, Exception | None]:
        """The result of a call, or the exception that it raised."""
        self._current = what, time.monotonic()
        try:
            return fn(*args), None
        except RuleBroken:
            raise
        except Exception as error:
            return None, error
        finally:
            self._current = None

    def overdue(self) -> str | None:
        """The call that has lasted too long, if there is one."""
        current = self._current
        return current[0] if current is not None and time.monotonic() - current[1] > self.patience else None


def copied(calls: Calls, what: str, value: T) -> T:
    """The value as another process would unpickle it."""
    result: T = calls(f"unpickling {what}", pickle.loads, pickled(calls, what, value))
    return result


def pickled(calls: Calls, what: str, value: Any) -> bytes:
    """A pickle of the value. Code of the author's own is in it by value, as for a worker."""
    data, _ = calls(f"pickling {what}", pickle_by_value, value)
    return data


def run_checks(
    of: str,
    checks: Sequence[Callable[[C], None]],
    case: C,
    calls: Calls,
    only: Collection[str] | None,
    skip: Mapping[str, str],
) -> ConformanceReport:
    """Run the chosen checks. `of` names the connector in messages."""
    names = [check.__name__ for check in checks]
    for name in [*(only or ()), *skip]:
        if name not in names:
            raise BuildError(f"there is no conformance check {name!r}; there are {', '.join(names)}")
    passed: list[str] = []
    skipped: dict[str, str] = {}
    for check in checks:
        name = check.__name__
        if only is not None and name not in only:
            skipped[name] = "not selected by only="
        elif name in skip:
            skipped[name] = skip[name]
        elif (reason := _run(of, check, case, calls)) is not None:
            skipped[name] = reason
        else:
            passed.append(name)
    return ConformanceReport(tuple(passed), skipped)


def _run(of: str, check: Callable[[C], None], case: C, calls: Calls) -> str | None:
    """Run a check in a thread that is left behind if the connector hangs. Returns why the check doesn't apply."""
    raised: list[BaseException] = []
    context = contextvars.copy_context()

    def target() -> None:
        try:
            context.run(check, case)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=target, name=f"conformance-{check.__name__}", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK)
        what = calls.overdue()
        if what is not None and thread.is_alive():
            hung = broken(
                f"{what} has not returned within {calls.patience:g} s. It is in {_stack_of(thread)}",
                "return instead of waiting; if the system is only slow, pass a greater patience=",
            )
            raise _located(of, check, hung)
    match raised:
        case [NotApplicable() as reason]:
            return str(reason)
        case [RuleBroken() as error]:
            raise _located(of, check, error) from error.__cause__
        case [error]:
            raise error
        case _:
            return None


def _located(of: str, check: Callable[[C], None], error: RuleBroken) -> RuleBroken:
    rule = (inspect.getdoc(check) or "").partition("\n\n")[0].replace("\n", " ")
    located = RuleBroken(f"{of} breaks the rule {check.__name__}: {rule}\n{error}")
    located.check = check.__name__
    return located


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    last = traceback.extract_stack(frame)[-1] if frame is not None else None
    return f"{last.filename}:{last.lineno} ({last.name})" if last is not None else "a thread that has just ended"
