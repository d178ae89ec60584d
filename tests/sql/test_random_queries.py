"""Random queries have the answers of DuckDB: `--duckdb PYTHON --queries 2000`, with a Python that has DuckDB."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.sql import duckdb_answers
from tests.support.sql.random_queries import ROWS_A, ROWS_B, SCHEMA, Grammar


@dataclass(frozen=True)
class A:
    k: int | None
    v: int | None
    s: str | None


@dataclass(frozen=True)
class B:
    k: int | None
    w: int | None


def answers(queries: list[str]) -> list[list[tuple[Any, ...]]]:
    """The rows of each query, in any order."""
    pipeline = tg.Pipeline()
    tables: Any = {
        "a": pipeline | "a" >> tg.Create([A(*row) for row in ROWS_A]),
        "b": pipeline | "b" >> tg.Create([B(*row) for row in ROWS_B]),
    }
    found: list[list[tuple[Any, ...]]] = [[] for _ in queries]
    numbered = [
        tables | tg.Sql(query, name=f"q{number}") | f"n{number}" >> tg.Map(lambda row, n=number: (n, tuple(row)))
        for number, query in enumerate(queries)
    ]
    for number, row in (tuple(numbered) | tg.Flatten()).collect():
        found[number].append(row)
    return found


def test_random_queries_are_planned_and_run() -> None:
    grammar = Grammar(1)
    queries = [grammar.query() for _ in range(40)]
    assert sum(map(bool, answers(queries))) > 20


def test_random_queries_have_the_answers_of_duckdb(request: pytest.FixtureRequest) -> None:
    python = request.config.getoption("--duckdb")
    if python is None:
        pytest.skip("--duckdb names no Python that has DuckDB")
    grammar, batch = Grammar(request.config.getoption("--streaming-seed")), 50
    for _ in range(0, request.config.getoption("--queries"), batch):
        queries = [grammar.query() for _ in range(batch)]
        asked = {"schema": SCHEMA, "rows": {"a": ROWS_A, "b": ROWS_B}, "queries": queries}
        script = str(Path(duckdb_answers.__file__))
        done = subprocess.run([python, script], input=json.dumps(asked), capture_output=True, text=True, check=True)
        for query, ours, theirs in zip(queries, answers(queries), json.loads(done.stdout), strict=True):
            assert sorted(ours, key=repr) == sorted(map(tuple, theirs), key=repr), query
