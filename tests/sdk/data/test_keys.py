"""Keys: the canonical encoding agrees with `==`, never changes, and refuses types that can't guarantee this."""

from __future__ import annotations

import datetime as dt
import enum
import os
import subprocess
import sys
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.sdk.data.keys import (
    check_key,
    check_keys,
    encode_with,
    forget_encoding,
    key_bytes,
    key_group,
    partition_of,
    spill_partitions,
)
from tidegate.sdk.errors import BuildError, KeyEncodingError
from tidegate.sdk.time import Duration, Timestamp
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow

NEW_YORK, BERLIN = ZoneInfo("America/New_York"), ZoneInfo("Europe/Berlin")
PAIR = namedtuple("PAIR", "left right")


class Typed(NamedTuple):
    left: int
    right: int


class Colour(enum.Enum):
    RED = 1
    CRIMSON = RED
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


class Mixed(str, enum.Enum):  # noqa: UP042
    A = "a"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Slotted:
    x: int


@dataclass(frozen=True)
class Empty:
    pass


class Named(str):
    pass


for _cls in (Colour, Rights, Point, Slotted, Empty):
    _cls.__module__ = "golden"  # Class names are part of the encoding, and pytest may change the name of this module.


# --- Equal keys, equal bytes ------------------------------------------------------------------------------------------

