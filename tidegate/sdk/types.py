"""Element types: what annotations say a step takes and gives, and whether two steps can meet.

Types are the ordinary objects of `typing` (`int`, `tuple[str, int]`, `Event | None`, a TypedDict …), called hints here.
Typing is optional, so whatever is unknown, unresolvable or not understood is `Any`, and `Any` agrees with everything.

The rule of agreement, kept by `clash`, `compatible` and `bind`: **two types clash when no value but trivial ones could
have both.** It is about overlap, not about subtyping, so that only sure mistakes are refused:

- Trivial values are empty containers, and None where both types allow something else: `list[int]` clashes with
  `list[str]`, and `int | None` with `str | None`.
- A union agrees if any member does. A superclass agrees with its subclass in both directions: what is announced as
  `object` or `Iterable[int]` may turn out to be the `int` or `list[int]` that is wanted.
- A value is taken to be of the class announced or of a subclass of that one line: two concrete classes, neither
  derived from the other, clash, though a class could inherit both. Two abstract classes or protocols don't.
- An int may stand for a float and a float for a complex, as in PEP 484; numbers registered as `numbers.Integral` or
  `Real` (numpy's scalars) stand for `int` and `float`. Not the other way: `float` clashes with a wanted `int`.
- Generic types agree if their parts do: tuples item by item and in length, mappings by keys and values, other
  iterables by element, callables by result, the author's generic classes by argument.
- TypedDicts agree key by key; a required key that the other does not have is a clash.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types as _types
import typing
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sized,
    ValuesView,
)
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import islice
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    LiteralString,
    ParamSpec,
    Protocol,
    Self,
    SupportsFloat,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    Union,
    Unpack,
    get_args,
    get_type_hints,
)

from tidegate.sdk.errors import shorten

Hint: TypeAlias = Any
"""Any object of `typing` that can stand in an annotation."""

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

SAMPLE: Final = 100  # how many items of a container `matches` looks at
_DEPTH: Final = 8  # how far nested (and recursive) types are followed; what lies deeper is taken on trust


@dataclass(frozen=True, slots=True)
class FnTypes:
    """What a function takes and gives. Arguments already bound (`self`, those of a partial) are not counted."""

    parameters: tuple[Hint, ...] = ()
    """Those that can be given by position, in order."""
    keywords: Mapping[str, Hint] = field(default_factory=dict)
    """Those that can be given by name."""
    rest: Hint = Any
    """Of `*args`, and of any position beyond `parameters`."""
    result: Hint = Any

    def parameter(self, position: int) -> Hint:
        """The type wanted at a position, counted from 0; Any when the function says nothing about it."""
        return self.parameters[position] if position < len(self.parameters) else self.rest

    def result_for(self, *given: Hint) -> Hint:
        """The result's type when called with arguments of these types: type variables are replaced by what they met."""
        wanted = tuple(self.parameter(i) for i in range(len(given)))
        return substitute(self.result, bind(_tuple_of(wanted), _tuple_of(given)))


def signature_of(fn: object) -> FnTypes:
    """What a callable's annotations say: functions, methods, partials, classes, callable objects, common built-ins.

    Annotations that are strings are resolved through the function's closure, globals and class, name by name.
    What can't be found out is Any. Never raises.
    """
    try:
        return _signature(fn)
    except Exception:  # the author's own metaclass, property or __signature__ may raise anything
        return FnTypes()


def clash(given: Hint, wanted: Hint) -> str | None:
    """Why no value can have both types, for people; None if some can (the rule at the top of this module)."""
    reason = _clash(given, wanted, _DEPTH)
    if reason is None:
        return None
    left, right = _names_apart(given, wanted)
    return f"{left} given where {right} is wanted" + (f" ({reason})" if reason else "")


def compatible(given: Hint, wanted: Hint) -> bool:
    """Whether a step that gives one type may feed a step that wants the other: False only for sure clashes."""
    return _clash(given, wanted, _DEPTH) is None


def matches(value: object, hint: Hint) -> bool:
    """Whether a value has a type, looking into tuples, dataclasses, TypedDicts and containers (their first 100 items).

    Iterators and generators are not consumed. What can't be checked counts as matching.
    """
    return _matches(value, hint, _DEPTH)


