"""Pipelines that follow a folder, on every runner that supports streams."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.direct import DirectRunner

TIMEOUT = 120.0


def wait_until(holds: Callable[[], bool]) -> None:
    """Poll until `holds()` is true."""
    deadline, pause = time.monotonic() + TIMEOUT, threading.Event()
    while not holds():
        assert time.monotonic() < deadline
        pause.wait(0.02)


def put(path: Path, text: str) -> None:
    """Create a complete file atomically."""
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text)
    os.rename(hidden, path)


def lines_of(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines()) if path.exists() else []


class AppendTo(tg.DoFn):
    """Appends each element to a file as it arrives."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def process(self, element: Any) -> None:
        with self.path.open("a") as file:
            file.write(f"{element}\n")


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_files_are_read_as_they_appear(tmp_path: Path, runner: str) -> None:
    folder, seen = tmp_path / "in", tmp_path / "seen"
    folder.mkdir()
    put(folder / "a.txt", "one\ntwo\n")
    p = tg.Pipeline(runner)
    lines = p | tg.io.ReadFromText(folder / "*.txt", follow=True, poll_interval=0.02, min_age=0)
    rows = p | tg.io.ReadFromCsv(folder / "*.csv", follow=True, poll_interval=0.02, min_age=0, allow_empty=True)
    assert not lines.is_bounded
    assert not rows.is_bounded
    _ = lines | tg.ParDo(AppendTo(seen))
    _ = rows | tg.Map(lambda row: f"row {row.n + 1}") | "note rows" >> tg.ParDo(AppendTo(seen))
    result = p.run()
    try:
        wait_until(lambda: lines_of(seen) == ["one", "two"])
        put(folder / "b.txt", "three\n")
        put(folder / "c.csv", "n\n1\n")
        wait_until(lambda: lines_of(seen) == ["one", "row 2", "three", "two"])
        put(folder / "d.txt", "four\n" * 3)
        put(folder / "e.csv", "n\n2\n")
        wait_until(lambda: len(lines_of(seen)) == 8)
    finally:
        result.cancel()
        result.wait_until_finish()
    assert lines_of(seen) == ["four", "four", "four", "one", "row 2", "row 3", "three", "two"]


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_file_that_changes_after_it_was_read_is_counted(tmp_path: Path, runner: str) -> None:
    folder, seen = tmp_path / "in", tmp_path / "seen"
    folder.mkdir()
    put(folder / "a.txt", "one\n")
    p = tg.Pipeline(runner)
    files = p | "files" >> tg.io.MatchFiles(folder / "*", follow=True, poll_interval=0.02, min_age=0)
    _ = files | tg.Map(lambda file: os.path.basename(file.path)) | tg.ParDo(AppendTo(seen))
    result = p.run()
    try:
        wait_until(lambda: lines_of(seen) == ["a.txt"])
        put(folder / "a.txt", "another\n")
        wait_until(lambda: result.metrics().counter("files_changed") == 1)
        put(folder / "b.txt", "two\n")
        wait_until(lambda: lines_of(seen) == ["a.txt", "b.txt"])
    finally:
        result.cancel()
        result.wait_until_finish()
    assert lines_of(seen) == ["a.txt", "b.txt"]


def test_files_present_at_the_start_are_read_before_windows_close(tmp_path: Path) -> None:
    folder, seen = tmp_path / "in", tmp_path / "seen"
    folder.mkdir()
    for n in reversed(range(20)):  # the file with the latest times was written first
        put(folder / f"{n:02}.txt", f"{10 * n}\n{10 * n + 5}\n")
        os.utime(folder / f"{n:02}.txt", (1_000 - n, 1_000 - n))
    p = tg.Pipeline(DirectRunner())
    lines = p | tg.io.ReadFromText(folder / "*", follow=True, poll_interval=0.02, timestamp=float)
    _ = lines | tg.WindowInto(tg.FixedWindows(10)) | tg.combiners.Count.Globally() | tg.ParDo(AppendTo(seen))
    result = p.run()
    try:
        wait_until(lambda: len(lines_of(seen)) == 19)
    finally:
        result.cancel()
        result.wait_until_finish()
    assert lines_of(seen) == ["2"] * 19
    assert result.metrics().counter("dropped_late") == 0


def test_reading_with_filenames_can_follow_a_folder(tmp_path: Path) -> None:
    p = tg.Pipeline()
    lines = p | tg.io.ReadFromTextWithFilename(tmp_path / "*", follow=True, timestamp=lambda pair: 0)
    assert not lines.is_bounded
    assert lines.element_type == tuple[str, str]
