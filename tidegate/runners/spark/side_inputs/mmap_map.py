"""Large maps as files: entries one after another, and an index from a key's hash to its place, read through mmap.

A worker maps the file and unpickles what is looked up; the pages are the machine's, shared by all its workers.

    entries   for each key in order: two lengths, the pickled key, the pickled value
    index     slots of 8 bytes, a power of two of them: 0, or 24 bits of the hash over 40 bits of place
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from array import array
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Any, BinaryIO, Final
from zlib import crc32

from tidegate.runners.spark.plan.task_spec import MapRegion
from tidegate.sdk.data.coders import PickleCoder
from tidegate.sdk.data.keys import key_bytes
from tidegate.sdk.errors import KeyEncodingError

_LENGTHS: Final = struct.Struct("<II")
_PLACE_BITS: Final = 40
_PLACE: Final = (1 << _PLACE_BITS) - 1
_LONGEST: Final = (1 << 32) - 1
_KEPT: Final = 65_536
"""How many values a worker keeps once they have been looked up."""


def write_map(file: BinaryIO, pairs: Mapping[Any, Any]) -> MapRegion:
    """Append a map. KeyEncodingError for a key that has no canonical encoding: it can't be found by one.

    What went to the file by then is of no harm: no index leads to it.
    """
    encode = PickleCoder().encode
    start = place = file.tell()
    hashes, places = array("Q"), array("Q")
    for key, value in pairs.items():
        hashes.append(_hash(key))
        places.append(place)
        packed = encode(key), encode(value)
        lengths = len(packed[0]), len(packed[1])
        if max(lengths) > _LONGEST:
            raise KeyEncodingError("a value of more than 4 GiB can't be indexed")
        file.write(_LENGTHS.pack(*lengths))
        file.writelines(packed)
        place += _LENGTHS.size + sum(lengths)
    slots = 1 << max(3, (2 * len(hashes)).bit_length())
    index = array("Q", bytes(8 * slots))
    for hashed, at in zip(hashes, places, strict=True):
        slot = hashed & (slots - 1)
        while index[slot]:
            slot = (slot + 1) & (slots - 1)
        index[slot] = _tag(hashed) << _PLACE_BITS | (at + 1)
    file.write(bytes(-place % 8))
    region = MapRegion(start, file.tell(), slots, len(hashes))
    file.write(index.tobytes())
    return region


def _hash(key: Any) -> int:
    return crc32(key_bytes(key)) * 0x9E37_79B9_7F4A_7C15 >> 16 & 0xFFFF_FFFF_FFFF


def _tag(hashed: int) -> int:
    return hashed >> 24


class MapFile:
    """A file of maps, mapped into memory."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), os.fstat(file.fileno()).st_size, access=mmap.ACCESS_READ)
        self.view = memoryview(self.data)


class IndexedMap(Mapping[Any, Any]):
    """A map in a file: a read-only mapping with the entries, order and equality of the dict it was made from."""

    def __init__(self, file: MapFile, region: MapRegion) -> None:
        self._view = file.view
        self._region = region
        self._index = file.view[region.index : region.index + 8 * region.slots].cast("Q")
        self._kept: dict[Any, Any] = {}
        self._whole: dict[Any, Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        kept = self._kept
        try:
            return kept[key]
        except KeyError:
            pass
        value = self._look_up(key)
        if len(kept) >= _KEPT:
            kept.clear()
        kept[key] = value
        return value

    def _look_up(self, key: Any) -> Any:
        if self._whole is None:
            try:
                hashed = _hash(key)
            except KeyEncodingError:  # may equal one that has an encoding all the same: only `==` can tell
                self._whole = dict(self.items())
        if self._whole is not None:
            return self._whole[key]
        index, last, tag = self._index, self._region.slots - 1, _tag(hashed)
        slot = hashed & last
        while entry := index[slot]:
            if entry >> _PLACE_BITS == tag:
                found, value, _ = self._entry((entry & _PLACE) - 1)
                if found == key:
                    return pickle.loads(value)
            slot = (slot + 1) & last
        raise KeyError(key)

    def _entry(self, at: int) -> tuple[Any, memoryview, int]:
        """A key, its value as it is in the file, and where the next entry is."""
        key_length, value_length = _LENGTHS.unpack_from(self._view, at)
        at += _LENGTHS.size
        middle = at + key_length
        end = middle + value_length
        return pickle.loads(self._view[at:middle]), self._view[middle:end], end

    def __contains__(self, key: object) -> bool:
        try:
            self[key]
        except KeyError:
            return False
        return True

    def __len__(self) -> int:
        return self._region.count

    def __iter__(self) -> Iterator[Any]:
        for key, _ in self.entries():
            yield key

    def items(self) -> ItemsView[Any, Any]:
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def entries(self) -> Iterator[tuple[Any, memoryview]]:
        """Each key, and its value as it is in the file."""
        at = self._region.entries
        for _ in range(self._region.count):
            key, value, at = self._entry(at)
            yield key, value

    def __repr__(self) -> str:
        return repr(dict(self.items()))

    def __or__(self, other: Any) -> Any:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def copy(self) -> dict[Any, Any]:
        """All of it as a dict, in memory."""
        return dict(self.items())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return dict, (list(self.items()),)


class _Items(ItemsView[Any, Any]):
    """Read in the file's order, where `ItemsView` would look up key by key."""

    _mapping: IndexedMap

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((key, pickle.loads(value)) for key, value in self._mapping.entries())


class _Values(ValuesView[Any]):
    """The same for values alone."""

    _mapping: IndexedMap

    def __iter__(self) -> Iterator[Any]:
        return (pickle.loads(value) for _, value in self._mapping.entries())
