"""The rest of a split that is being read is divided among the tasks of a larger run, and each element comes once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.sdk.interactive.recorder import record, recorded
from tidegate.testing.conformance.gated_source import OPEN, FailOnce, GatedSource
from tidegate.testing.conformance.pipeline_runs import Run, streaming_pipeline
from tidegate.testing.conformance.rules import Calls

COUNT = 240
PACE = COUNT // 4


@dataclass(frozen=True)
class OneSplit(tg.io.Source[int]):
    """The numbers up to COUNT in one split, which can be divided. Each reader notes in a folder what it reads."""

    folder: str

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [_split(0, COUNT)]

    def reader(self, split: tg.io.Split, position: tg.io.Position = None) -> tg.io.Reader[int]:
        start, stop = split.payload
        at = start if position is None else position
        Path(self.folder, f"{start}-{stop} from {at}").touch()
        return NumbersReader(at, stop)

    def split_again(self, split: tg.io.Split, position: tg.io.Position, desired: int) -> list[tg.io.Split]:
        start, stop = split.payload
        at = start if position is None else position
        cuts = [at + (stop - at) * part // desired for part in range(desired + 1)]
        return [_split(low, high) for low, high in itertools.pairwise(cuts) if low < high]


def _split(start: int, stop: int) -> tg.io.Split:
    return tg.io.Split(f"{start}-{stop}", payload=(start, stop))


class NumbersReader(tg.io.Reader[int]):
    def __init__(self, at: int, stop: int) -> None:
        self.at, self.stop = at, stop

    def read(self, limit: int) -> tg.io.Batch:
        numbers = range(self.at, min(self.at + limit, self.stop))
        self.at = numbers.stop
        return tg.io.Batch(tg.io.Block.of(numbers), end=self.at >= self.stop)

    def position(self) -> int:
        return self.at


def start(folder: Path, workers: int, *flags: str) -> Run:
    """A stream of the numbers, whose readers pause after PACE of them."""
    pipeline = streaming_pipeline(folder / f"checkpoints-{workers}", workers, *flags)
    source = GatedSource(OneSplit(str(folder / "readers")), str(folder / "control"), PACE)
    numbers: Any = pipeline | "read" >> tg.Read(source) | "fail" >> tg.ParDo(FailOnce(str(folder / "control")))
    record(numbers, folder / "recorded", per_window=False)
    return Run(Calls(patience=120.0), f"the stream on {workers} workers", pipeline)


def values(folder: Path) -> list[int]:
    return sorted(value for value, *_ in recorded(folder / "recorded"))


def readers(folder: Path) -> set[str]:
    return {path.name for path in (folder / "readers").iterdir()}


def test_a_split_that_is_being_read_is_divided_when_the_job_resumes_with_more_workers(tmp_path: Path) -> None:
    for name in ("readers", "control", "recorded"):
        (tmp_path / name).mkdir()
    control = tmp_path / "control"
    run = start(tmp_path, 1)
    run.wait_until_paused(control, tmp_path / "checkpoints-1")
    run.stop(savepoint=tmp_path / "saved")
    assert readers(tmp_path) == {"0-240 from 0"}

    run = start(tmp_path, 3, f"--from_savepoint={tmp_path / 'saved'}")
    run.wait_until_paused(control, tmp_path / "checkpoints-3")
    assert readers(tmp_path) == {"0-240 from 0", "60-120 from 60", "120-180 from 120", "180-240 from 180"}
    run.fail_once(control)  # the parts are resumed where they were, too
    run.wait_until_paused(control, tmp_path / "checkpoints-3")
    (control / OPEN).touch()
    run.wait_until(lambda: len(values(tmp_path)) >= COUNT, "all numbers")
    run.stop(drain=True)
    assert values(tmp_path) == list(range(COUNT))


def test_a_split_is_divided_when_a_job_with_idle_tasks_restarts_after_a_failure(tmp_path: Path) -> None:
    for name in ("readers", "control", "recorded"):
        (tmp_path / name).mkdir()
    control = tmp_path / "control"
    run = start(tmp_path, 2)
    run.wait_until_paused(control, tmp_path / "checkpoints-2")
    run.fail_once(control)
    run.wait_until_paused(control, tmp_path / "checkpoints-2")
    assert {"0-240 from 0", "60-150 from 60", "150-240 from 150"} <= readers(tmp_path)
    (control / OPEN).touch()
    run.wait_until(lambda: len(values(tmp_path)) >= COUNT, "all numbers")
    run.stop(drain=True)
    assert values(tmp_path) == list(range(COUNT))
