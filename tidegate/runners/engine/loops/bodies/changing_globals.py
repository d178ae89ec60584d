"""Finds out whether what a loop takes for granted about a function's globals may change while a block is processed.

It looks up most globals wherever the function reads them, and need not ask. It asks about builtins that it reads once
per block, which a global may hide, about functions in place of whose calls it does something itself, and, if the loop
has the globals of another module, about globals that may be deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from gc import is_tracked
from itertools import chain
from opcode import opmap
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

_CHANGES_ANYTHING: Final = frozenset({"globals", "exec", "eval", "setattr", "delattr", "reload", "__dict__", "vars"})


def changes_of_globals(
    fn: FunctionType,
    fixed: Set[str],
    kept: Set[str] = frozenset(),
    owners: Iterable[Any] = (),
    modules: Iterable[Mapping[str, Any]] = (),
) -> Iterator[str]:
    """How code that has the globals of `fn` may store or delete those that are `fixed`, or delete those that are only
    `kept`, while a block is processed; or how code of other `modules` may do so by an attribute of the module.

    `owners` are the objects of which `fn` is a method.
    """
    if not (fixed or kept):
        return
    shared = fn.__globals__
    for name, value in shared.items():
        if value is shared:
            yield f"{name!r} has all globals, and by it any of them may change"
    captured = [cell.cell_contents for cell in fn.__closure__ or () if is_set(cell)]
    owned = [part for owner in owners for part in (*type(owner).__mro__, *getattr(owner, "__dict__", {}).values())]
    for changes in _changes((fn, *shared.values(), *captured, *owned), shared):
        for name in changes.anything:
            yield f"{changes.code!r} uses {name!r}, and may change any global"
        for name in sorted(changes.globals.among(fixed, kept)):
            yield f"{changes.code!r} changes the global {name!r}"
        yield from _by_attribute(changes, fixed, kept)
    for module in modules:
        if module is not shared:
            for changes in _changes(module.values(), module):
                yield from _by_attribute(changes, fixed, kept)


def _by_attribute(changes: _Changes, fixed: Set[str], kept: Set[str]) -> Iterator[str]:
    for name in sorted(changes.attributes.among(fixed, kept)):
        yield f"{changes.code!r} sets or deletes an attribute {name!r}, which may be the global of a module"


def _changes(values: Iterable[Any], shared: Mapping[str, Any]) -> Iterator[_Changes]:
    """The changes by the code that has the globals `shared` in some values."""
    seen: set[int] = set()
    for value in values:
        for code in _codes(value, shared, seen) if _may_have_code(value, shared) else ():
            yield from _changes_in(code)


def is_set(cell: CellType) -> bool:
    """Whether a captured variable has a value."""
    return cell != CellType()


def _codes(value: Any, shared: Mapping[str, Any], seen: set[int]) -> Iterator[CodeType]:
    """The code with these globals in an object: a function, a class with its methods, or a container of them."""
    if id(value) in seen:
        return
    seen.add(id(value))
    match value:
        case FunctionType():
            if value.__globals__ is shared:
                yield value.__code__
            # A decorator of another module has what it decorates here.
            inside = [cell.cell_contents for cell in value.__closure__ or () if is_set(cell)]
            yield from _codes_in(_called_by(value.__dict__.values(), inside), shared, seen)
        case MethodType():
            yield from _codes(value.__func__, shared, seen)
            yield from _codes(value.__self__, shared, seen)
        case type() if not value.__flags__ & _IMMUTABLE_TYPE:
            yield from _codes_in(vars(value).values(), shared, seen)
        case classmethod() | staticmethod():
            yield from _codes(value.__func__, shared, seen)
        case property():
            for part in (value.fget, value.fset, value.fdel):
                yield from _codes(part, shared, seen)
        case partial():
            yield from _codes(value.func, shared, seen)
        case GeneratorType():
            if value.gi_frame is not None and value.gi_frame.f_globals is shared:
                yield value.gi_code
        case dict() | MappingProxyType():
            yield from _codes_in(value.values(), shared, seen)
        case list() | tuple() | set() | frozenset() | deque():
            yield from _codes_in(value, shared, seen)
        case _ if not isinstance(value, type):
            yield from _codes(type(value), shared, seen)
            yield from _codes_in(_called_by(_attributes(value).values()), shared, seen)


_MANY: Final = 64
"""More objects than this are searched with as little work for each as possible."""


def _called_by(*values: Iterable[Any]) -> list[Any]:
    """The functions among what an object refers to, and in containers there, such as a registry, but no other objects,
    of which there may be very many."""
    found: list[Any] = []
    for each in chain.from_iterable(values):
        match each:
            case FunctionType() | MethodType() | partial():
                found.append(each)
            case dict() | MappingProxyType() if not _CALLED.isdisjoint(map(type, each.values())):
                found += _called_by(each.values())
            case list() | tuple() | set() | frozenset() | deque() if not _CALLED.isdisjoint(map(type, each)):
                found += _called_by(each)
    return found


_CALLED: Final = frozenset({FunctionType, MethodType, partial})


def _attributes(value: Any) -> Mapping[str, Any]:
    """The attributes of an object that are in its dict, without a call of the author's methods."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


