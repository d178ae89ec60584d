"""Select, which converts elements to rows of fields, of functions of elements, and of expressions over columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.sdk.data.columns import Access, Field, Schema
from tidegate.sdk.data.row import Row, row_maker
from tidegate.sdk.data.schema import access_of
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.steps.transform import PTransform
from tidegate.transforms.rows.fields import Expression, expressions_of, is_computation, label_of, values_function

if TYPE_CHECKING:
    from tidegate.sdk.relational.authoring import Expression as Computation


class Select(PTransform[PCollection[Any], PCollection[Row]]):
    """Convert elements to Rows: `Select("word", n=len)` copies the field `word` and sets `n` to `len(element)`.

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
        self.label = label_of("Select", name)

    def default_label(self) -> str:
        return f"Select({', '.join(self.expressions)})"

    def expand(self, input: PCollection[Any]) -> PCollection[Row]:
        fields = self.expressions
        schema = input.schema if isinstance(input, PCollection) else None
        if any(map(is_computation, fields.values())):
            from tidegate.transforms.rows.computed import mixed_rows, named_columns

            if all(isinstance(each, str) or is_computation(each) for each in fields.values()):
                from tidegate.sdk.primitives.relate import relate
                from tidegate.sdk.relational.relations import Compute

                return relate([input], Compute(named_columns(fields)))[0]
            make, hint = mixed_rows(fields, input.element_type)
            return Map(make).with_output_types(hint).expand(input)  # type: ignore[no-any-return]
        hint = Row
        if schema is not None:
            hint = _row_of_names(fields, schema)
        access = access_of(input.element_type) if isinstance(input, PCollection) else "either"
        return Map(RowOf(fields, access)).with_output_types(hint).expand(input)  # type: ignore[no-any-return]


def _row_of_names(fields: dict[str, Expression], schema: Schema) -> Any:
    """The type of rows of fields, of which those given by name are copied. BuildError for a name that is no field."""
    from tidegate.sdk.data.schema import column_of, with_schema
    from tidegate.sdk.relational.binding import Input
    from tidegate.sdk.relational.expressions import Column
    from tidegate.sdk.typehints.signatures import signature_of

    input, found = Input(schema), []
    for name, each in fields.items():
        if isinstance(each, str):
            column = input.column(Column(each))
            found.append(Field(name, column.type, column.nullable))
        else:
            found.append(Field(name, *column_of(signature_of(each).result)))
    return with_schema(Row, Schema(tuple(found)))


class RowOf:
    """A function from an element to the Row of its expressions' values."""

    def __init__(self, expressions: dict[str, Expression], access: Access = "attribute") -> None:
        self.expressions = expressions
        self.access: Access = access
        self._make = row_maker(tuple(expressions))
        self._values = values_function(expressions.values(), access)

    def __call__(self, element: Any) -> Row:
        return self._make(self._values(element))

    def __reduce__(self) -> tuple[Any, ...]:
        return RowOf, (self.expressions, self.access)
