"""Binding of names, constants and operators to trees of expressions."""

from __future__ import annotations

import decimal
import math
from typing import Any, Final

from tidegate.sdk.data.columns import BOOLEAN, STRING, VOID
from tidegate.sdk.errors import BuildError
from tidegate.sdk.relational.authoring import literal
from tidegate.sdk.relational.expressions import Case, Literal, Tree
from tidegate.sql.syntax.handlers import HANDLERS, Names, call, reads, tree_of
from tidegate.sql.syntax.nodes import read, shown
from tidegate.sql.syntax.parse_tree import word_of
from tidegate.sql.syntax.times import is_interval, shifted

# -- names, constants, parameters


@reads("Column", args="this table db catalog")
def _column(node: Any, names: Names) -> Tree:
    return names.column(node)


@reads("Dot", args="this expression")
def _field(node: Any, names: Names) -> Tree:
    if node.expression.kind != "Identifier":
        raise names.source.refusal(f"{shown(node)}: behind a dot stands the name of a field", node)
    return names.field(tree_of(node.this, names), node.expression.name, node)


@reads("Bracket", args="this expressions")
def _part(node: Any, names: Names) -> Tree:
    if len(node.expressions) != 1:
        raise names.source.refusal(f"{shown(node)}: one index or one key stands in brackets", node)
    return call("part", tree_of(node.this, names), tree_of(node.expressions[0], names))


@reads("Paren")
def _paren(node: Any, names: Names) -> Tree:
    return tree_of(node.this, names)


@reads("Literal", args="this is_string")
def _literal(node: Any, names: Names) -> Tree:
    if node.args.get("is_string"):
        return Literal(str(node.this), STRING)
    return _number(str(node.this), node, names)


def _number(text: str, node: Any, names: Names) -> Tree:
    """A constant: a bigint, a decimal if it has a point, a double if it has an exponent."""
    try:
        if text.strip("-").isdecimal():
            return literal(int(text))
        if "e" not in text.lower():
            return literal(decimal.Decimal(text))
        value = float(text)
    except (BuildError, ArithmeticError, ValueError) as error:
        raise names.source.refusal(str(error), node) from None
    if not math.isfinite(value):
        raise names.source.refusal(f"{shown(node)} is too large for a double", node)
    return literal(value)


@reads("Boolean")
def _boolean(node: Any, names: Names) -> Tree:
    return Literal(bool(node.this), BOOLEAN)


@reads("Null", args="")
def _null(node: Any, names: Names) -> Tree:
    return Literal(None, VOID)


@reads("Placeholder", "Parameter")
def _parameter(node: Any, names: Names) -> Tree:
    name = word_of(node.this)
    if not name:
        raise names.source.refusal("a parameter has a name: write :name, and params={'name': …}", node)
    value = names.parameter(node, name)
    try:
        return literal(value)
    except BuildError as error:
        raise names.source.refusal(f"the parameter {name}: {error}", node) from None


# -- operators

_BINARY: Final = {
    "Mul": "multiply",
    "Div": "divide",
    "IntDiv": "div",
    "Mod": "remainder",
    "EQ": "equal",
    "NEQ": "not_equal",
    "LT": "less",
    "LTE": "less_or_equal",
    "GT": "greater",
    "GTE": "greater_or_equal",
    "And": "and",
    "Or": "or",
    "NullSafeEQ": "not_distinct",
    "Pow": "power",
    "Nullif": "nullif",
}


@reads(*_BINARY, args="this expression")
def _binary(node: Any, names: Names) -> Tree:
    one, two = tree_of(node.this, names), tree_of(node.expression, names)
    operation = _BINARY[node.kind]
    if operation == "nullif":
        return Case(((call("equal", one, two), Literal(None, VOID)),), one)
    return call(operation, one, two)


@reads("Add", "Sub", args="this expression")
def _sum(node: Any, names: Names) -> Tree:
    minus = node.kind == "Sub"
    if is_interval(node.this) and not minus and not is_interval(node.expression):
        return shifted(tree_of(node.expression, names), node.this, 1, names)
    one = tree_of(node.this, names)
    if is_interval(node.expression) and not is_interval(node.this):
        return shifted(one, node.expression, -1 if minus else 1, names)
    return call("subtract" if minus else "add", one, tree_of(node.expression, names))


@reads("Neg")
def _negation(node: Any, names: Names) -> Tree:
    if node.this.kind == "Literal" and not node.this.args.get("is_string"):
        HANDLERS.function(node.this, names.source)  # checks the arguments
        return _number(f"-{node.this.this}", node, names)
    return call("negate", tree_of(node.this, names))


