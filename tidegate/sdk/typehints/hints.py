"""Hints: the types in annotations, which are objects of `typing` such as `int`, `list[str]` or `Event | None`.

Every form is first reduced to a *plain* hint: Any, a class, a generic alias of a class, a Literal or a union. This
module returns the members, arguments, items and fields of hints; `compatibility` compares them. Typing is optional, so
a hint that is unknown, unresolvable or unsupported is `Any`.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections import Counter
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    LiteralString,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from tidegate.sdk.errors import shorten

Hint: TypeAlias = Any
"""An object of `typing` that may be used as an annotation."""

_WRAPPERS: Final = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"})
_BOOLS: Final = frozenset({"TypeGuard", "TypeIs"})
LETTERS: Final[dict[type, type]] = {str: str, bytes: int, bytearray: int, memoryview: int, range: int}
_STANDARD: Final = frozenset({"builtins", "collections", "collections.abc"})


def union(hints: Iterable[Hint]) -> Hint:
    """The union of these types; Any if one of them is Any, or if there are none."""
    distinct: list[Hint] = []
    for hint in hints:
        for member in get_args(hint) if is_union(hint) else (types.NoneType if hint is None else hint,):
            if plain_hint(member) is Any:
                return Any
            if member not in distinct:
                distinct.append(member)
    try:
        found: Hint = Union[tuple(distinct)] if distinct else Any  # noqa: UP007
        hash(found)  # since Python 3.13 a union may have unhashable members
    except TypeError:  # unhashable, or not allowed in a union
        return Any
    return found


def substitute(hint: Hint, bindings: Mapping[TypeVar, Hint]) -> Hint:
    """The type with its variables replaced by their bindings, or by Any."""
    if isinstance(hint, TypeVar):
        return bindings.get(hint, Any)
    variables = variables_of(hint)
    if not variables:
        return hint
    arguments: list[Hint] = []
    for variable in variables:
        match variable:
            case TypeVar():
                arguments.append(bindings.get(variable, Any))
            case ParamSpec():
                arguments.append(...)
            case _:
                arguments.append(Unpack[tuple[Any, ...]])
    try:
        return hint[tuple(arguments)]
    except TypeError:
        return Any


def type_name(hint: Hint) -> str:
    """The type as an author would write it, without modules: `tuple[str, int]`, `Event | None`."""
    match hint:
        case None | types.NoneType:
            return "None"
        case types.EllipsisType():
            return "..."
        case str():
            return hint
        case ForwardRef():
            return hint.__forward_arg__
        case list():  # the parameters of a Callable
            return f"[{', '.join(map(type_name, hint))}]"
    origin, arguments = origin_of(hint), get_args(hint)
    if is_union(hint):
        named = dict.fromkeys(_alternative_names(hint))
        return " | ".join(sorted(named, key=lambda name: name == "None"))  # None last, the others in their order
    if origin is Annotated:
        return type_name(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(_literal_name(a) for a in arguments)}]"
    if origin is Unpack:
        return f"*{type_name(arguments[0])}"
    if origin is None or not hasattr(hint, "__args__"):
        return bare_name(origin or hint)
    star = "*" if getattr(hint, "__unpacked__", False) else ""
    return f"{star}{bare_name(origin)}[{', '.join(map(type_name, arguments)) or '()'}]"


def _alternative_names(hint: Hint) -> Iterator[str]:
    if origin_of(hint) is Annotated:
        yield from _alternative_names(get_args(hint)[0])
    elif is_union(hint):
        for part in get_args(hint):
            yield from _alternative_names(part)
    else:
        yield type_name(hint)


def bare_name(hint: Hint) -> str:
    name = getattr(hint, "__qualname__", None) or getattr(hint, "_name", None) or getattr(hint, "__name__", None)
    return name.rpartition("<locals>.")[2] if isinstance(name, str) else shorten(hint)


def _literal_name(value: object) -> str:
    name = getattr(value, "name", None)  # an enum's member
    return repr(value) if name is None else f"{type(value).__name__}.{name}"


def names_apart(given: Hint, wanted: Hint) -> tuple[str, str]:
    """The names of both types, with their modules if two classes have the same name."""
    names = type_name(given), type_name(wanted)
    if names[0] != names[1]:
        return names
    return f"{getattr(given, '__module__', '')}.{names[0]}", f"{getattr(wanted, '__module__', '')}.{names[1]}"


def plain_hint(hint: Hint) -> Hint:
    """The hint without forms that don't restrict values: Annotated, NewType, aliases, TypeVars, Required…"""
    for _ in range(20):  # nested aliases; an alias of itself is Any
        origin = origin_of(hint)
        match hint:
            case None:
                return types.NoneType
            case TypeVar():
                hint = hint.__bound__ or union(hint.__constraints__)
                continue
            case type() if origin is None:
                return Any if Any in hint.__mro__ or hint is Protocol else hint
        if (inner := wrapped_hint(hint)) is not None:
            hint = inner
        elif hint is LiteralString:
            return str
        elif _form(origin) in _BOOLS:
            return bool
        elif is_union(hint) or origin is Literal or isinstance(origin, type):
            return hint
        else:
            return Any
    return Any