def element_of_iterable(hint: Hint) -> Hint:
    """The type of what iterating gives: `X` of `list[X]`, of `Iterator[X] | None`, keys of a mapping; else Any.

    None adds nothing: a `DoFn.process` may return None for "no elements".
    """
    members = [m for m in _members(_widened(hint)) if m is not _types.NoneType]
    return union((_arguments(m, Iterable) or (Any,))[0] for m in members)


def kv_of(hint: Hint) -> tuple[Hint, Hint]:
    """Key and value types of pairs; `(Any, Any)` when unknown or no pair at all, which `clash(hint, PAIR)` tells."""
    found = bind(tuple[K, V], hint)  # type: ignore[valid-type]
    return found.get(K, Any), found.get(V, Any)


PAIR: Final[Hint] = tuple[Any, Any]


def union(hints: Iterable[Hint]) -> Hint:
    """One type for values of any of these; Any if one is Any, or if there are none."""
    distinct: list[Hint] = []
    for hint in hints:
        for member in get_args(hint) if _is_union(hint) else (_types.NoneType if hint is None else hint,):
            if _plain(member) is Any:
                return Any
            if member not in distinct:
                distinct.append(member)
    try:
        return Union[tuple(distinct)] if distinct else Any  # noqa: UP007
    except TypeError:  # not hashable, or not allowed inside a union
        return Any


def bind(pattern: Hint, actual: Hint) -> dict[TypeVar, Hint]:
    """What the pattern's type variables stand for if it describes values of the actual type.

    `bind(tuple[K, list[V]], tuple[str, list[int]])` is `{K: str, V: int}`. One met several times stands for the union;
    one that meets something unknown for Any. Parts that clash bind nothing.
    """
    found: dict[TypeVar, list[Hint]] = {}
    _bind(pattern, actual, found, _DEPTH)
    return {variable: union(hints) for variable, hints in found.items()}


def substitute(hint: Hint, bindings: Mapping[TypeVar, Hint]) -> Hint:
    """The type with its variables replaced; those without a binding become Any."""
    if isinstance(hint, TypeVar):
        return bindings.get(hint, Any)
    variables = _variables(hint)
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
        case None | _types.NoneType:
            return "None"
        case _types.EllipsisType():
            return "..."
        case str():
            return hint
        case ForwardRef():
            return hint.__forward_arg__
        case list():  # the parameters of a Callable
            return f"[{', '.join(map(type_name, hint))}]"
    origin, arguments = _origin(hint), get_args(hint)
    if _is_union(hint):
        named = dict.fromkeys(_alternative_names(hint))
        return " | ".join(sorted(named, key=lambda name: name == "None"))  # None last, the others as they come
    if origin is Annotated:
        return type_name(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(_literal_name(a) for a in arguments)}]"
    if origin is Unpack:
        return f"*{type_name(arguments[0])}"
    if origin is None or not hasattr(hint, "__args__"):
        return _bare_name(origin or hint)
    star = "*" if getattr(hint, "__unpacked__", False) else ""
    return f"{star}{_bare_name(origin)}[{', '.join(map(type_name, arguments)) or '()'}]"


def _alternative_names(hint: Hint) -> Iterator[str]:
    if _origin(hint) is Annotated:
        yield from _alternative_names(get_args(hint)[0])
    elif _is_union(hint):
        for part in get_args(hint):
            yield from _alternative_names(part)
    else:
        yield type_name(hint)


def _bare_name(hint: Hint) -> str:
    name = getattr(hint, "__qualname__", None) or getattr(hint, "_name", None) or getattr(hint, "__name__", None)
    return name.rpartition("<locals>.")[2] if isinstance(name, str) else shorten(hint)


def _literal_name(value: object) -> str:
    name = getattr(value, "name", None)  # an enum's member
    return repr(value) if name is None else f"{type(value).__name__}.{name}"


