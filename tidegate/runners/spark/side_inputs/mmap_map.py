"""Large maps as files: entries in sequence, and a hash index from keys to the offsets of entries, read by mmap.

A worker maps the file into memory and unpickles only the values it looks up. All workers of a machine share the pages.

    entries   for each key in order: two lengths, the pickled key, the pickled value
    index     a power of two of 8-byte slots: 0, or 24 bits of the hash followed by 40 bits of offset

>>> import tempfile
>>> with tempfile.NamedTemporaryFile() as file:
...     region = write_map(file, {"a": 1, "b": 2})
...     file.flush()
...     found = IndexedMap(MapFile(file.name), region)
>>> found["b"], list(found), "c" in found
(2, ['a', 'b'], False)
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
_OFFSET_BITS: Final = 40
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_LONGEST: Final = (1 << 32) - 1
_CACHED_VALUES: Final = 65_536
"""The number of looked-up values that a worker caches."""


def write_map(file: BinaryIO, pairs: Mapping[Any, Any]) -> MapRegion:
    """Append a map to a file. Raises KeyEncodingError for a key without a canonical encoding, as it can't be indexed.

    Entries written before such an error do no harm, because no index refers to them.
    """
    encode = PickleCoder().encode
    start = offset = file.tell()
    hashes, offsets = array("Q"), array("Q")
    for key, value in pairs.items():
        hashes.append(_hash(key))
        offsets.append(offset)
        packed = encode(key), encode(value)
        lengths = len(packed[0]), len(packed[1])
        if max(lengths) > _LONGEST:
            raise KeyEncodingError("a value of more than 4 GiB can't be indexed")
        file.write(_LENGTHS.pack(*lengths))
        file.writelines(packed)
        offset += _LENGTHS.size + sum(lengths)
    slots = 1 << max(3, (2 * len(hashes)).bit_length())
    index = array("Q", bytes(8 * slots))
    for hashed, at in zip(hashes, offsets, strict=True):
        slot = hashed & (slots - 1)
        while index[slot]:
            slot = (slot + 1) & (slots - 1)
        index[slot] = _tag(hashed) << _OFFSET_BITS | (at + 1)
    file.write(bytes(-offset % 8))
    region = MapRegion(start, file.tell(), slots, len(hashes))
    file.write(index.tobytes())
    return region


def _hash(key: Any) -> int:
    return crc32(key_bytes(key)) * 0x9E37_79B9_7F4A_7C15 >> 16 & 0xFFFF_FFFF_FFFF


def _tag(hashed: int) -> int:
    return hashed >> 24


class MapFile:
    """A memory-mapped file of maps."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), os.fstat(file.fileno()).st_size, access=mmap.ACCESS_READ)
        self.view = memoryview(self.data)


class IndexedMap(Mapping[Any, Any]):
    """A map in a file: a read-only mapping with the entries, order and equality of the dict that was written."""

    def __init__(self, file: MapFile, region: MapRegion) -> None:
        self._view = file.view
        self._region = region
        self._index = file.view[region.index : region.index + 8 * region.slots].cast("Q")
        self._cache: dict[Any, Any] = {}
        self._as_dict: dict[Any, Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        cache = self._cache
        try:
            return cache[key]
        except KeyError:
            pass
        value = self._look_up(key)
        if len(cache) >= _CACHED_VALUES:
            cache.clear()
        cache[key] = value
        return value

    def _look_up(self, key: Any) -> Any:
        if self._as_dict is None:
            try:
                hashed = _hash(key)
            except KeyEncodingError:  # the key may still equal a key that has an encoding; a dict compares them
                self._as_dict = dict(self.items())
        if self._as_dict is not None:
            return self._as_dict[key]
        index, last, tag = self._index, self._region.slots - 1, _tag(hashed)
        slot = hashed & last
        while entry := index[slot]:
            if entry >> _OFFSET_BITS == tag:
                found, value, _ = self._entry((entry & _OFFSET_MASK) - 1)
                if found == key:
                    return pickle.loads(value)
            slot = (slot + 1) & last
        raise KeyError(key)

    def _entry(self, at: int) -> tuple[Any, memoryview, int]:
        """The key and the pickled value of an entry, and the offset of the next one."""
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
        """Each key and its pickled value."""
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
        """A dict in memory."""
        return dict(self.items())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return dict, (list(self.items()),)


class _Items(ItemsView[Any, Any]):
    """Items read sequentially, where `ItemsView` would look up each key."""

    _mapping: IndexedMap

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((key, pickle.loads(value)) for key, value in self._mapping.entries())


class _Values(ValuesView[Any]):
    """Values read sequentially."""

    _mapping: IndexedMap

    def __iter__(self) -> Iterator[Any]:
        return (pickle.loads(value) for _, value in self._mapping.entries())