EQUAL: list[list[Any]] = [
    [1, 1.0, True, Decimal("1.0"), Fraction(1), np.int8(1), np.uint64(1), np.float32(1), np.bool_(True), Level.LOW],
    [0, 0.0, -0.0, False, Decimal("-0E+99999"), Fraction(0), np.float64(-0.0)],
    [0.5, Fraction(1, 2), Decimal("0.50"), np.float16(0.5), np.longdouble(0.5)],
    [2**53 + 1, Decimal(2**53 + 1), np.int64(2**53 + 1)],
    [2**63, float(2**63), np.uint64(2**63), Decimal(2**63)],
    [-(2**63) - 1, Decimal(-(2**63) - 1)],
    [10**400, Decimal("1e400"), Fraction(10**400)],
    [0.1, Decimal.from_float(0.1), Fraction(0.1), np.float64(0.1)],
    [Decimal("0.1"), Fraction(1, 10)],
    [Fraction(1, 2**2000), Fraction(2, 2**2001)],
    [float("inf"), Decimal("Infinity"), np.float32("inf")],
    [float("-inf"), Decimal("-Infinity")],
    ["a", Word.A, Mixed.A, Named("a"), np.str_("a")],
    [b"a", np.bytes_(b"a")],
    [(1, 2), Typed(1, 2), PAIR(True, 2.0), (Fraction(1), np.int32(2))],
    [frozenset({1, "a"}), frozenset({"a", 1.0})],
    [Colour.RED, Colour.CRIMSON],
    [Rights.READ | Rights.WRITE, Rights(3)],
    [Point(1, 2, "one"), Point(1.0, 2, "other")],
    [dt.timedelta(hours=1), dt.timedelta(seconds=3600)],
    [
        dt.datetime(2024, 6, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2024, 6, 1, 8, tzinfo=NEW_YORK),
        dt.datetime(2024, 6, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        dt.datetime(2024, 6, 1, 14, tzinfo=BERLIN, fold=1),
    ],
]


def named(key: Any) -> str:
    """The name of a test for a key, which is the same in every process, unlike the order of a set."""
    return "a frozenset" if isinstance(key, frozenset) else repr(key).partition(" at 0x")[0][:30]


@pytest.mark.parametrize("group", EQUAL, ids=lambda group: named(group[0]))
def test_equal_keys_of_different_types_have_the_same_encoding(group: list[Any]) -> None:
    assert all(exactly_equal(a, b) for a in group for b in group)  # the premise
    assert len({key_bytes(key) for key in group}) == 1


DISTINCT: list[Any] = [group[0] for group in EQUAL] + [
    None, "", b"", (), ((),), frozenset(), frozenset({()}), frozenset({frozenset()}),
    "None", "1", b"1", ("a",), ("ab",), ("a", "b"), ("a", ("b",)), (("a",), "b"), ("a\x00b",), (None,), (None, None),
    ("a" * 254,), ("a" * 255,), ("a" * 256,), ("a" * 70_000,), "\ud83d\ude00", "😀", "\ud800",
    2**53, 2**64, -(2**64), 255, 256, -1, 1e300, 5e-324, Fraction(1, 3), Decimal("1e-400"), np.float32(0.1),
    Colour.BLUE, Rights.READ, Rights(0), Slotted(1), Empty(), Point(1, 3), (1, 3),
    dt.date(2024, 6, 1), dt.datetime(2024, 6, 1, tzinfo=dt.UTC), dt.timedelta(0), dt.timedelta.max, dt.timedelta.min,
    dt.datetime.max.replace(tzinfo=dt.UTC), dt.datetime.min.replace(tzinfo=dt.UTC),
    Timestamp(1), Duration(1), Timestamp(2), Duration(2), IntervalWindow(0, 1), IntervalWindow(0, 2), GLOBAL_WINDOW,
    UUID(int=1), UUID(int=1).bytes, str(UUID(int=1)),
]  # fmt: skip


def test_unequal_keys_have_different_encodings() -> None:
    owner: dict[bytes, Any] = {}
    for key in DISTINCT:
        other = owner.setdefault(key_bytes(key), key)
        assert other is key, f"{key!r} and {other!r} share an encoding"


def numbers() -> st.SearchStrategy[Any]:
    few = st.sampled_from([0, 1, -1, 2, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30])
    base = few | st.integers() | st.floats(allow_nan=False) | st.fractions() | st.floats(allow_nan=False, width=16)
    return base.flatmap(lambda number: st.sampled_from(list(same_number(number))))


def same_number(number: Any) -> Iterator[Any]:
    yield number
    if number in (0, 1):
        yield from (bool(number), np.bool_(bool(number)))
    if isinstance(number, float):
        yield from (Decimal(number), np.float64(number))
        with np.errstate(over="ignore"):
            yield from [narrow(number) for narrow in (np.float16, np.float32) if float(narrow(number)) == number]
    else:
        yield Decimal(number) if isinstance(number, int) else number
        if abs(number) < 2**1000 and float(number) == number:
            yield float(number)
        if number == int(number) and -(2**63) <= number < 2**63:
            yield np.int64(int(number))
    if number not in (float("inf"), float("-inf")):
        yield Fraction(number)


@st.composite
def instants(draw: st.DrawFn) -> dt.datetime:
    near_a_change = [dt.datetime(2024, 11, 3, 1, 30), dt.datetime(2024, 3, 10, 2, 30), dt.datetime(2024, 10, 27, 2, 30)]
    local = draw(st.sampled_from(near_a_change)) + dt.timedelta(hours=draw(st.integers(-6, 6)))
    zone = draw(st.sampled_from([dt.UTC, NEW_YORK, BERLIN, dt.timezone(dt.timedelta(hours=-4))]))
    return local.replace(tzinfo=zone, fold=draw(st.integers(0, 1)))


leaves = (
    numbers()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from([None, *Colour, *Level, *Word, Mixed.A, *Rights, Rights(0), Rights(3), Empty(), GLOBAL_WINDOW])
    | st.sampled_from(["a", Named("a"), np.str_("a"), b"a"])
    | st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 5))
    | instants()
    | st.timedeltas()
    | st.uuids()
    | st.integers(0, 3).flatmap(lambda n: st.sampled_from([Timestamp(n), Duration(n), Slotted(n), dt.timedelta(n)]))
)
keys = st.recursive(
    leaves,
    lambda parts: (
        st.lists(parts, max_size=3).map(tuple)
        | st.frozensets(parts, max_size=3)
        | st.builds(PAIR, parts, parts)
        | st.builds(Point, parts, parts, st.text(max_size=1))
        | st.builds(Slotted, parts)
    ),
    max_leaves=5,
)


def exactly_equal(a: Any, b: Any) -> bool:
    """Like `==`, with numbers compared by exact value: numpy rounds one operand to the other's type."""
    return bool(exact(a) == exact(b))


def exact(key: Any) -> Any:
    match key:
        case np.longdouble():
            return float(key)
        case np.generic():
            return key.item()
        case tuple():
            return tuple(map(exact, key))
        case frozenset():
            return frozenset(map(exact, key))
        case Point():
            return Point(exact(key.x), exact(key.y))
        case Slotted():
            return Slotted(exact(key.x))
    return key


@given(a=keys, b=keys)
def test_encodings_are_equal_exactly_if_the_keys_are(a: Any, b: Any) -> None:
    assert (key_bytes(a) == key_bytes(b)) == exactly_equal(a, b)


@given(a=numbers(), b=numbers())
def test_encodings_of_numbers_of_any_type_are_equal_exactly_if_the_values_are(a: Any, b: Any) -> None:
    assert (key_bytes(a) == key_bytes(b)) == exactly_equal(a, b)


@given(a=instants(), b=instants())
def test_datetimes_around_clock_changes_are_compared_as_in_python(a: dt.datetime, b: dt.datetime) -> None:
    assert (key_bytes(a) == key_bytes(b)) == (a == b)


