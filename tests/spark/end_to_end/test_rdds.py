"""RDDs as input: elements that Spark has pickled are processed on the workers that have them."""

from __future__ import annotations

import datetime
import enum
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegate as tg
import tidegate.io
from tests.support.run_and_collect import collect
from tidegate.cli import app
from tidegate.sdk.errors import BuildError, TypeCheckError, UnsupportedError, UserCodeError
from tidegate.sdk.portable.json import dump


@pytest.fixture
def sc(spark_session: Any) -> Any:
    return spark_session.sparkContext


@dataclass(frozen=True)
class Visit:
    place: str
    at: datetime.datetime


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def elements(rdd: Any, flags: list[str]) -> list[Any]:
    """The elements that a pipeline reads from an RDD."""
    values: list[Any] = collect(lambda p: {"it": p | tg.io.ReadFromSpark(rdd)}, options=flags).values("it")
    return values


def _with_form(rdd: Any, form: Any) -> Any:
    return rdd._reserialize(form)


def _pickled_singly(sc: Any, folder: Path) -> Any:
    from pyspark.serializers import CPickleSerializer

    return _with_form(sc.parallelize([(1, 2), [3], None], 2).map(lambda x: x), CPickleSerializer())


def _marshalled(sc: Any, folder: Path) -> Any:
    from pyspark.serializers import AutoBatchedSerializer, MarshalSerializer

    form: Any = AutoBatchedSerializer
    return _with_form(sc.parallelize([1, "two", 3.0], 2).map(lambda x: x), form(MarshalSerializer()))


def _text(sc: Any, folder: Path) -> Any:
    (folder / "lines.txt").write_text("one\ntwo ü\n\nfour\n")
    return sc.textFile(str(folder / "lines.txt"), 3)


KINDS: dict[str, Callable[[Any, Path], Any]] = {
    "parallelize": lambda sc, folder: sc.parallelize([1, "two", (3, None), {"four": [5]}], 3),
    "range": lambda sc, folder: sc.range(0, 10_000, 7, 4),
    "map": lambda sc, folder: sc.parallelize(range(50_000), 4).map(lambda x: (x % 7, x)),
    "lists": lambda sc, folder: sc.parallelize([[1, 2], [], [3]], 2).map(lambda x: x),
    "reduced": lambda sc, folder: sc.parallelize(range(1000), 3).map(lambda x: (x % 11, 1)).reduceByKey(int.__add__, 5),
    "text": _text,
    "text, persisted": lambda sc, folder: _text(sc, folder).persist(),
    "union": lambda sc, folder: _text(sc, folder).union(sc.parallelize([1, 2], 2)).union(sc.parallelize(["x"], 1)),
    "cartesian": lambda sc, folder: sc.parallelize("ab", 2).cartesian(sc.parallelize(range(3), 2)),
    "zip": lambda sc, folder: sc.parallelize("abc", 2).zip(sc.parallelize(range(3), 2)),
    "zip with index": lambda sc, folder: sc.parallelize("abc", 2).zipWithIndex(),
    "glom": lambda sc, folder: sc.parallelize(range(5), 2).glom(),
    "empty partitions": lambda sc, folder: sc.parallelize(range(100), 7).filter(lambda x: x in (3, 99)),
    "nothing": lambda sc, folder: sc.parallelize(range(10), 3).filter(lambda x: False),
    "no partition": lambda sc, folder: sc.emptyRDD(),
    "one by one": _pickled_singly,
    "marshal": _marshalled,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_elements_of_an_rdd_are_read_unchanged(kind: str, sc: Any, flags: list[str], tmp_path: Path) -> None:
    rdd = KINDS[kind](sc, tmp_path)
    assert sorted(map(repr, elements(rdd, flags))) == sorted(map(repr, rdd.collect()))
    if kind == "text, persisted":
        rdd.unpersist()


def test_rows_and_groups_of_spark_can_be_elements(sc: Any, spark_session: Any, flags: list[str]) -> None:
    rows = spark_session.range(5).selectExpr("id", "cast(id as string) AS name").rdd
    assert [(row.id, row.name) for row in sorted(elements(rows, flags))] == [(n, str(n)) for n in range(5)]
    groups = sc.parallelize([("a", 1), ("b", 2), ("a", 3)], 2).groupByKey()
    assert {key: sorted(values) for key, values in elements(groups, flags)} == {"a": [1, 3], "b": [2]}


CLASSES = """
import os, sys, enum
from dataclasses import dataclass
from typing import NamedTuple
import tidegate as tg, tidegate.io
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable

@dataclass(frozen=True)
class Visit:
    place: str
    n: int

class Pair(NamedTuple):
    a: int
    b: int

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

def known(x):
    return isinstance(x, (Visit, Pair, Colour)), x

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rdd = spark.sparkContext.parallelize([Visit("a", 1), Pair(1, 2), Colour.RED, Visit("b", 2), Colour.BLUE], 3)
for rdd in (rdd, rdd.map(lambda x: x).persist()):
    with tg.Pipeline(options=["--runner", "spark"]) as p:
        read = p | tg.io.ReadFromSpark(rdd).with_output_types(Visit | Pair | Colour)
        groups = read | tg.Map(known) | tg.GroupByKey()
        _ = groups | tg.MapTuple(lambda known, found: print("found", known, sorted(map(str, found))))
spark.stop()
"""


def test_elements_keep_the_classes_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CLASSES)
    completed = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    expected = sorted(["Visit(place='a', n=1)", "Visit(place='b', n=2)", "Pair(a=1, b=2)", "Colour.RED", "Colour.BLUE"])
    assert (completed.stdout + completed.stderr).count(f"found True {expected}") == 2, completed.stderr[
        -2000:
    ]  # workers print to stderr


