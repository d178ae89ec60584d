"""Elements that go round in a loop are handled exactly once: under kills, with a full disk, and by other workers."""

from __future__ import annotations

import errno
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.example_scripts import lines_of
from tests.support.streaming.counting_job import CountingSource, ReportLog, follow_until, start_job
from tidegate.runners.engine.memory.spill_file import SpillFile, spilling
from tidegate.runners.streaming.client.console import LOGGER
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, StopJob, TakeSavepoint
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.sdk.metrics import ENGINE, MetricKey

NUMBERS, FEW = 300, 50
OFTEN = ["--checkpoint_interval", "50ms", "--restart_strategy", "fixed", "--restart_delay", "20ms"]
OFTEN += ["--restart_attempts", "1000"]

Traveller = tuple[int, ...]
"""A number that has entered, and the way through the generations."""


def children(traveller: Traveller) -> list[Traveller]:
    """What an element multiplies to, the same each time."""
    return [(*traveller, n) for n in range(sum(traveller) % 3)] if len(traveller) < 5 else []


def descendants(numbers: Iterable[int]) -> set[Traveller]:
    todo, found = [(number,) for number in numbers], set()
    while todo:
        found.add(traveller := todo.pop())
        todo += children(traveller)
    return found


class Count(tg.DoFn):
    """Numbers the elements of each key as they come."""

    seen = tg.ValueStateSpec("seen")

    def process(
        self, element: tuple[int, Traveller], seen: tg.ValueState[int] = tg.DoFn.StateParam(seen)
    ) -> Iterator[tuple[int, int, Traveller]]:
        key, traveller = element
        count = (seen.read() or 0) + 1
        seen.write(count)
        yield key, count, traveller


class MayDie:
    """Multiplies elements; kills its process at each of some elements, once."""

    def __init__(self, folder: Path, deadly: Iterable[Traveller]) -> None:
        self.folder = folder
        self.deadly = frozenset(deadly)

    def __call__(self, counted: tuple[int, int, Traveller]) -> list[Traveller]:
        traveller = counted[2]
        if traveller in self.deadly:
            die_once(self.folder / f"died-{'-'.join(map(str, traveller))}")
        return children(traveller)


def die_once(marker: Path) -> None:
    """Kill this process, unless it has been killed here before."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def looping(options: list[str], numbers: Any, multiply: Any, folder: Path, **limits: Any) -> tg.Pipeline:
    """A pipeline that counts the elements of a loop by key, and writes them."""
    p = tg.Pipeline(options=["--runner", "streaming", *options])

    def body(travellers: Any) -> Any:
        by_key = tg.Map(lambda t: (sum(t) % 7, t)).with_output_types(tuple[int, tuple])
        counted = travellers | "by key" >> by_key | "count" >> tg.ParDo(Count())
        return tg.Round(counted | "multiply" >> tg.FlatMap(multiply).with_output_types(tuple), out=counted)

    entering = p | "numbers" >> numbers | "enter" >> tg.Map(lambda n: (n,)).with_output_types(tuple)
    found = entering | "loop" >> tg.Feedback(body, **limits)
    _ = found | "text" >> tg.Map(repr) | "write" >> tg.io.WriteToText(str(folder / "out"))
    return p


def check(folder: Path, expected: set[Traveller]) -> None:
    """Each element is there once, and the counts of each key have no gap."""
    found = [eval(line) for line in lines_of(folder / "out")]
    assert Counter(traveller for _, _, traveller in found) == Counter(expected)
    by_key: dict[int, list[int]] = {}
    for key, count, _ in found:
        by_key.setdefault(key, []).append(count)
    for counts in by_key.values():
        assert sorted(counts) == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_elements_go_round_once_under_kills(mode: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kills: int = request.config.getoption("--streaming-kills")
    chance = random.Random(f"{request.config.getoption('--streaming-seed')} {mode}")
    expected = descendants(range(NUMBERS))
    deadly = chance.sample(sorted(expected), kills)
    options = ["--mode", "streaming", "--workers", "2", "--checkpoint_mode", mode, *OFTEN]
    p = looping(options, tg.Create(range(NUMBERS)), MayDie(tmp_path, deadly), tmp_path, max_backlog=2_000)
    result = p.run()
    result.wait_until_finish()
    assert len(list(tmp_path.glob("died-*"))) == kills
    check(tmp_path, expected)
    assert result.metrics().counter("fed_back") == len(expected) - NUMBERS


def test_a_loop_over_bounded_input_starts_again_without_a_checkpoint(tmp_path: Path) -> None:
    p = looping(["--workers", "3"], tg.Create(range(40)), MayDie(tmp_path, [(5, 0, 1)]), tmp_path)
    p.run().wait_until_finish()
    assert len(list(tmp_path.glob("died-*"))) == 1
    check(tmp_path, descendants(range(40)))


class FullOnce(MayDie):
    """Multiplies elements in processes whose disk is full when something is fed back that has to go there, once."""

    def __call__(self, counted: tuple[int, int, Traveller]) -> list[Traveller]:
        if SpillFile.append.__name__ != "refusing":
            SpillFile.append = refuses_once(self.folder / "was full")  # type: ignore[method-assign]
        return super().__call__(counted)


def refuses_once(full: Path) -> Callable[[SpillFile, Iterable[bytes]], None]:
    append = SpillFile.append

    def refusing(self: SpillFile, parts: Iterable[bytes]) -> None:
        if self.path.name.startswith("backlog") and not full.exists():
            full.touch()
            with spilling(self.path):
                raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        append(self, parts)

    return refusing


def test_a_full_disk_is_named_and_the_loop_goes_on_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)
    options = ["--mode", "streaming", "--workers", "2", *OFTEN, "--memory_budget", "4k"]
    p = looping(options, tg.Create(range(NUMBERS)), FullOnce(tmp_path, []), tmp_path)
    p.run().wait_until_finish()
    assert (tmp_path / "was full").exists()
    check(tmp_path, descendants(range(NUMBERS)))
    assert "elements that were fed back and wait for their turn" in caplog.text
    assert "restarting" in [getattr(record, "tidegate_state", "") for record in caplog.records]


class GoesRound:
    """Whether elements go round once more: while a file is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, n: int) -> bool:
        return not (self.folder / "go").exists()


