"""The sources and sinks of `tidegate.io` keep the rules of the interface."""

from __future__ import annotations

import datetime
import functools
import gzip
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.io.formats.writing.test_formats import WRITERS
from tests.support.record_files import FORMATS, drain, visits, write
from tests.support.written_files import all_rows
from tests.testing.conformance.good_sources import append_lines
from tidegate.io.generators.iterables import IterableSource
from tidegate.io.generators.sequence import SequenceSource
from tidegate.io.generators.tail_file import TailSource
from tidegate.io.text.sink import TextSink
from tidegate.io.text.source import TextSource
from tidegate.testing import check_sink, check_source

RECORDS = visits(40)
LINES = [f"line {n}" for n in range(17)]

OF_ALL_SOURCES = {
    "reads_everything",
    "is_picklable",
    "splits_cover_everything_once",
    "resumes_at_every_position",
    "readers_are_independent",
    "closes",
    "watermark_never_goes_back",
}
OF_FILE_SINKS = {
    "writes_everything",
    "is_picklable",
    "names_what_it_writes",
    "committables_have_orders",
    "nothing_is_visible_before_the_commit",
    "commits_twice",
    "commits_in_another_process",
    "commits_in_any_order",
    "commits_nothing",
    "commits_each_checkpoint",
    "aborts_before_prepare",
    "aborts_after_prepare",
    "abort_keeps_committed_output",
    "abort_keeps_other_runs",
    "abandoned_attempts_leave_nothing",
    "attempts_of_a_task_do_not_interfere",
    "close_discards_unprepared_output",
    "bad_element_is_a_write_error",
}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_text_files_are_a_conforming_source(tmp_path: Path, suffix: str) -> None:
    for name, lines in (("a", LINES[:9]), ("b", LINES[9:])):
        data = "".join(f"{line}\n" for line in lines).encode()
        (tmp_path / f"{name}.txt{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    bad = tmp_path / "bad"
    bad.write_bytes(b"good\nb\xffd\n")
    report = check_source(
        lambda: TextSource((f"{tmp_path}/*.txt{suffix}",), min_split_size=1),
        LINES,
        bad_source=lambda: TextSource((str(bad),)),
        bad_place="line 2",
    )
    assert {*OF_ALL_SOURCES, "bad_input_is_a_read_error"} <= set(report.passed)


@pytest.mark.parametrize("name", FORMATS)
def test_files_of_records_are_a_conforming_source(tmp_path: Path, name: str) -> None:
    transform, make, needs = FORMATS[name]
    data = make(RECORDS)
    paths = [write(tmp_path / "a" / name, data), write(tmp_path / "b" / name, make(visits(10, 40)))]
    bad = data + b"1,2\n" if name.endswith(".csv") else data[: len(data) // 2 + 3]
    broken = write(tmp_path / "broken" / name, bad)

    def source_of(*paths: Path) -> Any:
        return transform(list(paths), as_=dict, min_split_size=1, **needs).source

    report = check_source(
        lambda: source_of(*paths),
        visits(50),
        bad_source=lambda: source_of(broken),
        bad_place=name,
        limits=(1, 7, 1000),
        max_positions=8,
        desired=(1, 4),
    )
    assert {*OF_ALL_SOURCES, "bad_input_is_a_read_error"} <= set(report.passed)


def test_sequences_are_conforming_sources() -> None:
    bounded = check_source(lambda: SequenceSource(5, 5000, None), range(5, 5000), limits=(700, 5000), max_positions=5)
    paced = check_source(lambda: SequenceSource(0, 30, 1000.0), range(30))
    endless = check_source(lambda: SequenceSource(0, None, 100_000.0), range(30), endless=True)
    for report in (bounded, paced, endless):
        assert set(report.passed) >= OF_ALL_SOURCES


def skipping(count: int = 0) -> Iterator[str]:
    return iter(LINES[count:])


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("fn", [functools.partial(iter, LINES), skipping, lambda skip: iter(LINES[skip:])])
def test_iterables_are_conforming_sources(fn: Any, bounded: bool) -> None:
    report = check_source(lambda: IterableSource(fn, bounded), LINES, limits=(1, 5), max_positions=6)
    assert set(report.passed) >= OF_ALL_SOURCES


def test_a_growing_file_is_a_conforming_source(tmp_path: Path) -> None:
    path, bad = tmp_path / "log", tmp_path / "bad"
    append_lines(path, *LINES)
    bad.write_bytes(b"good\nb\xffd\n")
    report = check_source(
        lambda: TailSource(str(path), poll_interval=0.01),
        LINES,
        bad_source=lambda: TailSource(str(bad), poll_interval=0.01),
        bad_place=str(bad),
        add=lambda: append_lines(path, "new", "newer"),
        lose=lambda: os.truncate(path, 0),
    )
    assert set(report.passed) >= {
        *OF_ALL_SOURCES,
        "never_blocks",
        "bad_input_is_a_read_error",
        "reads_what_is_added",
        "lost_position_is_refused",
    }


@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_text_files_are_a_conforming_sink(tmp_path: Path, suffix: str, shards: int) -> None:
    numbers = itertools.count()

    def read_back(sink: TextSink) -> list[str]:
        found = TextSource((f"{sink.prefix}*",), allow_empty=True)
        return [line for split in found.splits(1) for line in drain(found, split)]

    report = check_sink(
        lambda: TextSink(str(tmp_path / str(next(numbers)) / "x"), suffix, num_shards=shards, encoding="ascii"),
        LINES,
        read_back,
        bad_element="é",
        bad_place="ascii",
    )
    assert set(report.passed) == OF_FILE_SINKS


@pytest.mark.parametrize(
    "options", [{}, {"partition_by": "k"}, {"max_file_bytes": 1}], ids=["", "partitions", "rolling"]
)
@pytest.mark.parametrize("format", WRITERS)
def test_files_of_records_are_a_conforming_sink(tmp_path: Path, format: str, options: dict[str, Any]) -> None:
    numbers = itertools.count()
    addressed = "partition_by" in options
    elements = [{"n": n, "text": f"text {n}"} for n in range(10)]

    def make() -> Any:
        path = tmp_path / str(next(numbers)) / "x"
        return WRITERS[format](
            path, {"k": str, "n": int, "text": str} if addressed else {"n": int, "text": str}, **options
        ).sink

    def read_back(sink: Any) -> list[Any]:
        folder = tmp_path / Path(sink.prefix).relative_to(tmp_path).parts[0]
        rows = [{"n": int(row["n"]), "text": row["text"]} for row in all_rows(folder, format)]
        return [((f"k={row['n'] % 3}",), {"k": str(row["n"] % 3), **row}) for row in rows] if addressed else rows

    written = [((f"k={row['n'] % 3}",), {"k": str(row["n"] % 3), **row}) for row in elements]  # type: ignore[operator]
    bad = {"n": datetime.date(2013, 1, 1), "text": "x", "k": "1"}
    report = check_sink(
        make,
        written if addressed else elements,
        read_back,
        bad_element=(("k=1",), bad) if addressed else bad,
        bad_place="n",
    )
    assert set(report.passed) == OF_FILE_SINKS
