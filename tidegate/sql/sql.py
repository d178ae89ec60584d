"""Sql, the step that runs a query over collections."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

from tidegate.sdk.data.garbage_collection import no_garbage_collection
from tidegate.sdk.data.schema import schema_of
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable.model import MAIN
from tidegate.sdk.primitives import MultiOutput
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import DurationLike
from tidegate.sdk.windowing.strategy import is_global


class Sql(PTransform[Any, PCollection[Any]]):
    """A query in SQL over one collection, or over several by name; emits a Row for each row of the result.

    `{"orders": orders, "users": users} | tg.Sql("SELECT … FROM orders o JOIN users u ON …")`; a single collection is
    the table `pcoll`. Columns are the fields of the elements. `params` has the values of parameters, `:name` in the
    text, which are bound as literals; `functions` the author's own, made by `tg.udf`. The text may also be an Ibis
    expression. `allowed_lateness` (s) is that of windows made in the query. The step is a composite with one step for
    each operator. What the query can't mean here is refused, pointing into its text. Needs the extra `sql`.
    """

    def __init__(
        self,
        query: Any,
        *,
        params: Mapping[str, Any] | None = None,
        functions: Mapping[str, Any] | None = None,
        allowed_lateness: DurationLike | None = None,
        name: str | None = None,
    ) -> None:
        self.query = text_of(query)
        self.params = dict(params or {})
        self.functions = dict(functions or {})
        self.allowed_lateness = allowed_lateness
        self.late_tag: str | None = None
        self.label = name

    def with_late_data(self, tag: str) -> Sql:
        """Return `out.main` and `out.<tag>`: the rows, as they were grouped, that were too late for their windows.

        For queries with one aggregate in windows.
        """
        if not isinstance(tag, str) or not tag.isidentifier() or tag == MAIN:
            raise BuildError(f"with_late_data takes a name other than {MAIN!r}, not {shorten(tag)}")
        other = copy.copy(self)
        other.late_tag = tag
        return other

    def __ror__(self, inputs: Any) -> Any:
        return super().__ror__(named_inputs(inputs))

    def expand(self, input: Any) -> Any:
        with no_garbage_collection():  # a quarter of the time of a process's first query, which imports sqlglot
            from tidegate.sql.syntax.parsing import only_query

            return self.rows_of(only_query(self.query, self.functions), _tables(input))

    def rows_of(self, statement: Any, tables: Mapping[str, PCollection[Any]], shared: set[str] | None = None) -> Any:
        """The result of a parsed query over tables.

        `shared` is of statements that share the parameters: the names of those that the query reads are added to it.
        """
        from tidegate.sql.planning.context import Context, Late
        from tidegate.sql.planning.queries import PLANNER, planned
        from tidegate.sql.steps.user_functions import checked_functions
        from tidegate.sql.syntax.nodes import check_all_read

        late = Late(self.late_tag)
        context = Context(
            statement.source,
            {name: partial(table, name, rows) for name, rows in tables.items()},
            statement.functions,
            self.params,
            checked_functions(self.functions),
            PLANNER,
            late=late,
            used=set() if shared is None else shared,
            allowed_lateness=self.allowed_lateness,
        )
        relation = planned(statement.tree, context)
        check_all_read(statement.tree, statement.source)
        unused = [name for name in self.params if name not in context.used]
        if unused and shared is None:
            raise BuildError(f"the query has no parameter :{unused[0]}")
        rows = result(relation, context, statement.tree)
        if self.late_tag is None:
            return rows
        if len(late.found) != 1:
            raise BuildError(
                f"with_late_data is for queries with one aggregate in windows, and this has {len(late.found)}"
            )
        return MultiOutput({MAIN: rows, self.late_tag: late.found[0]})


def text_of(query: Any) -> str:
    """The text of a query: a string, or an Ibis expression, which Ibis translates."""
    if isinstance(query, str):
        return query
    if type(query).__module__.partition(".")[0] == "ibis":
        return _text_of_ibis(query)
    raise BuildError(f"tg.Sql takes the text of a query, or an Ibis expression, not {shorten(query)}")


def _text_of_ibis(expression: Any) -> str:
    import importlib

    try:
        return str(importlib.import_module("ibis").to_sql(expression, dialect="flink"))
    except ImportError as error:
        message = f"Ibis needs the package {error.name} to write its expression in SQL: pip install 'tidegate[sql]'"
        raise BuildError(message) from error
    except Exception as error:
        raise BuildError(f"Ibis can't write its expression in SQL of Flink: {error}") from error


def named_inputs(inputs: Any) -> Any:
    """Collections by name: a NamedTuple of collections as a dict."""
    return inputs._asdict() if isinstance(inputs, tuple) and hasattr(inputs, "_asdict") else inputs


def _tables(input: Any) -> dict[str, PCollection[Any]]:
    match named_inputs(input):
        case PCollection() as rows:
            return {"pcoll": rows}
        case Mapping() as tables if tables and all(isinstance(each, PCollection) for each in tables.values()):
            return dict(tables)
    raise BuildError('tg.Sql is applied to a collection, or to several by name: {"orders": orders} | tg.Sql(…)')


def table(name: str, rows: PCollection[Any]) -> Any:
    """A collection as a relation. Raises BuildError if its elements don't declare fields."""
    from tidegate.sql.steps.relation import Named, Relation
    from tidegate.sql.steps.rows import window_columns

    schema = schema_of(rows.element_type)
    if schema is None:
        raise BuildError(
            f"the table {name} has no columns: its elements don't declare fields. Give them a type such as a dataclass "
            "by .with_output_types(…) of the step that emits them, or apply tg.Select first"
        )
    columns = tuple(Named(name, each.name, each.name) for each in schema.fields)
    if is_global(rows.windowing):
        return Relation(rows, columns, times=None)
    return Relation(rows, (*columns, *window_columns(name, schema.names, hidden=True)), "author", times=None)


def result(relation: Any, context: Any, query: Any) -> PCollection[Any]:
    """The rows of a relation, whose fields have the names of its columns. Raises SqlError for names that can't be."""
    from tidegate.sql.steps.rows import materialised

    names = [each.name for each in relation.columns]
    for each in relation.columns:
        if names.count(each.name) > 1:
            message = f"the result has two columns {each.name}: write … AS another_name"
            raise context.refusal(message, _column(query, each.name))
        if each.name != each.field:
            raise context.refusal(
                f"{each.name!r} can't name a field of a Row: write … AS name, an identifier that doesn't begin with an "
                "underscore",
                _column(query, each.name),
            )
    made = materialised(relation, dict.fromkeys(names), context.labels("Windows"))
    rows: PCollection[Any] = made.rows
    return rows


def _column(query: Any, name: str) -> Any:
    """The last column of a SELECT that has a name; the query if it says none, as with `*`. Columns of a UNION are those
    of its first query."""
    while query.kind in ("Union", "Intersect", "Except", "Subquery"):
        query = query.this
    items = query.expressions if query.kind == "Select" else []
    return next((each for each in reversed(items) if name in (each.alias, each.name)), query)
