"""A digest of a pickle's contents that is the same in every process, computed without unpickling.

Two processes that run the same script pickle equal functions and objects to different bytes: sets are in the order of
hashes, equal strings may be one object or two, dynamic classes get random names, and functions include file and line.
Therefore the pickle's operations are read as a graph of the objects they would build, without the parts that don't
affect behaviour. Equal graphs have equal digests, whichever of their nodes are shared.

>>> import pickle
>>> once = "a" * 3
>>> digest_of(pickle.dumps([once, once])) == digest_of(pickle.dumps(["aaa", "".join(["a", "aa"])]))
True
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final, cast

from tidegate.sdk.moved import MOVES

_SIZE: Final = 16
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


class _Node:
    """A compound object: its kind and its parts, which are nodes or plain values, ordered or not."""

    __slots__ = ("kind", "ordered", "parts")

    def __init__(self, kind: str, parts: Iterable[Any] = (), *, ordered: bool = True) -> None:
        self.kind = kind
        self.parts: list[Any] = list(parts)
        self.ordered = ordered


def digest_of(data: bytes) -> bytes:
    """The digest of the object that a pickle, or a cloudpickle, would build."""
    return _digest(_read(data))


# -- from operations to a graph

_MARK: Final = object()

_TUPLES: Final = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_CONSTANTS: Final[dict[str, Any]] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: Final = {"EMPTY_LIST": ("list", True), "EMPTY_DICT": ("dict", False), "EMPTY_SET": ("set", False)}
_MARKED: Final = {"TUPLE": ("tuple", True), "LIST": ("list", True), "FROZENSET": ("frozenset", False)}


def _read(data: bytes) -> Any:
    """The graph described by a pickle's operations. ValueError for operations that pickles of objects don't have."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def pop(count: int) -> list[Any]:
        found = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        return found

    def pop_to_mark() -> list[Any]:
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
        found = stack[at + 1 :]
        del stack[at:]
        return found

    for operation, given, _ in pickletools.genops(data):
        name, argument = operation.name, cast(Any, given)
        match name:
            case "PROTO" | "FRAME":
                continue
            case "STOP":
                return stack.pop()
            case "MARK":
                stack.append(_MARK)
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[int(argument)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memo[int(argument)])
            case "DUP":
                stack.append(stack[-1])
            case "POP":
                _record_effect(stack.pop())
            case "POP_MARK":
                pop_to_mark()
            case "APPEND":
                (item,) = pop(1)
                stack[-1].parts.append(item)
            case "APPENDS" | "ADDITEMS":
                items = pop_to_mark()
                stack[-1].parts += items
            case "SETITEM":
                pair = pop(2)
                stack[-1].parts.append(_Node("pair", pair))
            case "SETITEMS":
                items = pop_to_mark()
                stack[-1].parts += map(_pair, zip(items[::2], items[1::2], strict=True))
            case "DICT":
                items = pop_to_mark()
                stack.append(_Node("dict", map(_pair, zip(items[::2], items[1::2], strict=True)), ordered=False))
            case "BYTEARRAY8":
                stack.append(_Node("bytearray", [bytes(argument)]))
            case "GLOBAL":
                stack.append(_global(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                stack.append(_global(*pop(2)))
            case "REDUCE":
                stack.append(_called(*pop(2)))
            case "NEWOBJ" | "NEWOBJ_EX":
                stack.append(_Node("new", pop(2 if name == "NEWOBJ" else 3)))
            case "BUILD":
                (state,) = pop(1)
                stack[-1].parts.append(_Node("state", [state]))
            case _ if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case _ if name in _TUPLES:
                stack.append(_Node("tuple", pop(_TUPLES[name])))
            case _ if name in _EMPTY:
                stack.append(_Node(_EMPTY[name][0], ordered=_EMPTY[name][1]))
            case _ if name in _MARKED:
                stack.append(_Node(_MARKED[name][0], pop_to_mark(), ordered=_MARKED[name][1]))
            case _ if type(argument) in (int, float, str, bytes):
                stack.append(argument)
            case _:
                raise ValueError(f"a pickle's {name} has no meaning here")
    raise ValueError("a pickle has no end")


def _global(module: str, name: str) -> _Node:
    """An object found by name: its original one, so that a move does not change the digest."""
    return _Node("global", MOVES.original(module, name))


def _pair(pair: tuple[Any, Any]) -> _Node:
    return _Node("pair", pair)


# -- parts of functions and classes pickled by value that don't affect behaviour

_BY_VALUE: Final = "cloudpickle.cloudpickle"
_IGNORED: Final = {
    "_make_function": {1},  # the module's name, package and file
    "_make_skeleton_class": {3, 4},  # its module, and a random name
    "_make_skeleton_enum": {4, 5},
    "_make_typevar": {5},
}
_IGNORED_OF_CODE: Final = {10, 13, 14}
"""The file's name, the first line, the table of lines."""
_CODE_ARGUMENTS: Final = 18
_STATES: Final = ("_function_setstate", "_class_setstate")
_NOT_OF_STATE: Final = frozenset({
    "_cloudpickle_submodules", "__module__", "__firstlineno__", "__static_attributes__", "__slotnames__",
    "__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__", "__pydantic_parent_namespace__",
})  # fmt: skip
"""Attributes that record where the object was defined, what other code imported, or derived objects with addresses."""


def _called(function: Any, arguments: Any) -> _Node:
    ignored: set[int] = set()
    match function:
        case _Node(kind="global", parts=[str(module), str(name)]) if module == _BY_VALUE:
            ignored = _IGNORED.get(name, ignored)
            if name == "subimport":
                arguments = _Node("tuple", map(MOVES.original_module, arguments.parts))
        case _Node(kind="call", parts=[_Node(parts=[_, "_builtin_type"]), _Node(parts=["CodeType"])]):
            if len(arguments.parts) == _CODE_ARGUMENTS:
                ignored = _IGNORED_OF_CODE
    if ignored:
        arguments = _Node("tuple", (part for at, part in enumerate(arguments.parts) if at not in ignored))
    return _Node("call", [function, arguments])


def _record_effect(call: Any) -> None:
    """Record a call whose result is discarded as an effect on its first argument, whose state it sets."""
    match call:
        case _Node(
            kind="call",
            parts=[_Node(kind="global", parts=[module, name]) as function, _Node(parts=[_Node() as target, *states])],
        ):
            if module == _BY_VALUE and name in _STATES:
                states = [_Node("tuple", map(_essential, state.parts)) for state in states]
            target.parts.append(_Node("effect", [function, *states]))


def _essential(state: Any) -> Any:
    """A function's or class's attributes that affect behaviour."""
    if not isinstance(state, _Node):
        return state
    essential = _Node(state.kind, ordered=state.ordered)
    for pair in state.parts:
        match pair:
            case _Node(kind="pair", parts=[name, _]) if isinstance(name, str) and name in _NOT_OF_STATE:
                continue
            case _Node(kind="pair", parts=["_abc_impl", _Node() as registered]):
                pair = _Node("pair", ["_abc_impl", _Node("set", registered.parts, ordered=False)])
        essential.parts.append(pair)
    return essential


# -- from a graph to its digest


def _digest(root: Any) -> bytes:
    """The digest of a graph; equal for graphs that can't be distinguished by walking them.

    The nodes of a cycle are digested together: first by their kinds, then repeatedly by the digests of their parts,
    until that distinguishes no more of them."""
    known: dict[int, bytes] = {}
    for group in _groups(root):
        members = {id(node) for node in group}
        first = group[0]
        if len(group) == 1 and not any(id(part) in members for part in first.parts):
            known[id(first)] = _combined(first, lambda part: _leaf_or(known, part))
            continue
        now = before = {id(node): node.kind.encode() for node in group}
        count = 0
        while len(set(now.values())) > count:
            count, before = len(set(now.values())), now

            def part_digest(part: Any, before: dict[int, bytes] = before) -> bytes:
                return before[id(part)] if id(part) in before else _leaf_or(known, part)

            now = {id(node): _combined(node, part_digest) for node in group}
        # The digests of the last two rounds, of all nodes, identify the group.
        group_digest = b"".join(sorted({before[id(node)] + now[id(node)] for node in group}))
        known.update((id(node), _hashed(now[id(node)] + group_digest)) for node in group)
    return _leaf_or(known, root)


def _combined(node: _Node, part_digest: Callable[[Any], bytes]) -> bytes:
    parts = [part_digest(part) for part in node.parts]
    if not node.ordered:
        parts.sort()
    return _hashed(b"\0".join([node.kind.encode(), *(part.hex().encode() for part in parts)]))


def _hashed(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SIZE).digest()


def _leaf_or(known: dict[int, bytes], part: Any) -> bytes:
    if isinstance(part, _Node):
        return known[id(part)]
    value = _ADDRESS.sub(" at 0x", part) if isinstance(part, str) else part
    return _hashed(f"{type(value).__name__}:{value!r}".encode(errors="surrogatepass"))


def _groups(root: Any) -> Iterable[list[_Node]]:
    """The strongly connected components of the graph, each after all components it leads to (Tarjan)."""
    if not isinstance(root, _Node):
        return
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open: list[_Node] = []
    is_open: set[int] = set()
    path: list[tuple[_Node, Any]] = []

    def enter(node: _Node) -> None:
        number[id(node)] = low[id(node)] = len(number)
        open.append(node)
        is_open.add(id(node))
        path.append((node, iter(node.parts)))

    enter(root)
    while path:
        node, parts = path[-1]
        for part in parts:
            if not isinstance(part, _Node):
                continue
            if id(part) not in number:
                enter(part)
                break
            if id(part) in is_open:
                low[id(node)] = min(low[id(node)], number[id(part)])
        else:
            path.pop()
            if path:
                above = id(path[-1][0])
                low[above] = min(low[above], low[id(node)])
            if low[id(node)] == number[id(node)]:
                at = next(at for at in range(len(open) - 1, -1, -1) if open[at] is node)
                group = open[at:]
                del open[at:]
                is_open.difference_update(map(id, group))
                yield group