def wrapped_hint(hint: Hint) -> Hint | None:
    """What a NewType, an alias, an Annotated, a Required and the like stand for; None for any other hint."""
    origin = origin_of(hint)
    if hasattr(hint, "__supertype__"):
        return hint.__supertype__
    if type(hint).__name__ == "TypeAliasType":
        return _alias_value(hint)
    if type(origin).__name__ == "TypeAliasType":
        return substitute(_alias_value(origin), dict(zip(origin.__type_params__, get_args(hint))))
    return get_args(hint)[0] if origin is Annotated or _form(origin) in _WRAPPERS else None


def origin_of(hint: Hint) -> Any:
    """`typing.get_origin`, whose declared return type is too narrow."""
    return get_origin(hint)


@functools.lru_cache(maxsize=256)
def _alias_value(alias: Any) -> Hint:
    """The value of an alias `type X = …`; strings in it are resolved in its module."""
    module = sys.modules.get(alias.__module__)
    return resolved({"value": alias.__value__}, [vars(module) if module else {}])["value"]


def _form(origin: Hint) -> str | None:
    """The name of a special form, by which those of `typing` and `typing_extensions`, different objects, are equal."""
    return None if isinstance(origin, type) else getattr(origin, "_name", None)


def is_union(hint: Hint) -> bool:
    return origin_of(hint) in (Union, types.UnionType)


def members_of(hint: Hint) -> list[Hint]:
    """The alternatives of a union, each plain; `Literal[None]` counts as None."""
    plain = plain_hint(hint)
    if is_union(plain):
        return [m for part in get_args(plain) for m in members_of(part)]
    if origin_of(plain) is Literal and None in get_args(plain):
        others = tuple(a for a in get_args(plain) if a is not None)
        return [types.NoneType, *([Literal[others]] if others else [])]
    return [plain]


def widened(hint: Hint) -> Hint:
    """The hint with Literals replaced by the classes of their values."""
    return union(union(map(type, get_args(m))) if origin_of(m) is Literal else m for m in members_of(hint))


def class_of(hint: Hint) -> tuple[type, tuple[Hint, ...]]:
    """The class of a plain hint that is not a union or Literal, and its arguments."""
    return origin_of(hint) or hint, get_args(hint)


def variables_of(hint: Hint) -> tuple[Any, ...]:
    if isinstance(hint, TypeVar | ParamSpec | TypeVarTuple):
        return (hint,)
    # A generic class without arguments has __parameters__, too, but none that could be replaced.
    return () if isinstance(hint, type) and origin_of(hint) is None else getattr(hint, "__parameters__", ())


def is_typed_dict(cls: type) -> bool:
    return dict in cls.__mro__ and hasattr(cls, "__required_keys__")


def field_types(hint: Hint) -> dict[str, Hint]:
    """The annotated fields of a plain class (dataclass, NamedTuple, TypedDict), with its type arguments substituted."""
    cls, arguments = class_of(hint)
    hints = _class_annotations(cls)[0]
    if variables := getattr(cls, "__parameters__", ()):
        bindings = dict(zip(variables, arguments))
        return {name: substitute(h, bindings) for name, h in hints.items()}
    return hints


def required_keys(typed_dict: type) -> frozenset[str]:
    """The keys that every value of a TypedDict has."""
    return _class_annotations(typed_dict)[1]


@functools.lru_cache(maxsize=256)
def _class_annotations(cls: type) -> tuple[dict[str, Hint], frozenset[str]]:
    """A class's annotated fields, and the required keys of a TypedDict.

    `__required_keys__` alone is not enough: Python does not recognize `NotRequired` in annotations that are strings.
    """
    found: dict[str, Hint] = {}
    required: set[str] = set(getattr(cls, "__required_keys__", ()))
    for base in reversed(cls.__mro__):
        found.update(resolved(annotations_of(base), class_scopes(base)))
    for name, hint in found.items():
        while (form := _form(origin_of(hint))) in _WRAPPERS:
            if form == "NotRequired":
                required.discard(name)
            elif form == "Required":
                required.add(name)
            hint = get_args(hint)[0]
        found[name] = hint
    return found, frozenset(required)


