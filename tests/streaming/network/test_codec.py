"""Items of a channel are decoded as they were encoded; elements that can't be pickled are named in the error."""

from __future__ import annotations

import pickle
import struct
import threading
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.network.codec import decode_items, encode_items
from tidegate.runners.streaming.protocol.stream_items import Barrier, Item
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same, as_pairs
from tidegate.sdk.data.panes import NO_PANE, PaneInfo, Timing
from tidegate.sdk.errors import PicklingError, RunError
from tidegate.sdk.windowing.assigners import FixedWindows
from tidegate.sdk.windowing.window import GlobalWindow, IntervalWindow


def round_trip(items: list[Item], *, owned: bool = True) -> list[Item]:
    data = bytearray(b"".join(encode_items(items)))
    return decode_items(memoryview(data), owned=owned)


def columns(item: Item) -> Any:
    if isinstance(item, Block):
        return list(item.values), list(item.timestamp_column()), item.windows, item.panes
    return item


values = st.lists(st.integers() | st.text() | st.tuples(st.integers(), st.text()) | st.none(), max_size=8) | st.lists(
    st.tuples(st.integers(), st.text()), max_size=8
)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    contents = draw(values)
    timestamps = draw(st.sampled_from([7, list(range(len(contents))), array("q", range(len(contents)))]))
    window = IntervalWindow(0, 10)
    windows = draw(
        st.sampled_from([Same((GlobalWindow(),)), Each([(window,)] * len(contents)), DerivedFrom(FixedWindows(5))])
    )
    panes = draw(
        st.sampled_from([NO_PANE, [PaneInfo(True, False, Timing.EARLY, n, 0) for n, _ in enumerate(contents)]])
    )
    return Block((as_pairs(contents) or contents) if draw(st.booleans()) else contents, timestamps, windows, panes)


events = st.builds(CollectionStatus, st.integers(0, 9), st.booleans(), st.booleans()) | st.builds(
    Barrier, st.integers(1, 9)
)


@given(st.lists(blocks() | events, max_size=6), st.booleans())
def test_items_come_out_in_order_with_all_their_columns(items: list[Item], owned: bool) -> None:
    assert list(map(columns, round_trip(items, owned=owned))) == list(map(columns, items))


def test_pairs_of_mixed_types_and_tuples_of_mixed_lengths_are_preserved() -> None:
    mixed: list[Any] = [(1, 2), [3, 4]]
    of_three = [(1, 2), (3, 4, 5)]
    out = round_trip([Block(mixed), Block(of_three), Block([])])
    assert [block.values for block in out if isinstance(block, Block)] == [mixed, of_three, []]


@pytest.mark.parametrize("owned", [True, False])
def test_large_arrays_are_sent_beside_the_pickle_and_are_writable_when_they_arrive(owned: bool) -> None:
    arrays = [np.arange(5000) + n for n in range(3)]
    parts = encode_items([Block([(n, each) for n, each in enumerate(arrays)])])
    assert [part.obj is not None for part in parts if isinstance(part, memoryview)] == [True] * 3
    (block,) = round_trip([Block([(n, each) for n, each in enumerate(arrays)])], owned=owned)
    assert isinstance(block, Block)
    for (n, each), before in zip(block.values, arrays):
        assert each.flags.aligned
        each += 1
        assert (each == before + 1).all(), n


def test_decoding_copies_buffers_that_the_items_do_not_own() -> None:
    data = bytearray(b"".join(encode_items([Block([np.arange(5000)])])))
    (block,) = decode_items(memoryview(data), owned=False)
    data[:] = bytes(len(data))
    assert isinstance(block, Block)
    assert (block.values[0] == np.arange(5000)).all()


def test_an_element_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(PicklingError, match="lock"):
        encode_items([CollectionStatus(), Block([1, {"at fault": threading.Lock()}])])


class Broken:
    def __init__(self, part: int) -> None:
        self.part = part

    def __reduce__(self) -> Any:
        return Broken, ()


def test_an_element_that_cannot_be_unpickled_is_a_decoding_error() -> None:
    with pytest.raises(RunError, match="can't be decoded"):
        round_trip([Block([Broken(1)])])


@pytest.mark.parametrize("cut", [0, 5, 16, 40, -1])
def test_a_damaged_frame_is_an_error(cut: int) -> None:
    data = b"".join(encode_items([Block([np.arange(5000)])]))
    with pytest.raises(RunError):
        decode_items(memoryview(bytearray(data[:cut])), owned=True)


def frame_of(columns: Any) -> bytes:
    """A frame of these columns, valid or not."""
    pickled = pickle.dumps(columns)
    return struct.pack("<I4xQ", 0, len(pickled)) + pickled


frame = b"".join(encode_items([Block([1, 2]), CollectionStatus(7)]))
anything = st.none() | st.integers() | st.text(alphabet="be", max_size=3) | st.lists(st.none(), max_size=3)


@given(
    st.binary(max_size=80)
    | st.integers(0, len(frame)).map(lambda cut: frame[:cut])
    | st.builds(lambda at, byte: frame[:at] + bytes([byte]) + frame[at + 1 :], st.integers(0, 15), st.integers(0, 255))
    | st.lists(anything, max_size=8).map(tuple).map(frame_of)
    | anything.map(frame_of),
    st.booleans(),
)
def test_any_bytes_decode_to_items_or_raise_a_run_error(data: bytes, owned: bool) -> None:
    try:
        items = decode_items(memoryview(bytearray(data)), owned=owned)
    except RunError:
        return
    assert all(isinstance(item, Item) for item in items)
