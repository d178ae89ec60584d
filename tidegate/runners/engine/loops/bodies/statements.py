"""Puts bodies of several statements into a loop, where no call returns: `return` leaves a block of statements.

The block is a `while True` that ends in a `break`, which costs nothing. A `return` inside a loop of the author's sets a
variable first, by which the block is left once that loop is left. In a generator, the statements that run the following
steps stand in place of the `yield`.

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
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.runners.engine.loops.bodies.plain_syntax import Called
from tidegate.sdk.user_code.body import Function

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
