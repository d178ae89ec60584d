"""Decides which of the author's functions a loop contains as text instead of calling them.

A function is inlined only if nothing but speed can show it. Its text must be proven to be what its code was compiled
from (`tidegate/sdk/user_code/body.py`), it must be one expression of the kinds that `_check` knows, and the names that
it reads must mean the same in the loop. A function with anything else in it is called.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CellType, FunctionType, ModuleType
from typing import Any, Final, Protocol

from tidegate.runners.engine.loops.changing_globals import changes_of_globals, is_set
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.user_code.body import Body, Function, class_around, proven_node

INLINED: Final = "elements_inlined"
"""A counter of each step: the elements of blocks for which its function was not called, but inlined."""


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
    """The expression of a function, and the meaning of the names in it.

    `arguments` has, by parameter, what the engine passes; `defaults` the values of the other parameters. `globals` are
    the globals and builtins that it reads, `cells` the captured variables. `stamped`: the expression makes a
    TimestampedValue.
    """

    fn: FunctionType
    expression: ast.expr
    arguments: Mapping[str, Param]
    defaults: Mapping[str, Any]
    globals: tuple[str, ...]
    cells: Mapping[str, CellType]
    stamped: Stamped | None = None

    def values(self) -> tuple[Any, ...]:
        """The values of `globals` now. KeyError if one of them is not set."""
        here, builtin = _namespaces(self.fn)
        return tuple(here[name] if name in here else builtin[name] for name in self.globals)

    def ready(self) -> bool:
        """Whether all names that it reads are set."""
        here, builtin = _namespaces(self.fn)
        if not all(name in here or name in builtin for name in self.globals):
            return False
        if self.stamped is not None and not _makes_timestamped_value(self.stamped.call.func, self):
            return False
        return all(map(is_set, self.cells.values()))


def _namespaces(fn: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The globals of a function, and the builtins."""
    return fn.__globals__, fn.__builtins__


class Step(Protocol):
    """What has to be known of a step to inline its function: see `Link`."""

    @property
    def form(self) -> str: ...
    @property
    def fn(self) -> Callable[..., Any] | None: ...
    @property
    def body(self) -> Body | None: ...
    @property
    def params(self) -> tuple[Param, ...]: ...
    @property
    def catches(self) -> Any: ...


class Inlining:
    """The functions of some links that loops contain as text. `reasons` says why the other functions are called."""

    def __init__(self, links: Sequence[Step]) -> None:
        self.bodies: dict[int, InlinedBody] = {}
        self.reasons: dict[int, str] = {}
        for k, link in enumerate(links):
            if link.fn is None:
                continue
            match inlined_body(link):
                case str(reason):
                    self.reasons[k] = reason
                case body:
                    self.bodies[k] = body

    def ready(self) -> frozenset[int]:
        """The links whose functions can be inlined for the next block."""
        if not self.bodies or observed():
            return frozenset()
        return frozenset(k for k, body in self.bodies.items() if body.ready())


def observed() -> bool:
    """Whether a tracer, profiler, debugger or coverage tool is active in this thread, which would miss the calls."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return True
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return monitoring is not None and any(monitoring.get_tool(tool) for tool in range(6))


def inlined_body(link: Step) -> InlinedBody | str:
    """The body of a link's function, or the reason why the function is called."""
    fn = link.fn
    if link.form not in ("map", "flat_map", "filter"):
        return "it is a method of a DoFn" if link.form == "process" else "it takes the items of a tuple"
    if link.body is None or not isinstance(fn, FunctionType):
        return "its source is not known"
    node = proven_node(link.body, fn)
    if node is None:
        return "its source is not what it was compiled from"
    try:
        return _inlined(link, fn, node)
    except _Called as called:
        return str(called)


class _Called(Exception):
    """The message is the reason why a function is called."""


