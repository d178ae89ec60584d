"""Puts bodies of several statements into a loop, where no call returns: `return` leaves a block of statements.

The block is a `while True` that ends in a `break`, which costs nothing. A `return` inside a loop of the author's sets a
variable first, by which the block is left once that loop is left. In a generator, the statements that run the following
steps stand in place of the `yield`. A comprehension that is all the results becomes a loop that yields them.

>>> tree = ast.parse("if x: return 1\\ny = x")
>>> print(ast.unparse(leaving(tree.body, "v1", "e0", "tag0")))
while True:
    if x:
        v1 = 1
        break
    y = x
    v1 = None
    break
"""

from __future__ import annotations

import ast
import dis
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from tidegate.runners.engine.loops.plain_syntax import Called
from tidegate.sdk.user_code.body import COMPILED_AGAIN, Function, silence_warnings

Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The body of a function: what it does `first`, and the expression of its result.

    The expression is that of the only `return`, at the end, or of the only `yield`, which is one of the statements. It
    is None if there are other returns, or several yields, whose expressions are `yielded`.
    """

    first: tuple[ast.stmt, ...]
    expression: ast.expr | None
    yields: bool = False
    yielded: tuple[ast.expr, ...] = ()

    @property
    def nodes(self) -> tuple[ast.stmt | ast.expr, ...]:
        """The statements, and the expression if it follows them."""
        return self.first if self.expression is None or self.yields else (*self.first, self.expression)


MOST_YIELDS: Final = 4
"""At how many places an inlined generator may yield: what follows stands at each of them."""

YIELDED: Final = "yielded"
"""The name that stands for what a generator yields, which does so at several places."""


class TaggedReturn(ast.Return):
    """A `return` of a TaggedOutput, with its value and its tag."""

    _fields = ("value", "tag")

    if TYPE_CHECKING:
        tag: str

        def __init__(self, *, value: ast.expr, tag: str) -> None: ...


def parts(node: Function) -> Parts:
    """The parts of a function's body. Raises Called for a generator that yields at too many places, or from another."""
    if isinstance(node, ast.Lambda):
        return Parts((), node.body)
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    inside = [each for statement in body for each in ast.walk(statement)]
    yields = [each for each in inside if isinstance(each, (ast.Yield, ast.YieldFrom))]
    if any(isinstance(each, ast.YieldFrom) for each in yields):
        raise Called("it yields from something else")
    if yields:
        used = [each.value for each in inside if isinstance(each, ast.Expr)]
        if not all(each in used for each in yields):
            raise Called("it uses the value of a yield")
        if len(yields) > MOST_YIELDS:
            raise Called(f"it yields at more than {MOST_YIELDS} places")
        values = tuple([each.value or _constant(None, each) for each in yields])
        if len(values) == 1:
            return Parts(tuple(body), values[0], yields=True)
        return Parts(tuple(body), None, yields=True, yielded=values)
    returns = [each for each in inside if isinstance(each, ast.Return)]
    match body:
        case [*first, ast.Return(value=value) as last] if len(returns) == 1:
            return Parts(tuple(first), value or _constant(None, last))
    return Parts(tuple(body), None if returns else _constant(None, body[-1] if body else node))


def leaving(statements: list[ast.stmt], result: str, flag: str, tag: str) -> list[ast.stmt]:
    """The statements with another form of `return`: an assignment to `result`, if that is not ""; then it is left.

    If one of them returns a TaggedOutput, `tag` becomes its tag, and None if another one is executed.
    """
    if not _returns(statements):
        return statements
    first, last = statements[0], statements[-1]
    tags = any(isinstance(each, TaggedReturn) for statement in statements for each in ast.walk(statement))
    inside = _Leaving(result, flag, tag).block(statements, in_loop=False)
    if tags:
        inside.insert(0, _assign(tag, _constant(None, first), first))
    if any(isinstance(each, ast.Name) and each.id == flag for part in inside for each in ast.walk(part)):
        inside.insert(0, _assign(flag, _constant(False, first), first))
    if not _left(inside):
        inside += [_assign(result, _constant(None, last), last)] if result else []
        inside.append(_at(ast.Break(), last))
    return [_at(ast.While(_constant(True, first), inside, []), first)]


