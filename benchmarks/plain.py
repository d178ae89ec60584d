"""The reference for each workload: the loop that a good programmer would write by hand, in plain Python on one core."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import data
from data import MASK, mixed, weighted

Result = tuple[int, int]


def w1() -> Result:
    count = total = 0
    for x in data.numbers():
        x += 1
        if x % 3 == 0:
            for y in (x, -x):
                count += 1
                total += y * 2
    return count, total


def w2() -> Result:
    counts: dict[str, int] = {}
    with data.text().open() as file:
        for line in file:
            for word in line.split():
                counts[word] = counts.get(word, 0) + 1
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "counts.txt").open("w") as file:
        for word, n in counts.items():
            file.write(f"{word}\t{n}\n")
    return len(counts), sum(counts.values())


def w3() -> Result:
    sums: dict[tuple[int, int], int] = {}
    for key, at, value in data.events():
        cell = (key, at // 10_000)
        sums[cell] = sums.get(cell, 0) + value
    count = total = 0
    for (key, window), value in sums.items():
        count += 1
        total += mixed(key, window * 10, value)
    return count, total & MASK


def w4() -> Result:
    times: dict[int, list[int]] = {}
    for key, at in data.visits():
        known = times.get(key)
        if known is None:
            times[key] = [at]
        else:
            known.append(at)
    count = total = 0
    for key, seen in times.items():
        seen.sort()
        start = last = seen[0]
        n = 0
        for at in seen:
            if at - last > 30_000:
                count += 1
                total += mixed(key, start, n)
                start = at
                n = 0
            n += 1
            last = at
        count += 1
        total += mixed(key, start, n)
    return count, total & MASK


def w5() -> Result:
    lists: dict[int, list[int]] = {}
    for key, value in data.grouped():
        known = lists.get(key)
        if known is None:
            lists[key] = [value]
        else:
            known.append(value)
    count = total = 0
    for key, values in lists.items():
        values.sort()
        count += 1
        total += mixed(key, len(values), weighted(values))
    return count, total & MASK


def w6() -> Result:
    greatest: dict[int, int] = {}
    count = total = 0
    get = greatest.get
    for key, value in data.readings():
        most = get(key, -1)
        if value > most:
            greatest[key] = most = value
        count += 1
        total += key ^ (most * 31)
    return count, total & MASK


def rises() -> Result:
    """The result of W6 for elements in no fixed order: the sum of how much each raises the maximum of its key."""
    greatest: dict[int, int] = {}
    for key, value in data.readings():
        greatest[key] = max(greatest.get(key, -1), value)
    total = sum(key for key, _ in data.readings()) + sum((most + 1) * (key + 31) for key, most in greatest.items())
    return len(data.readings()), total & MASK


def w7() -> Result:
    lefts: dict[int, list[int]] = {}
    rights: dict[int, list[int]] = {}
    for key, value in data.left():
        known = lefts.get(key)
        if known is None:
            lefts[key] = [value]
        else:
            known.append(value)
    for key, value in data.right():
        known = rights.get(key)
        if known is None:
            rights[key] = [value]
        else:
            known.append(value)
    count = total = 0
    for key, values in lefts.items():
        others = rights.get(key)
        if others is not None:
            for a in values:
                for b in others:
                    count += 1
                    total += mixed(key, a, b)
    return count, total & MASK


def w9() -> Result:
    known: dict[int, tuple[int, int]] = {}
    get = known.get
    nothing = 0, 0
    for key, value in data.readings():
        n, sum_ = get(key, nothing)
        known[key] = n + 1, sum_ + value
    count = total = 0
    for key, (n, sum_) in known.items():
        count += 1
        total += mixed(key, n, sum_)
    return count, total & MASK


LOOPS: dict[str, Callable[[], Result]] = {
    "W1": w1,
    "W2": w2,
    "W3": w3,
    "W4": w4,
    "W5": w5,
    "W6": w6,
    "W7": w7,
    "W9": w9,
}
