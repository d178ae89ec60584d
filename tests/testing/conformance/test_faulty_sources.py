"""Each check of sources catches a fault that was planted for it."""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.testing.conformance.good_sources import (
    COUNT,
    Folder,
    FolderEnumerator,
    Lines,
    LinesReader,
    Numbers,
    NumbersReader,
    append_lines,
    changed,
)
from tidegate.sdk.connectors.sources import Batch, Discovery, Position, Reader, Source, Split, SplitEnumerator
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import BuildError, ReadError
from tidegate.testing import RuleBroken, check_source
from tidegate.testing.conformance.source import SOURCE_CHECKS

NUMBERS = range(COUNT)
LINES = [f"line {n}" for n in range(7)]


def with_reader(reader: type[Reader[Any]]) -> type[Numbers]:
    """The source of numbers, with readers of this class."""

    class Faulty(Numbers):
        def reader(self, split: Split, position: Position = None) -> Reader[int]:
            start, stop = split.payload
            return reader(self, start if position is None else position["next"], stop)  # type: ignore[call-arg]

    return Faulty


class DropsTheLast(NumbersReader):
    def read(self, limit: int) -> Batch:
        batch = super().read(limit)
        return changed(batch, block=Block.of(batch.block.values[:-1])) if batch.end else batch  # type: ignore[union-attr]


class IgnoresTheLimit(NumbersReader):
    def read(self, limit: int) -> Batch:
        return super().read(limit + 1)


class ReturnsAList(NumbersReader):
    def read(self, limit: int) -> Batch:
        return [1, 2]  # type: ignore[return-value]


class NeverEnds(NumbersReader):
    def read(self, limit: int) -> Batch:
        return changed(super().read(limit), end=False)


@dataclass(frozen=True)
class HoldsALock(Numbers):
    lock: Any = field(default_factory=threading.Lock)


class OpensOnUse(Numbers):
    def splits(self, desired: int) -> list[Split]:
        object.__setattr__(self, "connection", threading.Lock())
        return super().splits(desired)


class LocksInSplits(Numbers):
    def part(self, start: int, stop: int) -> Split:
        return Split(f"{start}", payload=(start, stop, threading.Lock()))

    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        return super().reader(Split(split.id, payload=split.payload[:2]), position)


class RandomIds(Numbers):
    def part(self, start: int, stop: int) -> Split:
        return Split(uuid.uuid4().hex, payload=(start, stop))


class SameIds(Numbers):
    def part(self, start: int, stop: int) -> Split:
        return Split("numbers", payload=(start, stop))


class Overlapping(Numbers):
    def splits(self, desired: int) -> list[Split]:
        return [self.part(max(0, s.payload[0] - 1), s.payload[1]) for s in super().splits(desired)]


class PositionBehind(NumbersReader):
    def position(self) -> Position:
        return {"next": self.at - 1 if self.at > 1 else self.at}


class PositionOfASet(NumbersReader):
    def position(self) -> Position:
        return {self.at}


class IgnoresThePosition(Numbers):
    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        return super().reader(split)


class OneCursorForAll(Numbers):
    cursors: ClassVar[dict[str, int]] = {}

    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        cursors = self.cursors

        class Shared(NumbersReader):
            def read(self, limit: int) -> Batch:
                self.at = cursors.get(split.id, self.at)
                batch = super().read(limit)
                cursors[split.id] = self.at
                return batch

            def close(self) -> None:
                if self.at >= self.stop:
                    cursors.pop(split.id, None)

        return Shared(self, split.payload[0] if position is None else position["next"], split.payload[1])


class DividesTheWhole(Numbers):
    def split_again(self, split: Split, position: Position, desired: int) -> list[Split] | None:
        return super().split_again(split, None, desired)


class DividesIntoTheSameIds(Numbers):
    def split_again(self, split: Split, position: Position, desired: int) -> list[Split] | None:
        return [Split(split.id, payload=part.payload) for part in super().split_again(split, position, desired) or ()]


class ClosesOnlyWhatWasRead(NumbersReader):
    opened = False

    def read(self, limit: int) -> Batch:
        self.opened = True
        return super().read(limit)

    def close(self) -> None:
        if not self.opened:
            raise RuntimeError("not open")