def yielding(
    statements: list[ast.stmt], following: list[ast.stmt], repeated: list[ast.stmt] | None = None
) -> list[ast.stmt]:
    """The statements of a generator, with those that follow where it yields. These may begin with an assignment of
    YIELDED, which stands for what it yields there.

    `repeated` stand in place of a loop that does nothing but yield pairs: `items = yielded`, and an `if` with a loop
    over the items, for those that can be counted beforehand. In the body of that loop, YIELDED is the pair. Before the
    `else`, there is a loop for other items.
    """
    done: list[ast.stmt] = []
    for statement in statements:
        match statement:
            case ast.Expr(value=ast.Yield(value=value)):
                match following:
                    case [ast.Assign(value=ast.Name(id=name)) as taking, *others] if name == YIELDED:
                        done += [_taking(taking, value or _constant(None, statement), statement), *others]
                    case _:
                        done += following
                continue
            case ast.For() if repeated and only_yields_pairs(statement) is not None:
                done += _repeating(statement, following, repeated)
                continue
            case ast.If() | ast.For() | ast.While():
                statement.body = yielding(statement.body, following, repeated)
                statement.orelse = yielding(statement.orelse, following, repeated)
        done.append(statement)
    return done


def only_yields_pairs(loop: ast.For) -> ast.Tuple | None:
    """The pair that a loop yields, if it does nothing else."""
    match loop:
        case ast.For(body=[ast.Expr(value=ast.Yield(value=ast.Tuple(elts=[_, _] as parts) as pair))], orelse=[]):
            return None if any(isinstance(part, ast.Starred) for part in parts) else pair
    return None


def _repeating(loop: ast.For, following: list[ast.stmt], repeated: list[ast.stmt]) -> list[ast.stmt]:
    pair = only_yields_pairs(loop)
    taking, test = repeated
    assert pair is not None
    assert isinstance(taking, ast.Assign)
    assert isinstance(test, ast.If)
    count, fast, *after = test.body
    assert isinstance(fast, ast.For)
    items = _at(ast.Name(ast.unparse(taking.targets[0]), ast.Load()), loop.iter)
    body = [
        _taking(each, pair, loop)
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name) and each.value.id == YIELDED
        else each
        for each in fast.body
    ]
    whole = _at(ast.For(loop.target, fast.iter, body, []), fast)
    slow = _at(ast.For(loop.target, items, yielding(loop.body, following), []), loop)
    return [
        _taking(taking, loop.iter, loop),
        _at(ast.If(test.test, [count, whole, *after], [slow, *test.orelse]), test),
    ]


def _taking(assignment: ast.Assign, value: ast.expr, like: ast.stmt) -> ast.stmt:
    """The assignment of another value."""
    return _at(ast.Assign(assignment.targets, value), like)


def nested_blocks(statements: Sequence[ast.stmt], *, around_yield: bool = False) -> int:
    """How many blocks statements nest, with the one that a `return` leaves: all, or those around a `yield`."""
    return _nested(statements, around_yield=around_yield) + _returns(statements)


def _nested(statements: Sequence[ast.stmt], *, around_yield: bool) -> int:
    inside = [
        _nested([*each.body, *each.orelse], around_yield=around_yield) + (not isinstance(each, ast.If))
        for each in statements
        if isinstance(each, (ast.If, ast.For, ast.While)) and (not around_yield or _has_yield(each))
    ]
    return max(inside, default=0)


def _has_yield(statement: ast.stmt) -> bool:
    return any(isinstance(each, ast.Yield) for each in ast.walk(statement))


def assigned(nodes: Sequence[ast.AST]) -> dict[str, None]:
    """The local variables that statements and expressions assign: all but those of comprehensions."""
    found: dict[str, None] = {}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                found[name] = None
            case ast.Lambda():
                pass
            case ast.comprehension(iter=iterable, ifs=conditions):
                found |= assigned([iterable, *conditions])
            case _:
                found |= assigned(list(ast.iter_child_nodes(node)))
    return found


@dataclass(frozen=True, slots=True)
class _Leaving:
    result: str
    flag: str
    tag: str

    def block(self, statements: Sequence[ast.stmt], *, in_loop: bool) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in statements:
            match statement:
                case ast.Return():
                    return [*done, *self.left(statement, in_loop=in_loop)]
                case ast.If():
                    statement.body = self.block(statement.body, in_loop=in_loop)
                    statement.orelse = self.block(statement.orelse, in_loop=in_loop)
                    done.append(statement)
                case ast.For() | ast.While():
                    returns = _returns(statement.body)
                    statement.body = self.block(statement.body, in_loop=True)
                    statement.orelse = self.block(statement.orelse, in_loop=in_loop)
                    done.append(statement)
                    if returns:
                        test = _at(ast.Name(self.flag, ast.Load()), statement)
                        done.append(_at(ast.If(test, [_at(ast.Break(), statement)], []), statement))
                case _:
                    done.append(statement)
        return done

    def left(self, statement: ast.Return, *, in_loop: bool) -> Iterator[ast.stmt]:
        """The statements for a `return`."""
        value = statement.value
        if self.result:
            yield _assign(self.result, value or _constant(None, statement), statement)
        elif value is not None:
            yield _at(ast.Expr(value), statement)
        if isinstance(statement, TaggedReturn):
            yield _assign(self.tag, _constant(statement.tag, statement), statement)
        if in_loop:
            yield _assign(self.flag, _constant(True, statement), statement)
        yield _at(ast.Break(), statement)


