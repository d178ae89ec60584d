"""The enumerator of followed folders finds each file once, in any history of a folder and after any restart."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.io.file_source.following import Follow, FollowedFiles
from tidegate.io.file_source.listing import Found
from tidegate.sdk.connectors.sources import Split
from tidegate.sdk.errors import PositionLost
from tidegate.sdk.metrics import MetricCells, collecting, in_step

POLL, MIN_AGE = 1.0, 2.0
SECOND = 10**9


@dataclass
class Folder:
    """A folder with a manual clock, and the enumerator that follows it."""

    path: Path
    pattern: str = "*.txt"
    clock: int = 1_000 * SECOND
    parts: int = 1
    enumerator: FollowedFiles = field(init=False)

    def __post_init__(self) -> None:
        self.path.mkdir(exist_ok=True)
        self.restart(None)

    def restart(self, state: Any) -> None:
        def divide(file: Found) -> list[Split]:
            return [Split(f"{file.url}#{n}") for n in range(self.parts)]

        self.enumerator = FollowedFiles(
            [str(self.path / self.pattern)], Follow(POLL, MIN_AGE), divide, state, now=lambda: self.clock
        )

    def write(self, name: str, text: str = "x") -> None:
        (self.path / name).write_text(text)
        os.utime(self.path / name, ns=(self.clock, self.clock))

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def look(self, seconds: float = 0, limit: int = 1000) -> list[str]:
        """Advance the clock, and return the names of the files found (with `parts` > 1: of the parts)."""
        self.clock += int(seconds * SECOND)
        found = self.enumerator.discover(limit).splits
        assert len(found) <= limit
        names = [os.path.basename(split.id.partition("@")[0]) for split in found]
        return names if self.parts > 1 else [name.partition("#")[0] for name in names]

    def state(self) -> Any:
        return json.loads(json.dumps(self.enumerator.state()))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "in")


def test_a_file_is_found_when_it_is_old_enough_and_never_again(folder: Folder) -> None:
    folder.write("a.txt")
    assert folder.look() == []
    assert folder.look(1.9) == []
    assert folder.look(0.1) == ["a.txt"]
    folder.write("b.txt")
    assert folder.look(2) == ["b.txt"]
    assert folder.look(1000) == []


def test_a_file_that_was_moved_in_complete_is_found_at_the_first_look(folder: Folder) -> None:
    folder.write("a.txt")
    folder.clock += 60 * SECOND
    assert folder.look() == ["a.txt"]


def test_a_file_that_grows_is_found_when_it_has_stopped_growing(folder: Folder) -> None:
    for n in range(1, 6):
        folder.write("a.txt", "x" * n)
        assert folder.look(1) == []
    assert folder.look(1) == ["a.txt"]


def test_files_are_found_in_the_order_in_which_they_were_written(folder: Folder) -> None:
    for name in ("c.txt", "a.txt", "b.txt"):
        folder.write(name)
        folder.clock += SECOND
    folder.write("other.csv")
    (folder.path / "folder.txt").mkdir()
    assert folder.look(10) == ["c.txt", "a.txt", "b.txt"]


def test_a_store_whose_clock_is_ahead_delays_a_file_no_longer_than_min_age(folder: Folder) -> None:
    folder.clock += 3600 * SECOND
    folder.write("a.txt")
    folder.clock -= 3600 * SECOND
    assert folder.look() == []
    assert folder.look(1) == []
    assert folder.look(1) == ["a.txt"]


def test_a_file_that_changes_after_it_was_read_is_logged_and_counted_and_not_read_again(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write("a.txt")
    assert folder.look(3) == ["a.txt"]
    with collecting(MetricCells()) as cells, in_step("read"):
        folder.write("a.txt", "changed")
        assert folder.look(10) == folder.look(10) == []
        folder.write("a.txt", "again")
        assert folder.look(10) == folder.look(10) == []
    assert {key.name: n for key, n in cells.counters.items()} == {"files_changed": 2}
    assert caplog.messages == [f"{folder.path}/a.txt has changed since it was read; it is not read again"]


def test_a_file_that_is_deleted_and_written_again_is_a_new_one(folder: Folder) -> None:
    folder.write("a.txt")
    folder.write("b.txt")
    assert folder.look(3) == ["a.txt", "b.txt"]
    folder.delete("a.txt")
    with collecting(MetricCells()) as cells, in_step("read"):
        assert folder.look(1) == []
    assert {key.name: n for key, n in cells.counters.items()} == {"files_deleted": 1}
    folder.write("a.txt")
    assert folder.look(3) == ["a.txt"]


def test_a_folder_that_is_not_mounted_for_a_while_has_no_new_files_afterwards(folder: Folder) -> None:
    folder.write("a.txt")
    folder.write("b.txt")
    assert folder.look(3) == ["a.txt", "b.txt"]
    away = folder.path.with_name("away")
    folder.path.rename(away)
    assert folder.look(10) == []
    folder.path.mkdir()
    assert folder.look(10) == []
    folder.restart(folder.state())
    folder.path.rmdir()
    away.rename(folder.path)
    folder.write("c.txt")
    assert folder.look(10) == ["c.txt"]


def test_a_different_file_in_a_folder_that_was_emptied_is_a_new_file(folder: Folder) -> None:
    folder.write("a.txt", "one")
    assert folder.look(3) == ["a.txt"]
    folder.delete("a.txt")
    assert folder.look(3) == []
    folder.write("a.txt", "two!")
    assert folder.look(3) == ["a.txt"]


def test_a_folder_that_cannot_be_listed_is_listed_again_later(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder.write("a.txt")
    assert folder.look(3) == ["a.txt"]
    folder.write("b.txt")
    away = folder.path.with_name("away")
    folder.path.rename(away)
    folder.path.symlink_to(folder.path)  # a symbolic link to itself can't be listed, not even by root
    for _ in range(3):
        assert folder.look(3) == []
    folder.path.unlink()
    away.rename(folder.path)
    assert folder.look(3) == ["b.txt"]


def test_the_parts_of_a_file_are_found_in_batches_and_resume_after_a_restart(folder: Folder) -> None:
    folder.parts = 5
    folder.write("a.txt")
    folder.write("b.txt")
    found = folder.look(3, limit=3)
    assert found == ["a.txt#0", "a.txt#1", "a.txt#2"]
    folder.restart(folder.state())
    found += folder.look(0, limit=3)
    found += folder.look(0, limit=3)
    folder.restart(folder.state())
    found += folder.look(0, limit=3)
    assert found == [f"{name}.txt#{n}" for name in "ab" for n in range(5)]
    assert folder.look(10) == []


@pytest.mark.parametrize("change", ["write", "delete"])
def test_a_file_that_changes_before_all_its_parts_were_found_is_refused(folder: Folder, change: str) -> None:
    folder.parts = 5
    folder.write("a.txt")
    folder.write("b.txt")
    folder.look(3, limit=3)
    state = folder.state()
    if change == "write":
        folder.write("a.txt", "changed")
    else:
        folder.delete("a.txt")
    folder.restart(state)
    with pytest.raises(PositionLost, match=r"a\.txt was changed or deleted before all its parts had been read"):
        folder.look(3)


def test_files_over_the_limit_are_returned_without_waiting_by_the_next_discoveries(folder: Folder) -> None:
    for n in range(10):
        folder.write(f"{n}.txt")
    folder.clock += 10 * SECOND
    first = folder.enumerator.discover(4)
    assert (len(first.splits), first.wait, first.end) == (4, 0.0, False)
    assert len(folder.enumerator.discover(4).splits) == 4
    last = folder.enumerator.discover(4)
    assert (len(last.splits), last.wait, last.end) == (2, POLL, False)


def test_ids_of_splits_name_the_file_and_its_version(folder: Folder) -> None:
    folder.write("a.txt")
    folder.write("b.txt")
    folder.clock += 10 * SECOND
    ids = [split.id for split in folder.enumerator.discover(10).splits]
    assert ids[0] == f"{folder.path}/a.txt#0@1,mtime={1_000 * SECOND}"
    assert len(set(ids)) == 2


class Model:
    """A simple model of the files that should be found."""

    def __init__(self) -> None:
        self.read: dict[str, tuple[int, int]] = {}
        self.gone: set[str] = set()
        self.last: dict[str, tuple[int, int]] = {}
        self.changed = 0

    def look(self, listing: dict[str, tuple[int, int]], now: int) -> set[str]:
        self.gone |= self.read.keys() - listing.keys()
        if listing:
            self.read = {name: version for name, version in self.read.items() if name in listing}
        found = set()
        for name, version in listing.items():
            if name in self.read and self.read[name] != version and name not in self.gone:
                self.changed += 1
                self.read[name] = version
            elif self.read.get(name) != version:
                self.read.pop(name, None)
                age = (now - version[1]) / SECOND
                if age >= MIN_AGE and (age >= POLL or self.last.get(name) == version):
                    found.add(name)
                    self.read[name] = version
        self.gone &= self.read.keys() - listing.keys()
        self.last = listing
        return found


NAMES = st.sampled_from(["a.txt", "b.txt", "c.txt"])
HISTORY = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.sampled_from(["x", "yy", "zzz"])),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("look"), st.sampled_from([0.5, 1.0, 3.0])),
        st.just(("restart",)),
        st.just(("go back",)),
    ),
    max_size=40,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(HISTORY)
def test_in_any_history_each_file_is_found_once(tmp_path_factory: Any, history: list[Any]) -> None:
    folder = Folder(tmp_path_factory.mktemp("history") / "in")
    listing: dict[str, tuple[int, int]] = {}
    model = Model()
    saved = folder.state(), {}, set[str]()
    largest = 0
    with collecting(MetricCells()) as cells, in_step("read"):
        for step, *arguments in history:
            match step:
                case "write":
                    folder.write(*arguments)
                    listing[arguments[0]] = (len(arguments[1]), folder.clock)
                case "delete":
                    folder.delete(*arguments)
                    listing.pop(arguments[0], None)
                case "look":
                    found = folder.look(*arguments)
                    assert len(found) == len(set(found))
                    assert set(found) == model.look(dict(listing), folder.clock)
                    largest = len(listing) or largest
                    assert len(folder.state()["files"]) <= largest
                    saved = folder.state(), dict(model.read), set(model.gone)
                case "restart":
                    folder.restart(folder.state())
                    model.last = {}
                case "go back":
                    state, read, gone = saved
                    folder.restart(state)
                    model.read, model.gone, model.last = dict(read), set(gone), {}
    assert {key.name: n for key, n in cells.counters.items()}.get("files_changed", 0) == model.changed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"poll_interval": 0}, "poll_interval must be positive"),
        ({"min_age": -1}, "min_age must not be negative"),
    ],
)
def test_invalid_durations_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=f"MatchFiles: {message}"):
        tg.io.MatchFiles(tmp_path / "*", follow=True, **options)


def test_a_path_or_a_missing_folder_is_refused_when_the_pipeline_is_built(tmp_path: Path) -> None:
    with pytest.raises(tg.BuildError, match=r"names one file.*such as .*/in/\*'.*TailFile follows a file that grows"):
        _ = tg.Pipeline() | tg.io.MatchFiles(tmp_path / "in", follow=True)
    (tmp_path / "there").mkdir()
    with pytest.raises(tg.BuildError, match=r"there' is the folder itself\. Write a pattern, such as .*/there/\*'"):
        _ = tg.Pipeline() | tg.io.MatchFiles(tmp_path / "there", follow=True)
    with pytest.raises(tg.BuildError, match=r"there is no folder .*/in, so no file can appear"):
        _ = tg.Pipeline() | tg.io.MatchFiles(tmp_path / "in" / "*", follow=True)
    _ = tg.Pipeline() | tg.io.MatchFiles(tmp_path / "in" / "*", follow=True, allow_empty=True)
