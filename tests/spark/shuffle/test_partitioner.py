"""How blocks become rows: the parting by target, the places of keys, the sharing out of input. No Spark is needed."""

from __future__ import annotations

from array import array
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.sources.created import created
from tidegate.runners.exchange.partition_cache import PartitionCache
from tidegate.runners.plan import Edge, Exchange
from tidegate.runners.planner import Traits, plan
from tidegate.runners.spark.driver.split_assignment import all_plain, balanced
from tidegate.runners.spark.plan.levels import assign_levels
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


def feeding(step: Any) -> Any:
    return planned(lambda p: p | tg.Create([(1, 2)]) | step | tg.Map(print))


def routed(
    blocks: list[Block], partitions: int, routing: Any = "hash", step: Any = None, held: int | None = None
) -> dict[int, list[Element]]:
    """What each partition gets of some blocks. `held` (bytes): how much is held by key."""
    whole = feeding(step or tg.CombinePerKey(sum))
    edge = next(e for e in whole.edges if e.exchange is not None and e.exchange.routing == "hash")
    edge = Edge(edge.collection, edge.source, edge.target, Exchange(routing, "blocking", ""))
    out = OutgoingRows()
    router = Partitioner(whole, edge, 5, 1, 1, partitions, out)
    if held is not None:
        router._held_bytes = router._row_bytes = held
    for block in blocks:
        router.write(block)
    router.close()
    found: dict[int, list[Element]] = {}
    numbers = []
    for target, number, src, seq, left, data in read_rows(out.batches()):
        assert (number, src, left) == (5, 1, 0)
        numbers.append(seq)
        for some in decode(data):
            for block in some.blocks(5) if isinstance(some, KeyedBatch) else [some]:
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
def test_every_element_arrives_once_with_its_columns_where_its_key_belongs(given_blocks: list[Block], n: int) -> None:
    found = routed(given_blocks, n)
    everything = [element for block in given_blocks for element in elements(block)]
    places = PartitionCache(n)
    wanted: dict[int, list[Element]] = {}
    for element in everything:
        wanted.setdefault(places.partitions([element[0][0]])[0], []).append(element)
    assert found == wanted


def by_key(some: list[Element]) -> dict[Any, list[Element]]:
    found: dict[Any, list[Element]] = {}
    for element in some:
        found.setdefault(element[0][0], []).append(element)
    return found


@given(st.lists(blocks(), max_size=6), st.integers(1, 5), st.sampled_from([None, 1, 100, 1000]))
def test_the_elements_of_a_key_arrive_in_order_for_a_step_that_keeps_state(
    given_blocks: list[Block], n: int, held: int | None
) -> None:
    found = routed(given_blocks, n, step=tg.ParDo(Stateful()), held=held)
    everything = [element for block in given_blocks for element in elements(block)]
    assert by_key([element for some in found.values() for element in some]) == by_key(everything)
    assert all(
        PartitionCache(n).partitions([e[0][0] for e in some]) == [target] * len(some) for target, some in found.items()
    )


@given(st.lists(blocks(), max_size=6), st.integers(1, 5), st.sampled_from([None, 1, 100, 1000]))
def test_the_values_of_a_key_and_their_windows_arrive_in_order_for_a_grouping(
    given_blocks: list[Block], n: int, held: int | None
) -> None:
    found = routed(given_blocks, n, step=tg.GroupByKey(), held=held)

    def seen(some: list[Element]) -> dict[Any, list[Any]]:
        return {key: [(value, windows) for value, _, windows, _ in own] for key, own in by_key(some).items()}

    everything = [element for block in given_blocks for element in elements(block)]
    assert seen([element for some in found.values() for element in some]) == seen(everything)
    assert all(
        PartitionCache(n).partitions([e[0][0] for e in some]) == [target] * len(some) for target, some in found.items()
    )


def test_a_key_crosses_once_with_all_its_elements() -> None:
    whole = feeding(tg.GroupByKey())
    edge = next(e for e in whole.edges if e.exchange is not None)
    out = OutgoingRows()
    router = Partitioner(whole, edge, 5, 1, 1, 1, out)
    for _ in range(3):
        router.write(Block([("a", 1), ("b", 2), ("a", 3)]))
    router.close()
    ((_, _, _, _, _, data),) = read_rows(out.batches())
    (keyed,) = decode(data)
    assert isinstance(keyed, KeyedBatch)
    assert (keyed.keys, keyed.counts, keyed.values) == (["a", "b"], [6, 3], [1, 3] * 3 + [2] * 3)


