"""Fields as authors give them to Select and GroupBy: names, functions of elements, and expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.sdk.authoring.dofn import refuse_injection
from tidegate.sdk.data.columns import Access
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.typehints.hints import field_types, is_union, plain_hint
from tidegate.sdk.typehints.signatures import signature_of

if TYPE_CHECKING:
    from tidegate.sdk.relational.authoring import Expression as Computation

Expression: TypeAlias = str | Callable[[Any], Any]
"""A field of an element, by the name of an attribute or of a mapping's item, or as a function of the element."""


def is_computation(field: Any) -> bool:
    """Whether a field is an expression over columns, such as `tg.col("price") * 2`."""
    return bool(getattr(type(field), "is_expression", False))


def expressions_of(owner: str, unnamed: str, fields: Iterable[Any], named: dict[str, Any]) -> dict[str, Any]:
    """The expressions by field name. Raises BuildError for a name given twice or a bad expression."""
    found: dict[str, Any] = {}
    for at, field in enumerate(fields):
        if is_computation(field):
            add_field(owner, found, _name_of(field, owner), field)
        else:
            add_field(owner, found, field if isinstance(field, str) else f"{unnamed}{at}", field)
    for name, field in named.items():
        add_field(owner, found, name, field)
    return found


def _name_of(expression: Computation, owner: str) -> str:
    """The name of an expression: that of a column, or its alias. Raises BuildError if it has none."""
    if expression.name is None:
        raise BuildError(f"{owner}: {expression} has no name: write name={expression}, or .alias(name)")
    return expression.name


def label_of(owner: str, name: Any) -> str | None:
    """The label given as `name=`. Raises BuildError for an expression, which was meant as a column called "name"."""
    if is_computation(name):
        raise BuildError(f'{owner}: name= is the label of the step: a column of that name is (...).alias("name")')
    return name  # type: ignore[no-any-return]


def add_field(owner: str, found: dict[str, Any], name: str, field: Any) -> None:
    """Add an expression as field `name`. Raises BuildError as `expressions_of` does."""
    if not isinstance(field, str) and not callable(field) and not is_computation(field):
        raise BuildError(f"{owner}: a field is a name, a function or an expression, not {shorten(field)}")
    refuse_injection(field, "it is called with an element only: put it into the elements by a tg.Map in front")
    if name in found:
        raise BuildError(f"{owner}: the field {name!r} occurs twice: give one of them another name")
    if not name.isidentifier() or name.startswith("_"):
        rule = "names are identifiers that don't begin with an underscore"
        raise BuildError(f"{owner}: {name!r} can't name a field: {rule}")
    found[name] = field


def function_of(expression: Expression, access: Access) -> Callable[[Any], Any]:
    """The expression as a function of an element, whose fields are read by `access`."""
    if not isinstance(expression, str):
        return expression
    return attrgetter(expression) if access == "attribute" else FieldGetter(expression)


def values_function(expressions: Iterable[Expression], access: Access) -> Callable[[Any], tuple[Any, ...]]:
    """A function from an element to the values of several expressions, in order."""
    functions = tuple(function_of(expression, access) for expression in expressions)
    names = [expression for expression in expressions if isinstance(expression, str)]
    if access == "attribute" and len(names) == len(functions) > 1:
        return attrgetter(*names)
    return _Values(functions)


class FieldGetter:
    """A function that returns a field of an element: an item of a mapping, else an attribute.

    Dataclasses have attributes even if they are mappings, and other mappings those that no dict has.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._of_attribute = attrgetter(name)

    def __call__(self, element: Any) -> Any:
        if not isinstance(element, Mapping) or hasattr(type(element), "__dataclass_fields__"):
            return self._of_attribute(element)
        if self.name in element:  # a defaultdict would insert another one
            return element[self.name]
        if hasattr(type(element), self.name) and not hasattr(dict, self.name):
            return self._of_attribute(element)
        raise KeyError(f"no item {self.name!r}; there are {', '.join(map(str, element)) or 'none'}")

    def __reduce__(self) -> tuple[Any, ...]:
        return FieldGetter, (self.name,)


class _Values:
    def __init__(self, functions: tuple[Callable[[Any], Any], ...]) -> None:
        self.functions = functions

    def __call__(self, element: Any) -> tuple[Any, ...]:
        return tuple([function(element) for function in self.functions])


def expression_type(expression: Expression, element_type: Any) -> Any:
    """The type of an expression's values for elements of type `element_type`."""
    if not isinstance(expression, str):
        return signature_of(expression).result
    plain = plain_hint(element_type)
    if plain is Any or is_union(plain) or not isinstance(getattr(plain, "__origin__", plain), type):
        return Any
    return field_types(plain).get(expression, Any)
