"""Scripts of SQL as pipelines: tables of files that are read and written, queries, and results to be shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any

from tidegate.sdk.errors import BuildError, SqlError
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import Map
from tidegate.sql.sql import Sql
from tidegate.sql.syntax.parse_tree import Node
from tidegate.sql.syntax.parsing import Parsed
from tidegate.sql.syntax.scripts import Insertion, Statement, TableDefinition, statements_of
from tidegate.sql.syntax.table_functions import PREFIX
from tidegate.sql.tables import (
    READERS,
    SUFFIXES,
    check_definition,
    format_of_path,
    reader_of,
    why_not_inserted,
    writer_of,
)


@dataclass(slots=True)
class Script:
    """The tables that a script has defined so far, and the results of its queries, in a pipeline.

    A table is read once, when a query first names it; a file may be named instead, as in FROM 'words.parquet'. Tables
    that are there before the script may be created anew. Names of tables don't depend on case. `name` is that of the
    file, for messages.
    """

    pipeline: Pipeline
    params: Mapping[str, Any] = field(default_factory=dict)
    name: str = "statement"
    definitions: dict[str, TableDefinition] = field(default_factory=dict)
    results: list[PCollection[Any]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    used_params: set[str] = field(default_factory=set)
    _lines: list[int] = field(default_factory=list)
    _created: set[str] = field(default_factory=set)
    _named: set[str] = field(default_factory=set)
    _read: dict[str, PCollection[Any]] = field(default_factory=dict)
    _read_paths: set[str] = field(default_factory=set)

    def add(self, text: str) -> None:
        """Add statements. Raises SqlError or BuildError for those that are wrong."""
        try:
            self._add(text)
        except SqlError as error:  # its place is one of the text, not of a Python file
            raise SqlError(str(error).partition("\n  in step ")[0]) from None

    def add_readers(self) -> None:
        """Give each result a step that reads it, as what shows the results does."""
        for number, (line, rows) in enumerate(zip(self._lines, self.results, strict=True), 1):
            self._call_in(line, partial(rows.__or__, Map(str, name=f"Show {number}")))

    def unread(self) -> list[str]:
        """The tables that no statement names, as after a slip in FROM 'sales.csv' for FROM sales."""
        return [name for name in self.definitions if name not in self._named]

    def _add(self, text: str) -> None:
        for line, statement in statements_of(text):
            before = len(self.results)
            self._call_in(line, partial(self._add_statement, statement))
            self._lines += [line] * (len(self.results) - before)

    def _call_in(self, line: int, function: Callable[[], object]) -> None:
        """Call a function in a line of the text, which so is the place of its steps, as a line of Python is of
        others."""
        exec(compile("\n" * (line - 1) + "function()", self.name, "exec"), {"function": function})

    def _add_statement(self, statement: Statement) -> None:
        match statement:
            case TableDefinition():
                self._create(statement)
            case Insertion():
                self._insert(statement)
            case Parsed():
                number = len(self.results) + 1
                label = "Query" if number == 1 else f"Query {number}"
                self.results.append(self._rows(statement, label))

    def _create(self, definition: TableDefinition) -> None:
        check_definition(definition)
        name = definition.name.lower()
        if name in self._created:
            message = f"the table {definition.name} is created twice: give one of them another name"
            raise definition.source.error(message, definition.start)
        self._created.add(name)
        earlier = self._definition(name)
        if earlier is not None:
            del self.definitions[earlier.name]
        self.definitions[definition.name] = definition

    def _definition(self, name: str) -> TableDefinition | None:
        return next((each for each in self.definitions.values() if each.name.lower() == name.lower()), None)

    def _insert(self, statement: Insertion) -> None:
        source = statement.query.source
        definition = self._definition(statement.table)
        if definition is None:
            known = ", ".join(self.definitions) or "none"
            message = f"INSERT INTO {statement.table}: there is no CREATE TABLE of it; there are {known}"
            raise source.refusal(message, statement.query.tree)
        self._named.add(definition.name)
        name = f"Insert into {statement.table}"
        rows = self._rows(statement.query, f"{name}: query")
        reason = why_not_inserted(definition, rows.schema.fields if rows.schema is not None else ())
        path = definition.path
        if path.rstrip("/") in self._read_paths:
            reason = f"the script reads {path}, too, in the same run: read it in a script of its own"
        if reason is not None:
            raise source.refusal(f"INSERT INTO {statement.table}: {reason}", statement.query.tree)
        rows | writer_of(definition, name)
        self.written.append(path)

    def _rows(self, statement: Parsed, label: str) -> PCollection[Any]:
        query = Query(statement, self.params, self.used_params, label)
        rows: PCollection[Any] = self.pipeline.apply(query, self._tables(statement))
        return rows

    def _tables(self, statement: Parsed) -> dict[str, PCollection[Any]]:
        """The tables that a statement names, read."""
        names = [each.name for each in statement.tree.find_all("Table") if not each.name.startswith(PREFIX)]
        names += [each.table for each in statement.functions.values()]
        found: dict[str, PCollection[Any]] = {}
        for name in dict.fromkeys(names):
            definition = self._definition(name)
            own = name if definition is None else definition.name
            self._named.add(own)
            path = own if definition is None else definition.path
            if path.rstrip("/") in [each.rstrip("/") for each in self.written]:
                message = f"the script inserts into {path}, too, in the same run: read it in a script of its own"
                raise statement.source.refusal(message, statement.tree)
            try:
                rows = self._table(own, definition)
            except SqlError:
                raise
            except BuildError as error:  # of a reader, whose place is the table's in the text
                message = str(error).partition("\n")[0].partition(". If there may be no such file")[0]
                raise statement.source.refusal(message, _node_of(name, statement)) from None
            if rows is None and definition is None and _is_path(own) and own not in _tables_of_with(statement):
                message = (
                    f"{own!r} is no table, and its suffix is none of {', '.join([*READERS, *SUFFIXES])}: write "
                    f"CREATE TABLE t WITH ('path' = {own!r}, 'format' = '…')"
                )
                raise statement.source.refusal(message, _node_of(name, statement))
            if rows is not None:
                self._read_paths.add(path.rstrip("/"))
                found[own] = rows
        return found

    def _table(self, name: str, definition: TableDefinition | None) -> PCollection[Any] | None:
        if name not in self._read:
            kind = format_of_path(name)
            if definition is not None:
                rows = self.pipeline | reader_of(definition)
                if rows.schema is None:
                    message = (
                        f"the columns of {definition.name} can't be told from its files now: name them, as in "
                        f"CREATE TABLE {definition.name} (id BIGINT, …)"
                    )
                    raise definition.source.error(message, definition.start)
                self._read[name] = rows
            elif kind in READERS:
                self._read[name] = self.pipeline | READERS[kind](name, name=f"Read {PurePath(name).name}")
        return self._read.get(name)


def _node_of(table: str, statement: Parsed) -> Node:
    """The node that names a table; the whole statement for that of a table function."""
    return next((each for each in statement.tree.find_all("Table") if each.name == table), statement.tree)


def _tables_of_with(statement: Parsed) -> set[str]:
    return {each.alias for each in statement.tree.find_all("CTE")}


def _is_path(name: str) -> bool:
    return "." in name or "/" in name


class Query(Sql):
    """A statement of a script, as a step."""

    def __init__(self, statement: Parsed, params: Mapping[str, Any], used: set[str], name: str) -> None:
        super().__init__(statement.source.text, params=params, name=name)
        self.statement = statement
        self.used = used

    def expand(self, input: Any) -> Any:
        return self.rows_of(self.statement, input, self.used)
