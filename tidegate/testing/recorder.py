"""Recording what a collection holds while a pipeline runs, to be read in the author's own process when it is over.

The elements are written by a sink, so that each is recorded once in effect on every runner that keeps that promise,
whatever fails and is repeated on the way. The workers and the author's process must share a file system; `temp_dir`
of the options says where, if the system's temporary directory is not shared.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tidegate.sdk.dofn import DoFn
from tidegate.sdk.errors import BuildError, RunError, WriteError, shorten
from tidegate.sdk.panes import PaneInfo
from tidegate.sdk.pipeline import PCollection, Pipeline, PTransform
from tidegate.sdk.primitives import ParDo, Write
from tidegate.sdk.sinks import Attempt, Committable, Sink, in_order
from tidegate.sdk.time import Timestamp
from tidegate.testing.records import Recorded


class PaneRecorder(PTransform[PCollection[Any], None]):
    """Records each element of a collection with its timestamp, window and pane:

        recorder = PaneRecorder()
        counts | recorder
        pipeline.run().wait_until_finish()
        assert recorder.records() == [...]

    `per_window=False` records an element in several windows once, without its windows.
    """

    def __init__(self, name: str | None = None, *, per_window: bool = True) -> None:
        self.label = name
        self.per_window = per_window
        self._directory: Path | None = None
        self._pipeline: Pipeline | None = None

    def expand(self, input: PCollection[Any]) -> None:
        if not isinstance(input, PCollection):
            raise BuildError(f"PaneRecorder applies to a PCollection, not to {type(input).__name__}")
        if self._directory is not None:
            raise BuildError("a PaneRecorder records one collection: make another for this one")
        self._pipeline = input.pipeline
        self._directory = _own_directory(input.pipeline)
        reified: PCollection[Any] = input | ParDo(_PerWindow() if self.per_window else _PerElement(), name="record")
        _ = reified | Write(_RecordSink(str(self._directory)), name="keep")

    def records(self) -> list[Recorded]:
        """What was recorded, in the order in which each writing task saw it. BuildError before the run is over."""
        pipeline = self._pipeline
        if pipeline is None or not pipeline.has_run or not pipeline.result.state.ended:
            raise BuildError("nothing has been recorded yet: run the pipeline, and wait until it finishes")
        return list(self.read())

    def values(self) -> list[Any]:
        """The values alone."""
        return [record.value for record in self.records()]

    def per_key(self) -> dict[Any, list[Recorded]]:
        """Pairs by key, the key left out: the order within one is the same on every runner."""
        found: dict[Any, list[Recorded]] = {}
        for record in self.records():
            key, value = record.value
            found.setdefault(key, []).append(Recorded(value, record.timestamp, record.window, record.pane))
        return found

    def read(self) -> Iterator[Recorded]:
        """What has been committed so far."""
        assert self._directory is not None
        for path in sorted(self._directory.glob("*.done")):
            with path.open("rb") as file:
                while file.peek(1):
                    value, micros, window, pane = _load(pickle.load(file))
                    yield Recorded(value, Timestamp(micros=micros), window, pane)

    def forget(self) -> None:
        """Drop what an earlier run recorded."""
        assert self._directory is not None
        for path in self._directory.iterdir():
            path.unlink()


class _PerWindow(DoFn):
    def process(
        self,
        element: Any,
        timestamp: Timestamp = DoFn.TimestampParam,
        window: Any = DoFn.WindowParam,
        pane: PaneInfo = DoFn.PaneInfoParam,
    ) -> Iterable[Any]:
        return ((element, timestamp.micros, window, pane),)


class _PerElement(DoFn):
    def process(
        self, element: Any, timestamp: Timestamp = DoFn.TimestampParam, pane: PaneInfo = DoFn.PaneInfoParam
    ) -> Iterable[Any]:
        return ((element, timestamp.micros, None, pane),)


@dataclass(frozen=True, slots=True)
class _RecordSink(Sink[Any]):
    """Pickles in a directory. A file is an attempt's own until it is committed, when it gets its place in the order."""

    directory: str

    delivery = "exactly_once"

    @property
    def name(self) -> str:
        return "recorder"

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        return _RecordAttempt(self.directory, run, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        for number, committable in enumerate(in_order(committables)):
            source = Path(self.directory, committable.payload)
            # The pending name in the final one makes a repeated commit see what it has done already.
            target = Path(self.directory, f"{checkpoint or 0:012d}-{number:06d}-{committable.payload}.done")
            try:
                source.rename(target)
            except FileNotFoundError:
                if not target.exists():
                    raise WriteError(f"{source} is gone: what was recorded has been lost") from None

    def abort(self, run: str) -> None:
        for path in Path(self.directory).glob(f"{run}.*.pending"):
            path.unlink(missing_ok=True)


class _RecordAttempt(Attempt[Any]):
    def __init__(self, directory: str, run: str, task: int) -> None:
        self._directory = Path(directory)
        self._run = run
        self._task = task
        self._prepared = 0
        self._file: BinaryIO | None = None
        self._name = ""

    def write(self, values: Sequence[Any]) -> None:
        if self._file is None:
            import uuid

            self._name = f"{self._run}.{uuid.uuid4().hex}.pending"
            self._file = (self._directory / self._name).open("wb")
        for value in values:
            pickle.dump(_dump(value), self._file, 5)

    def prepare(self) -> list[Committable]:
        if self._file is None:
            return []
        self._file.close()
        self._file = None
        self._prepared += 1
        return [Committable((self._task, self._prepared), self._name)]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            (self._directory / self._name).unlink(missing_ok=True)


def _dump(record: Any) -> bytes:
    """As bytes; classes and functions made inside a test keep their identity in its own process."""
    try:
        return pickle.dumps(record, 5)
    except Exception:
        pass
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(record)
    except Exception as error:
        raise RunError(
            f"the element {shorten(record[0])} can't be recorded: it can't be pickled ({error}). "
            "Map it to something that can, such as its repr, before the assertion"
        ) from error
    return data


def _load(data: bytes) -> Any:
    return pickle.loads(data)


def _own_directory(pipeline: Pipeline) -> Path:
    """A new directory that goes when the pipeline does: it is written to whether or not anyone still reads it."""
    import shutil
    import tempfile
    import weakref

    directory = tempfile.mkdtemp(prefix="tidegate-recorded-", dir=pipeline.options.temp_dir)
    weakref.finalize(pipeline, shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)