def _names_apart(given: Hint, wanted: Hint) -> tuple[str, str]:
    """Both names; with their modules when two classes share one name."""
    names = type_name(given), type_name(wanted)
    if names[0] != names[1]:
        return names
    return f"{getattr(given, '__module__', '')}.{names[0]}", f"{getattr(wanted, '__module__', '')}.{names[1]}"


# Reading hints: every form is first brought down to Any, a class, a generic alias of a class, a Literal or a union.

_WRAPPERS: Final = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"})
_BOOLS: Final = frozenset({"TypeGuard", "TypeIs"})


def _plain(hint: Hint) -> Hint:
    """The hint without what does not bear on values: Annotated, NewType, aliases, TypeVars, Required…"""
    for _ in range(20):  # aliases of aliases; an alias of itself is Any
        origin = _origin(hint)
        match hint:
            case None:
                return _types.NoneType
            case TypeVar():
                hint = hint.__bound__ or union(hint.__constraints__)
                continue
            case type() if origin is None:
                return Any if Any in hint.__mro__ or hint is Protocol else hint
        if hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = _alias_value(hint)
        elif type(origin).__name__ == "TypeAliasType":
            hint = substitute(_alias_value(origin), dict(zip(origin.__type_params__, get_args(hint))))
        elif origin is Annotated or _form(origin) in _WRAPPERS:
            hint = get_args(hint)[0]
        elif hint is LiteralString:
            return str
        elif _form(origin) in _BOOLS:
            return bool
        elif _is_union(hint) or origin is Literal or isinstance(origin, type):
            return hint
        else:
            return Any
    return Any


def _origin(hint: Hint) -> Any:
    return typing.get_origin(hint)


@functools.lru_cache(maxsize=256)
def _alias_value(alias: Any) -> Hint:
    """What `type X = …` stands for; text in it (before Python 3.12, for recursion) is looked up in its module."""
    module = sys.modules.get(alias.__module__)
    return _resolved({"value": alias.__value__}, [vars(module) if module else {}])["value"]


def _form(origin: Hint) -> str | None:
    """The name of a special form of `typing`, or of `typing_extensions`, which are different objects."""
    return None if isinstance(origin, type) else getattr(origin, "_name", None)


def _is_union(hint: Hint) -> bool:
    return _origin(hint) in (Union, _types.UnionType)


def _members(hint: Hint) -> list[Hint]:
    """The alternatives of a union, each plain; `Literal[None]` counts as None."""
    plain = _plain(hint)
    if _is_union(plain):
        return [m for part in get_args(plain) for m in _members(part)]
    if _origin(plain) is Literal and None in get_args(plain):
        others = tuple(a for a in get_args(plain) if a is not None)
        return [_types.NoneType, *([Literal[others]] if others else [])]
    return [plain]


def _widened(hint: Hint) -> Hint:
    """The hint with Literals replaced by the classes of their values."""
    return union(union(map(type, get_args(m))) if _origin(m) is Literal else m for m in _members(hint))


def _class_of(hint: Hint) -> tuple[type, tuple[Hint, ...]]:
    """The class of a plain hint that is no union or Literal, and its arguments."""
    return _origin(hint) or hint, get_args(hint)


def _tuple_of(items: tuple[Hint, ...]) -> Hint:
    return _types.GenericAlias(tuple, items)


def _variables(hint: Hint) -> tuple[Any, ...]:
    if isinstance(hint, TypeVar | ParamSpec | TypeVarTuple):
        return (hint,)
    # A generic class without arguments has __parameters__ too, but there is nothing to replace in it.
    return () if isinstance(hint, type) and _origin(hint) is None else getattr(hint, "__parameters__", ())


def _is_typed_dict(cls: type) -> bool:
    return dict in cls.__mro__ and hasattr(cls, "__required_keys__")


def _field_types(hint: Hint) -> dict[str, Hint]:
    """The annotated fields of a plain class (dataclass, NamedTuple, TypedDict), its type arguments filled in."""
    cls, arguments = _class_of(hint)
    hints = _class_hints(cls)
    if variables := getattr(cls, "__parameters__", ()):
        bindings = dict(zip(variables, arguments))
        return {name: substitute(h, bindings) for name, h in hints.items()}
    return hints


