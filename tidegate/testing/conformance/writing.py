"""Writes to a sink as a runner does: attempts of tasks, committables as a manifest has them, repeated commits."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tidegate.sdk.connectors.sinks import Attempt, Committable, InLocalFile, Sink, StagedFile
from tidegate.sdk.errors import error_text, shorten
from tidegate.testing.conformance.rules import Calls, NotApplicable, broken, copied
from tidegate.testing.matchers import difference

TASKS: Final = 3


@dataclass(frozen=True, slots=True)
class Stored:
    """A committable as a manifest stores it: JSON, and the contents of its staged files."""

    order: tuple[int, int]
    payload: str
    files: tuple[tuple[str, bytes], ...]

    def restored(self) -> Committable:
        files = tuple(StagedFile.of_bytes(name, data) for name, data in self.files)
        return Committable(self.order, json.loads(self.payload), files)


@dataclass(slots=True)
class SinkCase:
    """A sink and what is written to it; `check_sink` explains the fields."""

    make: Callable[[], Sink[Any]]
    elements: list[Any]
    read_back: Callable[[Sink[Any]], Iterable[Any]]
    calls: Calls
    bad_element: tuple[Any, ...] = ()
    bad_place: str = ""
    runners: tuple[str, ...] = ()

    def sink(self) -> Sink[Any]:
        return self.calls("make_sink()", self.make)

    def round(self, checkpoint: int | None = None) -> Round:
        """A run of the sink at a new place."""
        return Round(self, self.sink(), f"conformance-{uuid.uuid4().hex[:12]}", checkpoint)

    def exactly_once(self) -> None:
        """End the check if the sink promises less."""
        if self.sink().delivery != "exactly_once":
            raise NotApplicable('delivery is "at_least_once": output is visible before the commit, and may be repeated')

    def slices(self) -> list[list[Any]]:
        """The elements of each task."""
        return [self.elements[task::TASKS] for task in range(TASKS)]


@dataclass(slots=True)
class Round:
    """One run of a pipeline with the sink, bounded if it has no checkpoint."""

    case: SinkCase
    sink: Sink[Any]
    run: str
    checkpoint: int | None

    def attempt(self, task: int) -> Attempt[Any]:
        sink = copied(self.case.calls, "the sink", self.sink)
        return self.case.calls(f"attempt({self.run!r}, {task})", sink.attempt, self.run, task)

    def write(self, attempt: Attempt[Any], values: Sequence[Any]) -> None:
        for start in range(0, len(values), 2):
            self.case.calls("write(…)", attempt.write, values[start : start + 2])

    def prepare(self, attempt: Attempt[Any]) -> list[Stored]:
        """What an attempt prepares, stored as a runner stores it: the attempt's own files are gone then."""
        return [self._stored(each) for each in self.case.calls("prepare()", attempt.prepare)]

    def close(self, attempt: Attempt[Any]) -> None:
        self.case.calls("close()", attempt.close)

    def written(self, values: Sequence[Any], task: int = 0) -> list[Stored]:
        """Values that a task has written and prepared, with an attempt of its own."""
        attempt = self.attempt(task)
        self.write(attempt, values)
        prepared = self.prepare(attempt)
        self.close(attempt)
        return prepared

    def written_by_all(self) -> list[Stored]:
        """The elements of the case, written by several tasks."""
        return [each for task, values in enumerate(self.case.slices()) for each in self.written(values, task)]

    def commit(self, stored: Sequence[Stored], checkpoint: int | None = None) -> None:
        """Commit as a process does that knows the pickled sink and the manifest alone."""
        number = self.checkpoint if checkpoint is None else checkpoint
        for group in self.groups(stored, number):
            sink = copied(self.case.calls, "the sink", self.sink)
            what = f"commit of {len(group)} committables with checkpoint={number}"
            self.case.calls(what, sink.commit, self.run, [each.restored() for each in group], number)

    def abort(self) -> None:
        self.case.calls(f"abort({self.run!r})", copied(self.case.calls, "the sink", self.sink).abort, self.run)

    def visible(self) -> list[Any]:
        return list(self.case.calls("read_back(sink)", self.case.read_back, self.sink))

    def expect(self, elements: Sequence[Any], when: str, advice: str) -> None:
        """Raise if the visible elements are not these."""
        problem = difference(elements, self.visible())
        if problem is not None:
            raise broken(f"{when} ({self.mode}): {problem}", advice)

    @property
    def mode(self) -> str:
        return "a bounded run" if self.checkpoint is None else f"a stream, checkpoint {self.checkpoint}"

    def groups(self, stored: Sequence[Stored], checkpoint: int | None) -> list[list[Stored]]:
        if self.sink.commit_by == "job" or checkpoint is None:
            return [list(stored)]
        tasks = dict.fromkeys(each.order[0] for each in stored)
        return [[each for each in stored if each.order[0] == task] for task in tasks]

    def _stored(self, committable: Committable) -> Stored:
        if not isinstance(committable, Committable):
            raise broken(f"prepare() returned {shorten(committable)}", "return a list of tg.io.Committable")
        try:
            payload = json.dumps(committable.payload)
        except (TypeError, ValueError) as error:
            raise broken(
                f"the payload {shorten(committable.payload)} can't be stored as JSON: {error_text(error)}",
                "let it consist of numbers, strings, lists and dicts, and stage the rest as a file",
            ) from error
        return Stored(committable.order, payload, tuple(self._stored_file(file) for file in committable.files))

    def _stored_file(self, file: StagedFile) -> tuple[str, bytes]:
        def contents() -> bytes:
            with file.open() as opened:
                return opened.read()

        data = self.case.calls(f"opening the staged file {file.name!r}", contents)
        if len(data) != file.size:
            raise broken(
                f"the staged file {file.name!r} has {len(data):,} bytes, but its size is {file.size:,}",
                "stage a file when it is complete, and do not write to it afterwards",
            )
        if isinstance(file.content, InLocalFile):
            with suppress(OSError):
                os.unlink(file.content.path)
        return file.name, data
