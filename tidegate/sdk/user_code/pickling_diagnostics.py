"""Why an object can't be pickled: the variable, attribute or item inside it that is the cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tidegate.sdk.errors import shorten
from tidegate.sdk.user_code.by_value import pickle_by_value


def explain_unpicklable(value: Any, name: str) -> str | None:
    """A message naming the variable or part of `value` that can't be pickled; None if `value` can be pickled."""
    path = _culprit(value, (), set())
    if path is None:
        return None
    if not path:
        return f"{name} can't be pickled: it is of type {_type_name(value)}"
    kind = path[-1].kind
    variables = [at for at, step in enumerate(path) if step.variable]
    advice = "Create it inside the function or in DoFn.setup()"
    if not variables:
        start = "self" if path[0].name.startswith(".") else "item "
        inside = start + "".join(step.name for step in path)
        return f"{name} can't be pickled: {inside} is of type {kind}. {advice}"
    last = variables[-1]
    variable = path[last].name
    within = "".join(step.name for step in path[last + 1 :])
    where = f", whose {variable}{within} is of type {kind}" if within else f" of type {kind}"
    through = [path[at].name for at in variables[:-1]]
    by = f" (through {', '.join(repr(owner) for owner in through)})" if through else ""
    return f"{name} can't be pickled: it captures variable {variable!r}{where}{by}. {advice}"


@dataclass(frozen=True, slots=True)
class _Inside:
    """A part of a value: a variable that a function captures, or a part of an object (`.attribute`, `[item]`)."""

    name: str
    kind: str
    variable: bool


def _culprit(value: Any, path: tuple[_Inside, ...], seen: set[int]) -> tuple[_Inside, ...] | None:
    if id(value) in seen or len(path) > 8:
        return None
    seen.add(id(value))
    try:
        pickle_by_value(value)
        return None
    except Exception:
        pass
    for name, part in _captured(value):
        step = _Inside(name, _type_name(part), variable=not name.startswith((".", "[")))
        found = _culprit(part, (*path, step), seen)
        if found is not None:
            return found
    return path


def _captured(value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case MethodType():
            yield ".__self__", value.__self__
        case FunctionType():
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                try:
                    yield variable, cell.cell_contents
                except ValueError:
                    continue
            for variable in _global_names(value.__code__):
                if variable in value.__globals__:
                    yield variable, value.__globals__[variable]
            positional = value.__code__.co_varnames[: value.__code__.co_argcount]
            defaults = value.__defaults__ or ()
            yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
            yield from (value.__kwdefaults__ or {}).items()
        case dict():
            for key, part in value.items():
                yield f"[{key!r}]", part
        case list() | tuple():
            for index, part in enumerate(value):
                yield f"[{index}]", part
        case set() | frozenset():
            for part in value:
                yield f"[{shorten(part, 40)}]", part
        case type():
            for attribute, part in vars(value).items():
                if isinstance(part, FunctionType):
                    yield f".{attribute}", part
        case _:
            for attribute, part in getattr(value, "__dict__", {}).items():
                yield f".{attribute}", part
            if type(value).__name__ == "partial" and hasattr(value, "func"):
                yield ".func", value.func
                yield ".args", value.args
                yield ".keywords", value.keywords
            for attribute in _slots(type(value)):
                if hasattr(value, attribute):
                    yield f".{attribute}", getattr(value, attribute)
            if not isinstance(value, ModuleType):
                yield ".__class__", type(value)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _global_names(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names += _global_names(const)
    return names


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
