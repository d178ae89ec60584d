"""Relate, the primitive of all relational steps: it computes rows from the fields of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidegate.sdk.data.columns import Schema
from tidegate.sdk.data.row import Row
from tidegate.sdk.data.schema import access_of, with_schema
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable import model as portable
from tidegate.sdk.relational.binding import refuse_window, split_aggregates
from tidegate.sdk.relational.expressions import Tree
from tidegate.sdk.relational.relation_binding import bound_relation, fields_of
from tidegate.sdk.relational.relations import Aggregate, Compute, Join, Rank, Relation, SortLimit, trees_of
from tidegate.sdk.steps.transform import Transform, pipeline_of
from tidegate.sdk.windowing.assigners import is_merging
from tidegate.sdk.windowing.strategy import (
    WindowingStrategy,
    after_grouping,
    compatible,
    is_global,
    together,
    why_not_unbounded_group,
)


class Relate(Transform):
    """Computes a relation of a collection, or of two: `pcoll | Relate(Compute(...))`, `(a, b) | Relate(Join(...))`.

    The expressions of the relation are bound to the schemas of the inputs. Raises BuildError if they don't fit, or if
    the windows of the inputs don't.
    """

    def __init__(self, relation: Relation, *, name: str | None = None) -> None:
        self.relation = relation
        self.label = name

    def default_label(self) -> str:
        return type(self.relation).__name__

    def __call__(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        result: PCollection[Any] = pcoll.pipeline.apply(self, pcoll)
        return result

    def __ror__(self, inputs: tuple[PCollection[Any], PCollection[Any]]) -> PCollection[Any]:
        result: PCollection[Any] = pipeline_of(inputs, self).apply(self, inputs)
        return result

    def expand(self, input: PCollection[Any] | tuple[PCollection[Any], PCollection[Any]]) -> PCollection[Any]:
        return relate(input if isinstance(input, tuple) else (input,), self.relation)[0]


def relate(
    inputs: Sequence[PCollection[Any]], relation: Relation, *, late_tag: str | None = None, element_type: Any = None
) -> list[PCollection[Any]]:
    """Append the node of the step being applied, and return its outputs: the main one, and one for late elements.

    `element_type` overrides the type of the elements emitted. Raises BuildError as `Relate` does.
    """
    schemas = [each.schema for each in inputs]
    bound = bound_relation(relation, schemas)
    windowing = _windowing(bound, inputs)
    _check_window_columns(bound, windowing)
    _check_ungrouped_windows(bound, inputs[0].windowing, late_tag)
    first, bounded = inputs[0], all(each.is_bounded for each in inputs)
    hint = row_type(bound, schemas, first.element_type) if element_type is None else element_type
    outputs = [first.pipeline.collection(element_type=hint, windowing=windowing, bounded=bounded)]
    if late_tag is not None:
        outputs.append(first.pipeline.collection(late_tag, element_type=first.element_type, bounded=bounded))
    first.pipeline.add(
        portable.Relate,
        outputs,
        [each.id for each in inputs],
        relation=bound,
        reads=tuple(access_of(each.element_type) for each in inputs),
        late_tag=late_tag,
    )
    return outputs


def row_type(relation: Relation, schemas: Sequence[Schema | None], element_type: Any) -> Any:
    """The type of elements that a bound relation emits: rows with a schema, or elements of its input's type."""
    fields = fields_of(relation, schemas)
    return element_type if fields is None else with_schema(Row, fields)


def _windowing(relation: Relation, inputs: Sequence[PCollection[Any]]) -> WindowingStrategy:
    """The windowing of the result. Raises BuildError if the relation can't be computed in the windows of its inputs."""
    own = inputs[0].windowing
    match relation:
        case Compute():
            return own
        case Join(within=tuple()):
            for each in inputs:
                if not is_global(each.windowing):
                    raise BuildError(
                        f"a join within a time takes collections in the global window, but {each.id!r} has windows: "
                        "join first, and assign windows to the result"
                    )
            return own
        case Join():
            reason = compatible(own, inputs[1].windowing)
            if reason:
                raise BuildError(
                    f"{inputs[0].id!r} and {inputs[1].id!r} can't be joined by windows: {reason}. To join by the "
                    "distance of their timestamps, give within=…"
                )
            own = together([each.windowing for each in inputs])
        case SortLimit() if not inputs[0].is_bounded:
            raise BuildError(
                f"{inputs[0].id!r} is unbounded, so its elements have no order that could be known: take the first "
                "ones of each window by tg.TopN(...)"
            )
        case Aggregate() | Rank() | SortLimit():
            pass
    reason = None if all(each.is_bounded for each in inputs) else why_not_unbounded_group(own)
    if reason is not None:
        raise BuildError(reason)
    return after_grouping(own)


def _check_window_columns(relation: Relation, windowing: WindowingStrategy) -> None:
    if is_global(windowing):
        refuse_window(
            trees_of(relation),
            "the elements are in the global window, which has no such instant: first assign windows, as in "
            "tg.WindowInto(tg.FixedWindows(60))",
        )


def _check_ungrouped_windows(relation: Relation, windowing: WindowingStrategy, late_tag: str | None) -> None:
    """Raise BuildError where elements that are not grouped yet have no window to read, or not the final one."""
    keys: list[Tree] = []
    match relation:
        case Aggregate():
            _, calls = split_aggregates([each.tree for each in relation.columns])
            arguments = [argument for call in calls for argument in call.arguments]
            keys = [*(each.tree for each in relation.keys), *arguments]
            if late_tag is not None:
                refuse_window(arguments, f"aggregates with late data don't know the window. {_AS_COLUMN}")
        case Join():
            keys = [tree for pair in relation.keys for tree in pair]
        case Rank() | SortLimit():
            refuse_window([each.tree for each in relation.order], f"an order doesn't know the window. {_AS_COLUMN}")
            keys = list(relation.per) if isinstance(relation, Rank) else []
        case Compute():
            return
    if is_merging(windowing.assigner):
        refuse_window(
            keys,
            f"the elements are in windows that have yet to merge ({windowing.assigner!r}), so it is not known before "
            "they are grouped: take it of the result, as in .agg(start=tg.fn.window_start())",
        )


_AS_COLUMN: Final = "Make a column of it first, as in tg.Select(..., start=tg.fn.window_start())"