class GoesBack(NumbersReader):
    def read(self, limit: int) -> Batch:
        batch = super().read(limit)
        return changed(batch, watermark=max(0, 5 - self.at))


class RunsAhead(NumbersReader):
    def read(self, limit: int) -> Batch:
        return changed(super().read(limit), watermark=COUNT * 10)


class RaisesKeyError(NumbersReader):
    def read(self, limit: int) -> Batch:
        try:
            return super().read(limit)
        except ReadError:
            raise KeyError("amount") from None


class NamesNoPlace(NumbersReader):
    def read(self, limit: int) -> Batch:
        try:
            return super().read(limit)
        except ReadError:
            raise ReadError("bad input") from None


class SkipsBadInput(Numbers):
    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        return NumbersReader(Numbers(), *split.payload)


class FailsToCloseAfterAnError(NumbersReader):
    failed = False

    def read(self, limit: int) -> Batch:
        self.failed = True
        batch = super().read(limit)
        self.failed = False
        return batch

    def close(self) -> None:
        if self.failed:
            raise RuntimeError("in the middle of a read")


class ReadsInItsOwnProcess(Numbers):
    process = os.getpid()

    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        if os.getpid() != self.process:
            raise ReadError(f"{os.getpid()} is not the process that made it")
        return super().reader(split, position)


OF_NUMBERS: list[tuple[str, type[Numbers], str]] = [
    ("reads_everything", with_reader(DropsTheLast), "missing"),
    ("reads_everything", with_reader(IgnoresTheLimit), "returned 2 elements"),
    ("reads_everything", with_reader(ReturnsAList), "return a tg.io.Batch"),
    ("reads_everything", with_reader(NeverEnds), "is bounded"),
    ("is_picklable", HoldsALock, "pickling the source raised"),
    ("is_picklable", OpensOnUse, "pickling the source after it was read raised"),
    ("is_picklable", LocksInSplits, "pickling split '0' raised"),
    ("splits_cover_everything_once", RandomIds, "the ids were"),
    ("splits_cover_everything_once", SameIds, "have the id 'numbers'"),
    ("splits_cover_everything_once", Overlapping, "unexpected"),
    ("resumes_at_every_position", with_reader(PositionBehind), "returned"),
    ("resumes_at_every_position", with_reader(PositionOfASet), "JSON can't store"),
    ("resumes_at_every_position", IgnoresThePosition, "after 1 elements, returned"),
    ("readers_are_independent", OneCursorForAll, "returned"),
    ("splits_again", DividesTheWhole, "unexpected"),
    ("splits_again", DividesIntoTheSameIds, "returned the ids"),
    ("closes", with_reader(ClosesOnlyWhatWasRead), "after 0 reads raised RuntimeError"),
    ("watermark_never_goes_back", with_reader(GoesBack), "back to"),
    ("watermark_never_goes_back", with_reader(RunsAhead), "after the watermark"),
    ("bad_input_is_a_read_error", with_reader(RaisesKeyError), "KeyError"),
    ("bad_input_is_a_read_error", with_reader(NamesNoPlace), "does not mention 'number 11'"),
    ("bad_input_is_a_read_error", SkipsBadInput, "without an error"),
    ("bad_input_is_a_read_error", with_reader(FailsToCloseAfterAnError), "close() after an error raised"),
    ("pipelines_read_everything", with_reader(DropsTheLast), "a pipeline on the direct runner"),
    ("pipelines_read_everything", ReadsInItsOwnProcess, "not the process that made it"),
    ("pipelines_resume_after_failures", with_reader(PositionBehind), "unexpected"),
    ("pipelines_resume_after_failures", DividesTheWhole, "unexpected"),
]


def test_a_source_of_numbers_keeps_the_rules() -> None:
    report = check_source(
        Numbers,
        NUMBERS,
        bad_source=lambda: Numbers(broken=True),
        bad_place="number 11",
        runners=["direct", "streaming"],
    )
    assert {name for name, _, _ in OF_NUMBERS} == set(report.passed)