def _class_hints(cls: type) -> dict[str, Hint]:
    return _class_annotations(cls)[0]


def _required_keys(typed_dict: type) -> frozenset[str]:
    return _class_annotations(typed_dict)[1]


@functools.lru_cache(maxsize=256)
def _class_annotations(cls: type) -> tuple[dict[str, Hint], frozenset[str]]:
    """A class's annotated fields, and which of them a TypedDict requires.

    Its `__required_keys__` is not enough: where annotations are strings Python does not see `NotRequired` in them.
    """
    found: dict[str, Hint] = {}
    required: set[str] = set(getattr(cls, "__required_keys__", ()))
    for base in reversed(cls.__mro__):
        found.update(_resolved(vars(base).get("__annotations__", {}), _class_scopes(base)))
    for name, hint in found.items():
        while (form := _form(_origin(hint))) in _WRAPPERS:
            if form == "NotRequired":
                required.discard(name)
            elif form == "Required":
                required.add(name)
            hint = get_args(hint)[0]
        found[name] = hint
    return found, frozenset(required)


def _items(hint: Hint) -> tuple[tuple[Hint, ...] | None, Hint]:
    """Of a tuple type: the types of its items, or None and the one type that all items have."""
    cls, arguments = _class_of(hint)
    if cls is not tuple:
        names = getattr(cls, "_fields", None)
        if names is not None:
            known = _field_types(hint)
            return tuple(known.get(n, Any) for n in names), Any
        for base in _bases(hint):
            if issubclass(_class_of(base)[0], tuple):
                return _items(base)
        return None, Any
    if not hasattr(hint, "__args__"):
        return None, Any
    if len(arguments) == 2 and arguments[1] is ...:
        return None, arguments[0]
    if any(getattr(a, "__unpacked__", False) or _origin(a) is Unpack for a in arguments):
        return None, Any  # a part of unknown length
    return arguments, Any


def _bases(hint: Hint) -> Iterator[Hint]:
    """The bases of a generic class as it wrote them, its own arguments filled in."""
    cls, arguments = _class_of(hint)
    bindings = dict(zip(getattr(cls, "__parameters__", ()), arguments))
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        base = _plain(substitute(base, bindings))
        if base is not Any:
            yield base


_LETTERS: Final[dict[type, type]] = {str: str, bytes: int, bytearray: int, memoryview: int, range: int}
_STANDARD: Final = frozenset({"builtins", "collections", "collections.abc"})


def _arguments(hint: Hint, base: type) -> tuple[Hint, ...] | None:
    """The type arguments a plain hint has when seen as one of its base classes; None when that is not known."""
    if hint is Any or not isinstance(_origin(hint) or hint, type):
        return None
    cls, arguments = _class_of(hint)
    if base is Mapping and len(arguments) == 1 and cls.__module__ in _STANDARD and cls is not Counter:
        return None  # `dict[str]`, which Python lets pass
    if cls is base:
        return arguments or None
    if not _is_subclass(cls, base):
        return None
    if base is Iterable:
        if issubclass(cls, tuple):
            items, each = _items(hint)
            return (each if items is None else union(items),)
        if cls in _LETTERS:
            return (_LETTERS[cls],)
    if _is_typed_dict(cls):
        return (str, union(_field_types(hint).values())) if base is Mapping else (str,)
    for parent in _bases(hint):
        if (found := _arguments(parent, base)) is not None:
            return found
    if not arguments or cls.__module__ not in _STANDARD:
        return None
    if base is Mapping and issubclass(cls, Mapping):
        return (arguments[0], int) if issubclass(cls, Counter) else arguments
    if base is Iterable:
        return (_tuple_of(arguments),) if cls is ItemsView else arguments[:1]
    return None


# Agreement.


