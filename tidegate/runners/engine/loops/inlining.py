"""Decides which of the author's functions a loop contains as text instead of calling them.

A function is inlined only if nothing but speed can show it. Its text must be proven to be what its code was compiled
from (`tidegate/sdk/user_code/body.py`), it must consist of statements and expressions that mean the same in a loop
(`bodies/plain_syntax.py`), its variables must be assigned before they are read (`bodies/definite_assignment.py`), and
the names that it reads must mean the same in the loop. A function with anything else in it is called.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType, MethodType
from typing import Any, Final, Protocol

from tidegate.runners.engine.loops.bodies.cell_operations import CellKind, CellOperations, operation_names
from tidegate.runners.engine.loops.bodies.changing_globals import changes_of_globals
from tidegate.runners.engine.loops.bodies.definite_assignment import may_be_unset
from tidegate.runners.engine.loops.bodies.generator_loops import with_loop
from tidegate.runners.engine.loops.bodies.inner_functions import ITER, InnerFunctions
from tidegate.runners.engine.loops.bodies.plain_syntax import (
    METHODS_THAT_SEE_CALLERS,
    Called,
    check,
    check_attributes,
    check_values,
    mangled,
    targets_inside,
)
from tidegate.runners.engine.loops.bodies.statements import (
    assigned,
    only_unpacked,
    parts,
)
from tidegate.runners.engine.loops.bodies.tagged_results import TaggedResults
from tidegate.runners.engine.loops.inlined_body import (
    CALLED,
    InlinedBody,
    InnerCall,
    Module,
    Stamped,
    namespaces,
    passed_defaults,
    value_of,
)
from tidegate.runners.plan import MAX_NESTED_LOOPS
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.data.values import TaggedOutput, TimestampedValue
from tidegate.sdk.portable.model import FLAT_FORMS
from tidegate.sdk.user_code.body import Body, Function, class_around, imported_names, proven_node

INLINED: Final = "elements_inlined"
"""A counter of each step: the elements of blocks for which its function was not called, but inlined."""


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
    @property
    def guarded(self) -> bool: ...
    @property
    def consts(self) -> tuple[Any, ...]: ...
    @property
    def loops(self) -> int: ...
    @property
    def inner(self) -> Body | None: ...


class Inlining:
    """The functions of some links that loops contain as text. `reasons` says why the other functions are called.

    `cells` are the numbers and kinds of the state cells, by name, whose operations loops may contain.
    """

    def __init__(self, links: Sequence[Step], cells: Mapping[str, tuple[int, CellKind]] | None = None) -> None:
        self.bodies: dict[int, InlinedBody] = {}
        self.reasons: dict[int, str] = {}
        free, copies = MAX_NESTED_LOOPS - sum(link.loops for link in links), 1
        for k, found in _found(links, cells or {}).items():
            match found:
                case str(reason):
                    self.reasons[k] = reason
                case body if body.nested > free:
                    self.reasons[k] = f"the chain's loops would be nested too deeply (more than {MAX_NESTED_LOOPS})"
                case body if copies * len(body.yielded) > _MOST_COPIES:
                    self.reasons[k] = (
                        f"the steps after it would be in the loop too often (more than {_MOST_COPIES} times)"
                    )
                case body:
                    free -= body.around_yield
                    copies *= max(1, len(body.yielded))
                    self.bodies[k] = body
        self._all = frozenset(self.bodies)
        self._with_names = tuple(body for body in self.bodies.values() if body.reads_names)

    def ready(self) -> frozenset[int]:
        """The links whose functions can be inlined for the next block."""
        if not self.bodies or observed():
            return frozenset()
        if all(body.ready() for body in self._with_names):
            return self._all
        return frozenset(k for k, body in self.bodies.items() if body.ready())


def _found(links: Sequence[Step], cells: Mapping[str, tuple[int, CellKind]]) -> dict[int, InlinedBody | str]:
    """The bodies of the links' functions, or the reasons why they are called."""
    found = {k: inlined_body(link, cells) for k, link in enumerate(links) if link.fn is not None}
    shared = _shared(body for body in found.values() if isinstance(body, InlinedBody))
    functions = [function for link in links for each in (link.fn, *link.consts[-1:]) if (function := _function(each))]
    modules = list({id(each.__globals__): each.__globals__ for each in functions if not _is_library(each)}.values())
    for k, body in found.items():
        if isinstance(body, InlinedBody):
            try:
                found[k] = _settled(
                    body, links[k].fn, links[k].consts[-1] if links[k].consts else None, shared, modules
                )
            except Called as called:
                found[k] = str(called)
    return found


