"""Attributes errors to the author's code: which step, which line, which element; engine frames are trimmed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from tidegate.runners.engine.errors.state_advice import advice
from tidegate.sdk.authoring.combine import AssociativeFn, CallableFn, CombineFn, WithArguments
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.errors import CheckError, KeyEncodingError, RunError, TidegateError, UserCodeError, said, shorten
from tidegate.sdk.metrics import in_step
from tidegate.sdk.user_code.frames import Where, author_frames

T = TypeVar("T")

_NOTHING: Final = object()


class UserCall(Exception):
    """A function of the author's raised (`__cause__`) while the engine called it; the message names the function."""


def user_error(
    error: BaseException, *, step: str, where: Where, element: Any = _NOTHING, method: str = "", key: Any = _NOTHING
) -> BaseException:
    """The error to raise for `error`, which came out of the author's code in `step`.

    What is no failure of the code (KeyboardInterrupt) is given back as it is, and so are Tidegate's own errors, with
    the step added; one that the author's code ran into (a window of no size, say) is a failure. So is `sys.exit()`: the
    process would end as if the run were done.
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
    told = ". ".join(filter(None, [f"{type(error).__name__}: {said(error)}", advice(error)]))
    lines = [told, f"  in step {step!r}, applied at {where}"]
    if method:
        lines.append(f"  while calling {method}")
    if shown is not None:
        lines.append(f"  element: {shown}")
    if key is not _NOTHING:
        lines.append(f"  key: {shorten(key)}")
    trimmed = error.with_traceback(author_frames(error.__traceback__))
    raised = UserCodeError("\n".join(lines), step=step, where=str(where), element=shown)
    raised.__cause__ = trimmed
    return raised


def rethrow(error: BaseException) -> NoReturn:
    """Raise with the cause the error itself names, not the one Python would find around it."""
    raise error from error.__cause__


def located(error: TidegateError, step: str, where: Where) -> TidegateError:
    """The same error, with step and line in its message."""
    if getattr(error, "step", None) is None:
        error.args = (f"{error}\n  in step {step!r}, applied at {where}",)
        error.step = step  # type: ignore[attr-defined]
    return error.with_traceback(None)


def has_author_frames(error: BaseException) -> bool:
    """Whether any code of the author's was on the stack."""
    return author_frames(error.__traceback__) is not None


def guarded(call: Callable[..., T], *args: Any, step: str, where: Where, method: str) -> T:
    """Call a life-cycle method of the author's; what it raises names the step and the method."""
    try:
        with in_step(step):
            return call(*args)
    except BaseException as error:
        rethrow(user_error(error, step=step, where=where, method=method))


def guarded_items(items: Iterable[T], *, step: str, where: Where, method: str) -> Iterator[T]:
    """The items of what a life-cycle method gave, which may be a generator: the author's code still runs."""
    iterator = guarded(iter, items, step=step, where=where, method=method)
    while True:
        item = guarded(next, iterator, _NOTHING, step=step, where=where, method=method)
        if item is _NOTHING:
            return
        yield item


def close_all(closes: Iterable[Callable[[], object]]) -> None:
    """Call every one, also when one fails; then raise what the first that failed raised."""
    failed: BaseException | None = None
    for close in closes:
        try:
            close()
        except BaseException as error:
            failed = failed or error
    if failed is not None:
        rethrow(failed)


def quietly(call: Callable[[], None]) -> None:
    """Clean up after a failure; an error of the clean-up itself is dropped."""
    try:
        call()
    except Exception:
        return


def combiner_method(combiner: CombineFn[Any, Any, Any], method: str) -> str:
    """How a combiner's method is named to its author; "" for one made of a plain callable, which has none."""
    inner = combiner.inner if isinstance(combiner, WithArguments) else combiner
    return "" if isinstance(inner, (CallableFn, AssociativeFn)) else f"{type(inner).__name__}.{method}"


def not_pairs(value: Any, step: str, where: Where) -> RunError:
    """The error for an element that is no (key, value) pair."""
    error = RunError(
        f"this step takes pairs (key, value), and got {shorten(value)}. tg.WithKeys(fn) makes pairs, with the key that "
        "fn gives for an element"
    )
    located(error, step, where)
    return error


def unfit_for_key(
    elements: Iterable[Any], error: BaseException, step: str, where: Where, *, pairs: bool
) -> BaseException:
    """The error for the author where `error` came of looking at the keys of these elements (of `pairs`, or the elements
    themselves): which of them is no pair, or has no encoding; `error` itself if that is not what was wrong.
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
