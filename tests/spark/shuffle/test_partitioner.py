"""Partitioning of elements and keys, encoding of blocks as rows, and assignment of splits. Needs no Spark."""

from __future__ import annotations

from array import array
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.exchange.partition_cache import PartitionCache
from tidegate.runners.plan import Edge, Exchange
from tidegate.runners.planner import Traits, plan
from tidegate.runners.spark.driver.split_assignment import all_plain, balanced
from tidegate.runners.spark.plan.levels import assign_levels
from tidegate.runners.spark.shuffle import partitioner
from tidegate.runners.spark.shuffle.partitioner import Partitioner
from tidegate.runners.spark.shuffle.row_codec import OutgoingRows, decode, decode_blocks, encode_blocks, read_rows
from tidegate.runners.spark.task_io.sources import decode_elements, encode_elements
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same, as_pairs
from tidegate.sdk.data.panes import NO_PANE
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow

Element = tuple[Any, int, tuple[Any, ...], Any]


def elements(block: Block) -> list[Element]:
    return list(zip(block.values, block.timestamp_column(), block.window_list(), block.pane_list(), strict=True))


def planned(build: Any) -> Any:
    p = tg.Pipeline()
    build(p)
    return plan(p.portable(), Traits(parallel=True, blocking=True))


class Stateful(tg.DoFn):
    SEEN = tg.ValueStateSpec("seen")

    def process(self, pair: Any, seen: Any = tg.DoFn.StateParam(SEEN)) -> Any:
        yield pair


def plan_with_step(step: Any) -> Any:
    return planned(lambda p: p | tg.Create([(1, 2)]) | step | tg.Map(print))


def partition_blocks(
    blocks: list[Block],
    partitions: int,
    routing: Any = "hash",
    step: Any = None,
    buffer_bytes: int | None = None,
    cached_elements: int = 1 << 17,
) -> dict[int, list[Element]]:
    """The elements that each partition receives. `buffer_bytes` limits the keyed buffer and rows; the buffer is also
    flushed at `cached_elements` if these have few keys."""
    plan_with_shuffle = plan_with_step(step or tg.CombinePerKey(sum))
    edge = next(e for e in plan_with_shuffle.edges if e.exchange is not None and e.exchange.routing == "hash")
    edge = Edge(edge.collection, edge.source, edge.target, Exchange(routing, "blocking", ""))
    out = OutgoingRows()
    router = Partitioner(plan_with_shuffle, edge, 5, 1, 1, partitions, out)
    if buffer_bytes is not None:
        router._keyed_buffer_bytes = router._row_bytes = buffer_bytes
    with mock.patch.object(partitioner, "_CACHED_ELEMENTS", cached_elements):
        for block in blocks:
            router.write(block)
    router.close()
    found: dict[int, list[Element]] = {}
    numbers = []
    for target, number, src, seq, left, data in read_rows(out.batches()):
        assert (number, src, left) == (5, 1, 0)
        numbers.append(seq)
        for elements_ in decode(data):
            for block in elements_.blocks(5) if isinstance(elements_, KeyedBatch) else [elements_]:
                found.setdefault(target, []).extend(elements(block))
    assert len(set(numbers)) == len(numbers) or routing == "broadcast"
    return found