def _codes_in(values: Collection[Any], shared: Mapping[str, Any], seen: set[int]) -> Iterator[CodeType]:
    found: Iterable[Any] = values
    if len(values) > _MANY:
        # A script's data: the collector of garbage does not track tuples and dicts that refer to no functions.
        found = chain(set(map(type, values)), filter(is_tracked, values))
    for value in found:
        if _may_have_code(value, shared):
            yield from _codes(value, shared, seen)


def _may_have_code(value: Any, shared: Mapping[str, Any]) -> bool:
    """False only if an object has no code with these globals. All builtins are among the objects that are asked for."""
    kind = type(value)
    if kind is FunctionType:
        return value.__globals__ is shared or bool(value.__dict__ or value.__closure__)
    return kind not in _WITHOUT_CODE and not (kind is type and value.__flags__ & _IMMUTABLE_TYPE)


_WITHOUT_CODE: Final = frozenset({
    str, bytes, int, float, bool, type(None), BuiltinFunctionType, ModuleType, WrapperDescriptorType,
    MethodDescriptorType, ClassMethodDescriptorType, GetSetDescriptorType, MemberDescriptorType,
})  # fmt: skip


_IMMUTABLE_TYPE: Final = 1 << 8


@dataclass(frozen=True, slots=True)
class _Names:
    """The names that code stores, and those that it deletes."""

    stored: frozenset[str]
    deleted: frozenset[str]

    def among(self, fixed: Set[str], kept: Set[str]) -> Set[str]:
        """The names that it must not change: to store those that are `kept` is no change."""
        return (self.stored | self.deleted) & fixed | self.deleted & kept

    def __bool__(self) -> bool:
        return bool(self.stored or self.deleted)


@dataclass(frozen=True, slots=True)
class _Changes:
    """How code, whose name is `code`, may change globals: names by which it may change `anything`, and the globals that
    it stores or deletes, and the attributes, which may be those of a module."""

    code: str
    anything: tuple[str, ...]
    globals: _Names
    attributes: _Names

    def __bool__(self) -> bool:
        return bool(self.anything or self.globals or self.attributes)


def _changes_in(code: CodeType) -> tuple[_Changes, ...]:
    """The changes of code and of what is defined inside of it."""
    known = _known.get(id(code))
    if known is None:
        if len(_known) >= _CACHED:
            _known.clear()
        made = [
            _Changes(
                each.co_name,
                tuple(sorted(_CHANGES_ANYTHING.intersection(each.co_names))),
                _Names(_named(each, "STORE_GLOBAL"), _named(each, "DELETE_GLOBAL")),
                _Names(_named(each, "STORE_ATTR"), _named(each, "DELETE_ATTR")),
            )
            for each in _with_inner(code)
        ]
        known = _known[id(code)] = code, tuple(each for each in made if each)
    return known[1]


_known: Final[dict[int, tuple[CodeType, tuple[_Changes, ...]]]] = {}
"""By the id of a code object, which the entry keeps alive, its changes."""
_CACHED: Final = 4096


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _with_inner(const)


def _named(code: CodeType, instruction: str) -> frozenset[str]:
    """The names in all instructions of a kind in some code."""
    if opmap[instruction] not in code.co_code[::2]:
        return frozenset()
    from dis import get_instructions

    return frozenset(each.argval for each in get_instructions(code) if each.opname == instruction)
