"""Steps of expressions and SQL that Spark computes itself: the same results and errors, and no Python in its JVM."""

from __future__ import annotations

import logging
import sys
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.spark.catalyst.conftest import processes_below
from tests.sql.test_random_queries import A, B
from tests.support.sql.random_queries import ROWS_A, ROWS_B, Grammar
from tidegate.runners.spark.catalyst.hidden_errors import hides_errors
from tidegate.runners.spark.catalyst.sources import NativeRows
from tidegate.runners.spark.runner import SparkRunner
from tidegate.runners.spark.task_io.frames import dataframe_sources
from tidegate.sdk.data.columns import BIGINT, Field, Schema
from tidegate.sdk.errors import OptionsError, RunError, UserCodeError
from tidegate.sdk.relational.binding import Input, bound


class Sale(NamedTuple):
    user: str
    n: int


SALES = [Sale("a", 1), Sale("b", 2), Sale("a", 5), Sale("c", 0)]


def test_random_queries_have_the_answers_of_the_direct_runner(no_workers: None, pytestconfig: pytest.Config) -> None:
    grammar = Grammar(7)
    for _ in range(max(3, pytestconfig.getoption("--expressions") // 100)):
        query = grammar.query()
        found = []
        for runner in ("direct", "spark"):
            p = tg.Pipeline(runner)
            tables: Any = {
                "a": p | "a" >> tg.Create([A(*row) for row in ROWS_A]),
                "b": p | "b" >> tg.Create([B(*row) for row in ROWS_B]),
            }
            found.append(sorted(map(tuple, (tables | tg.Sql(query)).collect()), key=repr))
        assert found[0] == found[1], query


@pytest.fixture
def sales(spark_session: Any) -> Any:
    columns = {"user": [each.user for each in SALES], "n": pa.array([each.n for each in SALES], pa.int32())}
    return spark_session.createDataFrame(pa.table(columns))  # which starts no Python, as a list would


def totals(rows: tg.PCollection[Any]) -> list[Any]:
    by_user = rows | tg.Filter(tg.col("n") < 9) | tg.GroupBy("user").agg(total=tg.fn.sum("n"))
    shown = by_user | tg.Map(lambda row: (row.user, row.total + 1))
    return sorted(shown.collect(include_window_info=True), key=lambda each: each.value)


def test_steps_after_a_region_get_its_rows_with_their_timestamps_and_panes(sales: Any) -> None:
    found = totals(tg.Pipeline("spark") | tg.io.ReadFromSpark(sales))
    assert [each.value for each in found] == [("a", 7), ("b", 3), ("c", 1)]
    assert found == totals(tg.Pipeline() | tg.Create(SALES))


def test_what_the_author_has_persisted_stays_persisted(sales: Any) -> None:
    kept = sales.persist()
    kept.count()
    try:
        assert totals(tg.Pipeline("spark") | tg.io.ReadFromSpark(kept))
        assert kept.storageLevel.useMemory
    finally:
        kept.unpersist()


def test_workers_compute_what_spark_is_told_not_to(spark_session: Any, sales: Any) -> None:
    found = totals(tg.Pipeline(options=["--runner", "spark", "--spark_native", "off"]) | tg.io.ReadFromSpark(sales))
    assert found == totals(tg.Pipeline() | tg.Create(SALES))
    assert processes_below(spark_session)


class Price(NamedTuple):
    user: str
    each: Annotated[Decimal, "decimal(20,2)"]
    rate: Annotated[Decimal, "decimal(38,37)"] | None


PRICES = [
    Price("a", Decimal("10.25"), Decimal("0.5")),
    Price("b", Decimal("-0.03"), None),
    Price("a", Decimal("99999999999999999.99"), Decimal("-2.0000000000000000000000000000000000001")),
]


def test_decimals_have_the_digits_of_the_direct_runner(spark_session: Any, no_workers: None) -> None:
    types = {"user": pa.string(), "each": pa.decimal128(20, 2), "rate": pa.decimal128(38, 37)}
    frame = spark_session.createDataFrame(pa.Table.from_pylist([e._asdict() for e in PRICES], pa.schema(types)))
    query = """
        SELECT user, SUM(each) AS total, AVG(each) AS mean, MIN(rate) AS least, SUM(each * rate) AS rated,
            MAX(each / 7 - 0.005) AS quotient, COUNT(*) FILTER (WHERE each > 10) AS many
        FROM prices GROUP BY user ORDER BY user"""
    sources = [tg.Pipeline(runner) | tg.Create(PRICES) for runner in ("direct", "spark")]
    sources.append(tg.Pipeline("spark") | tg.io.ReadFromSpark(frame))
    found = [repr(({"prices": each} | tg.Sql(query)).collect()) for each in sources]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "steps",
    [
        lambda rows: rows | tg.Select("user", each=tg.col("n") % tg.col("n")) | tg.GroupBy("user").agg(n=tg.fn.count()),
        lambda rows: rows | "big" >> tg.Filter(tg.col("n") * (2**62) > 0) | tg.GroupBy("user").agg(n=tg.fn.count()),
        lambda rows: rows | "cast" >> tg.Select(x=tg.col("user").cast("bigint")) | tg.GroupBy("x").agg(n=tg.fn.count()),
        lambda rows: (
            rows | "digits" >> tg.Select(x=tg.col("n").cast("decimal(2,2)")) | tg.GroupBy("x").agg(n=tg.fn.count())
        ),
        lambda rows: (
            rows
            | "sum" >> tg.Select(x=tg.col("n").cast("decimal(38,0)") + Decimal("9" * 38))
            | tg.GroupBy("x").agg(n=tg.fn.count())
        ),
    ],
)
def test_errors_name_the_step_and_the_condition_as_on_the_direct_runner(spark_session: Any, steps: Any) -> None:
    messages = []
    for runner in ("direct", "spark"):
        with pytest.raises(UserCodeError) as caught:
            steps(tg.Pipeline(runner) | tg.Create(SALES)).collect()
        first, where = str(caught.value).splitlines()[:2]
        messages.append((first.partition("]")[0], where))
    assert messages[0] == messages[1]


def test_conditions_that_may_fail_are_not_evaluated_for_rows_without_a_partner(no_workers: None) -> None:
    def rows(runner: str) -> list[Any]:
        p = tg.Pipeline(runner)
        tables: Any = {"s": p | "s" >> tg.Create(SALES), "t": p | "t" >> tg.Create(SALES[:3])}
        query = """
            SELECT x.user, x.share FROM (SELECT s.user AS user, 10 / s.n AS share FROM s JOIN t ON s.user = t.user) x
            WHERE x.share > 1"""
        return sorted(map(tuple, (tables | tg.Sql(query)).collect()))

    assert rows("spark") == rows("direct")


@pytest.mark.parametrize(("setting", "value"), [("ansi.enabled", "false"), ("session.timeZone", "Europe/Berlin")])
def test_a_session_that_would_compute_other_results_is_refused(
    spark_session: Any, sales: Any, setting: str, value: str
) -> None:
    name = f"spark.sql.{setting}"
    before = spark_session.conf.get(name)
    spark_session.conf.set(name, value)
    try:
        with pytest.raises(OptionsError, match=f"{name}={value}.*--spark_native off"):
            totals(tg.Pipeline("spark") | tg.io.ReadFromSpark(sales))
    finally:
        spark_session.conf.set(name, before)


def test_the_explanation_says_which_steps_are_native_and_why_others_are_not() -> None:
    p = tg.Pipeline("spark")
    rows = p | tg.Create(SALES)
    _ = rows | tg.GroupBy("user").agg(total=tg.fn.sum("n")) | tg.Map(print)
    _ = rows | "small" >> tg.Filter(tg.col("n") < 9) | "show" >> tg.Map(print)
    runner = SparkRunner()
    text = runner.explain(runner.plan(p.sealed(), p.options), p.options)
    assert "Native on Spark: Catalyst computes these, without Python\n  GroupBy(user)\n" in text
    assert "  small: the steps after it take elements of the author's class" in text


def explained(p: tg.Pipeline) -> str:
    runner = SparkRunner()
    return runner.explain(runner.plan(p.sealed(), p.options), p.options)


def test_a_refused_step_that_is_read_twice_by_a_later_one_leaves_that_to_workers() -> None:
    p = tg.Pipeline("spark")
    rows = p | tg.Create(SALES) | "all" >> tg.Filter(tg.col("n") < 9)
    both = (rows, rows | "few" >> tg.Filter(tg.col("n") < 2)) | tg.Flatten()
    _ = both | tg.GroupBy("user").agg(total=tg.fn.sum("n")) | tg.Map(print)
    _ = rows | "show" >> tg.Map(print)
    assert "  all: the steps after it take elements of the author's class" in explained(p)


def test_the_files_of_a_region_are_those_that_a_cluster_has_to_share(tmp_path: Path) -> None:
    path = tmp_path / "sales.parquet"
    pq.write_table(pa.table({"user": ["a"], "n": [1]}), path)
    p = tg.Pipeline("spark")
    _ = p | tg.ReadFromParquet(path, as_=Sale) | tg.GroupBy("user").agg(n=tg.fn.sum("n")) | tg.Map(print)
    (source,) = dataframe_sources(SparkRunner().plan(p.sealed(), p.options)).values()
    assert isinstance(source, NativeRows)
    assert list(source.local_files()) == [str(path)]


def test_casts_beyond_the_calendar_and_lone_surrogates_stay_with_workers() -> None:
    p = tg.Pipeline("spark")
    at = p | tg.Create(SALES) | tg.Select(at=tg.col("user").cast("timestamp")) | tg.GroupBy("at").agg(n=tg.fn.count())
    _ = at | tg.Map(print)
    odd = p | "odd" >> tg.Create([Sale("\ud800", 1)]) | "by" >> tg.GroupBy("user").agg(n=tg.fn.count())
    _ = odd | "show" >> tg.Map(print)
    text = explained(p)
    assert "has a type or an operation that Spark might compute in another way" in text
    assert "lone surrogates" in text


class Part(NamedTuple):
    user: str
    n: float


class Missing(NamedTuple):
    user: str
    price: int


class Never(NamedTuple):
    user: str
    none: str


class Named(NamedTuple):
    user: str


def test_tables_by_name_are_native_if_their_fields_are_declared(
    spark_session: Any, sales: Any, no_workers: None
) -> None:
    sales.selectExpr("n", "user", "'x' AS more", "CAST(NULL AS string) AS none").createOrReplaceTempView("native_sales")
    table = tg.io.ReadFromSpark("native_sales").with_output_types(Part)
    found = (tg.Pipeline("spark") | table | tg.GroupBy("user").agg(n=tg.fn.sum("n"))).collect()
    assert sorted(map(tuple, found)) == [("a", 6.0), ("b", 2.0), ("c", 0.0)]
    missing = tg.Pipeline("spark") | tg.io.ReadFromSpark("native_sales").with_output_types(Missing)
    with pytest.raises(RunError, match=r"the column 'price' is missing, and its elements are declared to have price"):
        (missing | tg.GroupBy("user").agg(n=tg.fn.sum("price"))).collect()
    never = tg.Pipeline("spark") | tg.io.ReadFromSpark("native_sales").with_output_types(Never)
    with pytest.raises(UserCodeError, match=r"INVALID_COLUMN_VALUE. the column 'none' is NULL, and its type says"):
        (never | tg.GroupBy("user").agg(n=tg.fn.max("none"))).collect()


def test_elements_of_a_declared_type_keep_what_that_does_not_name(sales: Any, spark_session: Any) -> None:
    sales.createOrReplaceTempView("native_sales")
    for source in (sales, "native_sales"):
        rows = tg.Pipeline("spark") | tg.io.ReadFromSpark(source).with_output_types(Named)
        kept = rows | tg.TopN(1, by=tg.col("user")) | tg.Map(lambda row: row.n)
        assert kept.collect() == [1]


QUERIES_THAT_FAIL_IF_EVALUATED_SOONER = [
    # a filter that Spark infers for the other side of a join
    "SELECT s.user FROM (SELECT * FROM s WHERE 10 % n = 0) s JOIN t ON s.n = t.n",
    # a part that occurs twice behind a condition
    "SELECT user, MAX(n = 0 OR (10 / n > 3 AND 10 / n < 6)) AS x FROM t GROUP BY user",
    # operands behind a NULL, which occur twice
    "SELECT NULLIF(n, 0) + 10 % n AS x, NULLIF(n, 0) * (10 % n) AS y FROM t",
    "SELECT NULLIF(n, 0) + (10 % n + 10 % n) AS x FROM t",
    "SELECT (10 % n + 2) / NULLIF(n, 0) AS x, (10 % n + 2) % NULLIF(n, 0) AS y FROM t",
    "SELECT user, SUM(NULLIF(n, 0) + 10 % n) AS x, MAX(NULLIF(n, 0) * (10 % n)) AS y FROM t GROUP BY user",
    "SELECT SUBSTRING(NULLIF(user, 'c'), 10 % n + 1, 10 % n + 1) AS x FROM t",
    # a condition on one side, for rows without a partner
    "SELECT s.user FROM s LEFT JOIN t ON s.user = t.user AND 10 % t.n = 0",
]


def test_nothing_is_evaluated_for_other_rows_than_on_the_direct_runner(sales: Any) -> None:
    kept = sales.repartition(2).persist()  # of rows that it has at hand, Spark evaluates less
    try:
        for query in QUERIES_THAT_FAIL_IF_EVALUATED_SOONER:
            found = []
            for s, t in (
                (tg.Create(SALES[:3]), tg.Create(SALES)),
                (tg.io.ReadFromSpark(kept.where("n > 0")), tg.io.ReadFromSpark(kept)),
            ):
                p = tg.Pipeline("direct" if isinstance(s, tg.Create) else "spark")
                tables = {name: p | name >> rows for name, rows in (("s", s), ("t", t)) if f" {name} " in f"{query} "}
                found.append(sorted(map(tuple, (tables | tg.Sql(query)).collect()), key=repr))
            assert found[0] == found[1], query
            assert found[0]
    finally:
        kept.unpersist()


NESTED = [
    {"k": 1, "tags": ["a", None], "m": [("x", 1)], "r": {"n": 5, "of": {"s": "é"}}},
    {"k": 2, "tags": [], "m": [], "r": {"n": None, "of": None}},
    {"k": 1, "tags": ["b", "c"], "m": None, "r": None},
]
NESTED_TYPES = pa.schema(
    {
        "k": pa.int32(),
        "tags": pa.list_(pa.string()),
        "m": pa.map_(pa.string(), pa.int32()),
        "r": pa.struct({"n": pa.int16(), "of": pa.struct({"s": pa.string()})}),
    }
)
NESTED_QUERY = """
    SELECT k, SUM(SIZE(tags)) AS n, MAX(m['x']) AS x, MAX(r.of.s) AS s, COUNT(r.n) AS c,
        COUNT(*) FILTER (WHERE ARRAY_CONTAINS(tags, 'b')) AS b, MAX(IF(SIZE(tags) > 1, tags[1], '?')) AS t
    FROM t WHERE r.n IS NULL OR r.n > 1 GROUP BY k"""


def test_arrays_maps_and_records_of_files_and_dataframes_are_native(
    spark_session: Any, no_workers: None, tmp_path: Path
) -> None:
    table = pa.Table.from_pylist(NESTED, NESTED_TYPES)
    pq.write_table(table, tmp_path / "t.parquet")

    def answer(runner: str, query: str, read: Any) -> list[Any]:
        return sorted(({"t": tg.Pipeline(runner) | read} | tg.Sql(query)).collect())

    parquet, frame = (
        tg.io.ReadFromParquet(tmp_path / "t.parquet"),
        tg.io.ReadFromSpark(spark_session.createDataFrame(table)),
    )
    expected = [(1, 4, 1, "é", 1, 1, "c"), (2, 0, None, None, 0, 0, "?")]
    assert answer("direct", NESTED_QUERY, parquet) == expected
    assert answer("spark", NESTED_QUERY, parquet) == expected
    assert answer("spark", NESTED_QUERY, frame) == expected
    for runner, read in (("direct", parquet), ("spark", parquet), ("spark", frame)):
        with pytest.raises(UserCodeError, match=r"INVALID_ARRAY_INDEX\]"):
            answer(runner, "SELECT MAX(tags[1]) AS t FROM t", read)


FAILING = tg.lit("a").cast("date")


@pytest.mark.parametrize(
    ("value", "fails"),
    [
        (tg.fn.add_months(FAILING, tg.fn.when(tg.col("n") > 9, 1).otherwise(None)), True),
        (tg.col("user").cast("bigint") + tg.lit(None).cast("bigint"), True),
        (tg.fn.when(tg.col("user").cast("bigint") > 1, tg.col("n")).otherwise(tg.col("n")), True),
        (
            tg.fn.when(tg.col("user").cast("bigint") > 1, tg.fn.when(tg.lit(True), tg.col("n")).otherwise(0)).otherwise(
                tg.col("n")
            ),
            True,
        ),
        (
            tg.fn.when(tg.col("user").cast("bigint") > 1, tg.col("n"))
            .when(tg.col("n") > 3, tg.col("n"))
            .otherwise(tg.col("n")),
            True,
        ),
        (
            tg.fn.when(
                tg.col("user").cast("bigint") > 1, tg.fn.concat(tg.col("user"), tg.fn.lower(tg.lit("")))
            ).otherwise(tg.fn.concat(tg.col("user"), tg.lit(""))),
            True,
        ),
        (
            tg.fn.when(tg.col("user").cast("bigint") > 1, tg.col("n") + 1 < tg.col("n") * 2).otherwise(
                2 * tg.col("n") > 1 + tg.col("n")
            ),
            True,
        ),
        (tg.fn.when(tg.col("user").cast("bigint") == 0.5, tg.col("n")).otherwise(tg.col("n") + 1), True),
        (tg.fn.when(tg.col("user").cast("bigint") > 1e30, tg.col("n")).otherwise(tg.col("n") + 1), True),
        (tg.fn.when((tg.col("user").cast("bigint") > 1) & tg.lit(None), 1).otherwise(tg.col("n")), True),
        (tg.fn.when(tg.col("n") == 0.5, 1).otherwise(0), False),
        ((tg.col("user").cast("bigint") > 1) & tg.lit(False), True),
        (tg.fn.when(tg.col("n") > 9, FAILING).otherwise(tg.lit("2024-02-29").cast("date")), False),
        (tg.col("n") + tg.lit(None).cast("bigint"), False),
    ],
)
def test_errors_of_operands_that_spark_drops_are_those_of_python(
    value: tg.Expression, fails: bool, tmp_path: Path
) -> None:
    pq.write_table(pa.Table.from_pylist([each._asdict() for each in SALES]), tmp_path / "sales.parquet")
    for runner in ("direct", "spark"):
        p = tg.Pipeline(runner)
        sales = p | tg.ReadFromParquet(tmp_path / "sales.parquet", as_=Sale)
        found = sales | tg.Select("user", value=value) | tg.GroupBy("user", "value").agg(n=tg.fn.count())
        if not fails:
            assert len(found.collect()) == 3
            continue
        with pytest.raises(UserCodeError, match="CAST_INVALID_INPUT"):
            found.collect()


def test_a_branch_whose_zero_has_another_sign_is_not_taken_for_the_default(sales: Any) -> None:
    """Spark compares constants as numbers do, and drops a branch that is equal to the default."""
    zeros = tg.fn.when(tg.col("n") > 3, tg.lit(-0.0) * tg.lit(-0.0)).otherwise(-0.0)
    found = []
    for runner, read in (("direct", tg.Create(SALES)), ("spark", tg.io.ReadFromSpark(sales.repartition(2)))):
        rows = tg.Pipeline(runner) | read | tg.Select("n", zero=zeros) | tg.GroupBy("n").agg(zero=tg.fn.max("zero"))
        found.append(sorted((row.n, str(row.zero)) for row in rows.collect()))
    assert found[0] == found[1]
    assert {zero for _, zero in found[0]} == {"0.0", "-0.0"}


GROUPS = "(SELECT user, COUNT(*) AS k, COALESCE(MAX(n), 0) AS m FROM sales GROUP BY user)"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user FROM {} WHERE (k * 9223372036854775807 + k) IS NULL",
        "SELECT user FROM {} WHERE (m + 9223372036854775807) IS NOT NULL",
        "SELECT COUNT(k * 9223372036854775807 + k) AS c FROM {}",
        "SELECT COUNT(*) FILTER (WHERE (k * 9223372036854775807 + k) IS NULL) AS c FROM {}",
        "SELECT MAX((k * 9223372036854775807 + k) * 0) AS c FROM {}",
        "SELECT user, k * 9223372036854775807 + k > 5 OR NOT k * 9223372036854775807 + k > 5 AS r FROM {}",
        "SELECT user, k * 9223372036854775807 + k > 5 AND k IS NULL AS r FROM {}",
        "SELECT user, k * 9223372036854775807 + k <=> NULL AS r FROM {}",
        "SELECT user, k * 9223372036854775807 + k > 5 AND k * 1 < k AS r FROM {}",
        "SELECT user, k * 9223372036854775807 + k > 5 AND k <=> NULL AS r FROM {}",
        "SELECT user FROM {} WHERE k * 9223372036854775807 + k > 5 AND k = NULL",
        "SELECT user, (k * 9223372036854775807 + k) + (k + CAST(NULL AS BIGINT)) AS r FROM {}",
        "SELECT user, k * 9223372036854775807 + k > 5 OR (NOT k < m) = (k >= m) AS r FROM {}",
        "SELECT user, k + 9223372036854775807 + (0 - 9223372036854775807) AS r FROM {}",
    ],
)
def test_errors_of_what_is_never_null_are_found(query: str) -> None:
    """Spark takes `x IS NULL` for FALSE, without computing x, if x can't be NULL."""
    for runner in ("direct", "spark"):
        sales = tg.Pipeline(runner) | tg.Create(SALES)
        with pytest.raises(tg.UserCodeError, match="ARITHMETIC_OVERFLOW"):
            ({"sales": sales} | tg.Sql(query.format(GROUPS))).collect()