@given(number=st.integers() | st.floats(allow_nan=False))
def test_all_representations_of_a_number_have_the_same_encoding(number: float) -> None:
    assert {key_bytes(same) for same in same_number(number)} == {key_bytes(number)}


def test_a_subclass_cannot_change_the_encoding_of_its_value() -> None:
    class Liar(str):
        def encode(self, *_: Any) -> bytes:  # type: ignore[override]
            return b"something else"

        def __str__(self) -> str:
            return "something else"

    assert Liar("a") == "a"
    assert key_bytes(Liar("a")) == key_bytes("a")


# --- The same in every process and version ----------------------------------------------------------------------------

# A key, its encoding in hex (the first twenty bytes of long ones; the partition depends on all), its partition of 128.
GOLDEN: list[tuple[Any, str, int]] = [
    (0, "690000000000000000", 11),
    (-1, "69ffffffffffffffff", 41),
    (True, "690100000000000000", 109),
    (2**63, "49000000000000008000", 93),
    (-(2**70), "490000000000000000c0", 13),
    (1.5, "66000000000000f83f", 81),
    (Fraction(1, 3), "720969010000000000000009690300000000000000", 86),
    (Decimal("1e-400"), "7209690100000000000000a84900000000000000", 59),
    (float("inf"), "66000000000000f07f", 14),
    ("", "73", 13),
    ("user-1", "73757365722d31", 71),
    ("é\ud800", "73c3a9eda080", 32),
    ("a" * 300, "7361616161616161616161616161616161616161", 42),
    (b"\x00", "6200", 11),
    (None, "6e", 60),
    ((), "74", 66),
    ((1, "a", None), "7409690100000000000000027361016e", 75),
    (("a" * 300,), "74ff2d0100000000000073616161616161616161", 41),
    (Typed(1, 2), "740969010000000000000009690200000000000000", 75),
    (frozenset({1, "a", 2.5}), "530273610966000000000000044009690100000000000000", 61),
    (Colour.CRIMSON, "450e73676f6c64656e2e436f6c6f757273524544", 116),
    (Rights(3), "450e73676f6c64656e2e526967687473690300000000000000", 13),
    (Point(1, 2.5, "n"), "4f0d73676f6c64656e2e506f696e74740969010000000000000009660000000000000440", 0),
    (Slotted(1), "4f0f73676f6c64656e2e536c6f747465647409690100000000000000", 70),
    (Empty(), "4f0d73676f6c64656e2e456d707479", 94),
    (dt.date(2024, 6, 1), "64de460b0000000000", 92),
    (dt.datetime(2024, 6, 1, 8, tzinfo=NEW_YORK), "4400d0edd6d2190600", 85),
    (dt.datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK), "5a1173416d65726963612f4e65775f596f726b6900b6461bf8250600", 71),
    (dt.timedelta(days=-1), "6c6900a028e2ebffffff", 19),
    (UUID(int=1), "7500000000000000000000000000000001", 23),
    (Timestamp(1), "5440420f0000000000", 97),
    (Duration(1), "4c40420f0000000000", 106),
    (IntervalWindow(0, 1), "770180000000000f42408000000000000000", 8),
    (GLOBAL_WINDOW, "7700", 16),
]


def test_encodings_and_partitions_never_change() -> None:
    now = [(key, key_bytes(key).hex()[: len(start)], partition_of(key, 128)) for key, start, _ in GOLDEN]
    assert now == GOLDEN


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_encodings_are_the_same_in_a_process_with_another_hash_seed(seed: str) -> None:
    script = (
        "from tidegate.sdk.data.keys import key_bytes, partition_of\n"
        "keys = ['a', ('b', 1, None), frozenset({'x', 'y', 'z', 1, 2.5}), 12345, b'c', 0.25]\n"
        "print([(key_bytes(k).hex(), partition_of(k, 1000)) for k in keys])\n"
    )
    mine = ["a", ("b", 1, None), frozenset({"x", "y", "z", 1, 2.5}), 12345, b"c", 0.25]
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": seed},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str([(key_bytes(k).hex(), partition_of(k, 1000)) for k in mine]), done.stderr


# --- Refusals ---------------------------------------------------------------------------------------------------------


@dataclass
class Thawed:
    x: int


@dataclass(frozen=True)
class OwnEquality:
    x: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality) and self.x.lower() == other.x.lower()

    def __hash__(self) -> int:
        return hash(self.x.lower())


class CaseBlind(str):
    def __eq__(self, other: object) -> bool:
        return self.lower() == str(other).lower()

    __hash__ = str.__hash__