def _clash(given: Hint, wanted: Hint, depth: int) -> str | None:
    """None if some value can have both; else the reason inside the two types, "" if it lies in the types themselves."""
    givens, wanteds = _members(given), _members(wanted)
    if depth == 0 or any(m is Any or m is object for m in givens + wanteds):
        return None
    if any(m is not _types.NoneType for m in givens) and any(m is not _types.NoneType for m in wanteds):
        givens = [m for m in givens if m is not _types.NoneType]
        wanteds = [m for m in wanteds if m is not _types.NoneType]
    reasons: list[str] = []
    for one in givens:
        for other in wanteds:
            reason = _clash_of_members(one, other, depth)
            if reason is None:
                return None
            reasons.append(reason)
    return reasons[0] if len(reasons) == 1 else ""


def _clash_of_members(given: Hint, wanted: Hint, depth: int) -> str | None:
    if _origin(given) is Literal:
        return None if any(_matches(v, wanted, depth) for v in get_args(given)) else ""
    if _origin(wanted) is Literal:
        return None if any(_matches(v, given, depth) for v in get_args(wanted)) else ""
    one, other = _class_of(given)[0], _class_of(wanted)[0]
    if _is_protocol(one) or _is_protocol(other):
        return _clash_with_protocol(one, other)
    if not _classes_agree(*(dict if _is_typed_dict(cls) else cls for cls in (one, other))):
        return ""
    if issubclass(one, tuple) and issubclass(other, tuple):
        items, wanted_items = _items(given)[0], _items(wanted)[0]
        if items is not None and wanted_items is not None and len(items) != len(wanted_items):
            return f"{len(items)} items, not {len(wanted_items)}"
    if _is_typed_dict(one) and _is_typed_dict(other):
        for key in sorted(_required_keys(other) - _field_types(given).keys()):
            return f"no key {key!r}"
    for where, part, wanted_part in _parts(given, wanted):
        reason = _clash(part, wanted_part, depth - 1)
        if reason is not None:
            left, right = _names_apart(part, wanted_part)
            return f"{where}: {reason or f'{left} is not {right}'}"
    return None


def _parts(given: Hint, wanted: Hint) -> Iterator[tuple[str, Hint, Hint]]:
    """The parts of two plain types that have to agree: where they are, and both their types."""
    (one, args), (other, wanted_args) = _class_of(given), _class_of(wanted)
    if issubclass(one, tuple) and issubclass(other, tuple):
        (items, each), (wanted_items, wanted_each) = _items(given), _items(wanted)
        count = len(items) if items is not None else len(wanted_items) if wanted_items is not None else 0
        for i in range(count):
            if wanted_items is None or i < len(wanted_items):
                yield f"item {i}", items[i] if items else each, wanted_items[i] if wanted_items else wanted_each
        if items is None and wanted_items is None:
            yield "items", each, wanted_each
    elif _is_typed_dict(one) or _is_typed_dict(other):
        yield from _dict_parts(given, wanted)
    elif issubclass(one, Mapping) and issubclass(other, Mapping):
        pairs = zip(_arguments(given, Mapping) or (Any, Any), _arguments(wanted, Mapping) or (Any, Any))
        for where, (part, wanted_part) in zip(("keys", "values"), pairs):
            yield where, part, wanted_part
    elif _is_subclass(one, Iterable) and _is_subclass(other, Iterable):
        yield "elements", (_arguments(given, Iterable) or (Any,))[0], (_arguments(wanted, Iterable) or (Any,))[0]
    elif one is Callable and other is Callable:  # type: ignore[comparison-overlap]
        yield "results", args[-1] if args else Any, wanted_args[-1] if wanted_args else Any
    else:
        base = other if _is_subclass(one, other) else one
        for part, wanted_part in zip(_arguments(given, base) or (), _arguments(wanted, base) or ()):
            yield f"{_bare_name(base)}[…]", part, wanted_part


def _dict_parts(given: Hint, wanted: Hint) -> Iterator[tuple[str, Hint, Hint]]:
    one, other = _class_of(given)[0], _class_of(wanted)[0]
    if _is_typed_dict(one) and _is_typed_dict(other):
        known, required = _field_types(given), _required_keys(one) | _required_keys(other)
        for key, wanted_part in _field_types(wanted).items():
            if key in known and key in required:
                yield f"key {key!r}", known[key], wanted_part
        return
    typed, typed_class, plain = (given, one, wanted) if _is_typed_dict(one) else (wanted, other, given)
    base = Mapping if issubclass(_class_of(plain)[0], Mapping) else Iterable
    key_type, *value_type = _arguments(plain, base) or (Any, Any)
    yield "keys", *((str, key_type) if typed is given else (key_type, str))
    for key in sorted(_required_keys(typed_class)) if value_type else ():
        part = _field_types(typed).get(key, Any)
        yield f"key {key!r}", *((part, value_type[0]) if typed is given else (value_type[0], part))