WINDOWS = [Same((GLOBAL_WINDOW,)), DerivedFrom(tg.FixedWindows(10)), Same((IntervalWindow.of_micros(0, 10),))]


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    size = draw(st.sampled_from([1, 3, 300]))
    values = [(draw(st.integers(0, 20)), n) for n in range(min(size, 3))] * (size // min(size, 3))
    timestamps = draw(st.sampled_from([0, 7, list(range(len(values))), array("q", range(len(values)))]))
    windows: Any = draw(st.sampled_from([*WINDOWS, None]))
    if windows is None:
        windows = Each([(IntervalWindow.of_micros(n, n + 5),) for n in range(len(values))])
    panes = draw(st.sampled_from([NO_PANE, [NO_PANE] * len(values)]))
    return Block((as_pairs(values) or values) if draw(st.booleans()) else values, timestamps, windows, panes)


@given(st.lists(blocks(), max_size=6), st.integers(1, 5))
def test_every_element_arrives_once_at_the_partition_of_its_key(given_blocks: list[Block], n: int) -> None:
    found = partition_blocks(given_blocks, n)
    all_elements = [element for block in given_blocks for element in elements(block)]
    cache = PartitionCache(n)
    expected: dict[int, list[Element]] = {}
    for element in all_elements:
        expected.setdefault(cache.partitions([element[0][0]])[0], []).append(element)
    assert found == expected


def by_key(elements_: list[Element]) -> dict[Any, list[Element]]:
    found: dict[Any, list[Element]] = {}
    for element in elements_:
        found.setdefault(element[0][0], []).append(element)
    return found


@given(
    st.lists(blocks(), max_size=6),
    st.integers(1, 5),
    st.sampled_from([None, 1, 100, 1000]),
    st.sampled_from([1, 400, 1 << 17]),
)
def test_the_elements_of_a_key_arrive_in_order_for_a_step_that_keeps_state(
    given_blocks: list[Block], n: int, buffer_bytes: int | None, cached_elements: int
) -> None:
    found = partition_blocks(given_blocks, n, "hash", tg.ParDo(Stateful()), buffer_bytes, cached_elements)
    all_elements = [element for block in given_blocks for element in elements(block)]
    assert by_key([element for partition in found.values() for element in partition]) == by_key(all_elements)
    assert all(
        PartitionCache(n).partitions([e[0][0] for e in partition]) == [target] * len(partition)
        for target, partition in found.items()
    )


@given(
    st.lists(blocks(), max_size=6),
    st.integers(1, 5),
    st.sampled_from([None, 1, 100, 1000]),
    st.sampled_from([1, 400, 1 << 17]),
)
def test_the_values_of_a_key_and_their_windows_arrive_in_order_for_a_grouping(
    given_blocks: list[Block], n: int, buffer_bytes: int | None, cached_elements: int
) -> None:
    found = partition_blocks(given_blocks, n, "hash", tg.GroupByKey(), buffer_bytes, cached_elements)

    def values_by_key(elements_: list[Element]) -> dict[Any, list[Any]]:
        return {key: [(value, windows) for value, _, windows, _ in of_key] for key, of_key in by_key(elements_).items()}

    all_elements = [element for block in given_blocks for element in elements(block)]
    assert values_by_key([element for elements_ in found.values() for element in elements_]) == values_by_key(
        all_elements
    )
    assert all(
        PartitionCache(n).partitions([e[0][0] for e in elements_]) == [target] * len(elements_)
        for target, elements_ in found.items()
    )


def test_a_key_is_sent_once_with_all_its_elements() -> None:
    plan_with_shuffle = plan_with_step(tg.GroupByKey())
    edge = next(e for e in plan_with_shuffle.edges if e.exchange is not None)
    out = OutgoingRows()
    router = Partitioner(plan_with_shuffle, edge, 5, 1, 1, 1, out)
    for _ in range(3):
        router.write(Block([("a", 1), ("b", 2), ("a", 3)]))
    router.close()
    ((_, _, _, _, _, data),) = read_rows(out.batches())
    (keyed,) = decode(data)
    assert isinstance(keyed, KeyedBatch)
    assert (keyed.keys, keyed.counts, keyed.values) == (["a", "b"], [6, 3], [1, 3] * 3 + [2] * 3)


def test_many_elements_of_few_keys_are_sent_while_they_are_in_the_cache() -> None:
    plan_with_shuffle = plan_with_step(tg.GroupByKey())
    edge = next(e for e in plan_with_shuffle.edges if e.exchange is not None)
    out = OutgoingRows()
    router = Partitioner(plan_with_shuffle, edge, 5, 1, 1, 1, out)
    values = list(range(partitioner._CACHED_ELEMENTS))
    for _ in range(3):
        router.write(Block([("a", value) for value in values]))
    router.close()
    sent = [keyed for *_, data in read_rows(out.batches()) for keyed in decode(data)]
    assert [(keyed.keys, keyed.values) for keyed in sent if isinstance(keyed, KeyedBatch)] == [(["a"], values)] * 3


@pytest.mark.parametrize("step", [tg.GroupByKey(), tg.ParDo(Stateful())])
@pytest.mark.parametrize(
    ("element", "message"), [(("a", [1], 3), "pair"), (7, "pair"), (([1], 2), "list"), ((float("nan"), 2), "NaN")]
)
def test_elements_that_are_not_pairs_and_keys_without_an_encoding_are_refused(
    step: Any, element: Any, message: str
) -> None:
    with pytest.raises(tg.TidegateError, match=message):
        partition_blocks([Block([("a", 1), element])], 2, step=step)


def test_broadcast_elements_arrive_at_every_partition() -> None:
    found = partition_blocks([Block([1, 2])], 3, "broadcast")
    assert {target: [e[0] for e in received] for target, received in found.items()} == {n: [1, 2] for n in range(3)}


def test_rebalanced_elements_are_assigned_round_robin() -> None:
    found = partition_blocks([Block(list(range(4))), Block(list(range(4, 9)))], 3, "rebalance")
    assert sorted(len(received) for received in found.values()) == [3, 3, 3]
    assert sorted(e[0] for received in found.values() for e in received) == list(range(9))


KEYS: list[Any] = [
    1,
    1.0,
    True,
    Decimal(1),
    Fraction(1),
    2**70,
    float(2**70),
    "a",
    b"a",
    None,
    (1, "x"),
    (1.0, "x"),
    0.5,
]


@given(st.lists(st.sampled_from(KEYS)), st.integers(1, 9))
def test_the_partition_of_a_key_does_not_depend_on_the_other_keys(keys: list[Any], n: int) -> None:
    in_one_column = PartitionCache(n).partitions(keys)
    assert in_one_column == [PartitionCache(n).partitions([key])[0] for key in keys]
    for key, partition in zip(keys, in_one_column, strict=True):
        assert 0 <= partition < n
        assert {p for k, p in zip(keys, in_one_column, strict=True) if k == key} == {partition}


def test_ints_beyond_the_partition_cache_keep_their_partitions() -> None:
    cache = PartitionCache(4)
    first = cache.partitions(range(100_000))
    assert cache.partitions(range(100_000)) == first
    assert min(Counter(first).values()) > 20_000


def test_keys_that_share_a_divisor_are_spread() -> None:
    assert min(Counter(PartitionCache(4).partitions(range(0, 1 << 40, 1 << 28))).values()) > 700


def test_a_key_without_an_encoding_is_refused() -> None:
    with pytest.raises(KeyEncodingError):
        PartitionCache(2).partitions([[1]])


@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=20), st.integers(1, 6))
def test_every_split_is_read_by_one_partition(sizes: list[int | None], n: int) -> None:
    assigned = list(balanced(sizes, n))
    assert len(assigned) == n
    assert sorted(number for numbers in assigned for number in numbers) == list(range(len(sizes)))