@dataclass(frozen=True)
class PointedWord(str):  # equals a str, because str's comparison returns True
    x: int = 0


class OddEnum(enum.Enum):
    A = 1

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = enum.Enum.__hash__


class NamelessZone(dt.tzinfo):
    """One hour ahead until clocks go back; like zones of dateutil, has no `key`, and its offset depends on `fold`."""

    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=0 if when is not None and when.fold else 1)


NAN = float("nan")
REFUSED: list[tuple[Any, str]] = [
    (NAN, "NaN"), (-NAN, "NaN"), (Decimal("NaN"), "NaN"), (Decimal("sNaN"), "NaN"), (np.float32("nan"), "NaN"),
    (np.longdouble("nan"), "NaN"), ((1, (2, NAN)), "in it nan of type float"), (frozenset({NAN}), "NaN"),
    (Point(NAN), "NaN"), ([1], r"tuple\(key\)"), ({1: 2}, "sorted"), ({1}, "frozenset"), (bytearray(b"a"), "bytes"),
    (memoryview(b"a"), "bytes"), ((1, [2]), r"in it \[2\] of type list"), (Slotted([1]), "type list"), (1j, "key.real"),
    (np.complex128(1), "key.real"), (np.datetime64("2024-01-01"), "register a coder"),
    (np.timedelta64(1, "s"), "register a coder"),
    (np.array([1]), "register a coder"), (object(), "register a coder"), (int, "register a coder"), (..., "coder"),
    (dt.datetime(2024, 1, 1), "no time zone"), (dt.time(1), "coder"), (Thawed(1), "frozen=True"),
    (OwnEquality("a"), "defines __eq__"), (CaseBlind("a"), "defines __eq__"), (PointedWord(1), "defines __eq__"),
    (OddEnum.A, "defines __eq__"), (Decimal("1e999999"), "10000 digits"), (Decimal("1e-999999"), "10000 digits"),
    (dt.datetime(2024, 1, 1, tzinfo=NamelessZone()), "astimezone"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "hint"), REFUSED, ids=lambda part: repr(part).partition(" at 0x")[0][:30])
def test_a_key_without_a_canonical_encoding_is_refused_with_an_alternative(key: Any, hint: str) -> None:
    for check in (key_bytes, check_key, lambda key: check_keys([1, "a", (2,), key]), lambda key: partition_of(key, 2)):
        with pytest.raises(KeyEncodingError, match=hint) as caught:
            check(key)
        assert f"a key of type {type(key).__name__} " in str(caught.value)
        assert len(str(caught.value)) < 500


def test_a_key_nested_too_deeply_is_refused() -> None:
    key: tuple[Any, ...] = ()
    for _ in range(50_000):
        key = (key,)
    with pytest.raises(KeyEncodingError, match="nested too deeply"):
        key_bytes(key)
    with pytest.raises(KeyEncodingError, match="nested too deeply"):
        check_keys([key])


@given(st.lists(keys, max_size=8))
def test_valid_keys_of_mixed_types_are_accepted(mixture: list[Any]) -> None:
    check_keys(mixture)
    check_keys(iter(mixture))
    for key in mixture:
        check_key(key)


@pytest.mark.parametrize("invalid_key", [NAN, (1, NAN), ((NAN,), 2), (1, [2]), [3]], ids=repr)
def test_one_invalid_key_is_found_among_many_of_the_same_type(invalid_key: Any) -> None:
    valid_keys: list[Any] = [type(invalid_key)((0.5, (1,))) if isinstance(invalid_key, tuple) else 0.5] * 1000
    check_keys(valid_keys)
    with pytest.raises(KeyEncodingError):
        check_keys(iter([*valid_keys, invalid_key, *valid_keys]))


# --- Encodings by registered coders -----------------------------------------------------------------------------------


class Plain:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
def registered_encoding() -> Iterator[Callable[[type, Callable[[Any], Any]], None]]:
    registered: list[type] = []

    def register(cls: type, encode: Callable[[Any], Any]) -> None:
        registered.append(cls)
        encode_with(cls, encode)

    yield register
    for cls in registered:
        forget_encoding(cls)


def test_values_of_a_type_are_keys_while_it_has_a_registered_encoding(registered_encoding: Any) -> None:
    with pytest.raises(KeyEncodingError):
        key_bytes(Plain("a"))
    registered_encoding(Plain, lambda plain: plain.name.encode())
    assert key_bytes((1, Plain("a"))) == key_bytes((1, Plain("a"))) != key_bytes((1, Plain("b")))
    forget_encoding(Plain)
    with pytest.raises(KeyEncodingError):
        key_bytes(Plain("a"))


