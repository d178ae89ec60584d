"""Values that Arrow would change in silence are refused, naming column and element."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate.io.records.row_converter import RowConverter
from tidegate.sdk.errors import WriteError


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.float64(), [1.5, True]),
        (pa.int64(), [1, True]),
        (pa.int64(), [1, 1.5]),
        (pa.string(), ["a", b"b"]),
        (pa.string(), ["a", 1]),
        (pa.binary(), [b"a", "b"]),
        (pa.date32(), [None, 5]),
        (pa.bool_(), [True, 1]),
    ],
    ids=str,
)
def test_a_value_of_another_class_is_refused(type: Any, values: list[Any]) -> None:
    converter = RowConverter("the sink", pa.schema([("it", type)]))
    with pytest.raises(WriteError, match=r"the sink: column 'it' of \{'it': .*doesn't fit"):
        converter.batch([{"it": value} for value in values])


@pytest.mark.parametrize(
    ("type", "values"),
    [(pa.float64(), [1.5, 2, None]), (pa.int32(), [1, None]), (pa.string(), [None, "a"]), (pa.binary(), [b"a", None])],
    ids=str,
)
def test_values_that_fit_are_stored_unchanged(type: Any, values: list[Any]) -> None:
    converter = RowConverter("the sink", pa.schema([("it", type)]))
    assert converter.batch([{"it": value} for value in values]).column("it").to_pylist() == values


def test_inferred_decimals_have_room_for_later_ones() -> None:
    converter = RowConverter("the sink")
    for number in (Decimal("1.50"), Decimal("12345678901234567890.25"), None):
        assert converter.batch([{"it": number, "all": [number]}]).to_pylist() == [{"it": number, "all": [number]}]
    assert str(converter.schema.field("it").type) == "decimal128(38, 2)"
