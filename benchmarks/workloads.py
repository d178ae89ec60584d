"""The workloads as pipelines. Each writes a count and a checksum, which `result` reads after the run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import data
from data import MASK, mixed, weighted

import tidegate as tg
import tidegate.io

Result = tuple[int, int]


def report(value: Any, path: str) -> None:
    """The last step: writes a number to a file."""
    Path(path).write_text(json.dumps(value))


def total(terms: Any, folder: str) -> None:
    """Write the count and the sum of the checksum's terms."""
    terms | "count" >> tg.CombineGlobally(len) | "write count" >> tg.Map(report, f"{folder}/count")
    terms | "sum" >> tg.CombineGlobally(sum) | "write sum" >> tg.Map(report, f"{folder}/sum")


def w1(p: tg.Pipeline, folder: str) -> None:
    terms = (
        p
        | tg.Create(data.numbers())
        | "add" >> tg.Map(lambda x: x + 1)
        | "keep" >> tg.Filter(lambda x: x % 3 == 0)
        | "both" >> tg.FlatMap(lambda x: (x, -x))
        | "double" >> tg.Map(lambda x: x * 2)
    )
    total(terms, folder)


def w2(p: tg.Pipeline, folder: str) -> None:
    counts = p | tg.io.ReadFromText(str(data.text())) | tg.FlatMap(str.split) | tg.CombinePerElement(len)
    counts | tg.MapTuple(lambda word, n: f"{word}\t{n}") | tg.io.WriteToText(f"{folder}/counts")


def timed(event: tuple[int, int, int]) -> tg.TimestampedValue[tuple[int, int]]:
    return tg.TimestampedValue((event[0], event[2]), event[1] / 1000)


def windowed_term(pair: tuple[int, int], window: Any = tg.DoFn.WindowParam) -> int:
    return mixed(pair[0], window.start_micros // 1_000_000, pair[1])


def w3(p: tg.Pipeline, folder: str) -> None:
    sums = p | tg.Create(data.events()) | tg.Map(timed) | tg.WindowInto(tg.FixedWindows(10)) | tg.CombinePerKey(sum)
    total(sums | "term" >> tg.Map(windowed_term) | "all" >> tg.WindowInto(tg.GlobalWindows()), folder)


def visited(visit: tuple[int, int]) -> tg.TimestampedValue[tuple[int, None]]:
    return tg.TimestampedValue((visit[0], None), visit[1] / 1000)


def session_term(pair: tuple[int, int], window: Any = tg.DoFn.WindowParam) -> int:
    return mixed(pair[0], window.start_micros // 1000, pair[1])


def w4(p: tg.Pipeline, folder: str) -> None:
    counts = p | tg.Create(data.stamped_visits()) | tg.WindowInto(tg.Sessions(30)) | tg.CombinePerElement(len)
    total(counts | "term" >> tg.Map(session_term) | "all" >> tg.WindowInto(tg.GlobalWindows()), folder)


def list_term(pair: tuple[int, Iterable[int]]) -> int:
    values = sorted(pair[1])
    return mixed(pair[0], len(values), weighted(values))


def w5(p: tg.Pipeline, folder: str) -> None:
    total(p | tg.Create(data.grouped()) | tg.GroupByKey() | "term" >> tg.Map(list_term), folder)


class Greatest(tg.DoFn):
    """The running maximum of each key."""

    MOST = tg.ValueStateSpec("most")

    def process(self, pair: tuple[int, int], most: Any = tg.DoFn.StateParam(MOST)) -> Iterable[int]:
        key, value = pair
        known = most.read()
        if known is None or value > known:
            most.write(value)
            known = value
        return (key ^ (known * 31),)


def w6(p: tg.Pipeline, folder: str) -> None:
    total(p | tg.Create(data.readings()) | tg.ParDo(Greatest()), folder)


class Rises(tg.DoFn):
    """How much each element raises the maximum of its key; the sum does not depend on the order of the elements."""

    MOST = tg.ValueStateSpec("most")

    def process(self, pair: tuple[int, int], most: Any = tg.DoFn.StateParam(MOST)) -> Iterable[int]:
        key, value = pair
        known = most.read()
        if known is None:
            known = -1
        if value > known:
            most.write(value)
        else:
            value = known
        return ((value - known) * (key + 31) + key,)


def w6_unordered(p: tg.Pipeline, folder: str) -> None:
    total(p | tg.Create(data.readings()) | tg.ParDo(Rises()), folder)


def join_terms(joined: tuple[int, dict[str, list[int]]]) -> Iterable[int]:
    key, sides = joined
    for a in sides["left"]:
        for b in sides["right"]:
            yield mixed(key, a, b)


def w7(p: tg.Pipeline, folder: str) -> None:
    left, right = p | "left" >> tg.Create(data.left()), p | "right" >> tg.Create(data.right())
    total({"left": left, "right": right} | tg.CoGroupByKey() | "terms" >> tg.FlatMap(join_terms), folder)


class CountAndSum(tg.CombineFn[int, tuple[int, int], tuple[int, int]]):
    """The number of values, and their sum."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[int, int], element: int) -> tuple[int, int]:
        count, total = accumulator
        return count + 1, total + element

    def merge_accumulators(self, accumulators: Iterable[tuple[int, int]]) -> tuple[int, int]:
        counts, totals = zip(*accumulators, strict=True)
        return sum(counts), sum(totals)

    def extract_output(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator


def combined_term(pair: tuple[int, tuple[int, int]]) -> int:
    return mixed(pair[0], *pair[1])


def w9(p: tg.Pipeline, folder: str) -> None:
    total(p | tg.Create(data.readings()) | tg.CombinePerKey(CountAndSum()) | "term" >> tg.Map(combined_term), folder)


PIPELINES: dict[str, Callable[[tg.Pipeline, str], None]] = {
    "W1": w1,
    "W2": w2,
    "W3": w3,
    "W4": w4,
    "W5": w5,
    "W6": w6,
    "W6 unordered": w6_unordered,
    "W7": w7,
    "W9": w9,
}


def run(name: str, flags: list[str]) -> Result:
    """Build and run one workload with these flags, and return its count and checksum."""
    with tempfile.TemporaryDirectory() as folder:
        with tg.Pipeline(options=flags) as p:
            PIPELINES[name](p, folder)
        return result(name, Path(folder))


def result(name: str, folder: Path) -> Result:
    """The count and checksum that a run wrote to its folder."""
    if name == "W2":
        lines = [line.split("\t") for path in folder.glob("counts*") for line in path.read_text().splitlines()]
        return len(lines), sum(int(n) for _, n in lines)
    count, sum_ = (json.loads((folder / part).read_text()) for part in ("count", "sum"))
    return count, sum_ if name == "W1" else sum_ & MASK