def test_operands_whose_guard_or_order_spark_would_change_are_computed_as_they_stand() -> None:
    """Spark takes `p AND q OR NOT p` for `q OR NOT p`, and adds up the constants of a sum first."""
    guarded = "user FROM {} WHERE m <> 0 AND k / m > 0.5e0 OR m = 0"
    added = "user, m - 20 + 9223372036854775807 + 10 AS v FROM {}"
    for columns in (guarded, added):
        answers = []
        for runner in ("direct", "spark"):
            sales = tg.Pipeline(runner) | tg.Create(SALES)
            answers.append(sorted(({"sales": sales} | tg.Sql(f"SELECT {columns.format(GROUPS)}")).collect()))
        assert answers[0] == answers[1]
        assert answers[0]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user FROM {} WHERE k IS NOT NULL AND m / k > 2",
        "SELECT CASE WHEN k IS NULL THEN 0e0 ELSE m / k END AS v FROM {}",
        "SELECT user FROM {} WHERE (k = 1 AND m / k > 2) OR (m = 2 AND m / k > 3)",
        "SELECT AVG(m + 1) AS v FROM {}",
    ],
)
def test_errors_that_spark_finds_do_not_keep_it_from_computing(query: str) -> None:
    p = tg.Pipeline("spark")
    _ = {"sales": p | tg.Create(SALES)} | tg.Sql(query.format(GROUPS)) | tg.Map(print)
    assert "might not see" not in explained(p)