@pytest.mark.parametrize(("check", "faulty", "message"), OF_NUMBERS)
def test_a_fault_of_a_bounded_source_is_caught(check: str, faulty: type[Numbers], message: str) -> None:
    with pytest.raises(RuleBroken) as caught:
        check_source(
            faulty,
            NUMBERS,
            bad_source=lambda: faulty(broken=True),
            bad_place="number 11",
            runners=["direct", "streaming"],
            patience=1.0 if "is bounded" in message else 60.0,
            only=[check],
        )
    assert caught.value.check == check
    assert message in str(caught.value)
    assert "what to do: " in str(caught.value)


class WaitsForLines(LinesReader):
    def read(self, limit: int) -> Batch:
        batch = super().read(limit)
        if not len(batch.block):
            threading.Event().wait()
        return batch


class Spins(LinesReader):
    def read(self, limit: int) -> Batch:
        return changed(super().read(limit), wait=0.0)


class LooksOnce(LinesReader):
    lines: tuple[str, ...] = ()

    def read(self, limit: int) -> Batch:
        if self.at > 0 and not self.lines:
            return Batch(Block.of([]), wait=0.01)
        batch = super().read(limit)
        self.lines = tuple(batch.block.values)  # type: ignore[union-attr]
        return batch


class SkipsLostLines(LinesReader):
    def read(self, limit: int) -> Batch:
        self.at = min(self.at, len(Path(self.path).read_text().splitlines()))
        return super().read(limit)


OF_LINES: list[tuple[str, type[LinesReader], str]] = [
    ("never_blocks", WaitsForLines, "has not returned within 0.5 s"),
    ("never_blocks", Spins, "wait=0.0"),
    ("reads_what_is_added", LooksOnce, "missing"),
    ("lost_position_is_refused", SkipsLostLines, "raised nothing"),
]


def check_lines(path: Path, reader: type[LinesReader], **options: Any) -> Any:
    class Read(Lines):
        def reader(self, split: Split, position: Position = None) -> Reader[str]:
            return reader(self.path, position or 0)

    append_lines(path, *LINES)
    return check_source(
        lambda: Read(str(path)),
        LINES,
        add=lambda: append_lines(path, "new", "newer"),
        lose=lambda: path.write_text(""),
        **options,
    )


def test_a_source_of_a_growing_file_keeps_the_rules(tmp_path: Path) -> None:
    report = check_lines(tmp_path / "lines", LinesReader)
    assert {name for name, _, _ in OF_LINES} < set(report.passed)
    assert "resumes_at_every_position" in report.passed


@pytest.mark.parametrize(("check", "faulty", "message"), OF_LINES)
def test_a_fault_of_an_unbounded_source_is_caught(
    tmp_path: Path, check: str, faulty: type[LinesReader], message: str
) -> None:
    with pytest.raises(RuleBroken) as caught:
        check_lines(tmp_path / "lines", faulty, only=[check], patience=0.5)
    assert caught.value.check == check
    assert message in str(caught.value)


class ForgetsTheState(Folder):
    def enumerator(self, state: Position = None) -> SplitEnumerator:
        return FolderEnumerator(self, None)


class StateAhead(FolderEnumerator):
    def state(self) -> Position:
        return self.last + 1


class StateGrows(FolderEnumerator):
    looks = 0

    def discover(self, limit: int) -> Discovery:
        self.looks += 1
        return super().discover(limit)

    def state(self) -> Position:
        return [self.last] * self.looks


class StateIsLarge(FolderEnumerator):
    def state(self) -> Position:
        return ["x" * 100_000]


class TooMany(FolderEnumerator):
    def discover(self, limit: int) -> Discovery:
        return super().discover(limit + 1)


class Repeats(FolderEnumerator):
    def discover(self, limit: int) -> Discovery:
        found = super().discover(limit)
        return found if found.splits or self.last < 0 else Discovery([Split("0", bounded=True)], end=True)


class SpinsOnLooks(FolderEnumerator):
    def discover(self, limit: int) -> Discovery:
        return Discovery(super().discover(limit).splits, wait=0.0)


class NeverSaysEnd(FolderEnumerator):
    def discover(self, limit: int) -> Discovery:
        return Discovery(super().discover(limit).splits, wait=0.01)


