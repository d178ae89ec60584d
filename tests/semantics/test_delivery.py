"""SEMANTICS, Delivery, for runs on machines that do not fail: a failed run leaves no output behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import tidegate as tg
from tests.support.stream_scripts import Watermark, run_script
from tidegate.sdk.connectors.sinks import Attempt, Committable, Delivery, Sink
from tidegate.testing import TestPipeline, TestStream, assert_that, equal_to


@dataclass(frozen=True)
class Lines(Sink[str]):
    """Lines of text in one file per attempt, visible when committed."""

    directory: str

    @property
    def delivery(self) -> Delivery:
        return "exactly_once"

    def attempt(self, run: str, task: int) -> Attempt[str]:
        return LinesAttempt(self.directory, run, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        for committable in committables:
            pending = Path(self.directory, committable.payload)
            if pending.exists():
                pending.rename(pending.with_suffix(".txt"))

    def abort(self, run: str) -> None:
        for path in Path(self.directory).glob(f"{run}-*.pending"):
            path.unlink()


class LinesAttempt(Attempt[str]):
    def __init__(self, directory: str, run: str, task: int) -> None:
        self.prefix = Path(directory, f"{run}-{task}")
        self.task = task
        self.lines: list[str] = []

    def write(self, values: Sequence[str]) -> None:
        self.lines += values

    def prepare(self) -> list[Committable]:
        """One file for what was written since the last time, under a name that no other attempt of the run takes."""
        path = Path(f"{self.prefix}-{uuid4().hex}.pending")
        path.write_text("\n".join(self.lines))
        self.lines = []
        return [Committable((self.task, 0), path.name)]


def written(directory: Path) -> list[str]:
    return sorted(line for path in directory.glob("*.txt") for line in path.read_text().split("\n") if line)


def test_each_element_is_written_once(runner: str, tmp_path: Path) -> None:
    with TestPipeline(runner) as pipeline:
        _ = pipeline | tg.Create(range(100)) | tg.Reshuffle() | tg.Map(str) | tg.Write(Lines(str(tmp_path)))
    assert written(tmp_path) == sorted(map(str, range(100)))
    assert list(tmp_path.glob("*.pending")) == []


def test_each_element_of_a_stream_is_written_once(stream_runner: str, tmp_path: Path) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = TestStream()
        for n in range(20):
            stream.add_elements([tg.TimestampedValue(n, n)]).advance_watermark_to(n)
        _ = pipeline | stream | tg.Map(str) | tg.Write(Lines(str(tmp_path)))
    assert written(tmp_path) == sorted(map(str, range(20)))


def parity(line: str) -> str:
    return "odd" if int(line) % 2 else "even"


def lines_below(folder: Path) -> dict[str, list[str]]:
    """The lines of all visible files, by the folder below `folder` that they are in."""
    found: dict[str, list[str]] = {}
    for path in folder.rglob("part*"):
        if ".tidegate-" not in str(path):
            found.setdefault(str(path.parent.relative_to(folder)), []).extend(path.read_text().split())
    return {name: sorted(lines, key=int) for name, lines in found.items()}


def test_lines_go_to_the_files_of_their_destination_and_window(runner: str, tmp_path: Path) -> None:
    with TestPipeline(runner) as pipeline:
        numbers = pipeline | tg.Create([tg.TimestampedValue(n, n) for n in range(40)]) | tg.Reshuffle() | tg.Map(str)
        windowed = numbers | tg.WindowInto(tg.FixedWindows(20))
        path = f"{tmp_path}/{{window.start:%S}}/{{destination}}/part"
        _ = windowed | tg.io.WriteToText(path, destination=parity)
    assert lines_below(tmp_path) == {
        f"{start:02d}/{name}": [str(n) for n in range(start, start + 20) if parity(str(n)) == name]
        for start in (0, 20)
        for name in ("odd", "even")
    }


def test_lines_of_a_stream_go_to_the_files_of_their_destination_and_window(stream_runner: str, tmp_path: Path) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = TestStream()
        for n in range(40):
            stream.add_elements([tg.TimestampedValue(n, n)]).advance_watermark_to(n)
        windowed = pipeline | stream | tg.Map(str) | tg.WindowInto(tg.FixedWindows(20))
        path = f"{tmp_path}/{{window.start:%S}}/{{destination}}/part"
        _ = windowed | tg.io.WriteToText(path, destination=parity)
    assert sorted(lines_below(tmp_path)) == ["00/even", "00/odd", "20/even", "20/odd"]
    assert sum(map(len, lines_below(tmp_path).values())) == 40


def boom(n: int) -> int:
    return n // (n - 50)


def test_a_run_that_fails_leaves_nothing_visible(runner: str, tmp_path: Path) -> None:
    pipeline = TestPipeline(runner)
    numbers = pipeline | tg.Create(range(100))
    _ = numbers | "good" >> tg.Map(str) | "keep" >> tg.Write(Lines(str(tmp_path)))
    _ = numbers | "bad" >> tg.Map(boom)
    with pytest.raises(tg.UserCodeError, match="ZeroDivisionError"):
        pipeline.run()
    assert list(tmp_path.iterdir()) == []


class Count(tg.DoFn):
    def process(self, element: Any) -> Iterable[Any]:
        tg.Metrics.counter("delivery", "seen").inc()
        return [element]


def test_metrics_count_each_element_once(runner: str) -> None:
    pipeline = TestPipeline(runner)
    assert_that(pipeline | tg.Create(range(100)) | tg.Reshuffle() | tg.ParDo(Count()), equal_to(range(100)))
    assert pipeline.run().metrics().counter("seen", namespace="delivery") == 100


def numbers(element: int) -> Iterator[int]:
    yield from range(element)


def test_one_element_may_give_very_many(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        many = pipeline | tg.Create([50_000]) | tg.FlatMap(numbers)
        assert_that(many | tg.CombineGlobally(len), equal_to([50_000]))


def test_two_runs_of_one_script_give_the_same_panes(stream_runner: str) -> None:
    into = tg.WindowInto(
        tg.Sessions(5),
        tg.AfterWatermark(early=tg.AfterCount(2), late=tg.AfterCount(1)),
        accumulation=tg.ACCUMULATING,
        allowed_lateness=30,
    )
    script = [(n, (n * 7) % 40, n % 4) for n in range(40)]
    script = [*script[:20], Watermark(15), *script[20:], Watermark(40), ("late", 12, 1)]
    assert run_script(stream_runner, script, into).panes == run_script(stream_runner, script, into).panes