def _left(statements: Sequence[ast.stmt]) -> bool:
    """Whether control certainly does not get to the end of statements whose returns have been replaced."""
    match statements[-1]:
        case ast.Break() | ast.Raise():
            return True
        case ast.If(body=body, orelse=orelse):
            return bool(orelse) and _left(body) and _left(orelse)
    return False


def _returns(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(each, ast.Return) for statement in statements for each in ast.walk(statement))


def _assign(name: str, value: ast.expr, like: ast.stmt) -> ast.stmt:
    return _at(ast.Assign([_at(ast.Name(name, ast.Store()), like)], value), like)


# -- generator expressions as loops
# (An error shows the position in the expression, for which the instructions of both are compared.)

Span: TypeAlias = tuple[int, int, int, int]
"""The first and the last line of some code, and the columns of its beginning and its end."""

GENEXPR: Final = "<genexpr>"
"""The name of the frame in which a generator expression is evaluated, but for its first iterable."""


@dataclass(frozen=True, slots=True, eq=False)
class LoopedGenerator:
    """A generator expression for which a loop stands.

    `places` says, by operation and position of instructions of the loop, where those of the expression are, if that
    does not follow from the position: whether they are inside of it, and their positions.
    """

    node: ast.GeneratorExp
    places: Mapping[tuple[str, Span], tuple[bool, Span]]

    def place(self, operation: str, span: Span) -> tuple[bool, Span]:
        """Whether what an instruction of the loop does is done in the expression, not around it; and its position
        there."""
        return self.places.get((operation, span)) or (_is_inside(self.node, span), span)


@dataclass(frozen=True, slots=True)
class Looping:
    """A function with a loop that yields what the function has a generator expression of."""

    node: ast.FunctionDef
    generator: LoopedGenerator


def with_loop(node: Function) -> Looping | None:
    """The function as one that yields its results, if they are a generator expression; else None.

    A list comprehension stays one: its list is complete before the steps that follow take its first item.

    >>> (function,) = ast.parse("def f(n, ends): return ((end, n) for end in ends if end > n)").body
    >>> print(ast.unparse(with_loop(function).node))
    def f(n, ends):
        for end in ends:
            if end > n:
                yield (end, n)
    """
    body = [ast.copy_location(ast.Return(node.body), node.body)] if isinstance(node, ast.Lambda) else node.body
    match body:
        case [*first, ast.Return(value=ast.GeneratorExp() as made)]:
            pass
        case _:
            return None
    if any(isinstance(each, (ast.Return, ast.Yield, ast.YieldFrom)) for part in first for each in ast.walk(part)):
        return None
    if not _is_alone(made, node):
        return None
    loop = _loop(made)
    places = _places(made, loop)
    if places is None:
        return None
    name = node.name if isinstance(node, ast.FunctionDef) else "made"
    function = ast.FunctionDef(name, node.args, [*first, loop], [])
    return Looping(ast.copy_location(function, node), LoopedGenerator(made, places))


def _loop(made: ast.GeneratorExp) -> ast.stmt:
    """The statement that yields the items of a generator expression.

    Its loops and tests have positions that nothing in them has, so that their instructions can be told apart.
    """
    inner: list[ast.stmt] = [ast.copy_location(ast.Expr(ast.copy_location(ast.Yield(made.elt), made.elt)), made.elt)]
    for generator in reversed(made.generators):
        for condition in reversed(generator.ifs):
            inner = [_beginning(ast.If(condition, inner, []), condition)]
        item = None if generator is made.generators[0] else _only_item(generator.iter)
        if item is not None:
            inner.insert(0, ast.copy_location(ast.Assign([generator.target], item), item))
        else:
            inner = [_beginning(ast.For(generator.target, generator.iter, inner, []), generator.iter)]
    (loop,) = inner
    return ast.copy_location(loop, made)  # the lines of all that is in it


def _only_item(iterable: ast.expr) -> ast.expr | None:
    """The item to which Python sets the variable of an inner `for` without iterating."""
    match iterable:
        case ast.List(elts=[item]) | ast.Tuple(elts=[item]) if not isinstance(item, ast.Starred):
            return item
    return None


def _beginning(statement: ast.stmt, of: ast.expr) -> ast.stmt:
    """A statement at the empty position before an expression."""
    statement.lineno = statement.end_lineno = of.lineno
    statement.col_offset = statement.end_col_offset = of.col_offset
    return statement


