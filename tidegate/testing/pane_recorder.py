"""PaneRecorder: the elements of a collection with their timestamps, windows and panes, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tidegate.sdk.errors import BuildError
from tidegate.sdk.interactive.recorder import record, recorded, recording_directory
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import Timestamp
from tidegate.testing.expected_panes import Recorded


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

    def with_label(self, label: str) -> Self:
        """This recorder with another label; not a copy, since it is what is asked after the run."""
        self.label = super().with_label(label).label
        return self

    def expand(self, input: PCollection[Any]) -> None:
        if not isinstance(input, PCollection):
            raise BuildError(f"PaneRecorder applies to a PCollection, not to {type(input).__name__}")
        if self._directory is not None:
            raise BuildError("this PaneRecorder already records another collection: create one for each")
        self._pipeline = input.pipeline
        self._directory = recording_directory(input.pipeline)
        record(input, self._directory, per_window=self.per_window)

    def records(self) -> list[Recorded]:
        """The recorded elements, in order of arrival at each task. Raises BuildError before the run has ended."""
        pipeline = self._pipeline
        if pipeline is None or not pipeline.has_run or not pipeline.result.state.ended:
            raise BuildError("nothing has been recorded yet: run the pipeline, and wait until it finishes")
        return list(self.read())

    def values(self) -> list[Any]:
        """The values of the recorded elements."""
        return [one.value for one in self.records()]

    def per_key(self) -> dict[Any, list[Recorded]]:
        """The values of recorded pairs by key. Within a key the order is the same on every runner."""
        found: dict[Any, list[Recorded]] = {}
        for one in self.records():
            key, value = one.value
            found.setdefault(key, []).append(Recorded(value, one.timestamp, one.window, one.pane))
        return found

    def read(self) -> Iterator[Recorded]:
        """The elements committed so far."""
        assert self._directory is not None
        for value, micros, window, pane in recorded(self._directory):
            yield Recorded(value, Timestamp(micros=micros), window, pane)

    def forget(self) -> None:
        """Delete what an earlier run recorded."""
        assert self._directory is not None
        for path in self._directory.iterdir():
            path.unlink()
