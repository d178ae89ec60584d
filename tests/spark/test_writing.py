"""Sinks on Spark: written by the last tasks, committed once by the driver; a run that fails leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tidegate as tg
import tidegate.io
from tidegate.sdk.errors import UserCodeError


def lines(folder: Path) -> list[str]:
    return sorted(line for path in folder.iterdir() for line in path.read_text().splitlines())


def test_every_element_is_written_once(flags: list[str], tmp_path: Path) -> None:
    with tg.Pipeline(options=flags) as p:
        _ = p | tg.Create(range(1000)) | tg.Reshuffle() | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "out"))
    assert lines(tmp_path) == sorted(map(str, range(1000)))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"out-0000{n}-of-00003" for n in range(3)]


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_there_are_as_many_files_as_shards_were_asked_for(flags: list[str], tmp_path: Path, shards: int) -> None:
    with tg.Pipeline(options=flags) as p:
        made = p | tg.Create(range(100)) | tg.Map(str)
        _ = made | tg.io.WriteToText(str(tmp_path / "out"), num_shards=shards)
    assert lines(tmp_path) == sorted(map(str, range(100)))
    assert len(list(tmp_path.iterdir())) == shards


def test_nothing_written_is_a_file_too(flags: list[str], tmp_path: Path) -> None:
    with tg.Pipeline(options=flags) as p:
        _ = p | tg.Create([]) | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "out"))
    assert [path.read_text() for path in tmp_path.iterdir()] == [""]


def test_a_sink_in_the_middle_and_one_at_the_end_are_committed_together(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with tg.Pipeline(options=flags) as p:
        made = p | tg.Create(range(100))
        _ = made | "early" >> tg.Map(str) | tg.io.WriteToText(str(tmp_path / "a" / "out"))
        sums = made | tg.Map(lambda x: (x % 2, x)) | tg.CombinePerKey(sum)
        _ = sums | "late" >> tg.Map(str) | "write late" >> tg.io.WriteToText(str(tmp_path / "b" / "out"))
    assert lines(tmp_path / "a") == sorted(map(str, range(100)))
    assert lines(tmp_path / "b") == ["(0, 2450)", "(1, 2500)"]


def test_a_run_that_fails_leaves_no_file(flags: list[str], tmp_path: Path) -> None:
    def fail(x: int) -> str:
        if x == 99:
            raise ValueError(x)
        return str(x)

    p = tg.Pipeline(options=flags)
    _ = p | tg.Create(range(100)) | tg.Map(fail) | tg.io.WriteToText(str(tmp_path / "out"))
    with pytest.raises(UserCodeError):
        p.run()
    assert list(tmp_path.iterdir()) == []


CUT_OFF = """
import os, sys
import tidegate as tg, tidegate.io
from tidegate.io import text_sink
commit = text_sink.TextSink.commit

def dies(self, run, committables, checkpoint=None):
    if self.prefix.endswith("two"):
        os._exit(9)
    commit(self, run, committables, checkpoint)

text_sink.TextSink.commit = dies
with tg.Pipeline(options=sys.argv[2:]) as p:
    lines = p | tg.Create(["a", "b", "c"])
    _ = lines | "one" >> tg.io.WriteToText(sys.argv[1] + "/one", num_shards=1)
    _ = lines | "two" >> tg.io.WriteToText(sys.argv[1] + "/two", num_shards=1)
"""


def test_a_commit_in_which_the_driver_died_is_finished_by_the_next_run(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    noting = [*flags, "--spark_commit_dir", str(tmp_path / "commits")]
    done = subprocess.run([sys.executable, "-c", CUT_OFF, str(tmp_path / "out"), *noting], check=False)
    assert done.returncode == 9
    shown = [path.name for path in sorted((tmp_path / "out").iterdir()) if path.is_file()]
    assert shown == ["one-00000-of-00001"]
    with tg.Pipeline(options=noting) as p:
        _ = p | tg.Create([1])
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["one-00000-of-00001", "two-00000-of-00001"]
    assert lines(tmp_path / "out") == sorted(["a", "b", "c"] * 2)
    assert list((tmp_path / "commits").iterdir()) == []


def test_many_files_are_read_once_each(flags: list[str], tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number:03d}.txt").write_text(f"{number}\n" * (number % 3))
    (tmp_path / "out").mkdir()
    with tg.Pipeline(options=flags) as p:
        read = p | tg.io.ReadFromText(str(tmp_path / "*.txt")) | tg.CombinePerElement(len)
        _ = read | tg.MapTuple(lambda line, n: f"{line} {n}") | tg.io.WriteToText(str(tmp_path / "out" / "counts"))
    assert lines(tmp_path / "out") == sorted(f"{n} {n % 3}" for n in range(200) if n % 3)
