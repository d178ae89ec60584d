"""The body of one of the author's functions, as a loop contains it: what it does, and what its names refer to."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any, ClassVar, Final, TypeAlias

from tidegate.runners.engine.loops.bodies.changing_globals import is_set
from tidegate.runners.engine.loops.bodies.generator_loops import LoopedGenerator
from tidegate.runners.engine.loops.bodies.statements import nested_blocks
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.data.values import TaggedOutput, TimestampedValue


@dataclass(frozen=True, slots=True, eq=False)
class Stamped:
    """A call of TimestampedValue, and the expressions of its arguments."""

    call: ast.Call
    value: ast.expr
    timestamp: ast.expr

    @property
    def plain(self) -> bool:
        """Whether the value can't be one that needs unwrapping."""
        return isinstance(self.value, _NEW_VALUES)


_NEW_VALUES: Final = (
    ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr, ast.Constant,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class InlinedBody:
    """What a function does `first`, the expression of its result, and the meaning of the names in both.

    `expression` is None if the statements return results themselves; `yields`: it is what they yield, at one place. If
    they yield at several, it is None, and `yielded` has what they yield. `generator` is the generator expression whose
    items they yield.
    `arguments` has, by parameter, what the engine passes; `items` are the parameters for the items of a tuple, and
    `defaults` has the values of the others, such as `self`. `local` are the variables that belong to each call, and
    `dropped` those of them that could keep values alive after it.
    `globals` are the globals and builtins that it reads, `builtins` those which have to be the builtins, `cells` the
    captured variables, `inner` the functions in it. `stamped`: the expression makes a TimestampedValue. `tagging` are
    the functions of the calls that make the TaggedOutputs which it returns. `tables` are the numbers of the state cells
    of which it uses the tables. `inner_call`: another function that it is given and calls, which stands for the call.
    `at_use`: the loop has its globals as its own, so it reads them as a call does. If not, it reads the globals in
    `by_module` as attributes of an object that has them, and the others, builtins as a rule, once for each block.
    `imported` are names which its module imports, if it calls attributes over several lines, and `passed` are the
    defaults that its function had.
    """

    fn: FunctionType
    first: tuple[ast.stmt, ...]
    expression: ast.expr | None
    yields: bool
    arguments: Mapping[str, Param]
    items: tuple[str, ...]
    defaults: Mapping[str, Any]
    local: tuple[str, ...]
    dropped: tuple[str, ...]
    globals: tuple[str, ...]
    builtins: Mapping[str, Any]
    cells: Mapping[str, CellType]
    inner: Mapping[str, FunctionType]
    yielded: tuple[ast.expr, ...] = ()
    generator: LoopedGenerator | None = None
    stamped: Stamped | None = None
    tagging: tuple[ast.expr, ...] = ()
    tables: frozenset[int] = frozenset()
    inner_call: InnerCall | None = None
    at_use: bool = False
    by_module: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    passed: PassedDefaults = (None, None)

    @property
    def plain(self) -> bool:
        """Whether no result can be a value that needs unwrapping."""
        if self.expression is not None:
            return isinstance(self.expression, _NEW_VALUES)
        if self.yielded:
            return all(isinstance(each, _NEW_VALUES) for each in self.yielded)
        returned = [each for part in self.first for each in ast.walk(part) if isinstance(each, ast.Return)]
        return all(each.value is None or isinstance(each.value, _NEW_VALUES) for each in returned) and not self.tagging

    @property
    def testable(self) -> bool:
        """Whether an `if` with its expression evaluates that as the function does, and then tests the value."""
        return is_testable(self.expression)

    @property
    def gives_bool(self) -> bool:
        """Whether all results are certainly bools or None, so that nobody sees how long they live."""
        if self.expression is not None:
            return _is_bool(self.expression)
        returned = [each.value for part in self.first for each in ast.walk(part) if isinstance(each, ast.Return)]
        return all(value is None or _is_bool(value) for value in returned)

    @property
    def only_item(self) -> ast.expr | None:
        """The item of a display with one item, if the result is one."""
        match self.expression:
            case ast.Tuple(elts=[item]) | ast.List(elts=[item]) if not isinstance(item, ast.Starred):
                return item
        return None

    @property
    def one_expression(self) -> bool:
        """Whether the body is an expression that assigns nothing, of parameters that the engine passes as they are."""
        return not (self.first or self.local)

    @property
    def nested(self) -> int:
        """How many blocks its statements nest."""
        return nested_blocks(self.first)

    @property
    def around_yield(self) -> int:
        """How many more blocks it nests around what follows than a loop over its results, which it yields, does."""
        return nested_blocks(self.first, around_yield=True) if self.yields else 0

    @property
    def once(self) -> tuple[str, ...]:
        """Those of `globals` that a loop reads once for each block."""
        return () if self.at_use else tuple(name for name in self.globals if name not in self.by_module)

    def values(self) -> tuple[Any, ...]:
        """The values of `once` now. KeyError if one of them is not set."""
        here, builtin = namespaces(self.fn)
        return tuple(here[name] if name in here else builtin[name] for name in self.once)

    @property
    def assumed(self) -> frozenset[str]:
        """The names that stand for what the loop does in place of a call of it, which it does not look up."""
        made = [*self.tagging, *([self.stamped.call.func] if self.stamped is not None else [])]
        owners = [each.value if isinstance(each, ast.Attribute) else each for each in made]
        return frozenset([*self.builtins, *(each.id for each in owners if isinstance(each, ast.Name))])

    @property
    def reads_names(self) -> bool:
        """Whether it reads any name that is not its own, or has defaults, so that it may not be `ready`."""
        named = self.globals or self.builtins or self.cells or self.tagging or self.stamped or self.inner_call
        return bool(named or self.defaults)

    def ready(self) -> bool:
        """Whether all names that it reads are set, and its function has the same defaults."""
        if passed_defaults(self.fn) != self.passed:
            return False
        here, builtin = namespaces(self.fn)
        if not all(name in here or (name in builtin and name not in self.by_module) for name in self.globals):
            return False
        if not all(here.get(name, builtin.get(name)) is value for name, value in self.builtins.items()):
            return False
        if self.stamped is not None and value_of(self.stamped.call.func, self.fn) is not TimestampedValue:
            return False
        if not all(value_of(function, self.fn) is TaggedOutput for function in self.tagging):
            return False
        if self.inner_call is not None and not self.inner_call.body.ready():
            return False
        return all(map(is_set, self.cells.values()))


@dataclass(frozen=True, slots=True, eq=False)
class InnerCall:
    """The call of a function by another one, and the variable of that one which is its only argument."""

    body: InlinedBody
    argument: str


def is_testable(expression: ast.expr | None) -> bool:
    """Whether an `if` with an expression evaluates it as a function does, and then tests its value.

    Of `a and b`, it tests the operands, one after the other, and so calls a `__bool__` once less than a function that
    returns the value of the expression.
    """
    match expression:
        case ast.BoolOp() | ast.IfExp() | ast.UnaryOp(op=ast.Not()):
            return False
        case ast.Compare(ops=[operator]):
            return isinstance(operator, _GIVE_BOOL) or not _COMPARES_TO_BOOL
        case ast.Compare():
            return False
    return True


def _is_bool(expression: ast.expr) -> bool:
    match expression:
        case ast.UnaryOp(op=ast.Not()) | ast.Constant(value=bool() | None):
            return True
        case ast.Compare(ops=[operator]):
            return isinstance(operator, _GIVE_BOOL)
    return False


_COMPARES_TO_BOOL: Final = sys.version_info >= (3, 13)
"""Whether one instruction compares in an `if` and tests the result, so that nobody could say which of them failed."""

_GIVE_BOOL: Final = (ast.In, ast.NotIn, ast.Is, ast.IsNot)


PassedDefaults: TypeAlias = tuple[tuple[int, ...] | None, tuple[tuple[str, int], ...] | None]


def passed_defaults(fn: FunctionType) -> PassedDefaults:
    """The ids of the defaults of a function's parameters."""
    by_keyword = fn.__kwdefaults__
    return (
        None if fn.__defaults__ is None else tuple(map(id, fn.__defaults__)),
        None if by_keyword is None else tuple((name, id(value)) for name, value in by_keyword.items()),
    )


class Module:
    """An object whose attributes are the globals of a function: Python looks them up almost as fast as globals.

    Those of the names OWN are not: they are the object's own attributes.
    """

    __slots__ = ("__dict__",)
    OWN: ClassVar = frozenset({"__class__", "__dict__"})

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__ = values


def as_called(error: BaseException) -> BaseException:
    """The error that a function would have raised if it had been called: it looks for globals, not for attributes."""
    match error:
        case AttributeError(obj=Module(), name=name):
            raised = NameError(f"name {name!r} is not defined", name=name).with_traceback(error.__traceback__)
            raised.__context__ = error.__context__
            return raised
        case _:
            return error


CALLED: Final = "<called>"
"""The name that stands for the expression of a called function in a body."""


def namespaces(fn: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The globals of a function, and the builtins."""
    return fn.__globals__, fn.__builtins__


def value_of(node: ast.expr, fn: FunctionType, names: Collection[str] | None = None) -> Any:
    """What an expression refers to that is a global, or an attribute of one that is a module; None for any other.

    If `names` are given, the global has to be one of them.
    """
    here = fn.__globals__
    match node:
        case ast.Name(id=name) if names is None or name in names:
            return here.get(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if names is None or name in names:
            owner = here.get(name)
            return vars(owner).get(attribute) if isinstance(owner, ModuleType) else None
    return None