def test_classes_of_modules_that_workers_lack_are_sent_with_the_pipeline(sc: Any, flags: list[str]) -> None:
    visit = Visit("a", datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
    rdd = sc.parallelize([visit, Colour.RED], 2)

    def build(p: tg.Pipeline) -> dict[str, Any]:
        read = p | tg.io.ReadFromSpark(rdd).with_output_types(Visit | Colour)
        return {"it": read | tg.Map(lambda x: (isinstance(x, Visit), x)) | tg.GroupByKey()}

    assert sorted(collect(build, options=flags).values("it")) == [(False, [Colour.RED]), (True, [visit])]


def test_long_and_short_elements_are_read(sc: Any, flags: list[str]) -> None:
    rdd = sc.parallelize(range(6), 2).flatMap(lambda n: [n, bytes([n]) * (9 << 20), str(n)])
    lengths = collect(
        lambda p: {"it": p | tg.io.ReadFromSpark(rdd) | tg.Map(lambda x: (type(x).__name__, len(str(x)[:20])))},
        options=flags,
    ).values("it")
    assert sorted(lengths) == [("bytes", 20)] * 6 + [("int", 1)] * 6 + [("str", 1)] * 6


def test_persisted_elements_are_not_computed_again(sc: Any, flags: list[str], tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    def count_evaluations(x: int) -> tuple[int, int]:
        with open(log, "a") as file:
            file.write("x")
        return x % 3, x

    persisted, not_persisted = (
        sc.parallelize(range(10), 2).map(count_evaluations).persist(),
        sc.parallelize(range(10), 2).map(count_evaluations),
    )
    try:
        assert persisted.count() == 10
        sums = [
            ("it", lambda p, rdd=rdd: p | tg.io.ReadFromSpark(rdd) | tg.CombinePerKey(sum))
            for rdd in (persisted, persisted)
        ]
        for name, build in sums:
            found = collect(lambda p, name=name, build=build: {name: build(p)}, options=flags)  # type: ignore[misc]
            assert dict(found.values(name)) == {0: 18, 1: 12, 2: 15}
        assert Path(log).read_text() == "x" * 10
        assert persisted.is_cached
    finally:
        persisted.unpersist()
    assert len(elements(not_persisted, flags)) == 10
    assert Path(log).read_text() == "x" * 20


def test_event_times_are_taken_from_an_element(sc: Any, flags: list[str]) -> None:
    rdd = sc.parallelize(range(100), 3)

    def build(p: tg.Pipeline) -> dict[str, Any]:
        timed = p | tg.io.ReadFromSpark(rdd, timestamp=lambda x: x) | tg.Map(lambda x: ("all", x))
        return {"it": timed | tg.WindowInto(tg.FixedWindows(50)) | tg.CombinePerKey(sum)}

    found = collect(build, options=flags)
    assert sorted(found.values("it")) == [("all", sum(range(50))), ("all", sum(range(50, 100)))]
    assert found.result.metrics().query("elements_out", step="ReadFromSpark")[0].value == 100


@pytest.mark.parametrize("partitions", [0, 1, 4])
def test_an_rdd_can_replace_a_create(partitions: int, sc: Any, flags: list[str]) -> None:
    """With any number of partitions, beside side inputs, combines of empty input, other sources and later actions."""
    numbers = list(range(300)) if partitions else []
    rdd = sc.parallelize(numbers, partitions) if partitions else sc.emptyRDD()

    def build(p: tg.Pipeline, read: Any) -> dict[str, Any]:
        values = p | "read" >> read
        total = tg.AsSingleton(values | "total" >> tg.CombineGlobally(sum))
        both = (values, p | "more" >> tg.Create(range(1000, 1010))) | tg.Flatten()
        return {
            "count": values | "count" >> tg.CombineGlobally(len),
            "by key": values | "pair" >> tg.Map(lambda x: (x % 5, x)) | tg.GroupByKey() | tg.MapValues(sorted),
            "shares": both | "share" >> tg.Map(add_total, total),
        }

    def add_total(x: int, total: Any) -> tuple[int, Any]:
        return x, total

    found = collect(lambda p: build(p, tg.io.ReadFromSpark(rdd)), options=flags)
    expected = collect(lambda p: build(p, tg.Create(numbers)), options=None)
    for name in ("count", "by key", "shares"):
        assert sorted(found.values(name)) == sorted(expected.values(name))


def test_an_empty_rdd_is_written_as_an_empty_file(sc: Any, flags: list[str], tmp_path: Path) -> None:
    def written(name: str, read: Any, options: list[str] | None) -> list[str]:
        with tg.Pipeline(options=options) as p:
            _ = p | "read" >> read | tg.Map(str) | tg.io.WriteToText(str(tmp_path / name), num_shards=1)
        return [path.read_text() for path in tmp_path.iterdir() if path.name.startswith(name)]

    assert written("spark", tg.io.ReadFromSpark(sc.emptyRDD()), flags) == written("direct", tg.Create([]), None)


def test_an_rdd_is_joined_with_a_dataframe(sc: Any, spark_session: Any, flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        ids = p | "frame" >> tg.io.ReadFromSpark(spark_session.range(0, 10, 1, 3)) | tg.Map(lambda row: row.id)
        return {"it": (ids, p | "rdd" >> tg.io.ReadFromSpark(sc.parallelize(range(10, 20), 2))) | tg.Flatten()}

    assert sorted(collect(build, options=flags).values("it")) == list(range(20))


def test_errors_name_step_and_element(sc: Any, flags: list[str]) -> None:
    p = tg.Pipeline(options=flags)
    rows = p | tg.io.ReadFromSpark(sc.parallelize(range(10), 2)) | "invert" >> tg.Map(lambda x: 1 / (x - 7))
    _ = rows | tg.Map(print)
    with pytest.raises(UserCodeError) as caught:
        p.run()
    assert (caught.value.step, caught.value.element) == ("invert", "7")
    p = tg.Pipeline(options=flags)
    _ = p | "read" >> tg.io.ReadFromSpark(sc.parallelize("ab", 2), timestamp=lambda x: x.time) | tg.Map(print)
    with pytest.raises(UserCodeError) as caught:
        p.run()
    assert (caught.value.step, caught.value.element) in {("read", "'a'"), ("read", "'b'")}


def test_the_element_type_is_given_by_the_author(sc: Any) -> None:
    p = tg.Pipeline()
    words = p | tg.io.ReadFromSpark(sc.parallelize(["a"])).with_output_types(str)
    with pytest.raises(TypeCheckError, match="takes"):
        _ = words | tg.CombinePerKey(sum)


# -- what is refused


def test_columns_are_refused_for_an_rdd(sc: Any) -> None:
    for options in ({"columns": ["a"]}, {"as_dicts": True}):
        with pytest.raises(BuildError, match="columns and as_dicts are for DataFrames and tables, not for an RDD"):
            tg.io.ReadFromSpark(sc.parallelize([1]), **options)


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_other_runners_refuse_an_rdd_by_name(runner: str, sc: Any) -> None:
    p = tg.Pipeline(options=["--runner", runner])
    _ = p | tg.io.ReadFromSpark(sc.parallelize([1])) | tg.Map(print)
    with pytest.raises(UnsupportedError, match="only the spark runner reads DataFrames, tables and RDDs"):
        p.run()


def test_a_compiled_pipeline_with_an_rdd_cannot_run_in_another_process(
    sc: Any, flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = tg.Pipeline(options=flags)
    _ = p | tg.io.ReadFromSpark(sc.parallelize([1])) | tg.Map(print)
    (tmp_path / "job.json").write_text(dump(p.sealed(values=True)))
    monkeypatch.setattr("tidegate.io.spark._handles", {})  # as in another process
    result = CliRunner().invoke(app, ["run", str(tmp_path / "job.json"), *flags])
    assert result.exit_code == 2
    assert "the RDD exists only in the process in which the pipeline was built" in result.output


STOPPED = """
import os, sys
import tidegate as tg, tidegate.io
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
def session():
    return SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
old = session().sparkContext
rdd = old.parallelize([1, 2])
def said():
    p = tg.Pipeline(options=["--runner", "spark"])
    p | tg.io.ReadFromSpark(rdd) | tg.Map(print)
    try:
        p.run()
    except tg.TidegateError as error:
        print("said:", error)
old.stop()
said()
session()
said()
session().stop()
"""


def test_an_rdd_of_a_stopped_context_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(STOPPED)
    completed = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=True)
    messages = [line for line in completed.stdout.splitlines() if line.startswith("said:")]
    assert len(messages) == 2
    assert all("the SparkContext of the RDD has been stopped" in line for line in messages)
