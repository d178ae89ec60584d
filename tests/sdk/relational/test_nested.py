"""Parts of arrays, maps and records: types, errors, and the classes that Python has for them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any

import pytest

import tidegate as tg
from tidegate.sdk.errors import BuildError, TypeCheckError


@dataclass(frozen=True)
class Inner:
    n: int
    of: list[int | None] | None = None


@dataclass(frozen=True)
class Outer:
    inner: Inner
    maybe: Inner | None
    many: tuple[Inner, ...]
    by_time: dict[tg.Timestamp, int]
    by_id: dict[uuid.UUID, float]
    ids: set[int]
    other: complex
    prices: list[Annotated[Decimal, "decimal(10,2)"]]


ID = uuid.UUID(int=7)
VALUE = Outer(
    Inner(1, [5, None]), None, (Inner(2), Inner(3)), {tg.Timestamp(9): 4}, {ID: 2}, {1, 2}, 1j, [Decimal("1.51")]
)


def rows(*values: Any) -> Any:
    return tg.Pipeline() | tg.Create(list(values)).with_output_types(Outer)


def value_of(expression: tg.Expression, value: Any = VALUE) -> Any:
    return (rows(value) | tg.Select(v=expression)).collect()[0].v


def test_a_part_has_the_type_that_it_is_declared_to_have() -> None:
    shown = rows() | tg.Select(
        a=tg.col("inner")["n"], b=tg.col("maybe")["n"], c=tg.col("many")[0], d=tg.col("many")[0]["n"],
        e=tg.col("inner")["of"][0], f=tg.col("by_time")[tg.Timestamp(1)], g=tg.fn.size("ids"),
    )  # fmt: skip
    struct = "struct<n:bigint not null,of:array<bigint>>"
    assert str(shown.schema) == (
        f"a bigint not null, b bigint, c {struct} not null, d bigint not null, e bigint, f bigint, g bigint not null"
    )


def test_parts_are_read_of_the_classes_that_authors_use() -> None:
    assert value_of(tg.col("many")[1]["n"]) == 3
    assert value_of(tg.col("maybe")["n"]) is None
    assert value_of(tg.col("by_time")[tg.Timestamp(9)]) == 4
    assert value_of(tg.col("by_id")[str(ID)]) == 2.0
    assert value_of(tg.col("by_id")["none"]) is None
    assert value_of(tg.fn.array_contains("ids", 2)) is True
    assert value_of(tg.fn.array_contains("prices", Decimal("1.510"))) is True
    assert value_of(tg.fn.array_contains("prices", 1)) is False
    assert value_of(tg.fn.array_contains(tg.col("inner")["of"], 6)) is None
    counts: Any = defaultdict(int, {tg.Timestamp(1): 2})
    assert (
        value_of(tg.col("by_time")[tg.Timestamp(8)], Outer(*list(vars(VALUE).values())[:3], counts, {}, set(), 1j, []))
        is None
    )
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (tg.col("inner")["m"], r"inner has no field 'm'; it has n, of"),
        (tg.col("inner.n"), r"no column 'inner.n': the field of 'inner' is tg.col\('inner'\)\['n'\]"),
        (tg.col("inner")[0], r"in inner\[0\], \[…\] takes \(array, bigint; map, key; struct, literal string\), not"),
        (tg.col("many")["n"], r"in many\['n'\], \[…\] takes"),
        (tg.col("other")["n"], r"the type of other is not known"),
        (tg.fn.size("inner"), r"size takes \(array; map\)"),
        (tg.fn.array_contains("many", 1), r"in array_contains\(many, 1\)"),
        (tg.fn.array_contains("prices", Decimal("1.505")), r"array_contains takes .*decimal\(4,3\)\)"),
        (tg.fn.array_contains("prices", tg.fn.size("ids")), r"array_contains takes .*bigint\)"),
        (tg.col("ids") == tg.col("ids"), r"in ids == ids, == takes"),
    ],
)
def test_a_part_that_does_not_exist_is_refused_when_the_step_is_applied(
    expression: tg.Expression, message: str
) -> None:
    with pytest.raises((BuildError, TypeCheckError), match=message):
        rows() | tg.Select(v=expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (tg.col("many")[2], r"INVALID_ARRAY_INDEX\] the index 2 is out of bounds: the array has 2 items"),
        (tg.col("many")[-1], r"INVALID_ARRAY_INDEX\] the index -1 is out of bounds"),
        (tg.col("many")[0]["n"], r"INVALID_COLUMN_VALUE\] the column 'item' is NULL, and"),
        (tg.col("ids")[0], r"INVALID_COLUMN_VALUE\] array<bigint not null> is no type of \{1, 2\}"),
    ],
)
def test_a_part_that_a_value_does_not_have_fails_the_run(expression: tg.Expression, message: str) -> None:
    without = replace(VALUE, many=(None,)) if "NULL" in message else VALUE  # type: ignore[arg-type]
    with pytest.raises(tg.UserCodeError, match=message):
        value_of(expression, without)


def test_what_python_does_with_parts_in_another_way_is_refused() -> None:
    with pytest.raises(BuildError, match=r"tags\[1:2\]: an expression has no slices"):
        tg.col("tags")[1:2]
    with pytest.raises(BuildError, match=r"tg\.fn\.array_contains\(…\) of an array"):
        _ = 1 in tg.col("tags")
    assert repr(tg.col("tags")[0]["a"] + 1) == "tags[0]['a'] + 1"
