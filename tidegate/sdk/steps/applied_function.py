"""Plain functions as steps (`pcoll | function`), and the errors for objects that can't be applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from tidegate.sdk.errors import BuildError
from tidegate.sdk.steps.transform import PTransform, Transform
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.sdk.user_code.validation import warn

R = TypeVar("R")


def checked_function(transform: Any, where: Where) -> Callable[[Any], Any]:
    """Return `transform` if it is a function; otherwise raise BuildError with what to write instead."""
    problem = _problem_with(transform)
    if problem is not None:
        raise BuildError(f"{problem}\n  applied at {where}")
    return cast(Callable[[Any], Any], transform)


def _problem_with(applied: Any) -> str | None:
    match applied:
        case type() if issubclass(applied, Transform):
            return f"{applied.__name__} is a class: write {applied.__name__}(...)"
        case _ if forms := _forms(applied if isinstance(applied, type) else type(applied)):
            return f"{forms[0].partition('.')[0]} is a family of steps: write {' or '.join(forms)}"
        case str():
            return f"{applied!r} is not a step: a label goes before its step, as in {applied!r} >> tg.Map(f)"
    from tidegate.sdk.advice import instead_of_step

    instead = instead_of_step(applied)
    if instead is None and not callable(applied):
        return f"{applied!r} is not a transform: a step is a PTransform such as Map(f), or a function of a PCollection"
    return instead


def _forms(family: type) -> list[str]:
    """The steps of a class that is only a namespace for them, such as `Count.Globally()`; empty for other classes."""
    called = any("__call__" in vars(base) for base in family.__mro__)
    if called or not family.__module__.startswith("tidegate.transforms."):
        return []
    return [f"{family.__name__}.{name}(...)" for name, part in vars(family).items() if isinstance(part, staticmethod)]


class AppliedFunction(PTransform[Any, Any]):
    """A plain function from PCollection to PCollection, as a step labelled with the function's name."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    def default_label(self) -> str:
        return name_of(self.fn)

    def expand(self, input: Any) -> Any:
        return self.fn(input)

    def check_result(self, result: Any) -> None:
        """Check the result of a function that applied no step: it was probably meant to be called per element.

        BuildError if the result is an ordinary value; a warning if it is None.
        """
        from tidegate.sdk.advice import per_element, wrong_result

        problem = wrong_result(self.fn, result)
        if problem is not None:
            raise BuildError(problem)
        if result is None:
            warn(f"{name_of(self.fn)} applied no step and returned None. {per_element(self.fn)}")

    def advice_on(self, error: Exception) -> str:
        """What to write if the function failed before it applied a step because it expects an element."""
        from tidegate.sdk.advice import per_element

        return per_element(self.fn) if isinstance(error, (TypeError, AttributeError)) else ""


class _Composed(AppliedFunction):
    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(fn)
        self.args = args
        self.kwargs = kwargs

    def expand(self, input: Any) -> Any:
        return self.fn(input, *self.args, **self.kwargs)


def ptransform_fn(fn: Callable[..., R]) -> Callable[..., PTransform[Any, R]]:
    """Turn a function of a PCollection and further arguments into a transform.

    After `@ptransform_fn`, `def Count(pcoll, n)` is applied as `pcoll | Count(3)`.
    """
    from functools import wraps

    @wraps(fn)
    def make(*args: Any, **kwargs: Any) -> PTransform[Any, R]:
        return _Composed(fn, args, kwargs)

    return make