def _inlined(link: Step, fn: FunctionType, node: Function) -> InlinedBody:
    expression = _expression(node)
    arguments, defaults = _arguments(link, fn)
    reads: dict[str, None] = {}
    _check(expression, frozenset(), reads, bool(class_around(fn.__code__)))
    captured = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    read = [name for name in reads if name not in arguments and name not in defaults]
    cells = {name: captured[name] for name in read if name in captured}
    names = tuple(name for name in read if name not in captured)
    body = InlinedBody(fn, expression, arguments, defaults, names, cells)
    if "__class__" in cells:
        raise _Called("it uses __class__")
    if body.ready():
        values = dict(zip(names, body.values(), strict=True))
        _check_values(values | {name: cell.cell_contents for name, cell in cells.items()}, fn)
        _check_attributes(expression, values)
    body = replace(body, stamped=_stamped(body))
    if change := next(changes_of_globals(fn, frozenset(names)), ""):
        raise _Called(change)
    return body


def _stamped(body: InlinedBody) -> Stamped | None:
    """The arguments of the TimestampedValue that an expression makes; None for any other expression."""
    match body.expression:
        case ast.Call(args=[value, timestamp], keywords=[]) as call:
            pass
        case ast.Call(args=[value], keywords=[ast.keyword(arg="timestamp", value=timestamp)]) as call:
            pass
        case _:
            return None
    return Stamped(call, value, timestamp) if _makes_timestamped_value(call.func, body) else None


def _makes_timestamped_value(function: ast.expr, body: InlinedBody) -> bool:
    """Whether the function of a call is TimestampedValue: a global, or an attribute of one that is a module."""
    here = body.fn.__globals__
    match function:
        case ast.Name(id=name) if name in body.globals:
            return here.get(name) is TimestampedValue
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in body.globals:
            owner = here.get(name)
            return isinstance(owner, ModuleType) and vars(owner).get(attribute) is TimestampedValue
    return False


def _expression(node: Function) -> ast.expr:
    """The one expression that the function evaluates."""
    if isinstance(node, ast.Lambda):
        return node.body
    match node.body:
        case [ast.Return(value=ast.expr() as value)]:
            return value
        case [ast.Expr(value=ast.Constant(value=str())), ast.Return(value=ast.expr() as value)]:
            return value
    raise _Called("it has statements")


def _arguments(link: Step, fn: FunctionType) -> tuple[dict[str, Param], dict[str, Any]]:
    """By parameter, what the engine passes, and the defaults of the others."""
    code = fn.__code__
    if code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
        raise _Called("it takes any number of arguments")
    positional = code.co_varnames[: code.co_argcount]
    only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    passed: dict[str, Param] = {}
    free = iter(positional)
    for param in link.params:
        name = param.keyword or next(free, "")
        known = name in positional[code.co_posonlyargcount :] or name in only if param.keyword else bool(name)
        if not known or name in passed:
            raise _Called("it can't be called with these arguments")
        passed[name] = param
        if link.catches and param.kind not in ("element", "const", "window"):
            raise _Called("exceptions of its arguments are caught")
    given = fn.__defaults__ or ()
    values = dict(zip(positional[len(positional) - len(given) :], given, strict=True)) | (fn.__kwdefaults__ or {})
    defaults = {name: values[name] for name in (*positional, *only) if name not in passed and name in values}
    if len(passed) + len(defaults) < len(positional) + len(only):
        raise _Called("it can't be called with these arguments")
    return passed, defaults


# -- the text

