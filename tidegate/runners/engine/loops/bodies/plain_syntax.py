"""The statements and expressions that mean the same in a loop as in a function, if their names do."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, Final, TypeVar

from tidegate.sdk.user_code.body import Function

F = TypeVar("F", bound=Function)


class Called(Exception):
    """The message is the reason why a function is called."""


_PLAIN: Final = (
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.Constant, ast.Dict, ast.FormattedValue,
    ast.IfExp, ast.JoinedStr, ast.List, ast.NamedExpr, ast.Set, ast.Slice, ast.Starred, ast.Subscript, ast.Tuple,
    ast.UnaryOp, ast.keyword, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.expr_context,
    ast.Assert, ast.Assign, ast.AugAssign, ast.Break, ast.Continue, ast.Expr, ast.For, ast.If, ast.Pass, ast.Raise,
    ast.Return, ast.While,
)  # fmt: skip
"""The nodes that mean the same in the loop, if their parts do."""

_OTHERS: Final[dict[type[ast.AST], str]] = {
    ast.Lambda: "it has a lambda in it",
    ast.GeneratorExp: "it has a generator expression in it",
    ast.FunctionDef: "it has a function in it",
    ast.ClassDef: "it has a class in it",
    ast.Delete: "it deletes something",
    ast.Global: "it assigns a global",
    ast.Nonlocal: "it assigns a variable of the function around it",
    ast.Import: "it imports a module",
    ast.ImportFrom: "it imports a module",
    ast.Try: "it has a try statement in it",
    ast.With: "it has a with statement in it",
    ast.Match: "it has a match statement in it",
}

_LOOPS_OWN: Final = re.compile(
    r"(?:[vwtrsk]|[acdhlpq]|g|cell|body|round|module)\d+i?(?:_.*)?"
    r"|(?:cell|watched|timer|entry|table|epoch|changed|removed)_\d+|pane|iter|Entry"
)
"""The names that a loop gives to what an inlined body reads."""


def check(node: ast.AST, bound: frozenset[str], reads: dict[str, None]) -> None:
    """Collect the names that statements and expressions read, without those in `bound`.

    Raises Called if they have parts that could mean something else in a loop.
    """
    match node:
        case ast.Name(id=name):
            if name == "__debug__":
                raise Called("it reads __debug__")
            if name not in bound:
                reads[name] = None
            return
        case ast.ListComp() | ast.SetComp() | ast.DictComp():
            inner = bound | frozenset(_targets(node))
            for number, generator in enumerate(node.generators):
                check(generator.iter, inner if number else bound, reads)
                for condition in generator.ifs:
                    check(condition, inner, reads)
            for result in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
                check(result, inner, reads)
            return
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value, simple=1):
            check(value, bound, reads)
            check(target, bound, reads)
            return
        case ast.Expr(value=ast.Yield(value=value)):
            if value is not None:
                check(value, bound, reads)
            return
        case _ if not isinstance(node, _PLAIN):
            raise Called(_OTHERS.get(type(node), f"it has a {type(node).__name__} in it"))
    for part in ast.iter_child_nodes(node):
        check(part, bound, reads)


def targets_inside(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The variables of all comprehensions and generator expressions inside of these nodes."""
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.comprehension):
                for part in ast.walk(each.target):
                    if isinstance(part, ast.Name):
                        yield part.id


def _targets(node: Any) -> Iterator[str]:
    """The variables of a comprehension."""
    for generator in node.generators:
        if generator.is_async:
            raise Called("it has an asynchronous comprehension in it")
        for part in ast.walk(generator.target):
            match part:
                case ast.Name(id=name):
                    if _LOOPS_OWN.fullmatch(name):
                        raise Called(f"the loop has a variable {name!r} of its own")
                    yield name
                case ast.Tuple() | ast.List() | ast.Starred() | ast.expr_context():
                    pass
                case _:
                    raise Called("it has a comprehension that assigns to something else than variables")


# -- private names


def mangled(node: F, owner: str) -> F:
    """A function of the class `owner` with the names by which Python knows its private names. The node is changed.

    `self.__rate` of a class `Price` is `self._Price__rate`. Raises Called for private names of keywords,
    which not all versions of Python write in the same way.
    """
    prefix = owner.lstrip("_")
    if prefix:
        for part in ast.walk(node):
            match part:
                case ast.Name(id=name) if _is_private(name):
                    part.id = f"_{prefix}{name}"
                case ast.Attribute(attr=name) if _is_private(name):
                    part.attr = f"_{prefix}{name}"
                case ast.keyword(arg=str(name)) if _is_private(name):
                    raise Called("it has a keyword with a private name")
    return node


def _is_private(name: str) -> bool:
    """Whether Python would write a name in another way in a class."""
    return name.startswith("__") and not name.endswith("__")


# -- what looks at frames

_SEES_CALLER: Final = frozenset(
    map(id, (locals, globals, vars, dir, eval, exec, breakpoint, super, builtins.__import__, sys._getframe))
)
_MODULES_THAT_SEE_CALLERS: Final = frozenset({"inspect", "logging", "warnings", "traceback", "pdb", "bdb"})
METHODS_THAT_SEE_CALLERS: Final = frozenset(
    "debug info warning warn error exception critical fatal log warn_explicit currentframe _getframe "
    "_getframemodulename _current_frames set_trace settrace setprofile".split()
)


def check_values(values: Mapping[str, Any], fn: FunctionType) -> None:
    """Raise Called if one of these objects looks at the frame of the function that calls it."""
    for name, value in values.items():
        if value is fn:
            raise Called("it calls itself")
        if id(value) in _SEES_CALLER or _home(value) in _MODULES_THAT_SEE_CALLERS:
            raise Called(f"it uses {name!r}, which may look at the function's frame")


def _home(value: Any) -> str:
    """The name of a module, or of the one that defines a function, a class, or an object's class."""
    match value:
        case ModuleType():
            return value.__name__
        case FunctionType() | type():
            return str(value.__module__)
        case _:
            return str(type(value).__module__)


def check_attributes(part: ast.AST, values: Mapping[str, Any]) -> None:
    """Raise Called for an attribute with the name of a method that looks at the frame of the function that calls it.

    Attributes of modules with another meaning, such as `math.log`, are allowed.
    """
    for node in ast.walk(part):
        if isinstance(node, ast.Attribute) and node.attr in METHODS_THAT_SEE_CALLERS:
            owner = values.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if not isinstance(owner, ModuleType) or owner is sys:
                raise Called(f"it uses {node.attr!r}, which may look at the function's frame")