def test_large_splits_are_assigned_to_different_partitions() -> None:
    assigned = list(balanced([1, 1, 50, 1, 50], 2))
    assert [sum([1, 1, 50, 1, 50][number] for number in numbers) for numbers in assigned] == [52, 51]


@pytest.mark.parametrize("values", [[], [1, 2], [(1, 2), (3, 4)], [(1, 2, 3)], [(1, 2), 3], range(5)])
def test_created_elements_are_equal_after_encoding_and_decoding(values: Any) -> None:
    decoded = [block for data in encode_elements(values) for block in decode_elements(data)]
    assert [value for block in decoded for value in block.values] == list(values)


def test_a_named_tuple_keeps_its_class_when_decoded() -> None:
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")
    globals()["Pair"] = Pair
    Pair.__module__ = __name__
    (block,) = decode_blocks(encode_blocks([Block([Pair(1, 2)])]))
    assert type(block.values[0]) is Pair


def test_created_elements_may_have_timestamps() -> None:
    block = Block.of_elements([tg.TimestampedValue("a", 1), "b"])
    assert elements(block)[0][:2] == ("a", 1_000_000)


@pytest.mark.parametrize(
    ("values", "plain"),
    [(range(3), True), ([1, "a", None], True), ([(1, ("a", 2.0))], True), ([[1]], False), ([Block([])], False)],
)
def test_plain_values_are_distinguished_from_values_that_may_need_a_class(values: Any, plain: bool) -> None:
    assert all_plain(values) is plain


def test_a_grouping_is_one_level_later_and_sinks_are_on_the_last() -> None:
    def build(p: tg.Pipeline) -> None:
        source = p | tg.Create([(1, 2)])
        _ = source | "write" >> tg.io.WriteToText("/nowhere/x", num_shards=0)
        _ = source | tg.GroupByKey() | "again" >> tg.CombinePerElement(len) | tg.Map(print)

    import tidegate.io  # noqa: F401

    plan_with_shuffle = planned(build)
    levels = assign_levels(plan_with_shuffle)
    of = {(step.label, step.phase): levels.of_step[step.id] for step in plan_with_shuffle.steps}
    assert levels.count == 3
    assert [level for (label, _), level in of.items() if label.startswith("write")] == [2]
    assert of[("GroupByKey", "whole")] == 1
