"""TopN: the first elements, in an order, of each window and group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.steps.transform import PTransform
from tidegate.transforms.rows.fields import add_field

_Column = Any
"""The name of a column, or an expression."""


class TopN(PTransform[PCollection[Any], PCollection[Any]]):
    """Emit the first `n` elements of each window: `TopN(3, by=tg.col("price").desc(), per="user")` of each user.

    `by` and `per` are a column's name or an expression, or a list of them; `.asc()` and `.desc()` give the direction,
    and `nulls_first` the place of NULL, which otherwise is less than all values. Elements that are equal in `by` are in
    the order of their other columns. With `number`, emits Rows of the columns and the element's number, from 1, under
    that name. Raises BuildError for elements whose type has no fields.
    """

    def __init__(
        self,
        n: int,
        *,
        by: _Column | Sequence[_Column],
        per: _Column | Sequence[_Column] = (),
        number: str | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise BuildError(f"TopN takes the number of elements, at least 1, not {shorten(n)}")
        self.n = n
        self.by = _listed(by)
        self.per = _listed(per)
        if not self.by:
            raise BuildError("TopN takes at least one column to order by, as in TopN(3, by='price')")
        if number is not None:
            add_field("TopN", {}, number, number)
        self.number = number
        self.label = name

    def default_label(self) -> str:
        return f"TopN({self.n})"

    def expand(self, input: PCollection[Any]) -> PCollection[Any]:
        from tidegate.sdk.primitives.relate import relate
        from tidegate.sdk.relational.authoring import order_of, tree_of_column
        from tidegate.sdk.relational.relations import Rank

        schema = input.schema
        if schema is not None and schema.field(self.number or "") is not None:
            raise BuildError(f"TopN: the elements have a field {self.number!r}: give their number another name")
        order, per = map(order_of, self.by), map(tree_of_column, self.per)
        return relate([input], Rank(tuple(order), self.n, tuple(per), self.number))[0]


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]
