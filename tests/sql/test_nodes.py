"""Every argument of every node of sqlglot is read, or the query is refused."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

import tidegate as tg
from tests.sql.test_queries import CASES
from tests.support.sql.shop import shop
from tests.support.sql.tpch_tables import tables
from tidegate.sdk.errors import SqlError
from tidegate.sql.syntax import parsing
from tidegate.sql.syntax.expressions import HANDLERS, tree_of
from tidegate.sql.syntax.text import SqlText

KINDS = {
    name: each
    for name, each in vars(exp).items()
    if inspect.isclass(each) and issubclass(each, exp.Expression) and hasattr(each, "arg_types")
}
TPCH = Path(__file__).parent / "tpch"


class NoNames:
    """Names of which there is none."""

    source = SqlText("")


@pytest.fixture
def unprintable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without their arguments, which sqlglot can't print."""
    monkeypatch.setattr(exp.Expression, "sql", lambda self, *_, **__: type(self).__name__)


@pytest.mark.usefixtures("unprintable")
@pytest.mark.parametrize("kind", sorted(HANDLERS.by_kind))
def test_an_argument_that_a_handler_does_not_declare_is_refused(kind: str) -> None:
    unknown = [name for name in KINDS[kind].arg_types if name not in HANDLERS.by_kind[kind].arguments]
    for name in [*unknown, "argument_of_a_later_version"]:
        node = KINDS[kind](**{name: exp.Literal.string("x")})
        with pytest.raises(SqlError, match="is not supported here"):
            HANDLERS.function(node, SqlText(""))


@pytest.mark.parametrize("kind", sorted(HANDLERS.by_kind))
def test_a_handler_declares_arguments_that_its_node_has(kind: str) -> None:
    assert HANDLERS.by_kind[kind].arguments <= KINDS[kind].arg_types.keys()


@pytest.mark.usefixtures("unprintable")
def test_every_other_node_is_refused_by_name() -> None:
    others = sorted(KINDS.keys() - HANDLERS.by_kind.keys())
    assert len(others) > 500
    for name in others:
        with pytest.raises(SqlError, match=rf"is not supported \({KINDS[name].__name__}\)"):
            tree_of(KINDS[name](), NoNames())  # type: ignore[arg-type]


class Recorded(dict[str, Any]):
    """The arguments of a node, which record those that were read."""

    read: set[str]

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


MEANINGLESS = {("Count", "big_int"), ("DPipe", "safe"), ("Identifier", "quoted"), ("Window", "over")}
"""Arguments that say how a dialect would print a node: not what it means."""


def unread(query: str, inputs: Any, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """The classes and names of the arguments that are set in a query and were never read."""
    recorded: list[tuple[Any, Recorded]] = []
    parse = parsing.parsed

    def recording(text: str) -> Any:
        statements = parse(text)
        for statement in statements:
            for node in list(statement.tree.walk()):
                args = Recorded(node.args)
                args.read = set()
                node.args = args
                recorded.append((node, args))
        return statements

    monkeypatch.setattr(parsing, "parsed", recording)
    monkeypatch.setattr(exp.Expression, "sql", lambda self, *_, **__: "")
    inputs | tg.Sql(query)
    return {
        (type(node).__name__, name)
        for node, args in recorded
        for name, value in args.items()
        if value not in (None, False, []) and name not in args.read
    } - MEANINGLESS


def test_every_argument_of_the_queries_of_these_tests_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for query in CASES:
        if "EXISTS (SELECT 1" in query:  # what EXISTS selects doesn't matter
            continue
        with monkeypatch.context() as patch:
            assert unread(query, shop(), patch) == set(), query


@pytest.mark.parametrize("number", range(1, 23))
def test_every_argument_of_the_queries_of_tpch_is_read(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    query = json.loads((TPCH / "queries.json").read_text())["queries"][str(number)]
    assert unread(query, tables(tg.Pipeline(), TPCH, query), monkeypatch) == set()
