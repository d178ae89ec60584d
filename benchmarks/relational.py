"""`make bench-relational`: compares steps of expressions, and queries in SQL, with the same steps of lambdas.

    python benchmarks/relational.py [W1 W2 W3 W5 W7] [--turns 7] [--scale 1.0] [--spark]

The workloads are those of `run.py` on the direct runner, with records as elements. `lambdas` make records, which are
NamedTuples, as a program does that other people read; `tuples` are lambdas that make bare tuples. The same steps follow
both, and write a checksum. The ways take turns in one process, and the best processor time of each counts, so that
other load matters little. Ratios are to `lambdas`; `unchecked` are the expressions without the tests that each int has
64 bits, so the difference is what it costs that no number ever wraps around. With `--spark`, queries on Spark are
compared as `relational_spark.py` says.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import data
import relational_spark
import workloads
from data import mixed
from turns import best_of

import tidegate as tg
import tidegate.io
from tidegate import col, fn
from tidegate.sdk.relational.python import templates, values

TARGET = 1.0
"""The time of `unchecked` divided by that of `lambdas`."""
Rows = tg.PCollection[Any]
Way = Callable[[tg.Pipeline], Rows]


class Number(NamedTuple):
    x: int


class Word(NamedTuple):
    word: str


class Count(NamedTuple):
    word: str
    n: int


class Event(NamedTuple):
    key: int
    at: datetime.datetime
    value: int


class Pair(NamedTuple):
    key: int
    value: int


class Place(NamedTuple):
    key: int
    value: int
    place: int


class Both(NamedTuple):
    key: int
    value: int
    other: int


scale = 1.0


def _part(rows: Iterable[Any]) -> list[Any]:
    made = list(rows)
    return made[: int(len(made) * scale)]


@cache
def numbers() -> list[Number]:
    return _part(map(Number, data.numbers()))


@cache
def events() -> list[Event]:
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return _part(Event(key, start + datetime.timedelta(milliseconds=at), value) for key, at, value in data.events())


@cache
def pairs(make: Callable[[], list[tuple[int, int]]]) -> list[Pair]:
    return _part(Pair(*each) for each in make())


@cache
def text() -> str:
    """The lines of W2, or the first of them."""
    if scale == 1.0:
        return str(data.text())
    path = data.HOME / f"words {scale}.txt"
    whole = data.text().read_text()
    path.write_text(whole[: whole.index("\n", int(len(whole) * scale)) + 1])
    return str(path)


# -- W1: numbers are mapped, filtered, and doubled with both signs


def _numbers(p: tg.Pipeline) -> Rows:
    return p | tg.Create(numbers())


def w1_lambdas(p: tg.Pipeline) -> Rows:
    kept = (
        _numbers(p)
        | "add" >> tg.Map(lambda row: Number(row.x + 1))
        | "keep" >> tg.Filter(lambda row: row.x % 3 == 0)
        | "both" >> tg.FlatMap(lambda row: (Number(row.x), Number(-row.x)))
    )
    return kept | "double" >> tg.Map(lambda row: Number(row.x * 2))


def w1_tuples(p: tg.Pipeline) -> Rows:
    kept = (
        _numbers(p)
        | "add" >> tg.Map(lambda row: (row.x + 1,))
        | "keep" >> tg.Filter(lambda row: row[0] % 3 == 0)
        | "both" >> tg.FlatMap(lambda row: ((row[0],), (-row[0],)))
    )
    return kept | "double" >> tg.Map(lambda row: (row[0] * 2,))


def w1_expressions(p: tg.Pipeline) -> Rows:
    kept = _numbers(p) | "add" >> tg.Select(x=col("x") + 1) | "keep" >> tg.Filter(col("x") % 3 == 0)
    plus, minus = kept | "plus" >> tg.Select(x=col("x") * 2), kept | "minus" >> tg.Select(x=-col("x") * 2)
    return (plus, minus) | tg.Flatten()


W1 = """
    WITH kept AS (SELECT x FROM (SELECT x + 1 AS x FROM numbers) WHERE x % 3 = 0)
    SELECT x * 2 AS x FROM kept UNION ALL SELECT -x * 2 AS x FROM kept"""


def w1_sql(p: tg.Pipeline) -> Rows:
    return {"numbers": _numbers(p)} | tg.Sql(W1)


# -- W2: words are counted


def _words(p: tg.Pipeline) -> Rows:
    split = tg.FlatMap(lambda line: [Word(each) for each in line.split()]).with_output_types(Word)
    return p | tg.io.ReadFromText(text()) | "split" >> split


def w2_lambdas(p: tg.Pipeline) -> Rows:
    return (
        _words(p)
        | tg.Map(lambda row: row.word)
        | tg.CombinePerElement(len)
        | tg.MapTuple(lambda word, n: Count(word, n))
    )


def w2_tuples(p: tg.Pipeline) -> Rows:
    return _words(p) | tg.Map(lambda row: row.word) | tg.CombinePerElement(len)


def w2_expressions(p: tg.Pipeline) -> Rows:
    return _words(p) | tg.GroupBy("word").agg(n=fn.count())


W2 = "SELECT word, COUNT(*) AS n FROM words GROUP BY word"


def w2_sql(p: tg.Pipeline) -> Rows:
    return {"words": _words(p)} | tg.Sql(W2)


# -- W3: events are summed by key in windows


def _events(p: tg.Pipeline) -> Rows:
    return p | tg.Create(events())


def _in_windows(rows: Rows) -> Rows:
    stamp = tg.Map(lambda row: tg.TimestampedValue(row, row.at.timestamp())).with_output_types(Event)
    return rows | "stamp" >> stamp | tg.WindowInto(tg.FixedWindows(10))


def w3_tuples(p: tg.Pipeline) -> Rows:
    pairs = _in_windows(_events(p)) | tg.Map(lambda row: (row.key, row.value))
    return pairs | tg.CombinePerKey(sum)


def w3_lambdas(p: tg.Pipeline) -> Rows:
    return w3_tuples(p) | tg.MapTuple(lambda key, value: Pair(key, value))


def w3_expressions(p: tg.Pipeline) -> Rows:
    return _in_windows(_events(p)) | tg.GroupBy("key").agg(value=fn.sum("value"))


W3 = """
    SELECT key, SUM(value) AS value FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(at), INTERVAL '10' SECONDS))
    GROUP BY key, window_start, window_end"""


def w3_sql(p: tg.Pipeline) -> Rows:
    return {"events": _events(p)} | tg.Sql(W3)


# -- W5: the values of each key are sorted and numbered


def _values_by_key(p: tg.Pipeline) -> Rows:
    return p | tg.Create(pairs(data.grouped)) | tg.Map(lambda row: (row.key, row.value)) | tg.GroupByKey()


def w5_tuples(p: tg.Pipeline) -> Rows:
    return _values_by_key(p) | tg.FlatMapTuple(
        lambda key, values: [(key, value, place) for place, value in enumerate(sorted(values), 1)]
    )


def w5_lambdas(p: tg.Pipeline) -> Rows:
    return _values_by_key(p) | tg.FlatMapTuple(
        lambda key, values: [Place(key, value, place) for place, value in enumerate(sorted(values), 1)]
    )


def w5_expressions(p: tg.Pipeline) -> Rows:
    return p | tg.Create(pairs(data.grouped)) | tg.TopN(1_000_000, by="value", per="key", number="place")


W5 = "SELECT *, ROW_NUMBER() OVER (PARTITION BY key ORDER BY value) AS place FROM pairs"


def w5_sql(p: tg.Pipeline) -> Rows:
    return {"pairs": p | tg.Create(pairs(data.grouped))} | tg.Sql(W5)


# -- W7: records of two sides are joined by their keys


def _sides(p: tg.Pipeline) -> tuple[Rows, Rows]:
    return p | "left" >> tg.Create(pairs(data.left)), p | "right" >> tg.Create(pairs(data.right))


def _groups(p: tg.Pipeline) -> Rows:
    left, right = _sides(p)
    keyed = {
        "left": left | "left pairs" >> tg.Map(lambda row: (row.key, row.value)),
        "right": right | "right pairs" >> tg.Map(lambda row: (row.key, row.value)),
    }
    return keyed | tg.CoGroupByKey()


def w7_tuples(p: tg.Pipeline) -> Rows:
    return _groups(p) | tg.FlatMapTuple(lambda key, sides: [(key, a, b) for a in sides["left"] for b in sides["right"]])


def w7_lambdas(p: tg.Pipeline) -> Rows:
    return _groups(p) | tg.FlatMapTuple(
        lambda key, sides: [Both(key, a, b) for a in sides["left"] for b in sides["right"]]
    )


def w7_expressions(p: tg.Pipeline) -> Rows:
    left, right = _sides(p)
    return left | tg.Join.on(right, "key", suffix="_right")


W7 = "SELECT l.key AS key, l.value AS value, r.value AS other FROM lefts l JOIN rights r ON l.key = r.key"


def w7_sql(p: tg.Pipeline) -> Rows:
    left, right = _sides(p)
    return {"lefts": left, "rights": right} | tg.Sql(W7)


# -- measuring

WORKLOADS: dict[str, tuple[dict[str, Way], Callable[[tuple[Any, ...]], int]]] = {
    "W1": (
        {"lambdas": w1_lambdas, "tuples": w1_tuples, "expressions": w1_expressions, "SQL": w1_sql},
        lambda row: row[0],
    ),
    "W2": (
        {"lambdas": w2_lambdas, "tuples": w2_tuples, "expressions": w2_expressions, "SQL": w2_sql},
        lambda row: len(row[0]) * row[1],
    ),
    "W3": (
        {"lambdas": w3_lambdas, "tuples": w3_tuples, "expressions": w3_expressions, "SQL": w3_sql},
        lambda row: mixed(row[0], row[1], 0),
    ),
    "W5": (
        {"lambdas": w5_lambdas, "tuples": w5_tuples, "expressions": w5_expressions, "SQL": w5_sql},
        lambda row: mixed(row[0], row[1], row[2]),
    ),
    "W7": (
        {"lambdas": w7_lambdas, "tuples": w7_tuples, "expressions": w7_expressions, "SQL": w7_sql},
        lambda row: mixed(row[0], row[1], row[2]),
    ),
}
"""The ways of each workload, and a term of its checksum."""
UNCHECKED = "unchecked"


@contextmanager
def without_checks() -> Iterator[None]:
    """Expressions are printed without the tests that ints have 64 bits."""
    plain = {"add": "({0} + {1})", "subtract": "({0} - {1})", "multiply": "({0} * {1})", "negate": "(-{0})"}
    with ExitStack() as stack:
        for operation, template in plain.items():
            stack.enter_context(mock.patch.dict(templates._TEMPLATES[operation], {"bigint": template}))
        bigint = "{0}.__class__ is not int", values.CHECKS["bigint"][1]
        stack.enter_context(mock.patch.dict(values.CHECKS, {"bigint": bigint}))
        yield


def run(way: Way, term: Callable[[tuple[Any, ...]], int]) -> workloads.Result:
    """The count and the checksum of a way's result."""
    with tempfile.TemporaryDirectory() as folder:
        with tg.Pipeline(options=["--runner", "direct"]) as p:
            rows = way(p) | "all" >> tg.WindowInto(tg.GlobalWindows())
            workloads.total(rows | "term" >> tg.Map(term), folder)
        return workloads.result("", Path(folder))