def _is_alone(made: ast.GeneratorExp, function: Function) -> bool:
    """Whether the variables of a generator expression could be those of the function around it."""
    own = set(_assigned(made))
    if any(generator.is_async for generator in made.generators):
        return False
    if any(isinstance(each, ast.NamedExpr) for each in ast.walk(made)):
        return False
    inside = {id(each) for each in ast.walk(made)} - {id(each) for each in ast.walk(made.generators[0].iter)}
    others = {
        each.arg if isinstance(each, ast.arg) else each.id
        for each in ast.walk(function)
        if isinstance(each, (ast.Name, ast.arg)) and id(each) not in inside
    }
    return own.isdisjoint(others)


def _assigned(made: ast.GeneratorExp) -> Iterator[str]:
    for generator in made.generators:
        for each in ast.walk(generator.target):
            if isinstance(each, ast.Name):
                yield each.id


def operation(code: CodeType, offset: int) -> str:
    """What the instruction at an offset does, if an error in it may be one of a generator expression itself: iterate,
    or test a condition; "" for any other."""
    return _operation(dis.opname[code.co_code[offset]])


def _operation(name: str) -> str:
    if name in ("GET_ITER", "FOR_ITER", "TO_BOOL"):
        return name
    return "TO_BOOL" if "JUMP" in name and "_IF_" in name and not _JUMPS_TAKE_BOOLS else ""


_JUMPS_TAKE_BOOLS: Final = "TO_BOOL" in dis.opmap
"""Whether an instruction before a jump makes a bool of its condition, since Python 3.13."""


def _places(made: ast.GeneratorExp, loop: ast.stmt) -> dict[tuple[str, Span], tuple[bool, Span]] | None:
    """`LoopedGenerator.places`; None if the instructions of the loop are not those of the expression."""
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = _beginning(ast.FunctionDef("made", arguments, [loop], []), made)
    silence_warnings()
    try:
        around = compile(ast.Expression(made), COMPILED_AGAIN, "eval", dont_inherit=True)
        module = compile(ast.Module([function], []), COMPILED_AGAIN, "exec", dont_inherit=True)
    except SyntaxError:  # loops that are nested too deeply, which generator expressions may be
        return None
    expected = [(code is not around, *each) for code in (around, _first_code(around)) for each in _instructions(code)]
    found = list(_instructions(_first_code(module)))
    if [each[1] for each in expected] != [each[0] for each in found]:
        return None
    places: dict[tuple[str, Span], tuple[bool, Span]] = {}
    for (inside, _, span), there in zip(expected, found, strict=True):
        if places.setdefault(there, (inside, span)) != (inside, span):
            return None
    return places


def _first_code(code: CodeType) -> CodeType:
    """The first function in other code. That of a generator expression is made before its first iterable is."""
    return next(const for const in code.co_consts if isinstance(const, CodeType))


def _instructions(code: CodeType) -> Iterator[tuple[str, Span]]:
    for each in dis.get_instructions(code):
        if (name := _operation(each.opname)) and (at := each.positions) is not None:
            yield name, (at.lineno or 0, at.end_lineno or 0, at.col_offset or 0, at.end_col_offset or 0)


def _is_inside(made: ast.GeneratorExp, span: Span) -> bool:
    """Whether a position is in a generator expression, and not in its first iterable, which is evaluated around it."""
    line, _, column, _ = span
    return _covers(made, line, column) and not _covers(made.generators[0].iter, line, column)


def _covers(node: ast.expr, line: int, column: int) -> bool:
    end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return (node.lineno, node.col_offset) <= (line, column) < end


# -- variables


def only_unpacked(nodes: Sequence[ast.AST], containers: Collection[str]) -> Iterator[str]:
    """The variables whose only values are items that one statement unpacks from a container, which nothing else reads.

    They keep nothing alive that the container doesn't.
    """
    inside = [each for node in nodes for each in ast.walk(node)]
    uses = Counter(each.id for each in inside if isinstance(each, ast.Name))
    for each in inside:
        match each:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Name(id=container)):
                if container in containers and uses[container] == 1:
                    yield from _stored_once(targets, inside)


def _stored_once(targets: Iterable[ast.expr], inside: Iterable[ast.AST]) -> Iterator[str]:
    stored = Counter(each.id for each in inside if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load))
    for target in targets:
        if isinstance(target, ast.Name) and stored[target.id] == 1:
            yield target.id


def _constant(value: bool | str | None, like: ast.AST) -> ast.expr:
    return _at(ast.Constant(value), like)


def _at(node: Node, like: ast.AST) -> Node:
    """A node at the position of another."""
    return ast.copy_location(node, like)