class LooksAtTheStartOnly(FolderEnumerator):
    files: list[int] | None = None

    def discover(self, limit: int) -> Discovery:
        self.files = self.files or list(self.source.files())
        self.files, found = self.files[limit:] or [-1], [number for number in self.files[:limit] if number >= 0]
        return Discovery([Split(str(number), bounded=True) for number in found], wait=0.01)


OF_FOLDERS: list[tuple[str, Any, str]] = [
    ("discovers_each_split_once", TooMany, "discover(1) returned 2 splits"),
    ("discovers_each_split_once", Repeats, "was returned 2 times"),
    ("enumerator_restarts_between_any_two_looks", ForgetsTheState, "restarted after 1 looks"),
    ("enumerator_restarts_between_any_two_looks", StateAhead, "missing"),
    ("enumerator_state_is_bounded", StateGrows, "made the state grow"),
    ("enumerator_state_is_bounded", StateIsLarge, "bytes"),
    ("enumerator_says_when_to_look_again", SpinsOnLooks, "wait=0.0"),
    ("discovers_what_is_added", LooksAtTheStartOnly, "missing"),
    ("bounded_enumerator_ends", NeverSaysEnd, "without `end`"),
]


def check_folder(path: Path, faulty: Any, follow: bool = True, **options: Any) -> Any:
    class Found(Folder):
        def enumerator(self, state: Position = None) -> SplitEnumerator:
            return faulty(self, state)  # type: ignore[no-any-return]

    path.mkdir()
    for number, line in enumerate(LINES):
        (path / str(number)).write_text(f"{line}\n")

    def add() -> list[str]:
        (path / "100").write_text("new\n")
        return ["new"]

    source = faulty if issubclass(faulty, Source) else Found
    return check_source(lambda: source(str(path), follow), LINES, add=add if follow else None, **options)


def test_pipelines_read_and_follow_sources_of_every_kind(tmp_path: Path) -> None:
    runs: Any = {"only": ["pipelines_read_everything", "pipelines_resume_after_failures"]}
    check_lines(tmp_path / "lines", LinesReader, runners=["direct", "streaming"], **runs)
    check_folder(tmp_path / "folder", FolderEnumerator, runners=["streaming"], **runs)
    report = check_lines(tmp_path / "other", LinesReader, runners=["spark"], **runs)
    assert "direct and streaming" in report.skipped["pipelines_read_everything"]


def test_a_source_with_an_enumerator_keeps_the_rules(tmp_path: Path) -> None:
    followed = check_folder(tmp_path / "followed", FolderEnumerator, patience=5.0)
    ended = check_folder(tmp_path / "ended", FolderEnumerator, follow=False)
    assert {name for name, _, _ in OF_FOLDERS} <= {*followed.passed, *ended.passed}
    assert "resumes_at_every_position" in followed.passed


@pytest.mark.parametrize(("check", "faulty", "message"), OF_FOLDERS)
def test_a_fault_of_an_enumerator_is_caught(tmp_path: Path, check: str, faulty: Any, message: str) -> None:
    follow = check != "bounded_enumerator_ends"
    with pytest.raises(RuleBroken) as caught:
        check_folder(tmp_path / "folder", faulty, follow, only=[check], patience=1.0)
    assert caught.value.check == check
    assert message in str(caught.value)


def test_every_check_of_sources_catches_a_planted_fault() -> None:
    planted = {name for name, _, _ in (*OF_NUMBERS, *OF_LINES, *OF_FOLDERS)}
    assert planted == {check.__name__ for check in SOURCE_CHECKS}


def test_every_check_of_sources_states_its_rule() -> None:
    assert all(check.__doc__ for check in SOURCE_CHECKS)


def test_checks_are_skipped_with_a_reason_and_unknown_ones_refused() -> None:
    report = check_source(Numbers, NUMBERS, skip={"closes": "a known fault"})
    assert report.skipped["closes"] == "a known fault"
    assert "closes" not in report.passed
    with pytest.raises(BuildError, match="no conformance check 'close'"):
        check_source(Numbers, NUMBERS, only=["close"])
    with pytest.raises(BuildError, match="no runner 'flink'"):
        check_source(Numbers, NUMBERS, runners=["flink"])
    with pytest.raises(BuildError, match="limits"):
        check_source(Numbers, NUMBERS, limits=[])