def _classes_agree(given: type, wanted: type) -> bool:
    related = _stands_for(given, wanted) or _is_subclass(wanted, given)
    return related or (_is_abstract(given) and _is_abstract(wanted))


def _is_subclass(cls: type, base: type) -> bool:
    try:
        return issubclass(cls, base)
    except TypeError:  # a class that refuses to be asked
        return True


def _stands_for(cls: type, wanted: type) -> bool:
    """Whether values of one class are accepted as another: subclasses, and the tower of numbers."""
    if _is_subclass(cls, wanted):
        return True
    if wanted is int or wanted is float or wanted is complex:
        import numbers

        kind = numbers.Integral if wanted is int else numbers.Real if wanted is float else numbers.Complex
        return issubclass(cls, kind)
    return False


def _is_abstract(cls: type) -> bool:
    return bool(getattr(cls, "__abstractmethods__", ()))


def _is_protocol(cls: type) -> bool:
    return bool(vars(cls).get("_is_protocol", False))


def _clash_with_protocol(one: type, other: type) -> str | None:
    """A class agrees with a protocol if it has the methods; attributes may be set by instances, so they don't count."""
    if all(_is_protocol(cls) or _is_abstract(cls) for cls in (one, other)):
        return None
    cls, protocol = (other, one) if _is_protocol(one) else (one, other)
    for name in _protocol_members(protocol)[0]:
        if getattr(cls, name, None) is None:
            return f"{type_name(cls)} has no method {name!r}"
    return None


@functools.lru_cache(maxsize=256)
def _protocol_members(protocol: type) -> tuple[list[str], list[str]]:
    """Names of a protocol's methods, and of its attributes."""
    methods: list[str] = []
    attributes: list[str] = []
    for base in protocol.__mro__:
        if base is Protocol or not _is_protocol(base):
            continue
        skipped = {"__init__", "__new__", "__subclasshook__", "__class_getitem__", "__init_subclass__"}
        own = {name: value for name, value in vars(base).items() if name not in skipped}
        methods += [name for name, value in own.items() if isinstance(value, _types.FunctionType)]
        # __hash__ = None and the like are Python's own marks, not members.
        attributes += [name for name, value in own.items() if isinstance(value, property)]
        attributes += list(own.get("__annotations__", ()))
    return methods, attributes


# Values.


def _matches(value: object, hint: Hint, depth: int) -> bool:
    if depth == 0 or hint is Any or (type(value) is hint and hint in _SCALARS):
        return True
    return any(_is_a(value, member, depth) for member in _members(hint))


_SCALARS: Final = frozenset({bool, int, float, str, bytes, _types.NoneType})


