"""Runs a pipeline and returns its collections: values with timestamps, windows and panes.

    found = collect(lambda p: {"doubled": p | tg.Create([1, 2]) | tg.Map(lambda x: 2 * x)})
    assert found.values("doubled") == [2, 4]

It works on any runner whose workers share a file system: each instance of the recording DoFn appends pickles to its own
file.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import tidegate as tg
from tidegate.runners.engine.loops.inlining import INLINED
from tidegate.sdk.metrics import MetricResult


@dataclass(frozen=True)
class Seen:
    """An element in one of its windows; `micros` is its timestamp."""

    value: Any
    micros: int
    window: Any
    pane: tg.PaneInfo


@dataclass(frozen=True)
class Collected:
    """The elements of each named collection, in the order in which they were recorded, and the run's result."""

    seen: dict[str, list[Seen]]
    result: tg.PipelineResult

    def values(self, name: str) -> list[Any]:
        """The values of a collection's elements."""
        return [seen.value for seen in self.seen[name]]

    def metrics(self) -> list[MetricResult]:
        """The metrics of the run that are the same on every runner: all but those of how its functions were run."""
        return [each for each in self.result.metrics().all() if each.key.name != INLINED]


class _Record(tg.DoFn):
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.file: BinaryIO | None = None

    def start_bundle(self) -> None:
        if self.file is None:
            self.file = Path(self.directory, f"{os.getpid()}-{uuid.uuid4().hex}").open("ab")  # noqa: SIM115 - closed in teardown

    def process(
        self,
        element: Any,
        timestamp: Any = tg.DoFn.TimestampParam,
        window: Any = tg.DoFn.WindowParam,
        pane: Any = tg.DoFn.PaneInfoParam,
    ) -> None:
        assert self.file is not None
        pickle.dump((element, timestamp.micros, window, pane), self.file, 5)

    def finish_bundle(self) -> None:
        assert self.file is not None
        self.file.flush()

    def teardown(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


def collect(
    build: Callable[[tg.Pipeline], Mapping[str, tg.PCollection[Any]]],
    runner: str | tg.Runner | None = None,
    options: Any = None,
) -> Collected:
    """Build a pipeline, run it to its end, and return the elements of the collections that `build` names."""
    pipeline = tg.Pipeline(runner, options)
    with tempfile.TemporaryDirectory(prefix="collected-") as root:
        named = build(pipeline)
        directories = {name: Path(root, str(number)) for number, name in enumerate(named)}
        for name, pcoll in named.items():
            directories[name].mkdir()
            _ = pcoll | f"record {name}" >> tg.ParDo(_Record(str(directories[name])))
        result = pipeline.run()
        result.wait_until_finish()
        return Collected({name: _read(directory) for name, directory in directories.items()}, result)


def _read(directory: Path) -> list[Seen]:
    found = []
    for path in sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        with path.open("rb") as file:
            while file.peek(1):
                found.append(Seen(*pickle.load(file)))
    return found