@reads("Not")
def _not(node: Any, names: Names) -> Tree:
    return call("not", tree_of(node.this, names))


@reads("NullSafeNEQ", args="this expression")
def _distinct_from(node: Any, names: Names) -> Tree:
    return call("not", call("not_distinct", tree_of(node.this, names), tree_of(node.expression, names)))


@reads("Is", args="this expression")
def _is(node: Any, names: Names) -> Tree:
    value = tree_of(node.this, names)
    match node.expression.kind:
        case "Null":
            return call("is_null", value)
        case "Boolean":
            return call("not_distinct", value, Literal(bool(node.expression.this), BOOLEAN))
    raise names.source.refusal(f"{shown(node)}: IS takes NULL, TRUE or FALSE", node)


@reads("Between", args="this low high")
def _between(node: Any, names: Names) -> Tree:
    value = tree_of(node.this, names)
    low, high = tree_of(node.args["low"], names), tree_of(node.args["high"], names)
    return call("and", call("greater_or_equal", value, low), call("less_or_equal", value, high))


@reads("Subquery")
def _query(node: Any, names: Names) -> Tree:
    return names.query(node)


@reads("Exists")
def _exists(node: Any, names: Names) -> Tree:
    raise names.source.refusal("EXISTS stands in WHERE alone, connected with other conditions by AND", node)


@reads("In", args="this expressions query")
def _in(node: Any, names: Names) -> Tree:
    if node.args.get("query") is not None:
        raise names.source.refusal("IN (SELECT …) stands in WHERE alone, connected with other conditions by AND", node)
    value = tree_of(node.this, names)
    others = [tree_of(each, names) for each in node.expressions]
    if not others:
        raise names.source.refusal("IN () has no values", node)
    if all(isinstance(each, Literal) for each in others):
        return call("is_in", value, *others)
    found = call("equal", value, others[0])
    for other in others[1:]:
        found = call("or", found, call("equal", value, other))
    return found


@reads("Like", "ILike", args="this expression negate")
def _like(node: Any, names: Names) -> Tree:
    return _liked(node, names, "\\")


@reads("Escape", args="this expression")
def _escape(node: Any, names: Names) -> Tree:
    if node.this.kind not in ("Like", "ILike") or not node.expression.args.get("is_string"):
        raise names.source.refusal("ESCAPE takes a string, and stands behind a LIKE", node)
    HANDLERS.function(node.this, names.source)  # checks the arguments
    return _liked(node.this, names, str(node.expression.this))


def _liked(node: Any, names: Names, escape: str) -> Tree:
    value, pattern = tree_of(node.this, names), tree_of(node.expression, names)
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise names.source.refusal("LIKE takes a pattern that is a string", node.expression)
    given = pattern.value
    if escape != "\\":
        if len(escape) != 1:
            raise names.source.refusal("ESCAPE takes one character", node)
        given = _with_backslashes(given, escape)
    if node.kind == "ILike":
        value, given = call("lower", value), given.lower()
    found = call("like", value, Literal(given, STRING))
    return call("not", found) if node.args.get("negate") else found


def _with_backslashes(pattern: str, escape: str) -> str:
    """A pattern whose escape character is the backslash."""
    made, at = [], 0
    while at < len(pattern):
        if pattern[at] == escape and at + 1 < len(pattern):
            made.append("\\" + pattern[at + 1])
            at += 2
            continue
        made.append("\\\\" if pattern[at] == "\\" else pattern[at])
        at += 1
    return "".join(made)


@reads("Case", args="this ifs default")
def _case(node: Any, names: Names) -> Tree:
    operand = node.args.get("this")
    subject = None if operand is None else tree_of(operand, names)
    branches = []
    for each in node.args["ifs"]:
        read(each, "If", "this true", names.source)
        condition = tree_of(each.this, names)
        branches.append(
            (condition if subject is None else call("equal", subject, condition), tree_of(each.args["true"], names))
        )
    default = node.args.get("default")
    return Case(tuple(branches), Literal(None, VOID) if default is None else tree_of(default, names))


@reads("If", args="this true false")
def _if(node: Any, names: Names) -> Tree:
    otherwise = node.args.get("false")
    value = Literal(None, VOID) if otherwise is None else tree_of(otherwise, names)
    return Case(((tree_of(node.this, names), tree_of(node.args["true"], names)),), value)
