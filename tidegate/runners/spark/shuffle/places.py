"""Places: the numbers by which rows of a loop are distributed, one for each partition.

Spark can put a row into the partition that the hash of its column gives. Only of such partitions does it know that two
DataFrames are distributed alike, and then it unites them without moving a row. So tasks of a loop address their rows to
numbers whose hashes are those of the partitions.

>>> places(3)
(0, 1, 11)
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Final

_MASK: Final = 0xFFFF_FFFF
_SEED: Final = 42


@cache
def places(partitions: int) -> tuple[int, ...]:
    """For each partition the least number that Spark's hash puts there."""
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(spark_hash(number) % partitions, number)
        if len(found) == partitions:
            return tuple(found[partition] for partition in range(partitions))
    raise AssertionError


def spark_hash(number: int) -> int:
    """What Spark's `hash` gives for an integer: its Murmur3, signed."""
    mixed = _rotated(number * 0xCC9E_2D51 & _MASK, 15) * 0x1B87_3593 & _MASK
    value = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE654_6B64) & _MASK ^ 4
    value = (value ^ value >> 16) * 0x85EB_CA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2_AE35 & _MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
