"""Properties of an author's function that can be read off its bytecode before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from tidegate.sdk.user_code.user_fn import is_builtin_callable

if TYPE_CHECKING:
    from dis import Instruction

_NEW_VALUE: Final = frozenset(
    "BUILD_TUPLE BUILD_LIST BUILD_MAP BUILD_SET BUILD_STRING BUILD_CONST_KEY_MAP FORMAT_VALUE FORMAT_SIMPLE "
    "COMPARE_OP IS_OP CONTAINS_OP UNARY_NOT UNARY_NEGATIVE UNARY_POSITIVE UNARY_INVERT BINARY_OP LOAD_CONST "
    "LOAD_SMALL_INT".split()
)
"""Instructions whose result is a new plain value, never an object that existed before."""

_HARMLESS: Final = _NEW_VALUE | frozenset(
    "RESUME NOP CACHE PRECALL LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW_LOAD_FAST_BORROW "
    "LOAD_FAST_CHECK STORE_FAST RETURN_VALUE RETURN_CONST COPY SWAP POP_TOP NOT_TAKEN TO_BOOL EXTENDED_ARG".split()
)

_OPERATORS: Final = frozenset("+ - * / // % @ & | ^ << >> **".split())
"""The operators of a BINARY_OP that return a new value, as `dis` writes them; in place, they end in `=`."""

_SCALARS: Final = frozenset({str, bytes, int, float, complex, bool})
_PLAIN_BUILTINS: Final = frozenset({len, abs, hash, repr, ord, chr, round, str, bytes, int, float, bool})


def emits_plain(fn: Any, form: str) -> bool:
    """Whether `fn`, called in this form, provably never emits a TimestampedValue, TaggedOutput or WindowedValue.

    True only if the bytecode proves it: each return value is created by an operator or a display (`[…]`, `(…)`).
    For a `flat_map`, which emits the items of that value, the function may contain nothing but computations.
    """
    if form == "filter":
        return True
    if form not in ("map", "flat_map", "map_tuple", "flat_map_tuple"):
        return False
    if is_builtin_callable(fn) or isinstance(fn, type):
        return fn in _PLAIN_BUILTINS or getattr(fn, "__objclass__", None) in _SCALARS
    if not isinstance(fn, FunctionType) or fn.__code__.co_flags & 0x2A0:  # generators and coroutines
        return False
    before = ""
    for instruction in instructions_of(fn):
        name = _operation(instruction)
        if name.startswith("RETURN"):
            if instruction.is_jump_target or not _returns_new_value(name, before, form):
                return False
        if form.startswith("flat") and name not in _HARMLESS and "JUMP" not in name:
            return False
        before = name
    return True


def instructions_of(fn: FunctionType) -> Iterable[Instruction]:
    """A function's bytecode."""
    import dis

    return dis.get_instructions(fn.__code__)


def attributes_of(fn: Any, parameters: Collection[str]) -> Iterator[tuple[str, str, int]]:
    """The attributes that a function reads of these parameters: parameter, attribute and line.

    Parameters that the function assigns to are left out.
    """
    function = getattr(fn, "__func__", fn)
    if not isinstance(function, FunctionType):
        return
    instructions = list(instructions_of(function))
    assigned = {each.argval for each in instructions if each.opname.startswith(("STORE_FAST", "DELETE_FAST"))}
    line = function.__code__.co_firstlineno
    for before, instruction in pairwise(instructions):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        loads = before.opname in ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK")
        if loads and before.argval in parameters and before.argval not in assigned:
            if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                yield before.argval, instruction.argval, line


def _operation(instruction: Instruction) -> str:
    """An instruction's name. A BINARY_OP that is no operator, such as a subscript since Python 3.14, may return an
    object that existed before, so it is called by the older name BINARY_SUBSCR."""
    if instruction.opname != "BINARY_OP":
        return instruction.opname
    return "BINARY_OP" if instruction.argrepr.removesuffix("=") in _OPERATORS else "BINARY_SUBSCR"


def _returns_new_value(name: str, before: str, form: str) -> bool:
    if name == "RETURN_CONST":
        return True
    if form.startswith("flat"):
        return before in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "LOAD_CONST")
    return before in _NEW_VALUE
