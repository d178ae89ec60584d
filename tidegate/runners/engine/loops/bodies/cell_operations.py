"""Replaces calls of state cells in a body by what they do to the table of the current window.

`most.read()` becomes `None if entry is None else entry.value`, where `entry` is the entry of the element's key, which
the loop has looked up. A parameter that the body uses in any other way stays a cell, as in a call.

>>> body = ast.parse("most.write(most.read() + x)").body
>>> operations = CellOperations({"most": (3, "value")})
>>> made = operations.replace_in(body)
>>> operations.replaced
{'most': 3}
>>> ast.unparse(made[0].test), ast.unparse(made[0].orelse[0])
('<entry 3> is None', '<entry 3>.value = (None if <entry 3> is None else <entry 3>.value) + x')
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

CellKind: TypeAlias = Literal["value", "bag"]
"""The kinds of state cells whose operations a loop may contain."""

_OF_CELL: Final = ("entry", "table", "epoch", "changed", "removed")
"""What operations use of a cell: the key's entry, and the table; the epoch, and the functions that note a changed entry
and the key of a removed one. They also use the key, and the class of entries."""

OPERABLE: Final[tuple[CellKind, ...]] = ("value", "bag")

_STORE: Final = """
if entry is None:
    entry = table[key] = Entry(table, key, {}, epoch)
    changed(entry)
else:
    {}
    if entry.epoch is not epoch:
        entry.epoch = epoch
        changed(entry)
"""
_CLEAR: Final = """
if entry is not None:
    table.pop(key)
    entry.home = None
    entry = None
    removed(key)
"""
_WRITES: Final[Mapping[CellKind, Mapping[str, tuple[int, str]]]] = {
    "value": {"write": (1, _STORE.format("VALUE", "entry.value = VALUE")), "clear": (0, _CLEAR)},
    "bag": {"add": (1, _STORE.format("[VALUE]", "entry.value.append(VALUE)")), "clear": (0, _CLEAR)},
}
"""The operations of each kind that return nothing: the number of their arguments, and their statements."""
_READS: Final[Mapping[CellKind, str]] = {
    "value": "DEFAULT if entry is None else entry.value",
    "bag": "DEFAULT if entry is None else (*entry.value,)",
}


def operation_names(cell: int) -> dict[str, str]:
    """By the names for them in a body, the variables of a loop that the operations of a cell use."""
    return {f"<{name} {cell}>": f"{name}_{cell}" for name in _OF_CELL} | {
        f"<key {cell}>": "k0",
        f"<Entry {cell}>": "Entry",
    }


@dataclass(slots=True)
class CellOperations(ast.NodeTransformer):
    """Replaces the operations of the parameters in `cells`, which has the number and the kind of each cell.

    `replaced` has the parameters that the body no longer uses, with the numbers of their cells.
    """

    cells: Mapping[str, tuple[int, CellKind]]
    replaced: dict[str, int] = field(default_factory=dict)

    def replace_in(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements of a body, with operations of tables instead of cells."""
        for name, (cell, kind) in self.cells.items():
            used = sum(isinstance(each, ast.Name) and each.id == name for part in body for each in ast.walk(part))
            if used == sum(_operations(part, name, kind) for part in body):
                self.replaced[name] = cell
        # Two parameters may be the same cell. If one of them stays a cell, it has to see what the other one does.
        kept = {cell for name, (cell, _) in self.cells.items() if name not in self.replaced}
        self.replaced = {name: cell for name, cell in self.replaced.items() if cell not in kept}
        made = [self.visit(part) for part in body]
        return [each for part in made for each in (part if isinstance(part, list) else [part])]

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Replace an operation that is a statement."""
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method), args=args) if (
                name in self.replaced and method != "read"
            ):
                cell, kind = self.cells[name]
                values = dict(zip(("VALUE",), map(self.visit, args), strict=False))
                return _made(_WRITES[kind][method][1], cell, values, node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a read."""
        match node.func:
            case ast.Attribute(value=ast.Name(id=name)) if name in self.replaced:
                cell, kind = self.cells[name]
                default = _default(node, kind)
                assert default is not None
                (made,) = _made(_READS[kind], cell, {"DEFAULT": default}, node)
                assert isinstance(made, ast.Expr)
                return made.value
        return self.generic_visit(node)


def _operations(node: ast.AST, name: str, kind: CellKind) -> int:
    """How many operations of a parameter, outside of comprehensions, can be replaced in a node."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=method), args=args, keywords=[])):
            known, _ = _WRITES[kind].get(method, (-1, ""))
            if of == name and len(args) == known and not any(isinstance(each, ast.Starred) for each in args):
                return 1 + sum(_operations(each, name, kind) for each in args)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr="read")) if of == name:
            return int(_default(node, kind) is not None)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() | ast.Lambda():
            return 0
    return sum(_operations(each, name, kind) for each in ast.iter_child_nodes(node))


def _default(call: ast.Call, kind: CellKind) -> ast.expr | None:
    """What a read returns if the cell is empty; None if more than evaluating a name would have to be done for it."""
    match kind, call.args, call.keywords:
        case "bag", [], []:
            return ast.Tuple([], ast.Load())
        case "value", [], []:
            return ast.Constant(None)
        case "value", [(ast.Constant() | ast.Name()) as default], []:
            return default
        case "value", [], [ast.keyword(arg="default", value=(ast.Constant() | ast.Name()) as default)]:
            return default
    return None


def _made(text: str, cell: int, values: Mapping[str, ast.expr], like: ast.AST) -> list[ast.stmt]:
    """The statements of a text for a cell, all of them in the place of another node."""
    parsed = ast.parse(text)
    for each in ast.walk(parsed):
        if "lineno" in each._attributes:
            ast.copy_location(each, like)
    made: ast.Module = _Filling(cell, values).visit(parsed)
    for each in ast.walk(made):
        if "lineno" in each._attributes and not hasattr(each, "lineno"):
            ast.copy_location(each, like)
    return made.body


@dataclass(slots=True)
class _Filling(ast.NodeTransformer):
    cell: int
    values: Mapping[str, ast.expr]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.values:
            return self.values[node.id]
        return ast.copy_location(ast.Name(f"<{node.id} {self.cell}>", node.ctx), node)
