"""Attributes errors to the author's code: names the step, line and element, and trims the engine's frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from tidegate.runners.engine.errors.state_advice import advice
from tidegate.sdk.authoring.combine import AssociativeFn, CallableFn, CombineFn, WithArguments
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.errors import (
    CheckError,
    KeyEncodingError,
    ReadError,
    RunError,
    TidegateError,
    UserCodeError,
    WriteError,
    error_text,
    shorten,
)
from tidegate.sdk.metrics import in_step
from tidegate.sdk.secrets.redaction import redacted
from tidegate.sdk.user_code.frames import Where, author_frames

T = TypeVar("T")

_NOTHING: Final = object()


class UserCall(Exception):
    """A function of the author's raised `__cause__` when the engine called it; the message names the function."""


def user_error(
    error: BaseException, *, step: str, where: Where, element: Any = _NOTHING, method: str = "", key: Any = _NOTHING
) -> BaseException:
    """The error to raise for `error`, which the author's code in `step` raised.

    A KeyboardInterrupt, which is no failure of the code, is returned unchanged. Tidegate's own errors are returned with
    the step added, unless the author's code caused them (by constructing a window of no size, say): those are failures
    of the code. So is `sys.exit()`, since the process would exit as if the run had succeeded.
    """
    match error:
        case TidegateError() if getattr(error, "step", None) is not None:
            return error
        case CheckError() | KeyEncodingError():
            return located(error, step, where)
        case TidegateError() if not has_author_frames(error):
            return located(error, step, where)
        case Exception() | SystemExit():
            pass
        case _:
            return error
    shown = None if element is _NOTHING else shorten(element)
    text = redacted(error_text(error))
    message = ". ".join(filter(None, [f"{type(error).__name__}: {text}", advice(error)]))
    lines = [message, f"  in step {step!r}, applied at {where}"]
    if method:
        lines.append(f"  while calling {method}")
    if shown is not None:
        lines.append(f"  element: {shown}")
    if key is not _NOTHING:
        lines.append(f"  key: {shorten(key)}")
    cause = error if text == error_text(error) else RunError(f"{type(error).__name__}: {text}")
    trimmed = cause.with_traceback(author_frames(error.__traceback__))
    raised = UserCodeError("\n".join(lines), step=step, where=str(where), element=shown)
    raised.__cause__ = trimmed
    return raised


def rethrow(error: BaseException) -> NoReturn:
    """Raise an error with the `__cause__` it has, whatever exception is being handled."""
    raise error from error.__cause__


def located(error: TidegateError, step: str, where: Where) -> TidegateError:
    """The same error, with the step and its line added to the message."""
    if getattr(error, "step", None) is None:
        error.args = (f"{redacted(str(error))}\n  in step {step!r}, applied at {where}",)
        error.step = step  # type: ignore[attr-defined]
    return error.with_traceback(None)


def has_author_frames(error: BaseException) -> bool:
    """Whether the traceback has frames of the author's code."""
    return author_frames(error.__traceback__) is not None


def guarded(call: Callable[..., T], *args: Any, step: str, where: Where, method: str) -> T:
    """Call a life-cycle method of the author's; errors name the step and the method."""
    try:
        with in_step(step):
            return call(*args)
    except BaseException as error:
        rethrow(user_error(error, step=step, where=where, method=method))


def guarded_items(items: Iterable[T], *, step: str, where: Where, method: str) -> Iterator[T]:
    """The items that a life-cycle method returned. It may be a generator, so errors during iteration are attributed."""
    iterator = guarded(iter, items, step=step, where=where, method=method)
    while True:
        item = guarded(next, iterator, _NOTHING, step=step, where=where, method=method)
        if item is _NOTHING:
            return
        yield item


def final(error: BaseException) -> BaseException:
    """The same error, marked as one in which a restart would end again."""
    error.is_final = True  # type: ignore[attr-defined]
    return error


def is_final(error: BaseException) -> bool:
    """Whether a restart would end in the same error."""
    return getattr(error, "is_final", False)


def subject_of(error: BaseException) -> str:
    """What raises an error again if it is met again: the element, or what Tidegate itself has refused in a step, which
    the message names. "" for other errors, such as those of a disk or of a life-cycle method."""
    match error:
        case UserCodeError(element=element):
            return element or ""
        case ReadError() | WriteError():
            return ""
        case RunError() if getattr(error, "step", None) is not None and error.__cause__ is None:
            return str(error)
        case _:
            return ""


def close_all(closes: Iterable[Callable[[], object]]) -> None:
    """Call every function, even if one fails; then raise the first error."""
    failed: BaseException | None = None
    for close in closes:
        try:
            close()
        except BaseException as error:
            failed = failed or error
    if failed is not None:
        rethrow(failed)


def quietly(call: Callable[[], None]) -> None:
    """Run a clean-up after a failure; drop the error if the clean-up itself fails."""
    try:
        call()
    except Exception:
        return


def combiner_method(combiner: CombineFn[Any, Any, Any], method: str) -> str:
    """A combiner's method as an error message names it; "" for a combiner made from a plain callable."""
    inner = combiner.inner if isinstance(combiner, WithArguments) else combiner
    return "" if isinstance(inner, (CallableFn, AssociativeFn)) else f"{type(inner).__name__}.{method}"


def not_pairs(value: Any, step: str, where: Where) -> RunError:
    """The error for an element that is not a (key, value) pair."""
    error = RunError(
        f"this step takes pairs (key, value), but got {shorten(value)}. tg.WithKeys(fn) makes pairs, with the key that "
        "fn returns for an element"
    )
    located(error, step, where)
    return error


def unfit_for_key(
    elements: Iterable[Any], error: BaseException, step: str, where: Where, *, pairs: bool
) -> BaseException:
    """The error to raise for `error`, which was raised when the keys of these elements were encoded.

    Names the element that is not a pair, or whose key has no encoding; without `pairs`, the elements are the keys. If
    there is no such element, returns `error`.
    """
    for element in elements:
        key = element
        if pairs:
            try:
                key, _ = element
            except (TypeError, ValueError):
                return not_pairs(element, step, where)
        try:
            check_key(key)
        except KeyEncodingError as refused:
            return located(refused, step, where)
    return error