_MOST_COPIES: Final = 8
"""How often a step may be in a loop: it is once for each place at which generators before it yield."""


def observed() -> bool:
    """Whether a tracer, profiler, debugger or coverage tool is active in this thread, which would miss the calls."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return True
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return monitoring is not None and any(monitoring.get_tool(tool) for tool in range(6))


def inlined_body(link: Step, cells: Mapping[str, tuple[int, CellKind]] | None = None) -> InlinedBody | str:
    """The body of a link's function, or the reason why the function is called. `cells`: as for Inlining."""
    fn: Any = link.fn
    owners: list[Any] = []
    if isinstance(fn, MethodType):
        fn, owners = fn.__func__, [fn.__self__]
    if link.body is None or not isinstance(fn, FunctionType):
        return "its source is not known"
    node = proven_node(link.body, fn)
    if node is None:
        return "its source is not what it was compiled from"
    if _is_deep(node):
        return f"its text is nested too deeply (more than {_MOST_LEVELS} levels)"
    try:
        looping = with_loop(node) if link.form in FLAT_FORMS and not link.catches else None
        if looping is None:
            return _inlined(link, fn, owners, node, cells or {})
        return replace(_inlined(link, fn, owners, looping.node, cells or {}), generator=looping.generator)
    except Called as called:
        return str(called)


_MOST_LEVELS: Final = 120
"""How deeply the text of a function may be nested: what inlines it recurses."""


def _is_deep(node: ast.AST) -> bool:
    level: list[ast.AST] = [node]
    for _ in range(_MOST_LEVELS):
        level = [child for each in level for child in ast.iter_child_nodes(each)]
    return bool(level)


def _calls_over_lines(node: ast.AST) -> bool:
    """Whether it has a call of an attribute that is on a later line than what it is an attribute of. Only of these does
    the position depend on whether the module imports that."""
    if getattr(node, "lineno", 0) == getattr(node, "end_lineno", -1):
        return False
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.end_lineno != each.lineno
        for each in ast.walk(node)
    )


def _inlined(
    link: Step, fn: FunctionType, owners: Sequence[Any], node: Function, operable: Mapping[str, tuple[int, CellKind]]
) -> InlinedBody:
    """The body of a function; `owners` has the object of which it is a method."""
    mangled(node, class_around(fn.__code__))
    arguments, items, defaults = _arguments(link, fn, owners)
    statements = [node.body] if isinstance(node, ast.Lambda) else node.body
    local = assigned(statements)
    own = frozenset([*arguments, *items, *defaults, *local, *targets_inside(statements)])
    inner = InnerFunctions(fn, own)
    inner.replace_in(node)
    operations = CellOperations(
        {
            name: operable[param.ref]
            for name, param in arguments.items()
            if param.kind == "state" and param.ref in operable
        }
    )
    if isinstance(node, ast.FunctionDef):
        node.body = operations.replace_in(node.body)
    tables = frozenset(operations.replaced.values())
    fixed = frozenset([*arguments, *items, *local]) - {*targets_inside(statements)}
    inner_call = _inner_call(link, node, arguments, fixed) if _is_library(fn) else None
    engines = {name for cell in tables for name in operation_names(cell)}
    body = parts(node)
    if body.yields and link.form in ("map", "map_tuple", "filter"):
        raise Called("it returns a generator")
    if body.yields and link.catches:
        raise Called("exceptions of what it yields are caught")
    global_names = set(fn.__code__.co_names) - own - set(fn.__code__.co_freevars)
    tagged = TaggedResults(lambda function: value_of(function, fn, global_names) is TaggedOutput)
    if link.form in ("map", "map_tuple") and link.guarded and not link.catches:
        body = tagged.replaced(body)
    reads: dict[str, None] = {}
    for part in body.nodes:
        check(part, frozenset([*local, *inner.made, *engines, ITER, CALLED]), reads)
    given = {*arguments, *items, *defaults}
    if unset := may_be_unset(body.nodes, frozenset(local.keys() - given)):
        raise Called(f"it may read {unset!r} before it assigns it")
    captured = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    if "__class__" in captured:
        raise Called("it uses __class__")
    read = [name for name in reads if name not in given]
    cells = {name: captured[name] for name in read if name in captured}
    names = tuple(name for name in read if name not in captured)
    variables = (*fn.__code__.co_varnames, *fn.__code__.co_cellvars, *local)
    # The loop keeps an argument, and with it what is unpacked from it, until the next element.
    kept = frozenset(only_unpacked(body.nodes, arguments.keys() - local))
    made = InlinedBody(
        fn=fn,
        first=body.first,
        expression=body.expression,
        yields=body.yields,
        yielded=body.yielded,
        arguments=arguments,
        items=items,
        defaults=defaults,
        local=tuple(dict.fromkeys(name for name in variables if name in local or name in items)),
        dropped=tuple(dict.fromkeys(name for name in variables if name in local and name not in kept)),
        globals=names,
        builtins=inner.builtins,
        cells=cells,
        inner=inner.made,
        tagging=tuple(tagged.functions),
        tables=tables,
        inner_call=inner_call,
        imported=imported_names(fn.__code__) if any(map(_calls_over_lines, body.nodes)) else frozenset(),
        passed=passed_defaults(fn),
    )
    _check_names(made, body.nodes, link.consts)
    return replace(made, stamped=_stamped(made))