def items_of(hint: Hint) -> tuple[tuple[Hint, ...] | None, Hint]:
    """The types of the items of a tuple type; for any length, None and the type of all items."""
    cls, arguments = class_of(hint)
    if cls is not tuple:
        names = getattr(cls, "_fields", None)
        if names is not None:
            known = field_types(hint)
            return tuple(known.get(n, Any) for n in names), Any
        for base in _bases(hint):
            if issubclass(class_of(base)[0], tuple):
                return items_of(base)
        return None, Any
    if not hasattr(hint, "__args__"):
        return None, Any
    if len(arguments) == 2 and arguments[1] is ...:
        return None, arguments[0]
    if any(getattr(a, "__unpacked__", False) or origin_of(a) is Unpack for a in arguments):
        return None, Any  # a part of unknown length
    return arguments, Any


def _bases(hint: Hint) -> Iterator[Hint]:
    """The bases of a generic class as declared, with its arguments substituted."""
    cls, arguments = class_of(hint)
    bindings = dict(zip(getattr(cls, "__parameters__", ()), arguments))
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        base = plain_hint(substitute(base, bindings))
        if base is not Any:
            yield base


def arguments_as(hint: Hint, base: type) -> tuple[Hint, ...] | None:
    """The type arguments of a plain hint as an instance of one of its base classes; None if unknown."""
    if hint is Any or not isinstance(origin_of(hint) or hint, type):
        return None
    cls, arguments = class_of(hint)
    if base is Mapping and len(arguments) == 1 and cls.__module__ in _STANDARD and cls is not Counter:
        return None  # `dict[str]`, which Python allows
    if cls is base:
        return arguments or None
    if not is_subclass(cls, base):
        return None
    if base is Iterable:
        if issubclass(cls, tuple):
            items, each = items_of(hint)
            return (each if items is None else union(items),)
        if cls in LETTERS:
            return (LETTERS[cls],)
    if is_typed_dict(cls):
        return (str, union(field_types(hint).values())) if base is Mapping else (str,)
    for parent in _bases(hint):
        if (found := arguments_as(parent, base)) is not None:
            return found
    if not arguments or cls.__module__ not in _STANDARD:
        return None
    if base is Mapping and issubclass(cls, Mapping):
        return (arguments[0], int) if issubclass(cls, Counter) else arguments
    if base is Iterable:
        return (types.GenericAlias(tuple, arguments),) if cls is ItemsView else arguments[:1]
    return None


def is_subclass(cls: type, base: type) -> bool:
    try:
        return issubclass(cls, base)
    except TypeError:  # a class that does not support issubclass
        return True


def class_scopes(cls: type) -> list[Mapping[str, Any]]:
    module = sys.modules.get(cls.__module__)
    declared = getattr(cls, "__type_params__", ())  # a descriptor if `cls` is `type`
    parameters = {p.__name__: p for p in declared} if isinstance(declared, tuple) else {}
    globals_ = vars(module) if module else {}
    # The class's own names come last, so that a method named `list` does not hide the built-in.
    return [parameters, globals_, vars(builtins), {c.__name__: c for c in reversed(cls.__mro__)}, vars(cls)]


class _Names(dict[str, Any]):
    """The names in an annotation, looked up in several scopes; an unknown name (one imported only under TYPE_CHECKING)
    is Any."""

    def __init__(self, scopes: list[Mapping[str, Any]]) -> None:
        super().__init__()
        self.scopes = [*scopes, vars(builtins)]

    def __missing__(self, name: str) -> Any:
        return next((scope[name] for scope in self.scopes if name in scope), Any)


def annotations_of(annotated: Any) -> Mapping[str, Any]:
    """The unresolved annotations of a function, or those declared by a class itself; they may have undefined names."""
    if sys.version_info >= (3, 14):  # annotations are evaluated lazily, and are not in `vars` of a class
        from annotationlib import Format, get_annotations

        try:
            return get_annotations(annotated, format=Format.FORWARDREF)
        except TypeError:  # an object without annotations
            return {}
    if isinstance(annotated, type):
        return vars(annotated).get("__annotations__", {})  # type: ignore[no-any-return]
    return getattr(annotated, "__annotations__", None) or {}


def resolved(annotations: Mapping[str, Any], scopes: list[Mapping[str, Any]]) -> dict[str, Hint]:
    names = _Names(scopes)
    found: dict[str, Hint] = {}
    for name, annotation in annotations.items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found.update(get_type_hints(holder, {}, names, include_extras=True))
        except Exception:  # an annotation is the author's code and may raise anything
            found[name] = Any
    return found
