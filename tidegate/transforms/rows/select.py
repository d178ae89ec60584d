"""Select, which converts elements to rows of fields, of functions of elements, and of expressions over columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.steps.transform import PTransform
from tidegate.transforms.rows.fields import Expression, expressions_of, is_computation, values_function
from tidegate.transforms.rows.row import Row, row_maker

if TYPE_CHECKING:
    from tidegate.sdk.relational.authoring import Expression as Computation


class Select(PTransform[PCollection[Any], PCollection[Row]]):
    """Convert elements to Rows: `Select("word", n=len)` copies the attribute `word` and sets `n` to `len(element)`.

    A function given without a name becomes the field `arg0`, `arg1`, … by its position. Expressions
    (`Select("user", total=tg.col("price") * tg.col("qty"))`) are checked against the schema of the input, and give the
    rows one; without a name they have that of their column or `alias`.
    """

    def __init__(
        self, *fields: Expression | Computation, name: str | None = None, **named: Expression | Computation
    ) -> None:
        self.expressions = expressions_of("Select", "arg", fields, named)
        if not self.expressions:
            raise BuildError('Select takes at least one field, such as Select("word", n=len)')
        self.label = name

    def default_label(self) -> str:
        return f"Select({', '.join(self.expressions)})"

    def expand(self, input: PCollection[Any]) -> PCollection[Row]:
        make: Callable[[Any], Row] = RowOf(self.expressions)
        hint: Any = Row
        if any(map(is_computation, self.expressions.values())):
            from tidegate.transforms.rows.computed import select_rows

            make, hint = select_rows(self.expressions, input.element_type)
        return Map(make).with_output_types(hint).expand(input)  # type: ignore[no-any-return]


class RowOf:
    """A function from an element to the Row of its expressions' values."""

    def __init__(self, expressions: dict[str, Expression]) -> None:
        self.expressions = expressions
        self._make = row_maker(tuple(expressions))
        self._values = values_function(expressions.values())

    def __call__(self, element: Any) -> Row:
        return self._make(self._values(element))

    def __reduce__(self) -> tuple[Any, ...]:
        return RowOf, (self.expressions,)
