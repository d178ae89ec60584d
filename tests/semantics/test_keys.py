"""SEMANTICS, Keys and order. The encoding of keys is tested with the sdk; here, that runners group by it."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pytest

import tidegate as tg
from tests.support.stream_scripts import Watermark, run_script
from tidegate.sdk.data import coders
from tidegate.testing import TestPipeline, assert_that, equal_to, is_not_empty


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Name(enum.StrEnum):
    A = "a"


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class User:
    name: str
    age: int


EQUAL = [
    (1, 1.0, True, Decimal(1), Fraction(1), Decimal("1.0")),
    (0.0, -0.0, 0, False),
    ("a", Name.A),
    ((1, "a"), (1.0, Name.A)),
    (Point(1, 2), (1, 2)),
    (User("ann", 30), User("ann", 30.0)),  # type: ignore[arg-type]
    (
        dt.datetime(2025, 1, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2025, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ),
    (dt.timedelta(hours=1), dt.timedelta(minutes=60)),
    (None, None),
    (b"a", b"a"),
    (Colour.RED, Colour.RED),
    (uuid.UUID(int=5), uuid.UUID(int=5)),
    (dt.date(2025, 1, 1), dt.date(2025, 1, 1)),
]


@pytest.mark.parametrize("keys", EQUAL, ids=repr)
def test_equal_keys_are_one_key(runner: str, keys: tuple[Any, ...]) -> None:
    with TestPipeline(runner) as pipeline:
        pairs = pipeline | tg.Create([(key, 1) for key in keys]).with_output_types(Any)
        assert_that(pairs | tg.CombinePerKey(sum), equal_to([(keys[0], len(keys))]))


DIFFERENT = [
    ("1", 1),
    ("a", b"a"),
    (None, False),
    ((1, 2), (1, 2, 3)),
    (("a", "bc"), ("ab", "c")),
    (Colour.RED, 1),
    (Colour.RED, Colour.BLUE),
    (2**53, 2**53 + 1),
    (float(2**53), 2**53 + 1),
    (0.1, Decimal("0.1")),
    (User("ann", 30), ("ann", 30)),
    (User("ann", 30), User("ann", 31)),
    (float("inf"), float("-inf")),
    ((), None),
]


@pytest.mark.parametrize("keys", DIFFERENT, ids=repr)
def test_different_keys_stay_apart(runner: str, keys: tuple[Any, ...]) -> None:
    with TestPipeline(runner) as pipeline:
        pairs = pipeline | tg.Create([(key, 1) for key in keys]).with_output_types(Any)
        assert_that(pairs | tg.CombinePerKey(sum), equal_to([(key, 1) for key in keys]))


@pytest.mark.parametrize(
    "key", [float("nan"), ("a", float("nan")), object(), (1, [2])], ids=["nan", "nan inside", "object", "list inside"]
)
def test_keys_without_an_encoding_are_refused_naming_the_step(runner: str, key: Any) -> None:
    pipeline = TestPipeline(runner)
    pairs = pipeline | tg.Create([("fine", 0), (key, 1)]).with_output_types(Any)
    assert_that(pairs | "by the odd key" >> tg.GroupByKey(), is_not_empty())
    with pytest.raises(tg.KeyEncodingError) as caught:
        pipeline.run()
    assert "by the odd key" in str(caught.value)


def test_an_unhashable_key_is_refused_naming_the_step(runner: str) -> None:
    pipeline = TestPipeline(runner)
    pairs = pipeline | tg.Create([([1], 1)]).with_output_types(Any)
    assert_that(pairs | "by a list" >> tg.GroupByKey(), is_not_empty())
    with pytest.raises(tg.RunError) as caught:
        pipeline.run()
    assert "by a list" in str(caught.value)


class Money:
    """A user-defined type whose coder determines how values are compared."""

    def __init__(self, cents: int, note: str = "") -> None:
        self.cents = cents
        self.note = note

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)


class MoneyCoder(tg.Coder[Money]):
    deterministic = True

    def encode(self, value: Money) -> bytes:
        return value.cents.to_bytes(8, "big")

    def decode(self, data: bytes) -> Money:
        return Money(int.from_bytes(data, "big"))


@pytest.fixture
def money() -> Iterator[None]:
    before = coders.registered()
    tg.register_coder(Money, MoneyCoder())
    yield
    coders.install(before)


@pytest.mark.usefixtures("money")
def test_a_type_with_a_registered_coder_is_a_key(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        pairs = pipeline | tg.Create([(Money(5), 1), (Money(5, "same"), 2), (Money(7), 4)])
        sums = pairs | tg.CombinePerKey(sum) | tg.MapTuple(lambda key, total: (key.cents, total))
        assert_that(sums, equal_to([(5, 3), (7, 4)]))


def test_equal_keys_meet_in_streams_too(stream_runner: str) -> None:
    ran = run_script(
        stream_runner, [("a", 1, 1), ("b", 2, 1.0), ("c", 3, True), Watermark(10)], tg.WindowInto(tg.FixedWindows(10))
    )
    assert {key: [record.value for record in found] for key, found in ran.panes.items()} == {1: [["a", "b", "c"]]}


def test_values_of_a_key_and_window_keep_their_producers_order(stream_runner: str) -> None:
    script = [(n, (7 * n) % 10, n % 3) for n in range(60)]
    ran = run_script(stream_runner, [*script, Watermark(10)], tg.WindowInto(tg.FixedWindows(10)))
    for key in range(3):
        assert [record.value for record in ran.panes[key]] == [[n for n in range(60) if n % 3 == key]]
