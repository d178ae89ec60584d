"""Recording the elements of a collection while a pipeline runs, to read them in the author's process afterwards.

The elements are written by a sink, so that each is recorded exactly once on every runner with that guarantee, even
after failures. The workers and the author's process must share a file system; the option `temp_dir` names a shared
directory if the system's temporary directory is not.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink, in_order
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.errors import RunError, WriteError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import ParDo, Write
from tidegate.sdk.time import Timestamp
from tidegate.sdk.user_code.by_value import pickle_with_local_code
from tidegate.sdk.user_code.redefined_classes import dumps

Record: TypeAlias = tuple[Any, int, Any, PaneInfo]
"""A value, its timestamp (µs), its window (None where windows are not recorded) and its pane."""

ENOUGH: Final = "enough"
"""The file that a task creates in the directory when it has recorded as many elements as requested."""


def record(pcoll: PCollection[Any], directory: Path, *, per_window: bool, limit: int | None = None) -> None:
    """Add the steps that record a collection in a directory.

    `per_window=False` records an element in several windows once, without its windows. Of more than `limit` elements
    each writing task records the first ones.
    """
    reified: PCollection[Any] = pcoll | ParDo(_PerWindow() if per_window else _PerElement(), name="record")
    _ = reified | Write(_RecordSink(str(directory), limit), name="keep")


def recorded(directory: Path) -> Iterator[Record]:
    """The elements committed so far, in the order in which each writing task received them."""
    for path in sorted(directory.glob("*.done")):
        with path.open("rb") as file:
            while file.peek(1):
                yield from pickle.loads(pickle.load(file))


class _PerWindow(DoFn):
    light = True
    """It does next to nothing, so a runner may call it wherever the elements are."""

    def process(
        self,
        element: Any,
        timestamp: Timestamp = DoFn.TimestampParam,
        window: Any = DoFn.WindowParam,
        pane: PaneInfo = DoFn.PaneInfoParam,
    ) -> Iterable[Any]:
        return ((element, timestamp.micros, window, pane),)


class _PerElement(DoFn):
    light = True

    def process(
        self, element: Any, timestamp: Timestamp = DoFn.TimestampParam, pane: PaneInfo = DoFn.PaneInfoParam
    ) -> Iterable[Any]:
        return ((element, timestamp.micros, None, pane),)


@dataclass(frozen=True, slots=True)
class _RecordSink(Sink[Any]):
    """Writes pickles to files in a directory. A commit renames the files so that their names sort in order."""

    directory: str
    limit: int | None = None

    delivery = "exactly_once"
    read_back = True

    @property
    def name(self) -> str:
        return "recorder"

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        return _RecordAttempt(self.directory, run, task, self.limit)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        for number, committable in enumerate(in_order(committables)):
            source = Path(self.directory, committable.payload)
            # The final name includes the pending one, by which a repeated commit finds files renamed before.
            target = Path(self.directory, f"{checkpoint or 0:012d}-{number:06d}-{committable.payload}.done")
            try:
                source.rename(target)
            except FileNotFoundError:
                if not target.exists():
                    raise WriteError(f"{source} does not exist: the recorded elements are lost") from None

    def abort(self, run: str) -> None:
        for path in Path(self.directory).glob(f"{run}.*.pending"):
            path.unlink(missing_ok=True)


class _RecordAttempt(Attempt[Any]):
    def __init__(self, directory: str, run: str, task: int, limit: int | None) -> None:
        self._directory = Path(directory)
        self._remaining = limit
        self._run = run
        self._task = task
        self._prepared = 0
        self._file: BinaryIO | None = None
        self._name = ""

    def write(self, values: Sequence[Any]) -> None:
        if self._remaining is not None:
            values = values[: self._remaining]
            self._remaining -= len(values)
        if not len(values):
            return
        if self._file is None:
            import uuid

            self._name = f"{self._run}.{uuid.uuid4().hex}.pending"
            self._file = (self._directory / self._name).open("wb")
        for start in range(0, len(values), _TOGETHER):
            for data in _dumped(values[start : start + _TOGETHER]):
                pickle.dump(data, self._file, 5)
        if self._remaining == 0:
            (self._directory / ENOUGH).touch()

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


_TOGETHER: Final = 256
"""How many records are pickled at once."""


def _dumped(records: Sequence[Any]) -> Iterator[bytes]:
    """Pickle lists of records; classes and functions defined inside a function keep their identity in the same
    process."""
    try:
        yield dumps(list(records))
    except Exception:
        yield from map(_dump, records)


def _dump(record: Any) -> bytes:
    """Pickle a list of one record."""
    try:
        return dumps([record])
    except Exception:
        pass
    try:
        return pickle_with_local_code([record])
    except Exception as error:
        raise RunError(
            f"the element {shorten(record[0])} can't be recorded: it can't be pickled ({error}). "
            "Map it to a value that can, such as its repr"
        ) from error


def recording_directory(pipeline: Pipeline) -> Path:
    """A new directory that is deleted with the pipeline, since a run may write to it after the last read."""
    import shutil
    import tempfile
    import weakref

    directory = tempfile.mkdtemp(prefix="tidegate-recorded-", dir=pipeline.options.temp_dir)
    weakref.finalize(pipeline, shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)