class DiesInSavepoints(GoesRound):
    """The same, in processes that die when a task has taken its snapshot for a savepoint: one in each of the first
    `times` savepoints."""

    def __init__(self, folder: Path, times: int) -> None:
        super().__init__(folder)
        self.times = times

    def __call__(self, n: int) -> bool:
        if MemoryBackend.capture.__name__ != "dying":
            MemoryBackend.capture = self.dies_after(MemoryBackend.capture)  # type: ignore[method-assign]
        return super().__call__(n)

    def dies_after(self, capture: Callable[..., Capture]) -> Callable[..., Capture]:
        def dying(backend: MemoryBackend, checkpoint: int, name: str, *, whole: bool) -> Capture:
            captured = capture(backend, checkpoint, name, whole=whole)
            requested = len(list(self.folder.glob("saved-*.requested")))
            if whole and requested <= self.times:
                die_once(self.folder / f"died-{requested}")
            return captured

        return dying


def circling(folder: Path, goes_round: GoesRound, *options: str) -> tg.Pipeline:
    """A pipeline of a few numbers that go round and round, and leave the loop at last."""
    p = tg.Pipeline(options=["--runner", "streaming", *options])

    def body(numbers: Any) -> Any:
        keyed = numbers | "key" >> tg.Map(lambda n: (n % 23, (n,))).with_output_types(tuple[int, Traveller])
        counted = keyed | "hops" >> tg.ParDo(Count())
        came = counted | "came" >> tg.MapTuple(lambda key, count, t: t[0]).with_output_types(int)
        leaving = came | "leave" >> tg.Filter(lambda n: not goes_round(n))
        return tg.Round(came | "again" >> tg.Filter(goes_round), out=leaving)

    entering = p | "numbers" >> tg.Read(CountingSource(step=10, parts=1)) | "few" >> tg.Filter(lambda n: n < FEW)
    found = entering | "loop" >> tg.Feedback(body)
    _ = found | "text" >> tg.Map(str) | "write" >> tg.io.WriteToText(str(folder / "out"))
    return p


def fed_back(job: Any) -> int:
    counters: dict[MetricKey, int] = job.metrics.counters
    return counters.get(MetricKey("loop", ENGINE, "fed_back"), 0)


def check_that_all_leave(folder: Path, saved: str, workers: int) -> None:
    """Resume from a savepoint with all elements in the loop, and let them leave it: each is there once."""
    assert not (folder / "out").exists() or not lines_of(folder / "out")
    (folder / "go").touch()
    flags = [*OFTEN, "--from_savepoint", saved]
    job = start_job(circling(folder, GoesRound(folder)), "--workers", str(workers), *flags)
    follow_until(job, lambda: elements_written(job) == FEW)
    job.send(StopJob(drain=True))
    job.wait()
    job.close()
    assert sorted(map(int, lines_of(folder / "out"))) == list(range(FEW))


def test_elements_under_way_go_on_with_other_numbers_of_workers(tmp_path: Path) -> None:
    """Savepoints are taken with all elements in the loop."""
    saved: list[str] = []
    for workers in (2, 3):
        flags = ["--from_savepoint", saved[-1]] if saved else []
        pipeline = circling(tmp_path, GoesRound(tmp_path), *OFTEN, *flags)
        job = start_job(pipeline, "--workers", str(workers), *OFTEN, *flags)
        before = 3 * FEW * (1 + len(saved))
        follow_until(job, lambda: fed_back(job) > before)  # noqa: B023
        saved.append(str(tmp_path / f"saved-{workers}"))
        job.send(StopJob(savepoint=saved[-1]))
        job.wait()
        job.close()
    check_that_all_leave(tmp_path, saved[-1], 1)


def test_elements_go_round_once_under_kills_in_savepoints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kills: int = request.config.getoption("--loop-kills")
    reports = ReportLog()
    pipeline = circling(tmp_path, DiesInSavepoints(tmp_path, kills), *OFTEN)
    job = start_job(pipeline, "--workers", "2", *OFTEN, on_report=reports)

    def answers(directory: str) -> list[str]:
        made = (each for each in reports.all if isinstance(each, CheckpointReport))
        return [each.error for each in made if each.savepoint == directory]

    for number in range(1, kills + 2):
        before = fed_back(job)
        follow_until(job, lambda: fed_back(job) > before + 2 * FEW)  # noqa: B023
        saved = str(tmp_path / f"saved-{number}")
        Path(f"{saved}.requested").touch()
        job.send(TakeSavepoint(saved))
        follow_until(job, lambda: bool(answers(saved)))  # noqa: B023
        assert [bool(error) for error in answers(saved)] == [number <= kills]
    assert len(list(tmp_path.glob("died-*"))) == kills
    job.kill()
    check_that_all_leave(tmp_path, saved, 3)


def elements_written(job: Any) -> int:
    return sum(n for key, n in job.metrics.counters.items() if key.step == "text" and key.name == "elements_out")
