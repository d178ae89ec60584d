"""Files that change or vanish while they are read: a run fails and names the file, or emits what the file had."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.record_files import FORMATS, drain, visits, write

RECORDS = 7000
"""More than a reader reads at once, in every format."""
CHANGED = "the file has changed since the run found it: "

formats = pytest.mark.parametrize("name", ["visits.parquet", "visits.csv", "visits.jsonl"])


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def overwrite(path: Path) -> None:
    """Write as many line breaks over the bytes of the file."""
    path.write_bytes(b"\n" * path.stat().st_size)


def replace(path: Path) -> None:
    """Put another file in its place."""
    write(path.with_name(".new"), path.read_bytes()).rename(path)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "is truncated": (truncate, r"it had \d+ bytes and has \d+"),
    "is overwritten": (overwrite, "it has been written again"),
    "is replaced": (replace, "it has been written again"),
}


class ChangeFile(tg.DoFn):
    """Changes the file when its first record has been read, and notes each record."""

    def __init__(self, path: Path, change: Callable[[Path], None], seen: Path) -> None:
        self.path = path
        self.change = change
        self.seen = seen

    def setup(self) -> None:
        self.notes = self.seen.open("a", buffering=1)  # line by line

    def process(self, record: dict[str, Any]) -> None:
        if record["id"] == 0:
            self.change(self.path)
        self.notes.write(f"{record['id']}\n")

    def teardown(self) -> None:
        self.notes.close()


def read_while(
    folder: Path, name: str, change: Callable[[Path], None], runner: str, *, follow: bool, **options: Any
) -> tuple[Path, Path, tg.PipelineResult]:
    """Begin to read a file that changes meanwhile; returns the file, the notes of its records, and the run."""
    transform, encode, needs = FORMATS[name]
    path = write(folder / "in" / name, encode(visits(RECORDS)))
    os.utime(path, ns=(1, 1))
    write(folder / "in" / f"other{path.suffix}", encode(visits(9, RECORDS)))  # an empty folder may just not be mounted
    if follow:
        options |= {"follow": True, "poll_interval": 0.02}
    p = tg.Pipeline(runner, options=["--restart_strategy", "none"] if runner == "streaming" else [])
    records = p | "read" >> transform(folder / "in" / f"*{path.suffix}", as_=dict, **needs, **options)
    _ = records | tg.ParDo(ChangeFile(path, change, folder / "seen"))
    return path, folder / "seen", p.run()


def ids(seen: Path) -> list[int]:
    return [int(line) for line in seen.read_text().splitlines()]


@formats
@pytest.mark.parametrize("change", CHANGES)
def test_a_run_fails_with_the_name_of_a_file_that_changes_while_it_is_read(
    tmp_path: Path, name: str, change: str
) -> None:
    changing, words = CHANGES[change]
    follow = change == "is replaced"
    with pytest.raises(tg.RunError) as caught:
        read_while(tmp_path, name, changing, "direct", follow=follow)[2].wait_until_finish()
    caught.match(f"{tmp_path}/in/{name}: {CHANGED}{words}")
    caught.match("in step 'read")


@pytest.mark.parametrize("name", ["visits.parquet", "visits.csv"])
def test_a_stream_fails_with_the_name_of_a_file_that_changes_while_it_is_read(tmp_path: Path, name: str) -> None:
    _, _, result = read_while(tmp_path, name, truncate, "streaming", follow=True)
    with pytest.raises(tg.RunError, match=f"{tmp_path}/in/{name}: {CHANGED}"):
        result.wait_until_finish()


@formats
def test_a_file_that_is_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path, name: str) -> None:
    _, seen, result = read_while(tmp_path, name, Path.unlink, "direct", follow=False)
    result.wait_until_finish()
    assert sorted(ids(seen)) == list(range(RECORDS + 9))


@pytest.mark.parametrize(
    ("runner", "name"), [("direct", "visits.csv"), ("streaming", "visits.parquet"), ("streaming", "visits.jsonl")]
)
def test_a_followed_file_that_is_deleted_while_it_is_read_is_read_to_its_end(
    tmp_path: Path, name: str, runner: str
) -> None:
    _, seen, result = read_while(tmp_path, name, Path.unlink, runner, follow=True)
    try:
        wait_until(lambda: seen.exists() and len(ids(seen)) == RECORDS + 9)
        wait_until(lambda: result.metrics().counter("files_deleted") == 1)
    finally:
        result.cancel()
        result.wait_until_finish()
    assert sorted(ids(seen)) == list(range(RECORDS + 9))


@formats
def test_a_divided_file_that_is_deleted_before_all_its_parts_were_opened_is_an_error(tmp_path: Path, name: str) -> None:
    transform, encode, needs = FORMATS[name]
    path = write(tmp_path / name, encode(visits(1000)))
    source = transform(path, as_=dict, min_split_size=1, **needs).source
    first, second = source.splits(2)
    found = drain(source, first)
    path.unlink()
    with pytest.raises(tg.ReadError, match=f"{path}: the file has been deleted since the run found it"):
        drain(source, second)
    assert found == visits(len(found))


@formats
@pytest.mark.parametrize("bad_records", ["fail", "dead_letter"])
def test_no_record_is_made_of_the_rest_of_one_that_was_cut_off(tmp_path: Path, name: str, bad_records: Any) -> None:
    transform, encode, needs = FORMATS[name]
    expected = visits(RECORDS)
    path = write(tmp_path / name, encode(expected))
    source = transform(path, as_=dict, bad_records=bad_records, **needs).source
    (split,) = source.splits(1)
    reader = source.reader(split)
    found = list(reader.read(10).block.values)
    data = path.read_bytes()
    os.truncate(path, data.find(b"user ", len(data) * 9 // 10) + 2)  # in the last column, which may be any text
    with pytest.raises(tg.ReadError, match=f"{path}: {CHANGED}"):
        found.extend(record for batch in iter(lambda: reader.read(1000), None) for record in batch.block.values)
    reader.close()
    assert found == expected[: len(found)]


def wait_until(holds: Callable[[], bool]) -> None:
    """Poll until `holds()` is true."""
    deadline, pause = time.monotonic() + 120, threading.Event()
    while not holds():
        assert time.monotonic() < deadline
        pause.wait(0.02)
