"""SEMANTICS, Delivery: files that a sink stages are there at its commit, and nowhere after it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

import tidegate as tg
from tidegate.sdk.connectors.sinks import Attempt, Committable, Delivery, Sink, StagedFile
from tidegate.testing import TestPipeline, TestStream


@dataclass(frozen=True)
class Staged(Sink[str]):
    """Stages lines as bytes and in a local file, and copies them in the commit."""

    directory: str
    breaks: bool = False
    commit_by: Literal["job", "task"] = "job"

    @property
    def delivery(self) -> Delivery:
        return "exactly_once"

    def attempt(self, run: str, task: int) -> Attempt[str]:
        return StagedAttempt(self, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        if self.breaks:
            raise tg.WriteError("the commit is refused")
        for committable in committables:
            for file in committable.files:
                for _ in range(2):  # it may be opened again
                    with file.open() as staged:
                        data = staged.read()
                assert len(data) == file.size
                Path(self.directory, f"{committable.payload}-{file.name}.txt").write_bytes(data)


class StagedAttempt(Attempt[str]):
    def __init__(self, sink: Staged, task: int) -> None:
        self.sink = sink
        self.task = task
        self.pieces = 0
        self.lines: list[str] = []

    def write(self, values: Sequence[str]) -> None:
        self.lines += values

    def prepare(self) -> list[Committable]:
        if not self.lines:
            return []
        self.pieces += 1
        name = f"{self.task}-{self.pieces}-{os.urandom(4).hex()}"
        even, odd = ("\n".join(self.lines[n::2]).encode() for n in (0, 1))
        path = Path(self.sink.directory, f"{name}.local")
        path.write_bytes(odd)
        self.lines = []
        files = (StagedFile.of_bytes("even", even), StagedFile.of_path("odd", path))
        return [Committable((self.task, self.pieces), name, files)]


def written(directory: Path) -> list[str]:
    return sorted(line for path in directory.glob("*.txt") for line in path.read_text().split("\n") if line)


@pytest.mark.parametrize("by", ["job", "task"])
def test_staged_files_are_opened_by_the_commit_and_deleted_after_it(runner: str, tmp_path: Path, by: str) -> None:
    sink = Staged(str(tmp_path), commit_by=by)  # type: ignore[arg-type]
    with TestPipeline(runner) as pipeline:
        _ = pipeline | tg.Create(range(100)) | tg.Reshuffle() | tg.Map(str) | tg.Write(sink)
    assert written(tmp_path) == sorted(map(str, range(100)))
    assert list(tmp_path.glob("*.local")) == []


def test_staged_files_of_a_stream_are_opened_by_the_commit_and_deleted_after_it(
    stream_runner: str, tmp_path: Path
) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = TestStream()
        for n in range(20):
            stream.add_elements([tg.TimestampedValue(n, n)]).advance_watermark_to(n)
        _ = pipeline | stream | tg.Map(str) | tg.Write(Staged(str(tmp_path)))
    assert written(tmp_path) == sorted(map(str, range(20)))
    assert list(tmp_path.glob("*.local")) == []


def test_staged_files_of_a_failed_run_are_deleted_and_the_error_names_the_step(runner: str, tmp_path: Path) -> None:
    pipeline = TestPipeline(runner)
    _ = pipeline | tg.Create(["a", "b"]) | "refused" >> tg.Write(Staged(str(tmp_path), breaks=True))
    with pytest.raises(tg.WriteError, match=r"the commit is refused(.|\n)*in step 'refused'.*test_staged_files.py"):
        pipeline.run().wait_until_finish()
    assert written(tmp_path) == []
    assert list(tmp_path.glob("*.local")) == []
