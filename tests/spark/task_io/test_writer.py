"""Sinks on Spark: the last tasks write, the driver commits once, and a failed run leaves no files."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate as tg
import tidegate.io
from tidegate.sdk.errors import UserCodeError, WriteError


def lines(folder: Path) -> list[str]:
    return sorted(line for path in folder.iterdir() for line in path.read_text().splitlines())


def test_every_element_is_written_once(flags: list[str], tmp_path: Path) -> None:
    with tg.Pipeline(options=flags) as p:
        _ = p | tg.Create(range(1000)) | tg.Reshuffle() | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "out"))
    assert lines(tmp_path) == sorted(map(str, range(1000)))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"out-0000{n}-of-00003" for n in range(3)]


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_there_are_as_many_files_as_requested_shards(flags: list[str], tmp_path: Path, shards: int) -> None:
    with tg.Pipeline(options=flags) as p:
        texts = p | tg.Create(range(100)) | tg.Map(str)
        _ = texts | tg.io.WriteToText(str(tmp_path / "out"), num_shards=shards)
    assert lines(tmp_path) == sorted(map(str, range(100)))
    assert len(list(tmp_path.iterdir())) == shards


def test_an_empty_collection_is_written_as_an_empty_file(flags: list[str], tmp_path: Path) -> None:
    with tg.Pipeline(options=flags) as p:
        _ = p | tg.Create([]) | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "out"))
    assert [path.read_text() for path in tmp_path.iterdir()] == [""]


def test_a_sink_in_the_middle_and_one_at_the_end_are_committed_together(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with tg.Pipeline(options=flags) as p:
        numbers = p | tg.Create(range(100))
        _ = numbers | "early" >> tg.Map(str) | tg.io.WriteToText(str(tmp_path / "a" / "out"))
        sums = numbers | tg.Map(lambda x: (x % 2, x)) | tg.CombinePerKey(sum)
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
import os, signal, sys
import tidegate as tg, tidegate.io

replace = os.replace

def dies(source, target):
    if os.path.basename(target) == "one-00001-of-00003":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

os.replace = dies
with tg.Pipeline(options=sys.argv[2:]) as p:
    lines = p | tg.Create(["a", "b", "c"])
    _ = lines | "one" >> tg.io.WriteToText(sys.argv[1] + "/one", num_shards=3)
    _ = lines | "two" >> tg.io.WriteToText(sys.argv[1] + "/two", num_shards=1)
"""
ONE = [f"one-0000{n}-of-00003" for n in range(3)]
TWO = ["two-00000-of-00001"]


def visible_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_the_next_run_finishes_a_commit_during_which_the_driver_was_killed(flags: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    noting = [*flags, "--spark_commit_dir", str(tmp_path / "commits")]
    settings = ["--spark_conf", "spark.driver.memory=512m"]
    run = subprocess.run([sys.executable, "-c", CUT_OFF, str(out), *noting, *settings], check=False)
    assert run.returncode == -signal.SIGKILL
    assert visible_files(out) == ONE[:1]
    with tg.Pipeline(options=noting) as p:
        _ = p | tg.Create([1]) | tg.Map(abs)
    assert visible_files(out) == [path.name for path in sorted(out.iterdir())] == [*ONE, *TWO]
    assert lines(out) == sorted(["a", "b", "c"] * 2)
    assert list((tmp_path / "commits").iterdir()) == []


def test_the_next_run_finishes_a_commit_that_failed(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def fails(source: str, target: str) -> None:
        if os.path.basename(target) == ONE[1]:
            raise OSError(errno.ENOSPC, "no space left")
        replace(source, target)

    out = tmp_path / "out"
    out.mkdir()
    noting = [*flags, "--spark_commit_dir", str(tmp_path / "commits")]
    p = tg.Pipeline(options=noting)
    _ = p | tg.Create(["a", "b", "c"]) | tg.io.WriteToText(str(out / "one"), num_shards=3)
    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(WriteError, match="can't get this name: no space left") as caught:
        p.run()
    monkeypatch.undo()
    assert any("the next run with this --spark_commit_dir finishes it" in note for note in caught.value.__notes__)
    assert visible_files(out) == ONE[:1]
    with tg.Pipeline(options=noting) as p:
        _ = p | tg.Create([1]) | tg.Map(abs)
    assert visible_files(out) == [path.name for path in sorted(out.iterdir())] == ONE
    assert lines(out) == ["a", "b", "c"]