_PLAIN: Final = (
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.Constant, ast.Dict, ast.FormattedValue,
    ast.IfExp, ast.JoinedStr, ast.List, ast.Set, ast.Slice, ast.Starred, ast.Subscript, ast.Tuple, ast.UnaryOp,
    ast.keyword, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip
"""The nodes that mean the same in the loop, if their parts do."""

_OTHERS: Final[dict[type[ast.AST], str]] = {
    ast.Lambda: "it has a lambda in it",
    ast.GeneratorExp: "it has a generator expression in it",
    ast.NamedExpr: "it assigns a variable",
}

_LOOPS_OWN: Final = re.compile(r"(?:[vwtrs]|[acdpq]|g|cell)\d+(?:_.*)?|pane")
"""The names that a loop gives to what an inlined body reads."""


def _check(node: ast.AST, bound: frozenset[str], reads: dict[str, None], private: bool) -> None:
    """Collect the names that an expression reads; `bound` are those of comprehensions around it.

    Raises _Called if it has parts that could mean something else in a loop.
    """
    match node:
        case ast.Name(id=name):
            if private and _is_private(name):
                raise _Called("it uses a private name of a class")
            if name == "__debug__":
                raise _Called("it reads __debug__")
            if name not in bound:
                reads[name] = None
            return
        case ast.ListComp() | ast.SetComp() | ast.DictComp():
            inner = bound | frozenset(_targets(node))
            for number, generator in enumerate(node.generators):
                _check(generator.iter, inner if number else bound, reads, private)
                for condition in generator.ifs:
                    _check(condition, inner, reads, private)
            for result in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
                _check(result, inner, reads, private)
            return
        case ast.Attribute(attr=str(name)) | ast.keyword(arg=str(name)) if private and _is_private(name):
            raise _Called("it uses a private name of a class")
        case ast.Call(args=args, keywords=keywords) if any(isinstance(arg, ast.Starred) for arg in args) or any(
            word.arg is None for word in keywords
        ):
            raise _Called("it calls something with star-arguments")
        case _ if not isinstance(node, _PLAIN):
            raise _Called(_OTHERS.get(type(node), f"it has a {type(node).__name__} in it"))
    for part in ast.iter_child_nodes(node):
        _check(part, bound, reads, private)


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _targets(node: ast.ListComp | ast.SetComp | ast.DictComp) -> Iterator[str]:
    """The variables of a comprehension."""
    for generator in node.generators:
        if generator.is_async:
            raise _Called("it has an asynchronous comprehension in it")
        for part in ast.walk(generator.target):
            match part:
                case ast.Name(id=name):
                    if _LOOPS_OWN.fullmatch(name):
                        raise _Called(f"the loop has a variable {name!r} of its own")
                    yield name
                case ast.Tuple() | ast.List() | ast.Starred() | ast.expr_context():
                    pass
                case _:
                    raise _Called("it has a comprehension that assigns to something else than variables")


# -- what the names refer to

_SEES_CALLER: Final = frozenset(
    map(id, (locals, globals, vars, dir, eval, exec, breakpoint, super, builtins.__import__, sys._getframe))
)
_MODULES_THAT_SEE_CALLERS: Final = frozenset({"inspect", "logging", "warnings", "traceback", "pdb", "bdb"})
_METHODS_THAT_SEE_CALLERS: Final = frozenset(
    "debug info warning warn error exception critical fatal log warn_explicit currentframe _getframe "
    "_getframemodulename _current_frames set_trace settrace setprofile".split()
)


def _check_values(values: Mapping[str, Any], fn: FunctionType) -> None:
    """Raise _Called if one of these objects looks at the frame of the function that calls it."""
    for name, value in values.items():
        if value is fn:
            raise _Called("it calls itself")
        if id(value) in _SEES_CALLER or _home(value) in _MODULES_THAT_SEE_CALLERS:
            raise _Called(f"it uses {name!r}, which may look at the function's frame")


def _home(value: Any) -> str:
    """The name of a module, or of the one that defines a function, a class, or an object's class."""
    match value:
        case ModuleType():
            return value.__name__
        case FunctionType() | type():
            return str(value.__module__)
        case _:
            return str(type(value).__module__)


def _check_attributes(expression: ast.expr, values: Mapping[str, Any]) -> None:
    """Raise _Called for an attribute with the name of a method that looks at the frame of the function that calls it.

    Attributes of modules with another meaning, such as `math.log`, are allowed.
    """
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute) and node.attr in _METHODS_THAT_SEE_CALLERS:
            owner = values.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if not isinstance(owner, ModuleType) or owner is sys:
                raise _Called(f"it uses {node.attr!r}, which may look at the function's frame")
