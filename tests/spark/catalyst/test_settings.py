"""Results of native steps are the same whatever a session is set to that the runner doesn't refuse."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest

import tidegate as tg


class Thing(NamedTuple):
    name: str
    x: float
    price: Annotated[Decimal, "decimal(38,10)"]
    at: tg.Timestamp


THINGS = [
    Thing(r"a\n", 0.0, Decimal("1.2345678901"), datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)),
    Thing("${spark.app.name} {0} :x", -0.0, Decimal("9999999999999999.5"), datetime(1969, 1, 1, tzinfo=UTC)),
    Thing("'q' \"d\"", float("nan"), Decimal("-0.5"), datetime(2024, 2, 29, tzinfo=UTC)),
]
OTHER_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parser.escapedStringLiterals": "true",
}


@pytest.fixture(params=["defaults", "others"])
def settings(request: pytest.FixtureRequest, spark_session: Any) -> Iterator[None]:
    """The session's settings as they are, and others."""
    wanted = OTHER_SETTINGS if request.param == "others" else {}
    before = {name: spark_session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark_session.conf.set(name, value)
    yield
    assert {name: spark_session.conf.get(name) for name in wanted} == wanted
    for name, value in before.items():
        if value is None:
            spark_session.conf.unset(name)
        else:
            spark_session.conf.set(name, value)


def literals(rows: tg.PCollection[Any]) -> tg.PCollection[Any]:
    """Texts that a way of reading SQL could take for something else, as constants and as values."""
    texts = {f"c{k}": tg.lit(each.name) for k, each in enumerate(THINGS)}
    kept = tg.Filter(tg.col("name").is_in([each.name for each in THINGS[:2]]))
    return rows | kept | tg.Select("name", **texts) | tg.GroupBy("name", *texts).agg(n=tg.fn.count())


def long_lists(rows: tg.PCollection[Any]) -> tg.PCollection[Any]:
    """Spark makes a set of Java's of a list of more than ten values, where the zeros and NaN are other values."""
    values = [0.0, float("nan"), *(float(n) for n in range(5, 20))]
    return rows | tg.Select("name", found=tg.col("x").is_in(values)) | tg.GroupBy("found").agg(n=tg.fn.count())


def decimals(rows: tg.PCollection[Any]) -> tg.PCollection[Any]:
    """Digits that a product and a quotient lose, and errors of those that they can't lose."""
    columns = tg.Select(p=tg.col("price") * tg.col("price"), q=tg.col("price") / 3)
    return rows | columns | tg.GroupBy("p").agg(q=tg.fn.max("q"))


def times(rows: tg.PCollection[Any]) -> tg.PCollection[Any]:
    pattern = "yyyy-MM-dd HH:mm:ss.SSSSSS"
    return rows | tg.Select(text=tg.fn.date_format("at", pattern)) | tg.GroupBy("text").agg(n=tg.fn.count())


@pytest.mark.parametrize("steps", [literals, long_lists, decimals, times])
def test_settings_of_a_session_do_not_change_results(no_workers: None, settings: None, steps: Any) -> None:
    found = [
        sorted(map(tuple, steps(tg.Pipeline(runner) | tg.Create(THINGS)).collect())) for runner in ("direct", "spark")
    ]
    assert found[0] == found[1]
