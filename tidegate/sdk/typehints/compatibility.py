"""Compatibility of element types: whether a step can take what another emits, and the binding of type variables.

Typing is optional: an unknown type is `Any`, and `Any` is compatible with everything.

The rule implemented by `clash` and `bind`: **two types clash if no value has both, except for trivial ones.** The rule
is about overlap, not subtyping, so that only certain mistakes are refused:

- Trivial values are empty containers, and None if both types also allow other values: `list[int]` clashes with
  `list[str]`, and `int | None` with `str | None`.
- A union is compatible if any of its members is. A superclass and its subclass are compatible in both directions: a
  value declared as `object` or `Iterable[int]` may be the required `int` or `list[int]`.
- Multiple inheritance is disregarded: two concrete classes clash if neither is derived from the other, although a class
  could inherit from both. Two abstract classes or protocols don't.
- An int is accepted as a float and a float as a complex, as in PEP 484; numbers registered as `numbers.Integral` or
  `Real` (numpy's scalars) are accepted as `int` and `float`. The reverse is a clash: `float` where `int` is wanted.
- Generic types are compatible if their parts are: tuples item by item and in length, mappings by keys and values,
  other iterables by element, callables by result, the author's generic classes by argument.
- TypedDicts are compared key by key; a required key that the other does not have is a clash.

>>> clash(tuple[str, int], tuple[str, float]), clash(list[int], list[str])
(None, 'list[int] given where list[str] is wanted (elements: int is not str)')
>>> element_of_iterable(dict[str, int])
<class 'str'>
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from types import FunctionType, GenericAlias, NoneType
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar, get_args

from tidegate.sdk.typehints.hints import (
    LETTERS,
    Hint,
    annotations_of,
    arguments_as,
    bare_name,
    class_of,
    field_types,
    is_subclass,
    is_typed_dict,
    is_union,
    items_of,
    members_of,
    names_apart,
    origin_of,
    plain_hint,
    required_keys,
    type_name,
    union,
    variables_of,
    widened,
)

K = TypeVar("K")
V = TypeVar("V")

SAMPLE: Final = 100  # the number of a container's items that `matches` checks
_DEPTH: Final = 8  # the depth to which nested and recursive types are checked


def clash(given: Hint, wanted: Hint) -> str | None:
    """Why two types clash, for messages; None if they are compatible (by the rule at the top of this module)."""
    reason = _clash(given, wanted, _DEPTH)
    if reason is None:
        return None
    left, right = names_apart(given, wanted)
    return f"{left} given where {right} is wanted" + (f" ({reason})" if reason else "")


def matches(value: object, hint: Hint) -> bool:
    """Whether a value has a type, including the items of tuples, dataclasses, TypedDicts and containers (the first
    100).

    Iterators and generators are not consumed. Parts that can't be checked count as matching.
    """
    return _matches(value, hint, _DEPTH)


def element_of_iterable(hint: Hint) -> Hint:
    """The type of the items: `X` for `list[X]` and `Iterator[X] | None`, the type of keys for a mapping, else Any.

    None is ignored: a `DoFn.process` may return None for "no elements".
    """
    members = [m for m in members_of(widened(hint)) if m is not NoneType]
    return union((arguments_as(m, Iterable) or (Any,))[0] for m in members)


NOT_SEVERAL: Final[dict[type, str]] = {
    str: "its characters would be the elements. Return a list, such as [text], or use tg.Map",
    bytes: "its numbers would be the elements. Return a list, such as [data], or use tg.Map",
    dict: "its keys would be the elements. Return a list, such as [record] or record.items(), or use tg.Map",
}
"""Iterable types that are usually one value, with the message of a step that would iterate them."""


def unfit_as_several(hint: Hint) -> str | None:
    """Why a result of this type is probably not meant as the elements of a `FlatMap`; None if it may be."""
    found = (NOT_SEVERAL.get(class_of(member)[0]) for member in members_of(widened(hint)) if member is not NoneType)
    return next((reason for reason in found if reason), None)


def kv_of(hint: Hint) -> tuple[Hint, Hint]:
    """The key and value types of pairs; `(Any, Any)` if unknown. `clash` finds types that are not pairs."""
    found = bind(tuple[K, V], hint)  # type: ignore[valid-type]
    return found.get(K, Any), found.get(V, Any)


def bind(pattern: Hint, actual: Hint) -> dict[TypeVar, Hint]:
    """The bindings of the pattern's type variables for which it describes values of the actual type.

    `bind(tuple[K, list[V]], tuple[str, list[int]])` is `{K: str, V: int}`. A variable that occurs several times is
    bound to the union; one that corresponds to an unknown type, to Any. Parts that clash bind nothing.
    """
    found: dict[TypeVar, list[Hint]] = {}
    _bind(pattern, actual, found, _DEPTH)
    return {variable: union(hints) for variable, hints in found.items()}


def _clash(given: Hint, wanted: Hint, depth: int) -> str | None:
    """None if the types are compatible; else the reason, "" if it is not inside the two types but the types
    themselves."""
    givens, wanteds = members_of(given), members_of(wanted)
    if depth == 0 or any(m is Any or m is object for m in givens + wanteds):
        return None
    if any(m is not NoneType for m in givens) and any(m is not NoneType for m in wanteds):
        givens = [m for m in givens if m is not NoneType]
        wanteds = [m for m in wanteds if m is not NoneType]
    reasons: list[str] = []
    for one in givens:
        for other in wanteds:
            reason = _clash_of_members(one, other, depth)
            if reason is None:
                return None
            reasons.append(reason)
    return reasons[0] if len(reasons) == 1 else ""


def _clash_of_members(given: Hint, wanted: Hint, depth: int) -> str | None:
    if origin_of(given) is Literal:
        return None if any(_matches(v, wanted, depth) for v in get_args(given)) else ""
    if origin_of(wanted) is Literal:
        return None if any(_matches(v, given, depth) for v in get_args(wanted)) else ""
    one, other = class_of(given)[0], class_of(wanted)[0]
    if _is_protocol(one) or _is_protocol(other):
        return _clash_with_protocol(one, other)
    if not _classes_agree(*(dict if is_typed_dict(cls) else cls for cls in (one, other))):
        return ""
    if issubclass(one, tuple) and issubclass(other, tuple):
        items, wanted_items = items_of(given)[0], items_of(wanted)[0]
        if items is not None and wanted_items is not None and len(items) != len(wanted_items):
            return f"{len(items)} items, not {len(wanted_items)}"
    if is_typed_dict(one) and is_typed_dict(other):
        for key in sorted(required_keys(other) - field_types(given).keys()):
            return f"no key {key!r}"
    for where, part, wanted_part in _parts(given, wanted):
        reason = _clash(part, wanted_part, depth - 1)
        if reason is not None:
            left, right = names_apart(part, wanted_part)
            return f"{where}: {reason or f'{left} is not {right}'}"
    return None


def _parts(given: Hint, wanted: Hint) -> Iterator[tuple[str, Hint, Hint]]:
    """The parts of two plain types that must be compatible: their place and both their types."""
    (one, args), (other, wanted_args) = class_of(given), class_of(wanted)
    if issubclass(one, tuple) and issubclass(other, tuple):
        (items, each), (wanted_items, wanted_each) = items_of(given), items_of(wanted)
        count = len(items) if items is not None else len(wanted_items) if wanted_items is not None else 0
        for i in range(count):
            if wanted_items is None or i < len(wanted_items):
                yield f"item {i}", items[i] if items else each, wanted_items[i] if wanted_items else wanted_each
        if items is None and wanted_items is None:
            yield "items", each, wanted_each
    elif is_typed_dict(one) or is_typed_dict(other):
        yield from _dict_parts(given, wanted)
    elif issubclass(one, Mapping) and issubclass(other, Mapping):
        pairs = zip(arguments_as(given, Mapping) or (Any, Any), arguments_as(wanted, Mapping) or (Any, Any))
        for where, (part, wanted_part) in zip(("keys", "values"), pairs):
            yield where, part, wanted_part
    elif is_subclass(one, Iterable) and is_subclass(other, Iterable):
        yield "elements", (arguments_as(given, Iterable) or (Any,))[0], (arguments_as(wanted, Iterable) or (Any,))[0]
    elif one is Callable and other is Callable:  # type: ignore[comparison-overlap]
        yield "results", args[-1] if args else Any, wanted_args[-1] if wanted_args else Any
    else:
        base = other if is_subclass(one, other) else one
        for part, wanted_part in zip(arguments_as(given, base) or (), arguments_as(wanted, base) or ()):
            yield f"{bare_name(base)}[…]", part, wanted_part


def _dict_parts(given: Hint, wanted: Hint) -> Iterator[tuple[str, Hint, Hint]]:
    one, other = class_of(given)[0], class_of(wanted)[0]
    if is_typed_dict(one) and is_typed_dict(other):
        known, required = field_types(given), required_keys(one) | required_keys(other)
        for key, wanted_part in field_types(wanted).items():
            if key in known and key in required:
                yield f"key {key!r}", known[key], wanted_part
        return
    typed, typed_class, plain = (given, one, wanted) if is_typed_dict(one) else (wanted, other, given)
    base = Mapping if issubclass(class_of(plain)[0], Mapping) else Iterable
    key_type, *value_type = arguments_as(plain, base) or (Any, Any)
    yield "keys", *((str, key_type) if typed is given else (key_type, str))
    for key in sorted(required_keys(typed_class)) if value_type else ():
        part = field_types(typed).get(key, Any)
        yield f"key {key!r}", *((part, value_type[0]) if typed is given else (value_type[0], part))


def _classes_agree(given: type, wanted: type) -> bool:
    related = _stands_for(given, wanted) or is_subclass(wanted, given)
    return related or (_is_abstract(given) and _is_abstract(wanted))


def _stands_for(cls: type, wanted: type) -> bool:
    """Whether values of a class are accepted as another: subclasses, and the numeric tower."""
    if is_subclass(cls, wanted):
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
    """A class is compatible with a protocol if it has the methods. Attributes are not checked: instances may set
    them."""
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
        declared = {name: value for name, value in vars(base).items() if name not in skipped}
        methods += [name for name, value in declared.items() if isinstance(value, FunctionType)]
        # Others, such as `__hash__ = None`, are set by Python and are not members.
        attributes += [name for name, value in declared.items() if isinstance(value, property)]
        attributes += list(annotations_of(base))
    return methods, attributes


def _matches(value: object, hint: Hint, depth: int) -> bool:
    if depth == 0 or hint is Any or (type(value) is hint and hint in _SCALARS):
        return True
    return any(_is_a(value, member, depth) for member in members_of(hint))


_SCALARS: Final = frozenset({bool, int, float, str, bytes, NoneType})


def _is_a(value: object, hint: Hint, depth: int) -> bool:
    if hint is Any:
        return True
    if origin_of(hint) is Literal:
        return any(type(value) is type(v) and value == v for v in get_args(hint))
    cls, arguments = class_of(hint)
    if cls is type and arguments:
        return isinstance(value, type) and any(
            m is Any or _is_protocol(c := class_of(m)[0]) or is_subclass(value, c) for m in members_of(arguments[0])
        )
    if _is_protocol(cls):
        methods, attributes = _protocol_members(cls)
        has_methods = all(getattr(type(value), m, None) is not None or hasattr(value, m) for m in methods)
        return has_methods and all(hasattr(value, a) for a in attributes)
    if is_typed_dict(cls):
        return isinstance(value, dict) and _is_typed(value, hint, depth)
    if not (_is_instance(value, cls) or _stands_for(type(value), cls)):
        return False
    if cls in LETTERS:
        return True
    if isinstance(value, tuple) and issubclass(cls, tuple):
        items, each = items_of(hint)
        if items is None:
            return all(_matches(v, each, depth - 1) for v in value[:SAMPLE])
        return len(items) == len(value) and all(map(_matches, value, items, [depth - 1] * len(items)))
    if is_dataclass(cls):
        known = field_types(hint)
        return all(_matches(getattr(value, f.name), known.get(f.name, Any), depth - 1)
                   for f in fields(cls) if hasattr(value, f.name))  # fmt: skip
    if isinstance(value, Mapping) and issubclass(cls, Mapping):
        key, item = arguments_as(hint, Mapping) or (Any, Any)
        return (key is Any and item is Any) or all(
            _matches(k, key, depth - 1) and _matches(v, item, depth - 1) for k, v in islice(value.items(), SAMPLE)
        )
    if isinstance(value, Collection) and not isinstance(value, Iterator):
        each = (arguments_as(hint, Iterable) or (Any,))[0]
        return each is Any or all(_matches(v, each, depth - 1) for v in islice(value, SAMPLE))
    return True


def _is_typed(value: dict[Any, Any], hint: Hint, depth: int) -> bool:
    known = field_types(hint)
    required = required_keys(class_of(hint)[0])
    return required <= value.keys() and all(_matches(value[k], known[k], depth - 1) for k in known if k in value)


def _is_instance(value: object, cls: type) -> bool:
    try:
        return isinstance(value, cls)
    except TypeError:  # a class that does not support isinstance
        return True


def _bind(pattern: Hint, actual: Hint, found: dict[TypeVar, list[Hint]], depth: int) -> None:
    while origin_of(pattern) is Annotated:
        pattern = get_args(pattern)[0]
    if isinstance(pattern, TypeVar):
        found.setdefault(pattern, []).append(actual)
        return
    variables = [v for v in variables_of(pattern) if isinstance(v, TypeVar)]
    if not variables or depth == 0:
        return
    members = members_of(actual)
    if Any in members:
        for variable in variables:
            found.setdefault(variable, []).append(Any)
    elif is_union(plain := plain_hint(pattern)):
        _bind_union(get_args(plain), get_args(actual) if is_union(actual) else (actual,), found, depth)
    else:
        for member in members_of(widened(actual)):
            if is_typed_dict(class_of(member)[0]) and not is_typed_dict(class_of(plain)[0]):
                member = GenericAlias(dict, arguments_as(member, Mapping))  # includes optional keys
            if _clash(member, plain, depth) is None and not _is_protocol(class_of(plain)[0]):
                for _, part, pattern_part in _parts(member, plain):
                    _bind(pattern_part, part, found, depth - 1)


def _bind_union(
    alternatives: tuple[Hint, ...], actuals: tuple[Hint, ...], found: dict[TypeVar, list[Hint]], depth: int
) -> None:
    """Bind `T | None` to `int | None`: members equal to fixed alternatives bind nothing, the others bind alternatives
    with variables, a bare T last."""
    fixed = [a for a in alternatives if not variables_of(a)]
    bare = [a for a in alternatives if isinstance(a, TypeVar)]
    shaped = [a for a in alternatives if variables_of(a) and not isinstance(a, TypeVar)]
    for actual in actuals:
        if actual not in fixed:
            for alternative in [a for a in shaped if _clash(actual, a, depth) is None] or bare:
                _bind(alternative, actual, found, depth)
