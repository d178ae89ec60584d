"""Prints bound expressions as Python: statements that read the columns, and an expression for each result.

The text refers to the variables of the columns, to temporary variables, and to the names of an environment. It is given
as source and as syntax tree, so that it can be a function of its own or a part of a larger loop.
"""

from __future__ import annotations

import ast
import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.sdk.data.columns import ArrayType, DecimalType, MapType, StructType
from tidegate.sdk.relational.binding import may_fail
from tidegate.sdk.relational.date_patterns import formatter
from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Literal, Tree, walk
from tidegate.sdk.relational.operations import OPERATIONS
from tidegate.sdk.relational.python import nested, numbers, strings
from tidegate.sdk.relational.python.decimals import as_decimal
from tidegate.sdk.relational.python.templates import ENVIRONMENT, Called, Template, cast_template, template_of
from tidegate.sdk.relational.python.values import CHECKS


@dataclass(frozen=True, slots=True)
class Printed:
    """Expressions as Python. `reads` are statements that set the variables of the columns; `results` are expressions.

    `names` are the objects to which they refer by name; `variables` the names that they assign.
    """

    reads: tuple[str, ...]
    results: tuple[str, ...]
    names: Mapping[str, Any]
    variables: tuple[str, ...]

    def statements(self) -> list[ast.stmt]:
        """The syntax trees of `reads`."""
        return ast.parse("\n".join(self.reads)).body

    def expressions(self) -> list[ast.expr]:
        """The syntax trees of `results`."""
        return [ast.parse(result, mode="eval").body for result in self.results]


def printed(trees: Sequence[Tree], read: Callable[[Column], str], *, checked: bool = True, prefix: str = "") -> Printed:
    """Print bound trees. `read` gives the Python that reads a column. Operations on the window need a name `window`.

    With `checked`, a value that is read is converted to its column's type, or refused. All variables begin with
    `prefix`.
    """
    printer = _Printer(prefix)
    columns = {(each.input, each.name): each for tree in trees for each in walk(tree) if isinstance(each, Column)}
    reads = [line for column in columns.values() for line in printer.read(column, read(column), checked)]
    results = tuple(printer.print(tree) for tree in trees)
    return Printed(tuple(reads), results, printer.names, tuple(printer.variables))


