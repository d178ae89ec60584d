"""Small, mergeable summaries of many values: distinct counts, quantiles, samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, log2
from operator import itemgetter
from typing import Any, Final, TypeVar

from tidegate.sdk.authoring.combine import CombineFn
from tidegate.sdk.data.keys import key_bytes

T = TypeVar("T")

_MASK: Final = (1 << 64) - 1


class UniqueSketch:
    """The `size` smallest 64-bit hashes of all distinct values: the count is exact up to `size`, an estimate beyond.

    The k-th smallest of n evenly spread hashes lies near k/n of their range, so n is about (k-1) / its position, with
    a relative standard error of 1/√(k-2) (Bar-Yossef et al. 2002; Beyer et al. 2007). Values are hashed as keys are:
    equal values have the same hash, in every process.
    """

    __slots__ = ("hashes", "limit", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.hashes: set[int] = set()
        self.limit = 1 << 64
        """Hashes at or above the limit are not among the smallest."""

    def add(self, hash: int) -> None:
        """Add a value, given its hash."""
        if hash < self.limit:
            self.hashes.add(hash)
            if len(self.hashes) >= 2 * self.size + 16:
                self.trim()

    def trim(self) -> None:
        """Drop all but the smallest hashes."""
        if len(self.hashes) > self.size:
            smallest = sorted(self.hashes)[: self.size]
            self.hashes = set(smallest)
            self.limit = smallest[-1]

    def merge(self, other: UniqueSketch) -> None:
        """Merge another sketch of the same size into this one."""
        self.limit = min(self.limit, other.limit)
        self.hashes |= other.hashes
        self.trim()

    def estimate(self) -> int:
        """The number of distinct values."""
        self.trim()
        if len(self.hashes) < self.size:
            return len(self.hashes)
        return round((self.size - 1) * (1 << 64) / (max(self.hashes) + 1))


class ApproximateUniqueFn(CombineFn[Any, UniqueSketch, int]):
    """The number of distinct elements, by a sketch of `size` hashes; see `UniqueSketch`."""

    def __init__(self, size: int) -> None:
        self.size = size

    def create_accumulator(self) -> UniqueSketch:
        return UniqueSketch(self.size)

    def add_input(self, accumulator: UniqueSketch, element: Any) -> UniqueSketch:
        accumulator.add(hash64(key_bytes(element)))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[UniqueSketch]) -> UniqueSketch:
        merged = UniqueSketch(self.size)
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def compact(self, accumulator: UniqueSketch) -> UniqueSketch:
        accumulator.trim()
        return accumulator

    def extract_output(self, accumulator: UniqueSketch) -> int:
        return accumulator.estimate()


def hash64(data: bytes) -> int:
    """A 64-bit hash that is the same in every process."""
    from hashlib import blake2b

    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


class QuantileSketch:
    """Values in levels: a value on level h represents 2^h. A full level is sorted, and every second value moves up.

    Halving level h changes a rank by at most 2^h, and happens at most N / (capacity · 2^h) times for N values, however
    sketches are merged. So once H levels have been halved, a rank is off by at most N · H / capacity (Munro and
    Paterson 1980; Agarwal et al., Mergeable summaries, 2012). The least and the greatest value are exact, and so is
    every value until `capacity`, an even number, of them have been added.
    """

    __slots__ = ("capacity", "count", "ends", "halved", "key", "levels")

    def __init__(self, capacity: int, key: Callable[[Any], Any] | None = None) -> None:
        self.capacity = capacity
        self.key = key
        self.count = 0
        self.levels: list[list[Any]] = [[]]
        self.ends: list[Any] = []
        """The least and the greatest of the values in levels that have been halved."""
        self.halved = 0
        """The number of times that a level has been halved."""

    def add(self, value: Any) -> None:
        """Add a value."""
        self.count += 1
        self.levels[0].append(value)
        if len(self.levels[0]) >= self.capacity:
            self.shrink()

    def merge(self, other: QuantileSketch) -> None:
        """Merge another sketch of the same capacity and key into this one."""
        self.count += other.count
        self.ends += other.ends
        while len(self.levels) < len(other.levels):
            self.levels.append([])
        for level, other_level in zip(self.levels, other.levels, strict=False):
            level += other_level
        self.shrink()

    def shrink(self) -> None:
        """Halve each full level, from the bottom up, at odd and even positions alternately, so that errors cancel."""
        height = 0
        while height < len(self.levels):
            level = self.levels[height]
            if len(level) >= self.capacity:
                level.sort(key=self.key)
                self.ends = self._least_and_greatest([*self.ends, level[0], level[-1]])
                if height + 1 == len(self.levels):
                    self.levels.append([])
                even = len(level) & ~1
                self.levels[height + 1] += level[self.halved & 1 : even : 2]
                self.halved += 1
                del level[:even]
            height += 1

    def quantiles(self, n: int) -> list[Any]:
        """The least value, n - 2 values evenly spaced in rank, and the greatest; [] for no values."""
        if not self.count:
            return []
        weighted = [(value, 1 << height) for height, level in enumerate(self.levels) for value in level]
        key = self.key
        weighted.sort(key=itemgetter(0) if key is None else lambda pair: key(pair[0]))
        least, greatest = self._least_and_greatest([*self.ends, weighted[0][0], weighted[-1][0]])
        found = [least]
        passed, remaining = 0, iter(weighted)
        value = least
        for at in range(1, n - 1):
            rank = (at * (self.count - 1) + (n - 1) // 2) // (n - 1)
            while passed <= rank:
                value, weight = next(remaining)
                passed += weight
            found.append(value)
        return [*found, greatest]

    def _least_and_greatest(self, values: list[Any]) -> list[Any]:
        values.sort(key=self.key)
        return [values[0], values[-1]]


MOST_VALUES: Final = 1 << 40
"""The error bound holds for up to this many values (10^12); each doubling of them adds 1/capacity to the error."""


def quantile_capacity(error: float) -> int:
    """An even capacity for which ranks among `MOST_VALUES` values are off by at most the fraction `error`."""
    height = ceil(log2(MOST_VALUES))
    while True:
        capacity = 2 * ceil(height / error / 2)
        needed = max(1, ceil(log2(MOST_VALUES / capacity)))
        if needed >= height:
            return 2 * ceil(needed / error / 2)
        height = needed


class ApproximateQuantilesFn(CombineFn[T, QuantileSketch, list[T]]):
    """`n` quantiles, with ranks off by at most the fraction `error`; see `QuantileSketch`."""

    def __init__(self, n: int, error: float, key: Callable[[Any], Any] | None, reverse: bool) -> None:
        self.n = n
        self.capacity = quantile_capacity(error)
        self.key = key
        self.reverse = reverse

    def create_accumulator(self) -> QuantileSketch:
        return QuantileSketch(self.capacity, self.key)

    def add_input(self, accumulator: QuantileSketch, element: T) -> QuantileSketch:
        accumulator.add(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[QuantileSketch]) -> QuantileSketch:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: QuantileSketch) -> list[T]:
        quantiles = accumulator.quantiles(self.n)
        return quantiles[::-1] if self.reverse else quantiles


class Reservoir:
    """The `size` values of lowest priority; each value gets its priority from a random number generator.

    The generator is seeded with `seed` and the first value, so that reservoirs filled separately draw different
    priorities. Any two reservoirs merge into a fair sample of both.
    """

    __slots__ = ("kept", "limit", "seed", "size", "state")

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed
        self.state: int | None = None
        self.kept: list[tuple[int, Any]] = []
        self.limit = 1 << 64
        """Values with a priority at or above the limit are dropped."""

    def add(self, value: Any) -> None:
        """Add a value."""
        state = self.state
        if state is None:
            import pickle

            state = hash64(b"%d:" % self.seed + pickle.dumps(value, 5))
        # A linear congruential generator modulo 2^64 with Knuth's (MMIX) constants; the high bits decide.
        self.state = priority = (state * 6364136223846793005 + 1442695040888963407) & _MASK
        if priority < self.limit:
            self.kept.append((priority, value))
            if len(self.kept) >= 2 * self.size + 16:
                self.trim()

    def merge(self, other: Reservoir) -> None:
        """Merge another reservoir of the same size into this one."""
        self.kept += other.kept
        self.limit = min(self.limit, other.limit)
        self.trim()

    def trim(self) -> None:
        """Drop all but the values of lowest priority, and sort those, the lowest first."""
        self.kept.sort(key=itemgetter(0))
        if len(self.kept) > self.size:
            del self.kept[self.size :]
            self.limit = self.kept[-1][0]


class SampleFn(CombineFn[T, Reservoir, list[T]]):
    """A sample of `size` elements, in which each is equally likely; see `Reservoir`."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed

    def create_accumulator(self) -> Reservoir:
        return Reservoir(self.size, self.seed)

    def add_input(self, accumulator: Reservoir, element: T) -> Reservoir:
        accumulator.add(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Reservoir]) -> Reservoir:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def compact(self, accumulator: Reservoir) -> Reservoir:
        accumulator.trim()
        return accumulator

    def extract_output(self, accumulator: Reservoir) -> list[T]:
        accumulator.trim()
        return [value for _, value in accumulator.kept]