def test_a_frozen_dataclass_may_have_a_registered_encoding(registered_encoding: Any) -> None:
    shared_encoding = key_bytes(Slotted(1))
    registered_encoding(Slotted, lambda key: b"x")
    assert key_bytes(Slotted(1)) != shared_encoding


@pytest.mark.parametrize("cls", [int, str, Named, Level, Typed, Decimal, np.int64, dt.datetime, frozenset])
def test_types_that_equal_others_keep_the_shared_encoding(cls: type) -> None:
    with pytest.raises(BuildError, match="can't have a coder"):
        encode_with(cls, lambda key: b"")


def test_the_error_of_a_registered_encoding_that_fails_has_its_cause(registered_encoding: Any) -> None:
    registered_encoding(Plain, lambda plain: plain.nmae)
    with pytest.raises(KeyEncodingError, match="coder registered for Plain raised") as failure:
        key_bytes((1, Plain("a")))
    assert isinstance(failure.value.__cause__, AttributeError)
    registered_encoding(Plain, lambda plain: plain.name)
    with pytest.raises(KeyEncodingError, match="returned str, not bytes"):
        key_bytes(Plain("a"))


# --- Partitions -------------------------------------------------------------------------------------------------------


@given(key=keys, n=st.integers(1, 1000), level=st.integers(1, 5))
def test_a_partition_is_within_bounds(key: Any, n: int, level: int) -> None:
    assert 0 <= partition_of(key, n) < n
    assert 0 <= spill_partitions([key], 37, level)[0] < 37


@given(key=keys, n=st.integers(1, 64), times=st.integers(1, 64))
def test_a_partition_is_a_range_of_key_groups(key: Any, n: int, times: int) -> None:
    assert partition_of(key, n) == key_group(key, n * times) * n // (n * times)


SPREAD: dict[str, list[Any]] = {
    "sequence": list(range(20_000)),
    "multiples of 1024": list(range(0, 20_000 * 1024, 1024)),
    "minutes in microseconds": list(range(1_700_000_000_000_000, 1_701_200_000_000_000, 60_000_000)),
    "names": [f"user-{n}" for n in range(20_000)],
    "tuples": [(f"user-{n % 100}", n // 100) for n in range(20_000)],
}


@pytest.mark.parametrize("spread_keys", SPREAD.values(), ids=SPREAD.keys())
def test_keys_are_spread_evenly_over_the_partitions_of_each_level(spread_keys: list[Any]) -> None:
    for n in (2, 3, 16):
        mean = len(spread_keys) / n
        assert all(
            abs(size - mean) < 6 * mean**0.5 for size in Counter(partition_of(k, n) for k in spread_keys).values()
        )
    part = [key for key in spread_keys if partition_of(key, 16) == 3]
    for level in (1, 2):
        sizes = Counter(spill_partitions(part, 17, level))
        assert len(sizes) == 17
        assert max(sizes.values()) < 2 * len(part) / 17


def test_keys_of_one_partition_are_divided_evenly_at_the_next_level() -> None:
    keys = list(range(1 << 17))
    part = [key for key, number in zip(keys, spill_partitions(keys, 37, 1), strict=True) if number == 7]
    sizes = Counter(spill_partitions(part, 37, 2))
    assert len(sizes) == 37
    assert max(sizes.values()) < 2 * len(part) / 37


@pytest.mark.parametrize("level", [1, 2, 5])
@pytest.mark.parametrize(
    "keys", [[*range(-3, 3), 2**63 - 1], ["a", "é"], [1, 1.0, "a"], [2**63], [-(2**90), True], ["\ud800"], []]
)
def test_many_keys_have_the_spill_partitions_of_each(keys: list[Any], level: int) -> None:
    assert spill_partitions(keys, 37, level) == [spill_partitions([key, None], 37, level)[0] for key in keys]


@given(a=keys, b=keys, level=st.integers(1, 5))
@example(a=Point(np.False_, "", ""), b=Point((), (), ""), level=1)
@example(a=2**53, b=np.float16(0.0), level=1)
@example(a=np.False_, b=2**63, level=1)
def test_equal_keys_have_the_same_spill_partition(a: Any, b: Any, level: int) -> None:
    """Also if one of them is partitioned among keys of its type, and the other among different ones."""
    for other in (b, *([int(a)] if isinstance(a, (float, bool)) and float(a).is_integer() else ())):
        if exactly_equal(a, other):
            assert spill_partitions([a], 37, level) == spill_partitions([other, None], 37, level)[:1]
