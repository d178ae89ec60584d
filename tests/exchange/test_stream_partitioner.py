"""Which task receives which element."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.exchange.stream_partitioner import Partitioner, every_nth, owner, select
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block, Each
from tidegate.sdk.data.keys import key_group
from tidegate.sdk.data.panes import NO_PANE, PaneInfo, Timing
from tidegate.sdk.errors import TidegateError


class RecordingTarget:
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.statuses: list[CollectionStatus] = []

    def add(self, block: Block, now: int) -> None:
        self.values += block.values

    def send_status(self, status: CollectionStatus, now: int) -> None:
        self.statuses.append(status)


def partition(routing: str, elements: list[Any], n: int) -> list[list[Any]]:
    pipeline = tg.Pipeline()
    start = pipeline | tg.Create(elements)
    match routing:
        case "hash":
            end = start | tg.GroupByKey()
        case "rebalance":
            end = start | tg.Reshuffle()
        case _:
            end = start | tg.combiners.Count.Globally()
    end | "end" >> tg.Map(print)
    planned = plan(pipeline.sealed(values=True), Traits(parallel=True, streaming=True))
    edge = next(edge for edge in planned.edges if edge.exchange is not None and edge.exchange.routing == routing)
    targets = [RecordingTarget() for _ in range(n)]
    partitioner = Partitioner(planned, edge, 0, targets, 128)
    for start_at in range(0, len(elements), 7):
        partitioner.write(Block(elements[start_at : start_at + 7]), 0)
    partitioner.send_status(CollectionStatus(3), 0)
    partitioner.send_status(CollectionStatus(3), 0)
    assert all(target.statuses == [CollectionStatus(3)] for target in targets), "every target receives a status once"
    return [target.values for target in targets]


def test_equal_keys_meet_at_the_task_that_owns_their_key_group() -> None:
    pairs = [(key, n) for n in range(5) for key in ("a", "b", 1, 1.0, (2, "x"), None)]
    received = partition("hash", pairs, 3)
    assert sorted(map(repr, chain.from_iterable(received))) == sorted(map(repr, pairs))
    for index, values in enumerate(received):
        assert {owner(key_group(key, 128), 3, 128) for key, _ in values} <= {index}
        for key in {key for key, _ in values}:
            assert [n for k, n in values if k == key and type(k) is type(key)] == sorted(
                n for k, n in values if k == key and type(k) is type(key)
            ), "the order per key is preserved"


def test_rebalance_spreads_elements_by_position() -> None:
    received = partition("rebalance", list(range(100)), 3)
    assert sorted(chain.from_iterable(received)) == list(range(100))
    assert {len(values) for values in received} <= {33, 34}


def test_a_gather_exchange_sends_everything_to_one_task() -> None:
    (alone,) = partition("gather", list(range(20)), 1)
    assert len(alone) == 1 or alone == list(range(20))


@pytest.mark.parametrize(("element", "message"), [(7, "key, value"), (([], 1), "key")], ids=["no-pair", "no-encoding"])
def test_an_element_without_a_key_is_refused_by_name(element: Any, message: str) -> None:
    with pytest.raises(TidegateError) as raised:
        partition("hash", [("a", 1), element], 2)
    assert "GroupByKey" in str(raised.value)
    assert message in str(raised.value)


@given(st.integers(1, 200), st.integers(1, 50))
def test_each_task_owns_a_run_of_key_groups(max_parallelism: int, parallelism: int) -> None:
    owners = [owner(group, parallelism, max_parallelism) for group in range(max_parallelism)]
    assert owners == sorted(owners)
    assert set(owners) <= set(range(parallelism))
    if parallelism <= max_parallelism:
        assert set(owners) == set(range(parallelism))


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_select_and_every_nth_keep_all_columns_together(selected: list[bool]) -> None:
    n = len(selected)
    panes = [PaneInfo(True, False, Timing.EARLY, i, -1) for i in range(n)]
    block = Block(list(range(n)), [i * 10 for i in range(n)], Each([(i,) for i in range(n)]), panes)
    indices = [i for i in range(n) if selected[i]]
    for part, expected in ((select(block, selected), indices), (every_nth(block, 1, 3), list(range(1, n, 3)))):
        assert part.values == expected
        assert part.timestamps == [i * 10 for i in expected]
        assert part.window_list() == [(i,) for i in expected]
        assert [pane.index for pane in part.pane_list()] == expected
    plain = select(Block(list(range(n)), 5), selected)
    assert (plain.timestamps, plain.panes) == (5, NO_PANE)
