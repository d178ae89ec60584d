"""Each check of sinks catches a fault that was planted for it."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tidegate.sdk.connectors.sinks import Attempt, Committable, Delivery, Sink, StagedFile, in_order
from tidegate.sdk.errors import BuildError, WriteError
from tidegate.testing import ConformanceReport, RuleBroken, check_sink
from tidegate.testing.conformance.sink import SINK_CHECKS

ELEMENTS = list(range(10))


@dataclass(frozen=True)
class Files(Sink[int]):
    """Writes numbers to files `<run>.<task>.<sequence>.<random>` in the folder `prepared`; the commit moves them to
    `visible`."""

    folder: str
    delivery: Delivery = "exactly_once"

    @property
    def prepared(self) -> Path:
        return Path(self.folder, "prepared")

    @property
    def visible(self) -> Path:
        return Path(self.folder, "visible")

    def writes(self) -> Any:
        return self.folder

    def attempt(self, run: str, task: int) -> Attempt[int]:
        return FilesAttempt(self, run, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        self.visible.mkdir(parents=True, exist_ok=True)
        for committable in in_order(committables):
            name = committable.payload["file"]
            if (self.prepared / name).exists():
                (self.prepared / name).rename(self.visible / name)
            elif not (self.visible / name).exists():
                raise WriteError(f"{name} is lost")

    def abort(self, run: str) -> None:
        for path in self.prepared.glob(f"{run}.*"):
            path.unlink()


class FilesAttempt(Attempt[int]):
    def __init__(self, sink: Files, run: str, task: int) -> None:
        self.sink, self.run, self.task = sink, run, task
        self.id, self.sequence = uuid.uuid4().hex, 0
        self.values: list[int] = []

    def write(self, values: Sequence[int]) -> None:
        for value in values:
            if type(value) is not int:
                raise WriteError(f"{self.sink.folder}: {value!r} is not a number; write numbers")
        self.values += values

    def prepare(self) -> list[Committable]:
        if not self.values:
            return []
        self.sequence += 1
        name = self.name()
        self.sink.prepared.mkdir(parents=True, exist_ok=True)
        (self.sink.prepared / name).write_text(json.dumps(self.values))
        self.values = []
        return [Committable((self.task, self.sequence), {"file": name})]

    def name(self) -> str:
        return f"{self.run}.{self.task}.{self.sequence}.{self.id}"


@dataclass(frozen=True)
class Staged(Files):
    """The same, but files are staged with the runner, and committed files are named by checkpoint and order."""

    commit_by: Literal["job", "task"] = "task"

    def attempt(self, run: str, task: int) -> Attempt[int]:
        return StagedAttempt(self, run, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        self.visible.mkdir(parents=True, exist_ok=True)
        for committable in in_order(committables):
            (file,) = committable.files
            with file.open() as opened:
                (self.visible / self.file_name(run, committable, checkpoint)).write_bytes(opened.read())

    def file_name(self, run: str, committable: Committable, checkpoint: int | None) -> str:
        return f"{run}.{checkpoint}.{committable.order}"


class StagedAttempt(FilesAttempt):
    def prepare(self) -> list[Committable]:
        if not self.values:
            return []
        self.sequence += 1
        path = Path(self.sink.folder) / f"{uuid.uuid4().hex}.local"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.values))
        self.values = []
        return [Committable((self.task, self.sequence), str(path), (StagedFile.of_path("values", path),))]


@dataclass(frozen=True)
class Immediate(Files):
    """Writes to the visible folder immediately, at least once."""

    delivery: Delivery = "at_least_once"

    def attempt(self, run: str, task: int) -> Attempt[int]:
        return ImmediateAttempt(self, run, task)


class ImmediateAttempt(FilesAttempt):
    def write(self, values: Sequence[int]) -> None:
        self.sink.visible.mkdir(parents=True, exist_ok=True)
        (self.sink.visible / uuid.uuid4().hex).write_text(json.dumps(list(values)))


def read_back(sink: Files) -> list[Any]:
    return [value for path in sorted(sink.visible.glob("*")) for value in json.loads(path.read_text())]


def check(folder: Path, make: Any = Files, **options: Any) -> ConformanceReport:
    numbers = itertools.count()
    options = {"bad_element": "text", "bad_place": str(folder), "runners": ["direct", "streaming"], **options}
    return check_sink(lambda: make(str(folder / str(next(numbers)))), ELEMENTS, read_back, **options)


def with_attempt(attempt: Any, of: type[Files] = Files) -> type[Files]:
    """The sink, with attempts of this class."""

    class Faulty(of):  # type: ignore[misc,valid-type]
        def attempt(self, run: str, task: int) -> Attempt[int]:
            return attempt(self, run, task)  # type: ignore[no-any-return]

    return Faulty


class DropsOne(FilesAttempt):
    def write(self, values: Sequence[int]) -> None:
        super().write([value for value in values if value != 7])


@dataclass(frozen=True)
class HoldsALock(Files):
    lock: Any = field(default_factory=threading.Lock)


class WritesAList(Files):
    def writes(self) -> Any:
        return [self.folder]


class WritesItself(Files):
    def writes(self) -> Any:
        return id(self)


class CountsFromOne(FilesAttempt):
    def prepare(self) -> list[Committable]:
        prepared = super().prepare()
        self.sequence = 0
        return prepared


class NotJson(FilesAttempt):
    def prepare(self) -> list[Committable]:
        return [Committable(each.order, {each.payload["file"]}) for each in super().prepare()]


class Appends(Files):
    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        self.visible.mkdir(parents=True, exist_ok=True)
        for committable in committables:
            data = (self.prepared / committable.payload["file"]).read_text()
            (self.visible / uuid.uuid4().hex).write_text(data)


class FailsIfDone(Files):
    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        self.visible.mkdir(parents=True, exist_ok=True)
        for committable in committables:
            (self.prepared / committable.payload["file"]).rename(self.visible / committable.payload["file"])


IN_MEMORY: dict[str, list[int]] = {}


class InMemory(Files):
    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        self.visible.mkdir(parents=True, exist_ok=True)
        for committable in committables:
            memory = json.loads(json.dumps(_memory()))
            (self.visible / committable.payload).write_text(json.dumps(memory[committable.payload]))


def _memory() -> dict[str, list[int]]:
    from tests.testing.conformance import test_faulty_sinks

    return test_faulty_sinks.IN_MEMORY


class InMemoryAttempt(FilesAttempt):
    def prepare(self) -> list[Committable]:
        self.sequence += 1
        _memory()[self.name()], self.values = self.values, []
        return [Committable((self.task, self.sequence), self.name())]


class NeedsOrder(Files):
    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        if [each.order for each in committables] != sorted(each.order for each in committables):
            raise ValueError("not in order")
        super().commit(run, committables, checkpoint)


class NeedsSomething(Files):
    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        assert committables[0].order[0] >= 0
        super().commit(run, committables, checkpoint)


class Replaces(Files):
    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        current = {committable.payload["file"] for committable in committables}
        for path in self.visible.glob("*"):
            if path.name not in current:
                path.unlink()
        super().commit(run, committables, checkpoint)


class ReadsTheLocalFile(Staged):
    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        self.visible.mkdir(parents=True, exist_ok=True)
        for committable in committables:
            name = f"{run}.{committable.order}"
            if not (self.visible / name).exists():
                (self.visible / name).write_text(Path(committable.payload).read_text())


class NamesByOrder(Staged):
    """An attempt after a restart counts from the start again."""

    def file_name(self, run: str, committable: Committable, checkpoint: int | None) -> str:
        return f"{run}.{committable.order}"


class CopiesIntoPayload(StagedAttempt):
    """Writes its values also into the payload, from which the sink below reads them."""

    def prepare(self) -> list[Committable]:
        values = list(self.values)
        return [Committable(each.order, values, each.files) for each in super().prepare()]


class ReadsThePayload(Staged):
    def attempt(self, run: str, task: int) -> Attempt[int]:
        return CopiesIntoPayload(self, run, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        self.visible.mkdir(parents=True, exist_ok=True)
        for each in committables:
            (self.visible / f"{run}.{each.order}").write_text(json.dumps(each.payload))


class AbortFailsIfRepeated(Files):
    def abort(self, run: str) -> None:
        self.prepared.mkdir(parents=True)


class PublishesOnClose(FilesAttempt):
    def close(self) -> None:
        if self.values:
            self.sink.visible.mkdir(parents=True, exist_ok=True)
            (self.sink.visible / self.id).write_text(json.dumps(self.values))


class AbortDoesNothing(Files):
    def abort(self, run: str) -> None:
        pass


class AbortRemovesAll(Files):
    def abort(self, run: str) -> None:
        super().abort(run)
        for path in self.visible.glob(f"{run}.*"):
            path.unlink()


class AbortsByPrefix(Files):
    def abort(self, run: str) -> None:
        for path in self.prepared.glob(f"{run}*"):
            path.unlink()


class CommitsTheFolder(Files):
    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        super().commit(run, committables, checkpoint)
        for path in self.prepared.glob(f"{run}.*"):
            path.rename(self.visible / path.name)


class SameFile(FilesAttempt):
    def name(self) -> str:
        return f"{self.run}.{self.task}.{self.sequence}"


class ClosesAll(FilesAttempt):
    def close(self) -> None:
        for path in self.sink.prepared.glob(f"*.{self.id}"):
            path.unlink()


class WritesAnything(FilesAttempt):
    def write(self, values: Sequence[int]) -> None:
        self.values += values


class RaisesTypeError(FilesAttempt):
    def write(self, values: Sequence[int]) -> None:
        self.values += [value + 0 for value in values]


class NamesNoPlace(FilesAttempt):
    def write(self, values: Sequence[int]) -> None:
        try:
            super().write(values)
        except WriteError:
            raise WriteError("not a number") from None


class FailsToClose(FilesAttempt):
    def write(self, values: Sequence[int]) -> None:
        self.values += values
        super().write(values)

    def close(self) -> None:
        if self.values:
            raise RuntimeError("values are left")


class Unpicklable(Files):
    def attempt(self, run: str, task: int) -> Attempt[int]:
        return super().attempt(run, task)

    def __reduce__(self) -> Any:
        raise TypeError("it has a connection")


FAULTS: list[tuple[str, type[Files], str]] = [
    ("writes_everything", with_attempt(DropsOne), "missing"),
    ("writes_everything", with_attempt(NotJson), "can't be stored as JSON"),
    ("is_picklable", HoldsALock, "pickling the sink raised"),
    ("is_picklable", Unpicklable, "it has a connection"),
    ("names_what_it_writes", WritesAList, "writes() returned ["),
    ("names_what_it_writes", WritesItself, "from a pickled copy"),
    ("committables_have_orders", with_attempt(CountsFromOne), "prepared the orders"),
    ("nothing_is_visible_before_the_commit", with_attempt(ImmediateAttempt), "after write, before the commit"),
    ("commits_twice", Appends, "unexpected"),
    ("commits_twice", FailsIfDone, "FileNotFoundError"),
    ("commits_in_another_process", with_attempt(InMemoryAttempt, InMemory), "commit in another process failed"),
    ("commits_in_any_order", NeedsOrder, "not in order"),
    ("commits_nothing", NeedsSomething, "IndexError"),
    ("commits_each_checkpoint", Replaces, "after the commit of checkpoint 2"),
    ("commits_each_checkpoint", NamesByOrder, "after the commit of checkpoint 3"),
    ("commits_staged_files", ReadsTheLocalFile, "FileNotFoundError"),
    ("commits_staged_files", ReadsThePayload, "did not contain them"),
    ("aborts_before_prepare", AbortFailsIfRepeated, "FileExistsError"),
    ("aborts_before_prepare", with_attempt(PublishesOnClose), "after abort and close"),
    ("aborts_after_prepare", AbortDoesNothing, "succeeded"),
    ("abort_keeps_committed_output", AbortRemovesAll, "missing"),
    ("abort_keeps_other_runs", AbortsByPrefix, "is lost"),
    ("abandoned_attempts_leave_nothing", CommitsTheFolder, "unexpected"),
    ("attempts_of_a_task_do_not_interfere", with_attempt(SameFile), "after one of two attempts"),
    ("close_discards_unprepared_output", with_attempt(PublishesOnClose), "unexpected"),
    ("close_discards_unprepared_output", with_attempt(ClosesAll), "is lost"),
    ("bad_element_is_a_write_error", with_attempt(WritesAnything), "without an error"),
    ("bad_element_is_a_write_error", with_attempt(RaisesTypeError), "TypeError"),
    ("bad_element_is_a_write_error", with_attempt(NamesNoPlace), "does not mention"),
    ("bad_element_is_a_write_error", with_attempt(FailsToClose), "close() after an error raised"),
    ("pipelines_write_everything", with_attempt(DropsOne), "after a pipeline on the direct runner"),
    ("pipelines_write_everything", with_attempt(InMemoryAttempt, InMemory), "on the streaming runner"),
    ("pipelines_write_once_after_failures", with_attempt(ImmediateAttempt), "unexpected"),
    ("pipelines_write_once_after_failures", NamesByOrder, "missing"),
    ("failed_pipelines_leave_nothing", with_attempt(ImmediateAttempt), "that failed"),
]


def test_sinks_with_files_of_their_own_and_with_staged_files_keep_the_rules(tmp_path: Path) -> None:
    local, staged = check(tmp_path / "local"), check(tmp_path / "staged", Staged)
    every = {each.__name__ for each in SINK_CHECKS}
    assert set(local.passed) == every - {"commits_staged_files"}
    assert set(staged.passed) == every


def test_an_at_least_once_sink_keeps_the_rules_that_apply_to_it(tmp_path: Path) -> None:
    report = check(tmp_path, Immediate, skip={"bad_element_is_a_write_error": "it writes everything"})
    assert {"writes_everything", "commits_nothing", "commits_each_checkpoint"} <= set(report.passed)
    assert "at_least_once" in report.skipped["commits_twice"]


@pytest.mark.parametrize(("name", "faulty", "message"), FAULTS)
def test_a_fault_of_a_sink_is_caught(tmp_path: Path, name: str, faulty: type[Files], message: str) -> None:
    with pytest.raises(RuleBroken) as caught:
        check(tmp_path, faulty, only=[name])
    assert caught.value.check == name
    assert message in str(caught.value)
    assert "what to do: " in str(caught.value)


def test_every_check_of_sinks_catches_a_planted_fault() -> None:
    assert {name for name, _, _ in FAULTS} == {each.__name__ for each in SINK_CHECKS}


def test_every_check_of_sinks_states_its_rule() -> None:
    assert all(each.__doc__ for each in SINK_CHECKS)


def test_too_few_elements_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="6 elements"):
        check_sink(lambda: Files(str(tmp_path)), [1, 2], read_back)
