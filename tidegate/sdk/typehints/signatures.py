"""Signatures: the parameter and result types of callables, from their annotations or, for built-ins, from tables."""

from __future__ import annotations

import functools
import types
from collections.abc import Coroutine, ItemsView, Iterable, Iterator, KeysView, Mapping, Sized, ValuesView
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Final, Self, SupportsFloat, TypeVar, get_args

from tidegate.sdk.typehints.hints import (
    Hint,
    annotations_of,
    class_scopes,
    field_types,
    origin_of,
    resolved,
    substitute,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class FnTypes:
    """The types of a function's positional parameters and result, without bound arguments (`self`, a partial's)."""

    parameters: tuple[Hint, ...] = ()
    rest: Hint = Any
    """The type of `*args`, which is that of all positions beyond `parameters`."""
    result: Hint = Any

    def parameter(self, position: int) -> Hint:
        """The type of the parameter at a position, counted from 0; Any if it has no annotation."""
        return self.parameters[position] if position < len(self.parameters) else self.rest


def signature_of(fn: object) -> FnTypes:
    """The types of a callable: a function, method, partial, class, callable object, or common built-in.

    Annotations that are strings are resolved in the function's closure, globals and class, name by name. Unknown types
    are Any. Never raises.
    """
    try:
        return _signature(fn)
    except Exception:  # the author's own metaclass, property or __signature__ may raise anything
        return FnTypes()


def _signature(fn: Any) -> FnTypes:
    import inspect

    known = _known_signature(fn)
    if known is not None:
        return known
    if hasattr(fn, "__supertype__"):
        return FnTypes((fn.__supertype__,), result=fn)
    hints = _hints_of(fn)
    try:
        parameters = list(inspect.signature(origin_of(fn) or fn).parameters.values())
        if isinstance(fn, types.FunctionType | types.MethodType):
            # A wrapper with *args passes its arguments on; one with named parameters may differ from the function.
            outer = inspect.signature(fn, follow_wrapped=False).parameters.values()
            parameters = parameters if any(p.kind is p.VAR_POSITIONAL for p in outer) else list(outer)
    except (TypeError, ValueError):
        return FnTypes(result=hints.get("return", Any))
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [hints.get(p.name, Any) for p in parameters if p.kind is p.VAR_POSITIONAL]
    return FnTypes(
        tuple(hints.get(p.name, Any) for p in positional),
        rest[0] if rest else Any,
        hints.get("return", Any),
    )


def _hints_of(fn: Any) -> dict[str, Hint]:
    """The resolved annotations of the function that a callable calls, by parameter name and "return"."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    cls = origin_of(fn) or fn
    if isinstance(cls, type):
        by_field = field_types(fn) if is_dataclass(cls) or hasattr(cls, "_fields") else {}
        constructor = cls.__init__ if cls.__init__ is not object.__init__ else cls.__new__  # type: ignore[misc]
        hints = _function_hints(constructor, cls)
        # A field inherited from another module is resolved there, not in the module of __init__.
        hints |= {n: h for n, h in by_field.items() if hints.get(n, Any) is Any}
        if arguments := get_args(fn):
            bindings = dict(zip(getattr(cls, "__parameters__", ()), arguments))
            hints = {n: substitute(h, bindings) for n, h in hints.items()}
        return hints | {"return": fn}
    if hasattr(fn, "dispatch") and hasattr(fn, "registry"):
        return {}  # a singledispatch function, whose types depend on the registered implementations
    if isinstance(fn, types.MethodType):
        owner = fn.__self__ if isinstance(fn.__self__, type) else type(fn.__self__)
        return _function_hints(fn.__func__, owner)
    if isinstance(fn, types.FunctionType) or hasattr(fn, "__wrapped__"):
        return _function_hints(fn, None)
    return _function_hints(type(fn).__call__, type(fn))


def _function_hints(fn: Any, owner: type | None) -> dict[str, Hint]:
    scopes: list[Mapping[str, Any]] = []
    inner = fn
    for _ in range(20):  # decorators copy annotations, but their names are in the scopes of the wrapped function
        scopes[:0] = _function_scopes(inner)
        if not hasattr(inner, "__wrapped__"):
            break
        inner = inner.__wrapped__
    if owner is not None:
        scopes += class_scopes(owner)
    annotations = annotations_of(fn) or annotations_of(inner)
    hints = resolved(annotations, scopes)
    if owner is not None:
        hints = {name: owner if hint is Self else hint for name, hint in hints.items()}
    code = getattr(inner, "__code__", None)
    if code is not None and code.co_flags & 0x80:  # CO_COROUTINE: the caller gets a coroutine
        hints["return"] = Coroutine[Any, Any, hints.get("return", Any)]  # type: ignore[misc]
    return hints


def _function_scopes(fn: Any) -> list[Mapping[str, Any]]:
    closure: dict[str, Any] = {p.__name__: p for p in getattr(fn, "__type_params__", ())}
    code = getattr(fn, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), getattr(fn, "__closure__", None) or ()):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return [closure, getattr(fn, "__globals__", {})]


def _known_signature(fn: Any) -> FnTypes | None:
    """The types of a built-in without annotations, including bound methods (`",".join`) and partials."""
    bound = 0
    if isinstance(fn, functools.partial):
        fn, bound = fn.func, len(fn.args)
    if isinstance(fn, types.BuiltinMethodType) and not isinstance(fn.__self__, types.ModuleType | type | None):
        fn, bound = getattr(type(fn.__self__), fn.__name__, None), bound + 1
    if getattr(fn, "__module__", None) == "math":
        known: FnTypes | None = _MATH.get(fn.__name__)
    else:
        try:
            known = _known().get(fn)
        except TypeError:  # not hashable
            return None
    return known and replace(known, parameters=known.parameters[bound:])


_MATH: Final = {
    **dict.fromkeys(
        ("sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "fabs"),
        FnTypes((SupportsFloat,), result=float),
    ),
    **dict.fromkeys(("ceil", "floor", "trunc"), FnTypes((Any,), result=int)),
}


@functools.lru_cache(maxsize=1)
def _known() -> dict[object, FnTypes]:
    known: dict[object, FnTypes] = {}
    for text in (str, bytes):
        three = tuple[text, text, text]  # type: ignore[valid-type]
        results: dict[Hint, str] = {
            text: "capitalize casefold center expandtabs format format_map join ljust lower lstrip removeprefix "
            "removesuffix replace rjust rstrip strip swapcase title translate upper zfill",
            bool: "endswith isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable "
            "isspace istitle isupper startswith",
            int: "count find index rfind rindex __len__",
            list[text]: "rsplit split splitlines",  # type: ignore[valid-type]
            three: "partition rpartition",
            bytes if text is str else str: "encode" if text is str else "decode",
        }
        for result, names in results.items():
            known |= {getattr(text, n): FnTypes((text,), result=result) for n in names.split() if hasattr(text, n)}
        known[text.join] = FnTypes((text, Iterable[text]), result=text)  # type: ignore[valid-type]
    anything: dict[type, tuple[object, ...]] = {
        str: (repr, ascii, chr, bin, hex, oct, format),
        int: (ord, hash, id),
        bool: (callable, isinstance, issubclass),
    }
    known |= {fn: FnTypes((Any,), result=result) for result, fns in anything.items() for fn in fns}
    known |= {fn: FnTypes((Iterable[Any],), result=bool) for fn in (any, all)}
    known[len] = FnTypes((Sized,), result=int)
    collected: dict[object, Hint] = {
        sorted: list[T],  # type: ignore[valid-type]
        list: list[T],  # type: ignore[valid-type]
        set: set[T],  # type: ignore[valid-type]
        frozenset: frozenset[T],  # type: ignore[valid-type]
        tuple: tuple[T, ...],  # type: ignore[valid-type]
        iter: Iterator[T],  # type: ignore[valid-type]
        enumerate: Iterator[tuple[int, T]],  # type: ignore[valid-type]
    }
    known |= {fn: FnTypes((Iterable[T],), result=result) for fn, result in collected.items()}  # type: ignore[valid-type]
    views = {dict.keys: KeysView[K], dict.values: ValuesView[V], dict.items: ItemsView[K, V]}  # type: ignore[valid-type]
    known |= {fn: FnTypes((dict[K, V],), result=result) for fn, result in views.items()}  # type: ignore[valid-type]
    return known