@dataclass(slots=True)
class _Printer:
    prefix: str
    names: dict[str, Any] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    columns: dict[tuple[int, str], str] = field(default_factory=dict)

    def read(self, column: Column, source: str, checked: bool) -> Iterable[str]:
        """The statements that set the variable of a column."""
        variable = self.columns[column.input, column.name] = self._variable("c")
        yield f"{variable} = {source}"
        type = column.type
        check = CHECKS.get(type.kind)
        if isinstance(type, DecimalType):
            test, convert = "True", Called(f"as_decimal_{type.precision}_{type.scale}", as_decimal(type))
        elif check is not None:
            test, convert = check[0], Called(check[1].__name__, check[1])
        else:
            return
        if not checked:
            return
        if test.startswith("type({0}) is not date"):
            self.names |= {"date": datetime.date, "datetime": datetime.datetime, "UTC": datetime.UTC}
        function = self._called(convert)
        condition = test.format(variable)
        if column.nullable:
            condition = f"{variable} is not None and ({condition})"
        yield f"if {condition}: {variable} = {function}({variable}, {column.name!r})"

    def print(self, tree: Tree) -> str:
        match tree:
            case Column(name=name, input=input):
                return self.columns[input, name]
            case Literal(value=value):
                return self._literal(value)
            case Cast(operand=operand, type=type):
                return self._strict(cast_template(operand.type, type), (operand,))
            case Case(branches=branches, otherwise=otherwise):
                text = self.print(otherwise)
                for condition, value in reversed(branches):
                    text = f"({self.print(value)} if {self.print(condition)} else {text})"
                return text
            case Call():
                return self._call(tree)

    def _call(self, call: Call) -> str:
        arguments = call.arguments
        match call.operation:
            case "and":
                return self._junction(arguments, "False", "True")
            case "or":
                return self._junction(arguments, "True", "False")
            case "coalesce":
                return self._coalesce(arguments)
            case "is_null" if not isinstance(arguments[0], Column):
                # Python warns of an operand that is a constant, and of one that it computes when it compiles.
                return self._filled("(({t} := {0}) is None)", [self.print(arguments[0])])
            case "is_in":
                return self._is_in(arguments)
            case "like":
                match_ = strings.like_pattern(str(_value(arguments[1]))).fullmatch
                return self._strict(f"({self._constant(match_)}({{0}}) is not None)", arguments[:1])
            case "date_format":
                write = formatter(str(_value(arguments[1])))
                return self._strict(f"{self._constant(write)}({{0}})", arguments[:1])
            case "regexp_extract":
                extract = strings.regexp_extractor(str(_value(arguments[1])), int(_value(arguments[2])))
                return self._strict(f"{self._constant(extract)}({{0}})", arguments[:1])
            case "part" | "size" | "array_contains":
                return self._of_nested(call)
            case "window_start" | "window_end" | "window_time":
                return self._filled(template_of(call.operation, (), call.type), ("window",))
            case "remainder" | "div" if _is_positive(arguments[1]):
                sign = {"remainder": "%", "div": "//"}[call.operation]
                divided = f"({{t}} {sign} {{1}} if ({{t}} := {{0}}) >= 0 else -(-{{t}} {sign} {{1}}))"
                return self._strict(divided, arguments)
            case "concat":
                joined = f"({' + '.join(f'{{{k}}}' for k in range(len(arguments)))})"
                return self._strict(joined, arguments)
        template = template_of(call.operation, tuple(each.type for each in arguments), call.type)
        operation = OPERATIONS[call.operation]
        if operation.nulls == "strict" or call.operation == "ln":
            ordered = arguments[::-1] if operation.last_first else arguments
            return self._strict(template, ordered)
        return self._filled(template, list(map(self.print, arguments)))

    def _strict(self, template: Template, arguments: Sequence[Tree]) -> str:
        """A template that gives NULL if an operand is NULL. Operands are evaluated in the order given.

        After one that is NULL, the others are not evaluated.
        """
        operands: list[str] = []
        guards: list[str] = []
        last = max((k for k, argument in enumerate(arguments) if argument.nullable), default=-1)
        for k, argument in enumerate(arguments):
            text = self.print(argument)
            if isinstance(argument, (Column, Literal)):
                operands.append(text)
                if argument.nullable:
                    guards.append(f"({text} is None)")
            elif argument.nullable or (may_fail(argument) and k < last):
                variable = self._variable("t")
                operands.append(variable)
                guards.append(f"(({variable} := {text}) is None)")
            else:
                operands.append(text)
        body = self._filled(template, operands)
        if not guards:
            return body
        return f"(None if {' or '.join(guards)} else {body})"

    def _junction(self, arguments: Sequence[Tree], decisive: str, other: str) -> str:
        """AND, decided by False, or OR, decided by True. The right operand is not evaluated if the left one decides."""
        left, right = arguments
        one, two = self.print(left), self.print(right)
        if not left.nullable and not right.nullable:
            return f"({one} {'and' if decisive == 'False' else 'or'} {two})"
        first, second = self._variable("t"), self._variable("t")
        nulls = [f"{name} is None" for name, each in ((first, left), (second, right)) if each.nullable]
        return (
            f"({decisive} if ({first} := {one}) is {decisive} else {decisive} if ({second} := {two}) is {decisive} "
            f"else None if {' or '.join(nulls)} else {other})"
        )

    def _coalesce(self, arguments: Sequence[Tree]) -> str:
        text = self.print(arguments[-1])
        for argument in reversed(arguments[:-1]):
            variable = self._variable("t")
            text = f"({variable} if ({variable} := {self.print(argument)}) is not None else {text})"
        return text

    def _is_in(self, arguments: Sequence[Tree]) -> str:
        values = [_value(each) for each in arguments[1:]]
        known = frozenset(None if value != value else value for value in values if value is not None)
        operands = (self.print(arguments[0]), self._constant(known), str(None in values))
        return self._filled(Called("is_in", numbers.is_in), operands)

    def _of_nested(self, call: Call) -> str:
        """An operation on an array, a map or a struct."""
        first = call.arguments[0]
        match call.operation, first.type:
            case "part", StructType() as of:
                read: Callable[..., Any] = nested.reader_of_field(of, str(_value(call.arguments[1])))
                return self._strict(f"{self._constant(read)}({{0}})", (first,))
            case "part", ArrayType() as of:
                read = nested.reader_of_item(of)
            case "part", MapType() as of:
                read = nested.reader_of_value(of)
            case "array_contains", ArrayType() as of:
                read = nested.containment(of)
            case _:
                return self._strict(Called("size", nested.size), (first,))
        return self._strict(f"{self._constant(read)}({{0}}, {{1}})", call.arguments)

    def _filled(self, template: Template, operands: Sequence[str]) -> str:
        match template:
            case Called():
                return f"{self._called(template)}({', '.join(operands)})"
            case text:
                self.names |= {name: function for name, function in ENVIRONMENT.items() if f"{name}(" in text}
                own = self._variable("t") if "{t}" in text else ""
                return text.format(*operands, t=own)

    def _literal(self, value: Any) -> str:
        match value:
            case None | bool() | str() | bytes():
                return repr(value)
            case int():
                return repr(value) if value >= 0 else f"({value})"
            case float() if math.isfinite(value):
                return repr(value) if math.copysign(1.0, value) > 0 else f"({value!r})"
            case _:
                return self._constant(value)

    def _constant(self, value: Any) -> str:
        name = f"{self.prefix}k{len(self.names)}"
        self.names[name] = value
        return name

    def _called(self, called: Called) -> str:
        self.names[called.name] = called.function
        return called.name

    def _variable(self, letter: str) -> str:
        name = f"{self.prefix}{letter}{len(self.variables)}"
        self.variables.append(name)
        return name


def _is_positive(divisor: Tree) -> bool:
    """Whether a divisor is a positive number of type bigint: the division can't fail."""
    return isinstance(divisor, Literal) and type(divisor.value) is int and divisor.value > 0


def _value(tree: Tree) -> Any:
    assert isinstance(tree, Literal)
    return tree.value