def run_unchecked(way: Way, term: Callable[[tuple[Any, ...]], int]) -> workloads.Result:
    with without_checks():
        return run(way, term)


def compare(name: str, turns: int) -> dict[str, float]:
    """The best processor times (s) of a workload's ways. Exits if their results differ."""
    ways, term = WORKLOADS[name]
    calls = {each: partial(run, way, term) for each, way in ways.items()}
    calls[UNCHECKED] = partial(run_unchecked, ways["expressions"], term)
    results = {each: call() for each, call in calls.items()}
    if len(set(results.values())) > 1:
        raise SystemExit(f"{name}: the results differ: {results}")
    gc.collect()
    gc.freeze()
    return best_of(turns, calls)


def main() -> None:
    global scale
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="W1 W2 W3 W5 W7")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--spark", action="store_true", help="on Spark: natively, by hand and with workers")
    args = parser.parse_args()
    scale = args.scale
    if args.spark:
        tables: dict[str, Callable[[], list[Any]]] = {"numbers": numbers, "events": events}
        for name, made in (("pairs", data.grouped), ("lefts", data.left), ("rights", data.right)):
            tables[name] = partial(pairs, made)
        relational_spark.compare_all(tables, args.workloads or list(relational_spark.QUERIES), args.turns)
        return
    print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}, best processor times of {args.turns} turns")
    print("      lambdas, s   tuples   unchecked (target 1.0)   expressions   checks      SQL")
    for name in args.workloads or WORKLOADS:
        best = compare(name, args.turns)
        ratio = {each: seconds / best["lambdas"] for each, seconds in best.items()}
        print(
            f"{name:5}{best['lambdas']:11.2f}{ratio['tuples']:9.2f}{ratio[UNCHECKED]:12.2f}{ratio['expressions']:25.2f}"
            f"{ratio['expressions'] - ratio[UNCHECKED]:9.2f}{ratio['SQL']:9.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