def _settled(
    body: InlinedBody, fn: Any, inner: Any, shared: Mapping[str, Any] | None, modules: Sequence[Mapping[str, Any]]
) -> InlinedBody:
    """The body of a function with its globals read where it uses them: as those of the loop, if they are `shared`, else
    by the module, except for builtins and what only Tidegate itself has. `inner` is the function that it calls;
    `modules` have the globals of all functions. Raises Called if what it does not look up each time may change.
    """
    here, library = body.fn.__globals__, _is_library(body.fn)
    at_use = here is shared
    by_module = frozenset(() if at_use or library else here.keys() & body.globals)
    if own := sorted(by_module & Module.OWN):
        raise Called(f"it reads a global {own[0]!r}")
    if by_module and type(here) is not dict:
        raise Called("its globals are in a dict of a class of its own")
    body = replace(body, at_use=at_use, by_module=by_module)
    owners = [fn.__self__] if isinstance(fn, MethodType) else []
    fixed = body.assumed.union(body.once)
    if change := next(changes_of_globals(body.fn, fixed, by_module, owners, () if library else modules), ""):
        raise Called(change)
    call = body.inner_call
    if call is not None:
        call = replace(call, body=_settled(call.body, inner, None, shared, modules))
    return replace(body, inner_call=call)


def _function(called: Any) -> FunctionType | None:
    """The function behind something that a step calls, if it is one of Python's."""
    function = called.__func__ if isinstance(called, MethodType) else called
    return function if isinstance(function, FunctionType) else None


def _shared(bodies: Iterable[InlinedBody]) -> Mapping[str, Any] | None:
    """The globals of the author's of which the bodies read most, if any: a loop can have those of one module. Warnings
    of operators have that module, so the loop has one even if none are read."""
    found: dict[int, list[InlinedBody]] = {}
    for each in bodies:
        for body in (each, each.inner_call.body) if each.inner_call is not None else (each,):
            if not _is_library(body.fn):
                found.setdefault(id(body.fn.__globals__), []).append(body)
    most = max(found.values(), key=lambda some: sum(len(body.globals) for body in some), default=None)
    return None if most is None else most[0].fn.__globals__


@dataclass(frozen=True, slots=True)
class CalledStep:
    """A function that is called with elements, as a step."""

    fn: Callable[..., Any]
    body: Body | None
    catches: Any = None
    form: str = "map"
    params: tuple[Param, ...] = (Param("element"),)
    guarded: bool = False
    consts: tuple[Any, ...] = ()
    loops: int = 0
    inner: None = None


def _inner_call(
    link: Step, node: Function, arguments: Mapping[str, Param], variables: frozenset[str]
) -> InnerCall | None:
    """Replace the only call of the function that is the last extra argument by CALLED, if its body is an expression.

    The argument of the call has to be one of the `variables`, which the expression can read more than once.
    """
    if link.inner is None:
        return None
    last = str(len(link.consts) - 1)
    parameter = next((name for name, param in arguments.items() if (param.kind, param.ref) == ("const", last)), "")
    used = [each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == parameter]
    for each in ast.walk(node):
        match each:
            case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=argument)], keywords=[]) if (
                name == parameter and len(used) == 1 and argument in variables
            ):
                body = inlined_body(CalledStep(link.consts[-1], link.inner, link.catches))
                if isinstance(body, InlinedBody) and body.one_expression and not body.defaults:
                    _Replacing(each).visit(node)
                    return InnerCall(body, argument)
    return None