def _is_a(value: object, hint: Hint, depth: int) -> bool:
    if hint is Any:
        return True
    if _origin(hint) is Literal:
        return any(type(value) is type(v) and value == v for v in get_args(hint))
    cls, arguments = _class_of(hint)
    if cls is type and arguments:
        return isinstance(value, type) and any(
            m is Any or _is_protocol(c := _class_of(m)[0]) or _is_subclass(value, c) for m in _members(arguments[0])
        )
    if _is_protocol(cls):
        methods, attributes = _protocol_members(cls)
        has_methods = all(getattr(type(value), m, None) is not None or hasattr(value, m) for m in methods)
        return has_methods and all(hasattr(value, a) for a in attributes)
    if _is_typed_dict(cls):
        return isinstance(value, dict) and _is_typed(value, hint, depth)
    if not (_is_instance(value, cls) or _stands_for(type(value), cls)):
        return False
    if cls in _LETTERS:
        return True
    if isinstance(value, tuple) and issubclass(cls, tuple):
        items, each = _items(hint)
        if items is None:
            return all(_matches(v, each, depth - 1) for v in value[:SAMPLE])
        return len(items) == len(value) and all(map(_matches, value, items, [depth - 1] * len(items)))
    if is_dataclass(cls):
        known = _field_types(hint)
        return all(_matches(getattr(value, f.name), known.get(f.name, Any), depth - 1)
                   for f in fields(cls) if hasattr(value, f.name))  # fmt: skip
    if isinstance(value, Mapping) and issubclass(cls, Mapping):
        key, item = _arguments(hint, Mapping) or (Any, Any)
        return (key is Any and item is Any) or all(
            _matches(k, key, depth - 1) and _matches(v, item, depth - 1) for k, v in islice(value.items(), SAMPLE)
        )
    if isinstance(value, Collection) and not isinstance(value, Iterator):
        each = (_arguments(hint, Iterable) or (Any,))[0]
        return each is Any or all(_matches(v, each, depth - 1) for v in islice(value, SAMPLE))
    return True


def _is_typed(value: dict[Any, Any], hint: Hint, depth: int) -> bool:
    known = _field_types(hint)
    required = _required_keys(_class_of(hint)[0])
    return required <= value.keys() and all(_matches(value[k], known[k], depth - 1) for k in known if k in value)


def _is_instance(value: object, cls: type) -> bool:
    try:
        return isinstance(value, cls)
    except TypeError:  # a class that refuses to be asked
        return True


# Type variables.


def _bind(pattern: Hint, actual: Hint, found: dict[TypeVar, list[Hint]], depth: int) -> None:
    while _origin(pattern) is Annotated:
        pattern = get_args(pattern)[0]
    if isinstance(pattern, TypeVar):
        found.setdefault(pattern, []).append(actual)
        return
    variables = [v for v in _variables(pattern) if isinstance(v, TypeVar)]
    if not variables or depth == 0:
        return
    members = _members(actual)
    if Any in members:
        for variable in variables:
            found.setdefault(variable, []).append(Any)
    elif _is_union(plain := _plain(pattern)):
        _bind_union(get_args(plain), get_args(actual) if _is_union(actual) else (actual,), found, depth)
    else:
        for member in _members(_widened(actual)):
            if _is_typed_dict(_class_of(member)[0]) and not _is_typed_dict(_class_of(plain)[0]):
                member = _types.GenericAlias(dict, _arguments(member, Mapping))  # with the keys not required too
            if _clash(member, plain, depth) is None and not _is_protocol(_class_of(plain)[0]):
                for _, part, pattern_part in _parts(member, plain):
                    _bind(pattern_part, part, found, depth - 1)


def _bind_union(
    alternatives: tuple[Hint, ...], actuals: tuple[Hint, ...], found: dict[TypeVar, list[Hint]], depth: int
) -> None:
    """`T | None` met by `int | None`: what fixed alternatives take leaves the rest to the open ones, bare T last."""
    fixed = [a for a in alternatives if not _variables(a)]
    bare = [a for a in alternatives if isinstance(a, TypeVar)]
    shaped = [a for a in alternatives if _variables(a) and not isinstance(a, TypeVar)]
    for actual in actuals:
        if actual not in fixed:
            for alternative in [a for a in shaped if _clash(actual, a, depth) is None] or bare:
                _bind(alternative, actual, found, depth)


# Signatures.


def _signature(fn: Any) -> FnTypes:
    import inspect

    known = _known_signature(fn)
    if known is not None:
        return known
    if hasattr(fn, "__supertype__"):
        return FnTypes((fn.__supertype__,), result=fn)
    hints = _hints_of(fn)
    try:
        parameters = list(inspect.signature(_origin(fn) or fn).parameters.values())
        if isinstance(fn, _types.FunctionType | _types.MethodType):
            # A wrapper that names its parameters may differ from what it wraps; one of *args hands on what it gets.
            outer = inspect.signature(fn, follow_wrapped=False).parameters.values()
            parameters = parameters if any(p.kind is p.VAR_POSITIONAL for p in outer) else list(outer)
    except (TypeError, ValueError):
        return FnTypes(result=hints.get("return", Any))
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [hints.get(p.name, Any) for p in parameters if p.kind is p.VAR_POSITIONAL]
    return FnTypes(
        tuple(hints.get(p.name, Any) for p in positional),
        {p.name: hints.get(p.name, Any) for p in named},
        rest[0] if rest else Any,
        hints.get("return", Any),
    )