@pytest.mark.parametrize("step", [tg.GroupByKey(), tg.ParDo(Stateful())])
@pytest.mark.parametrize(
    ("element", "told"), [(("a", [1], 3), "pair"), (7, "pair"), (([1], 2), "list"), ((float("nan"), 2), "NaN")]
)
def test_what_is_no_pair_and_keys_without_an_encoding_are_refused(step: Any, element: Any, told: str) -> None:
    with pytest.raises(tg.TidegateError, match=told):
        routed([Block([("a", 1), element])], 2, step=step)


def test_what_is_broadcast_arrives_everywhere() -> None:
    found = routed([Block([1, 2])], 3, "broadcast")
    assert {target: [e[0] for e in got] for target, got in found.items()} == {n: [1, 2] for n in range(3)}


def test_what_is_rebalanced_goes_round() -> None:
    found = routed([Block(list(range(4))), Block(list(range(4, 9)))], 3, "rebalance")
    assert sorted(len(got) for got in found.values()) == [3, 3, 3]
    assert sorted(e[0] for got in found.values() for e in got) == list(range(9))


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
def test_equal_keys_have_one_place_in_whatever_company_they_come(keys: list[Any], n: int) -> None:
    together = PartitionCache(n).partitions(keys)
    assert together == [PartitionCache(n).partitions([key])[0] for key in keys]
    for key, place in zip(keys, together, strict=True):
        assert 0 <= place < n
        assert {p for k, p in zip(keys, together, strict=True) if k == key} == {place}


def test_ints_beyond_the_cache_keep_their_places() -> None:
    places = PartitionCache(4)
    first = places.partitions(range(100_000))
    assert places.partitions(range(100_000)) == first
    assert min(Counter(first).values()) > 20_000


def test_keys_that_share_a_divisor_are_spread() -> None:
    assert min(Counter(PartitionCache(4).partitions(range(0, 1 << 40, 1 << 28))).values()) > 700


def test_a_key_without_an_encoding_is_refused() -> None:
    with pytest.raises(KeyEncodingError):
        PartitionCache(2).partitions([[1]])


@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=20), st.integers(1, 6))
def test_every_part_of_the_input_is_read_by_one_partition(sizes: list[int | None], n: int) -> None:
    shares = list(balanced(sizes, n))
    assert len(shares) == n
    assert sorted(at for share in shares for at in share) == list(range(len(sizes)))


def test_large_parts_are_spread() -> None:
    shares = list(balanced([1, 1, 50, 1, 50], 2))
    assert [sum([1, 1, 50, 1, 50][at] for at in share) for share in shares] == [52, 51]


@pytest.mark.parametrize("values", [[], [1, 2], [(1, 2), (3, 4)], [(1, 2, 3)], [(1, 2), 3], range(5)])
def test_blocks_survive_rows(values: Any) -> None:
    made = [block for data in encode_elements(values) for block in decode_elements(data)]
    assert [value for block in made for value in block.values] == list(values)


def test_a_named_tuple_is_one_after_the_row() -> None:
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")
    globals()["Pair"] = Pair
    Pair.__module__ = __name__
    (block,) = decode_blocks(encode_blocks([Block([Pair(1, 2)])]))
    assert type(block.values[0]) is Pair


def test_created_elements_may_bring_timestamps() -> None:
    block = created([tg.TimestampedValue("a", 1), "b"])
    assert elements(block)[0][:2] == ("a", 1_000_000)


@pytest.mark.parametrize(
    ("values", "plain"),
    [(range(3), True), ([1, "a", None], True), ([(1, ("a", 2.0))], True), ([[1]], False), ([Block([])], False)],
)
def test_plain_values_are_told_from_those_that_may_need_a_class(values: Any, plain: bool) -> None:
    assert all_plain(values) is plain


def test_a_grouping_is_a_level_further_and_sinks_are_on_the_last() -> None:
    def build(p: tg.Pipeline) -> None:
        source = p | tg.Create([(1, 2)])
        _ = source | "write" >> tg.io.WriteToText("/nowhere/x", num_shards=0)
        _ = source | tg.GroupByKey() | "again" >> tg.CombinePerElement(len) | tg.Map(print)

    import tidegate.io  # noqa: F401

    whole = planned(build)
    levels = assign_levels(whole)
    of = {(step.label, step.phase): levels.of_step[step.id] for step in whole.steps}
    assert levels.count == 3
    assert [level for (label, _), level in of.items() if label.startswith("write")] == [2]
    assert of[("GroupByKey", "whole")] == 1