def test_conditions_of_hundreds_of_terms_are_looked_through_once() -> None:
    k, m = (tg.col(name) for name in ("k", "m"))
    condition = k / m > 2
    for number in range(300):
        condition |= (k == number + m) & (m > k)
    input = Input(Schema((Field("k", BIGINT), Field("m", BIGINT))))
    tree = bound(condition.tree, input)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        assert not hides_errors(tree)
    finally:
        sys.setprofile(None)
    assert calls < 2_000_000  # each term with every other one would be ten times as many


def test_spark_does_not_log_an_error_that_is_raised() -> None:
    from pyspark.logger import PySparkLogger

    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(handler)
    try:
        sales = tg.Pipeline("spark") | tg.Create(SALES)
        with pytest.raises(tg.UserCodeError, match="DIVIDE_BY_ZERO"):
            ({"sales": sales} | tg.Sql(f"SELECT SUM(1 / m) AS s FROM {GROUPS} WHERE m < 2")).collect()
    finally:
        logger.removeHandler(handler)
    assert records == []


def test_means_of_bigints_whose_sum_doubles_do_not_have() -> None:
    query = "SELECT user, AVG(n) a, AVG(DISTINCT n) b, AVG(n) FILTER (WHERE n > 0) c FROM pcoll GROUP BY user"
    for runner in ("direct", "spark"):
        rows = [Sale("x", 2**62 + 1), Sale("x", -(2**62)), Sale("x", -(2**62)), Sale("x", 2**62), Sale("y", -3)]
        found = (tg.Pipeline(runner) | tg.Create(rows) | tg.Sql(query)).collect()
        assert sorted(found) == [("x", 0.25, 2**62 / 3, float(2**62)), ("y", -3.0, -3.0, None)]


def test_operands_that_may_fail_beside_constants_of_null_stay_with_workers() -> None:
    p = tg.Pipeline("spark")
    sales = p | tg.Create(SALES)
    for name, value in {
        "sum": tg.col("user").cast("bigint") + tg.lit(None),
        "kept": tg.col("n") + tg.lit(None),
    }.items():
        counted = sales | name >> tg.Select(value=value) | f"by {name}" >> tg.GroupBy("value").agg(n=tg.fn.count())
        _ = counted | f"show {name}" >> tg.Map(print)
    text = explained(p)
    assert text.count("Spark might not see that an operand in ") == 1
    assert "  sum: Spark might not see that an operand in " in text
