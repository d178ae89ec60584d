"""The data of the workloads, generated once from fixed seeds and cached in `.benchmarks/` in the repository.

All systems under test get the same data, and each result is a count and a checksum, which must be equal for times to be
comparable.
"""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import tidegate as tg

HOME = Path(__file__).resolve().parent.parent / ".benchmarks"
START_MS = 1_700_000_000_000
MASK = (1 << 64) - 1


@cache
def _cached(make: Callable[[], Any]) -> Any:
    path = HOME / f"{make.__name__}.pickle"
    if not path.exists():
        HOME.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(make(), 5))
    return pickle.loads(path.read_bytes())


def numbers() -> range:
    """W1: two million ints."""
    return range(2_000_000)


def text() -> Path:
    """W2: 50 MB of words, twelve per line, from a vocabulary of 50,000 with a Zipf distribution."""
    path = HOME / "words.txt"
    if not path.exists():
        HOME.mkdir(exist_ok=True)
        rnd = random.Random(2)
        letters = "abcdefghijklmnopqrstuvwxyz"
        vocabulary: dict[str, None] = {}
        while len(vocabulary) < 50_000:
            vocabulary["".join(rnd.choices(letters, k=rnd.randint(3, 10)))] = None
        weights, total = [], 0.0
        for rank in range(1, 50_001):
            total += 1.0 / rank
            weights.append(total)
        words, size = list(vocabulary), 0
        with path.open("w") as file:
            while size < 50_000_000:
                drawn = rnd.choices(words, cum_weights=weights, k=12_000)
                for at in range(0, len(drawn), 12):
                    size += file.write(" ".join(drawn[at : at + 12]) + "\n")
    return path


def _events() -> list[tuple[int, int, int]]:
    rnd = random.Random(3)
    return [
        (rnd.randrange(10_000), START_MS + i // 10 + rnd.randrange(2000), rnd.randrange(1000)) for i in range(1_000_000)
    ]


def _visits() -> list[tuple[int, int]]:
    """No two consecutive visits of a key are exactly one gap apart: systems differ in whether those are one session."""
    rnd = random.Random(4)
    visits = [[rnd.randrange(5_000), START_MS + i * 3 + rnd.randrange(1000)] for i in range(500_000)]
    of_key: dict[int, list[int]] = {}
    for i, (key, _) in enumerate(visits):
        of_key.setdefault(key, []).append(i)
    for places in of_key.values():
        moved = True
        while moved:
            moved = False
            places.sort(key=lambda i: visits[i][1])
            for a, b in itertools.pairwise(places):
                if visits[b][1] - visits[a][1] == 30_000:
                    visits[b][1] += 1
                    moved = True
    return [(key, at) for key, at in visits]


def _grouped() -> list[tuple[int, int]]:
    rnd = random.Random(5)
    return [(rnd.randrange(100_000), rnd.randrange(1_000_000)) for _ in range(1_000_000)]


def _readings() -> list[tuple[int, int]]:
    rnd = random.Random(6)
    return [(rnd.randrange(10_000), rnd.randrange(1_000_000)) for _ in range(1_000_000)]


def _left() -> list[tuple[int, int]]:
    rnd = random.Random(7)
    return [(rnd.randrange(500_000), rnd.randrange(1_000_000)) for _ in range(500_000)]


def _right() -> list[tuple[int, int]]:
    rnd = random.Random(8)
    return [(rnd.randrange(500_000), rnd.randrange(1_000_000)) for _ in range(500_000)]


def events() -> list[tuple[int, int, int]]:
    """W3: a million elements (key, event time in ms, value) with 10,000 keys, up to 2 s out of order."""
    return _cached(_events)  # type: ignore[no-any-return]


def visits() -> list[tuple[int, int]]:
    """W4: half a million elements (key, event time in ms) with 5,000 keys."""
    return _cached(_visits)  # type: ignore[no-any-return]


@cache
def stamped_visits() -> list[tg.TimestampedValue[int]]:
    """The input of W4's pipeline: keys with their event times as timestamps."""
    return [tg.TimestampedValue(key, at / 1000) for key, at in visits()]


def grouped() -> list[tuple[int, int]]:
    """W5: a million pairs with 100,000 keys."""
    return _cached(_grouped)  # type: ignore[no-any-return]


def readings() -> list[tuple[int, int]]:
    """W6 and W9: a million pairs with 10,000 keys."""
    return _cached(_readings)  # type: ignore[no-any-return]


def left() -> list[tuple[int, int]]:
    """W7: one side of the join, half a million records with 500,000 keys."""
    return _cached(_left)  # type: ignore[no-any-return]


def right() -> list[tuple[int, int]]:
    """W7: the other side of the join."""
    return _cached(_right)  # type: ignore[no-any-return]


def mixed(key: int, a: int, b: int) -> int:
    """One term of a checksum that does not depend on the order of elements."""
    return (key * 1000003) ^ (a * 7919) ^ (b * 31)


def weighted(values: list[int]) -> int:
    """A sum that depends on the order of the values."""
    total = 0
    at = 1
    for value in values:
        total += at * value
        at += 1
    return total