@dataclass(slots=True)
class _Replacing(ast.NodeTransformer):
    call: ast.Call

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return ast.copy_location(ast.Name(CALLED, ast.Load()), node) if node is self.call else self.generic_visit(node)


def _is_library(fn: FunctionType) -> bool:
    """Whether a function is Tidegate's own, whose frames errors do not show."""
    return str(fn.__module__).startswith("tidegate.")


def _stamped(body: InlinedBody) -> Stamped | None:
    """The arguments of the TimestampedValue that an expression makes; None for any other expression."""
    match body.expression:
        case ast.Call(args=[value, timestamp], keywords=[]) as call:
            pass
        case ast.Call(args=[value], keywords=[ast.keyword(arg="timestamp", value=timestamp)]) as call:
            pass
        case _:
            return None
    if any(isinstance(each, ast.Starred) for each in (value, timestamp)):
        return None  # each may be any number of arguments
    made = Stamped(call, value, timestamp)
    return made if value_of(call.func, body.fn, body.globals) is TimestampedValue else None


def _arguments(
    link: Step, fn: FunctionType, owners: Sequence[Any]
) -> tuple[dict[str, Param], tuple[str, ...], dict[str, Any]]:
    """By parameter, what the engine passes; the parameters for the items of a tuple; and the values of the others.

    These are the defaults, and the owner of a method.
    """
    code = fn.__code__
    if code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
        raise Called("it takes any number of arguments")
    if any(isinstance(owner, type) for owner in owners):
        raise Called("it is a method of a class")
    if owners and link.form.endswith("_tuple"):
        raise Called("it is a method that takes the items of a tuple")
    owned = dict(zip(code.co_varnames[: code.co_argcount], owners, strict=False))
    positional = code.co_varnames[len(owned) : code.co_argcount]
    only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    given = fn.__defaults__ or ()
    if len(owned) < len(owners) or len(given) > len(positional):
        raise Called("it can't be called with these arguments")
    values = dict(zip(positional[len(positional) - len(given) :], given, strict=True)) | (fn.__kwdefaults__ or {})
    items = _items(link, positional, values) if link.form.endswith("_tuple") else ()
    by_keyword = (*positional[max(0, code.co_posonlyargcount - len(owned)) :], *only)
    passed: dict[str, Param] = {}
    free = iter(positional[len(items) :])
    for param in link.params:
        name = param.keyword or next(free, "")
        if not (name in by_keyword if param.keyword else name) or name in passed or name in items:
            raise Called("it can't be called with these arguments")
        passed[name] = param
        if link.catches and param.kind not in ("element", "const", "window", "state", "timer"):
            raise Called("exceptions of its arguments are caught")
    others = [name for name in (*positional, *only) if name not in passed and name not in items]
    if not all(name in values for name in others):
        raise Called("it can't be called with these arguments")
    return passed, items, owned | {name: values[name] for name in others}


def _items(link: Step, positional: Sequence[str], defaults: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters for the items of a tuple: the first ones, before those for extra arguments."""
    by_keyword = {param.keyword for param in link.params}
    extra = sum(param.keyword is None for param in link.params)
    taken = len([name for name in positional if name not in by_keyword])
    if taken <= extra or (extra and any(name in defaults for name in positional[:taken])):
        raise Called("how many items it takes is not known")
    return tuple(positional[: taken - extra])


# -- what the names refer to


def _check_names(body: InlinedBody, nodes: Sequence[ast.AST], consts: Sequence[Any]) -> None:
    """Raise Called if a name refers to something that looks at the frame of the function that calls it."""
    if not body.ready():
        raise Called("a name that it reads is not set")
    values = dict(zip(body.globals, body.values(), strict=True))
    captured = {name: cell.cell_contents for name, cell in body.cells.items()}
    given = {name: consts[int(param.ref)] for name, param in body.arguments.items() if param.kind == "const"}
    check_values({**body.defaults, **given, **values, **captured}, body.fn)
    for node in nodes:
        check_attributes(node, values)
    here, builtin = namespaces(body.fn)
    for function in body.inner.values():
        names = function.__code__.co_names
        check_values({name: here.get(name, builtin.get(name)) for name in names}, body.fn)
        for name in METHODS_THAT_SEE_CALLERS.intersection(names):
            raise Called(f"it uses {name!r}, which may look at the function's frame")