def _hints_of(fn: Any) -> dict[str, Hint]:
    """The resolved annotations of whatever stands behind a callable, by parameter name and "return"."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    cls = _origin(fn) or fn
    if isinstance(cls, type):
        by_field = _field_types(fn) if is_dataclass(cls) or hasattr(cls, "_fields") else {}
        maker = cls.__init__ if cls.__init__ is not object.__init__ else cls.__new__  # type: ignore[misc]
        hints = _function_hints(maker, cls)
        # A field inherited from another module is resolved there, not where __init__ was made.
        hints |= {n: h for n, h in by_field.items() if hints.get(n, Any) is Any}
        if arguments := get_args(fn):
            bindings = dict(zip(getattr(cls, "__parameters__", ()), arguments))
            hints = {n: substitute(h, bindings) for n, h in hints.items()}
        return hints | {"return": fn}
    if hasattr(fn, "dispatch") and hasattr(fn, "registry"):
        return {}  # a singledispatch function: what it takes depends on what is registered when it is called
    if isinstance(fn, _types.MethodType):
        owner = fn.__self__ if isinstance(fn.__self__, type) else type(fn.__self__)
        return _function_hints(fn.__func__, owner)
    if isinstance(fn, _types.FunctionType) or hasattr(fn, "__wrapped__"):
        return _function_hints(fn, None)
    return _function_hints(type(fn).__call__, type(fn))


def _function_hints(fn: Any, owner: type | None) -> dict[str, Hint]:
    scopes: list[Mapping[str, Any]] = []
    inner = fn
    for _ in range(20):  # decorators copy annotations, whose names belong to the function inside
        scopes[:0] = _function_scopes(inner)
        if not hasattr(inner, "__wrapped__"):
            break
        inner = inner.__wrapped__
    if owner is not None:
        scopes += _class_scopes(owner)
    annotations = getattr(fn, "__annotations__", None) or getattr(inner, "__annotations__", None) or {}
    hints = _resolved(annotations, scopes)
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


def _class_scopes(cls: type) -> list[Mapping[str, Any]]:
    module = sys.modules.get(cls.__module__)
    parameters = {p.__name__: p for p in getattr(cls, "__type_params__", ())}
    globals_ = vars(module) if module else {}
    # A method named `list` must not hide the built-in, so a class's own names come last.
    return [parameters, globals_, vars(builtins), {c.__name__: c for c in reversed(cls.__mro__)}, vars(cls)]


class _Names(dict[str, Any]):
    """The names an annotation may use, looked up in turn; one found nowhere (imported for checkers only) is Any."""

    def __init__(self, scopes: list[Mapping[str, Any]]) -> None:
        super().__init__()
        self.scopes = [*scopes, vars(builtins)]

    def __missing__(self, name: str) -> Any:
        return next((scope[name] for scope in self.scopes if name in scope), Any)


def _resolved(annotations: Mapping[str, Any], scopes: list[Mapping[str, Any]]) -> dict[str, Hint]:
    names = _Names(scopes)
    found: dict[str, Hint] = {}
    for name, annotation in annotations.items():
        holder = _types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found.update(get_type_hints(holder, {}, names, include_extras=True))
        except Exception:  # an annotation is the author's code and may raise anything
            found[name] = Any
    return found


def _known_signature(fn: Any) -> FnTypes | None:
    """Of built-ins that carry no annotations; methods bound to a value (`",".join`) and partials of them too."""
    bound = 0
    if isinstance(fn, functools.partial):
        fn, bound = fn.func, len(fn.args)
    if isinstance(fn, _types.BuiltinMethodType) and not isinstance(fn.__self__, _types.ModuleType | type | None):
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
