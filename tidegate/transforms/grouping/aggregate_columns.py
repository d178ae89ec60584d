"""GroupBy(...).agg(...): groups by columns, and rows of expressions over aggregates of their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.sdk.data.row import Row
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable.model import MAIN
from tidegate.sdk.primitives import MultiOutput
from tidegate.sdk.primitives.relate import relate
from tidegate.sdk.relational.authoring import Expression, col
from tidegate.sdk.relational.relations import Aggregate
from tidegate.sdk.steps.transform import PTransform
from tidegate.transforms.rows.computed import named_columns


class AggregateColumns(PTransform[PCollection[Any], PCollection[Row]]):
    """A `GroupBy` with aggregated columns; `GroupBy(...).agg(...)` returns one."""

    def __init__(
        self,
        keys: Mapping[str, str | Expression | Callable[[Any], Any]],
        columns: Mapping[str, Expression],
        late_tag: str | None,
        label: str | None,
    ) -> None:
        self.keys = {name: _key(name, each) for name, each in keys.items()}
        self.columns = dict(columns)
        self.late_tag = late_tag
        self.label = label

    def default_label(self) -> str:
        return f"GroupBy({', '.join(self.keys)})"

    def with_late_data(self, tag: str) -> AggregateColumns:
        """Return `out.main` and `out.<tag>`: the elements, unchanged, that were too late for all their windows."""
        if not isinstance(tag, str) or not tag or tag == MAIN:
            raise BuildError(f"with_late_data takes a tag other than {MAIN!r}, not {tag!r}")
        return AggregateColumns(self.keys, self.columns, tag, self.label)

    def expand(self, input: PCollection[Any]) -> Any:
        relation = Aggregate(named_columns(self.keys), named_columns(self.columns))
        outputs = relate([input], relation, late_tag=self.late_tag)
        return outputs[0] if self.late_tag is None else MultiOutput({MAIN: outputs[0], self.late_tag: outputs[1]})


def _key(name: str, given: Any) -> Expression:
    match given:
        case str():
            return col(given)
        case Expression():
            return given
    raise BuildError(
        f"agg: the key {name!r} is a function, and aggregated columns have keys that are columns or expressions. For "
        "functions of elements, use aggregate_field"
    )
