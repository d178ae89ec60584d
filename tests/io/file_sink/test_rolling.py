"""Files of limited size and age: when they are closed, and which pieces are joined into one file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.io.formats.writing.test_formats import sink_of
from tests.support.written_files import FORMATS, all_rows, files_of, rows_in, write_and_commit
from tidegate.io.file_sink import attempt as file_attempt
from tidegate.io.file_sink.attempt import FileAttempt, Layout
from tidegate.io.file_sink.sink import FileSink
from tidegate.io.files import Local
from tidegate.sdk.connectors.sinks import Committable


@pytest.mark.parametrize("block", [100, 20_000])
@pytest.mark.parametrize("format", FORMATS)
def test_a_file_ends_within_an_eighth_of_the_given_size(tmp_path: Path, format: str, block: int) -> None:
    sink = sink_of(format, f"{tmp_path}/part", {"n": int, "text": str}, max_file_bytes=200_000)
    rows = [{"n": n, "text": os.urandom(20 + n % 30).hex()} for n in range(20_000)]
    write_and_commit(sink, rows, block=block)
    found = files_of(tmp_path)
    sizes = [len(data) for data in found.values()]
    assert len(sizes) > 3
    assert all(0.9 * 200_000 <= size <= 1.125 * 200_000 for size in sizes[:-1]), sizes
    assert [str(row["n"]) for row in all_rows(tmp_path, format)] == [str(row["n"]) for row in rows]
    assert list(found) == [f"part-{n:05d}-of-{len(found):05d}" for n in range(len(found))]


@pytest.mark.parametrize("codec", ["gzip", "zstd", "xz"])
def test_a_compressed_file_is_larger_by_what_its_compressor_holds_back(tmp_path: Path, codec: str) -> None:
    sink = sink_of("csv", f"{tmp_path}/part", {"text": str}, max_file_bytes=200_000, compression=codec)
    write_and_commit(sink, [{"text": os.urandom(50).hex()} for _ in range(15_000)], block=20_000)
    sizes = [len(data) for data in files_of(tmp_path).values()]
    assert len(sizes) > 2
    assert all(0.9 * 200_000 <= size <= 1.125 * 200_000 + (128 << 10) for size in sizes[:-1]), sizes


@pytest.mark.parametrize("format", FORMATS)
def test_elements_that_suddenly_are_larger_do_not_fill_a_file_far_beyond_its_size(tmp_path: Path, format: str) -> None:
    sink = sink_of(format, f"{tmp_path}/part", {"text": str}, max_file_bytes=100_000)
    rows = [{"text": "x"}] * 2_000 + [{"text": os.urandom(15_000).hex()} for _ in range(30)]
    write_and_commit(sink, rows, block=5_000)
    sizes = [len(data) for data in files_of(tmp_path).values()]
    assert len(sizes) > 3
    assert all(size <= 2 * 100_000 for size in sizes), sizes


def test_a_format_that_makes_elements_many_times_as_large_does_not_fill_a_file_beyond_its_size(tmp_path: Path) -> None:
    sink = sink_of("json", f"{tmp_path}/part", max_file_bytes=20_000)
    write_and_commit(
        sink, [{"the name of a column, much longer than its values": n} for n in range(3_000)], block=3_000
    )
    sizes = [len(data) for data in files_of(tmp_path).values()]
    assert len(sizes) > 5
    assert all(0.9 * 20_000 <= size <= 1.125 * 20_000 for size in sizes[:-1]), sizes


def test_every_element_has_a_file_of_its_own_if_no_two_fit(tmp_path: Path) -> None:
    sink = sink_of("json", f"{tmp_path}/part", max_file_bytes=1)
    write_and_commit(sink, [{"n": n} for n in range(5)], block=5)
    assert list(rows_in(tmp_path, "json").values()) == [[{"n": n}] for n in range(5)]


def test_an_element_that_arrives_when_the_file_has_the_given_age_begins_another(tmp_path: Path) -> None:
    now = [0.0]
    sink = sink_of("json", f"{tmp_path}/part", roll_interval=60)
    attempt = attempt_of(sink, "run", clock=lambda: now[0])
    for n, at in enumerate([0, 25, 59, 60, 85, 3_600, 3_601]):
        now[0] = float(at)
        attempt.write([{"n": n}, {"n": n}])
    sink.commit("run", attempt.prepare())
    assert [[row["n"] for row in rows] for rows in rows_in(tmp_path, "json").values()] == [
        [0, 0, 1, 1, 2, 2],
        [3, 3, 4, 4],
        [5, 5, 6, 6],
    ]


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_a_file_that_was_closed_early_is_not_continued_once_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr(file_attempt, "OPEN_AT_ONCE", 1)
    monkeypatch.setattr(file_attempt, "BUFFER_BUDGET", 1)
    monkeypatch.setattr(Local, "appends", False)
    now = [0.0]
    sink = sink_of(format, f"{tmp_path}/x", {"k": str, "n": int}, partition_by="k", roll_interval=10)
    attempt = attempt_of(sink, "run", clock=lambda: now[0])
    for n, (k, at) in enumerate([("a", 0), ("b", 1), ("a", 11), ("b", 12)]):
        now[0] = float(at)
        attempt.write([((f"k={k}",), {"k": k, "n": n})])
    sink.commit("run", attempt.prepare())
    assert [[row["n"] for row in rows] for rows in rows_in(tmp_path, format).values()] == [[0], [2], [1], [3]]


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_pieces_of_a_file_that_was_closed_early_are_joined_and_rolled_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr(file_attempt, "OPEN_AT_ONCE", 1)
    monkeypatch.setattr(Local, "appends", False)
    now = [0.0]
    sink = sink_of(format, f"{tmp_path}/x", {"k": str, "n": int}, partition_by="k", roll_interval=12)
    attempt = attempt_of(sink, "run", clock=lambda: now[0])
    monkeypatch.setattr(file_attempt, "BUFFER_BUDGET", 1)
    for n in range(12):
        now[0] = float(n)
        attempt.write([((f"k={n % 2}",), {"k": str(n % 2), "n": n})])
    sink.commit("run", attempt.prepare())
    found: dict[str, list[list[int]]] = {}
    for name, rows in rows_in(tmp_path, format).items():
        found.setdefault(name.partition("/")[0], []).append([row["n"] for row in rows])
    if format == "json":
        assert found == {"k=0": [[0, 2, 4, 6, 8, 10]], "k=1": [[1, 3, 5, 7, 9, 11]]}
    else:
        flat = {k: [n for rows in each for n in rows] for k, each in found.items()}
        assert flat == {"k=0": [*range(0, 12, 2)], "k=1": [*range(1, 12, 2)]}


@pytest.mark.parametrize("format", FORMATS)
def test_parts_that_were_never_opened_are_finished_beside_open_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr(file_attempt, "OPEN_AT_ONCE", 2)
    monkeypatch.setattr(Local, "appends", False)
    sink = sink_of(format, f"{tmp_path}/x", {"k": str, "n": int}, partition_by="k")
    attempt = attempt_of(sink, "run")
    attempt.write([((f"k={k}",), {"k": k, "n": 1}) for k in "abcxy"])
    for k in "xy":
        attempt._flush(attempt._parts[(f"k={k}",), 0])
    sink.commit("run", attempt.prepare())
    assert [name.partition("/")[0] for name in files_of(tmp_path)] == ["k=a", "k=b", "k=c", "k=x", "k=y"]


def test_pieces_of_a_checkpoint_of_an_earlier_version_are_committed(tmp_path: Path) -> None:
    """Earlier versions did not number files: all pieces of an address written by one task are one file."""
    sink = sink_of("json", f"{tmp_path}/{{destination}}", destination=str)
    attempt = attempt_of(sink, "run")
    attempt.write([(("a",), {"n": 1}), (("b",), {"n": 2})])
    first = attempt.prepare()
    attempt.write([(("a",), {"n": 3})])
    prepared = first + attempt.prepare()
    old = [Committable(each.order, json.loads(json.dumps(each.payload))[:6]) for each in prepared]
    sink.commit("run", old, 7)
    assert rows_in(tmp_path, "json") == {
        "a-run-00007-00000-of-00001": [{"n": 1}, {"n": 3}],
        "b-run-00007-00000-of-00001": [{"n": 2}],
    }


def attempt_of(sink: FileSink, run: str, clock: Any = lambda: 0.0) -> FileAttempt:
    output = sink._output()
    layout = Layout(sink.prefix, sink.format, 1, sink.addressed, sink.max_file_bytes, sink.roll_interval)
    return FileAttempt(layout, lambda: output.store, output.work(run), 0, clock)
