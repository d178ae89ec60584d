"""Following a Delta table: each file that a version adds is read once, and what can't be followed is refused."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import tidegate as tg
from tests.support.delta_tables import (
    VISITS,
    actions_of,
    append,
    commit_by_hand,
    delete_by_vector,
    table_of_visits,
)
from tests.support.record_files import drain, visits
from tidegate.testing import check_source


@dataclasses.dataclass
class Visit:
    id: int


class Follower:
    """Follows a table as a runner does, and is restarted from its state, as a checkpoint has it, before each look."""

    def __init__(self, table: Path, **arguments: Any) -> None:
        self.source = tg.ReadFromDelta(table, follow=True, **{"as_": dict, **arguments}).source
        self.state: Any = None

    def look(self, limit: int = 100) -> list[Any]:
        """The elements of all splits that are found until there are no more."""
        found: list[Any] = []
        while True:
            enumerator = self.source.enumerator(self.state)
            assert enumerator is not None
            discovery = enumerator.discover(limit)
            self.state = json.loads(json.dumps(enumerator.state()))
            for split in discovery.splits:
                found += drain(self.source, split)
            if not discovery.splits:
                assert discovery.wait > 0
                return found


def following(table: Path) -> tg.io.SplitEnumerator:
    """An enumerator that has returned everything there is."""
    enumerator = tg.ReadFromDelta(table, follow=True, as_=dict).source.enumerator()
    assert enumerator is not None
    assert enumerator.discover(1000).splits
    return enumerator


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return table_of_visits(tmp_path)


@pytest.mark.parametrize("limit", [1, 100])
def test_the_files_of_the_first_version_and_of_each_later_one_are_read_once(table: Path, limit: int) -> None:
    follower = Follower(table)
    assert follower.look(limit) == visits(60)
    assert follower.look(limit) == []
    for first in (60, 70, 80):
        append(table, visits(10, first))
    assert follower.look(limit) == visits(30, 60)
    assert follower.look(limit) == []


def test_following_begins_with_the_version_that_the_author_asks_for(table: Path) -> None:
    follower = Follower(table, version=0, where=[("id", ">=", 15)])
    assert follower.look() == visits(45, 15)
    append(table, visits(20, 60))
    assert follower.look() == visits(20, 60)


def test_a_predicate_skips_files_that_later_versions_add(table: Path) -> None:
    follower = Follower(table, where=[("id", ">=", 79)])
    assert follower.look() == []
    append(table, visits(10, 60))
    append(table, visits(10, 70))
    enumerator = follower.source.enumerator(follower.state)
    assert enumerator is not None
    assert len(enumerator.discover(10).splits) == 1
    assert follower.look() == visits(1, 79)


def test_a_version_that_only_arranges_data_anew_adds_nothing(table: Path) -> None:
    follower = Follower(table)
    follower.look()
    DeltaTable(str(table)).optimize.compact()
    append(table, visits(5, 60))
    assert follower.look() == visits(5, 60)


CHANGES = {
    "DELETE": lambda table: DeltaTable(str(table)).delete("id = 3"),
    "UPDATE": lambda table: DeltaTable(str(table)).update({"user": "'x'"}, predicate="id = 3"),
    "WRITE": lambda table: write_deltalake(str(table), pa.Table.from_pylist(visits(1), VISITS), mode="overwrite"),
}


@pytest.mark.parametrize("operation", CHANGES)
def test_a_version_that_removes_or_rewrites_rows_is_refused_unless_it_is_skipped(
    table: Path, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    follower, skipping = Follower(table), Follower(table, skip_change_commits=True)
    for each in (follower, skipping):
        each.look()
    append(table, visits(1, 60))
    CHANGES[operation](table)
    append(table, visits(1, 61))
    enumerator = follower.source.enumerator(follower.state)
    assert enumerator is not None
    assert len(enumerator.discover(10).splits) == 1
    with pytest.raises(tg.ReadError, match=rf"visits: version 4 \({operation}\) removes or rewrites rows"):
        enumerator.discover(10)
    with caplog.at_level(logging.WARNING, "tidegate"):
        assert skipping.look() == visits(2, 60)
    assert f"version 4 ({operation}) removes or rewrites rows; it is skipped" in caplog.text


def test_a_version_that_deletes_by_a_vector_is_refused_unless_it_is_skipped(table: Path) -> None:
    refusing, skipping = Follower(table), Follower(table, skip_change_commits=True)
    for each in (refusing, skipping):
        each.look()
    delete_by_vector(table, 3, [0, 5])
    with pytest.raises(tg.ReadError, match=r"version 3 \(a change\) removes or rewrites rows"):
        refusing.look()
    assert skipping.look() == []
    assert len(Follower(table).look()) == 58


def test_a_new_column_is_refused_unless_the_author_says_what_becomes_of_it(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusing = Follower(table)
    union = Follower(table, schema_evolution="union")
    chosen, classed = Follower(table, columns=["id"]), Follower(table, as_=Visit)
    for each in (refusing, union, chosen, classed):
        each.look()
    append(table, [{**visits(1, 60)[0], "more": 5}], schema_mode="merge")
    with pytest.raises(
        tg.ReadError, match=r"visits: version 3 adds the column 'more', which elements don't have: choo"
    ):
        refusing.look()
    with caplog.at_level(logging.WARNING, "tidegate"):
        assert union.look() == [{**visits(1, 60)[0], "more": 5}]
    assert "version 3 adds the columns more; they are read from now on" in caplog.text
    assert chosen.look() == [{"id": 60}]
    assert classed.look() == [Visit(60)]
    append(table, visits(1, 61), schema_mode="merge")
    assert union.look() == [{**visits(1, 61)[0], "more": None}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda fields: [each for each in fields if each["name"] != "user"], "drops the column 'user', which is read"),
        (
            lambda fields: [{**each, "type": "string"} if each["name"] == "id" else each for each in fields],
            "makes the column 'id' string, which was int64",
        ),
    ],
)
def test_a_column_that_is_read_must_stay_what_it_is(table: Path, change: Any, words: str) -> None:
    follower, other = Follower(table, schema_evolution="union"), Follower(table, columns=["url"])
    for each in (follower, other):
        each.look()
    (metadata,) = [action["metaData"] for action in actions_of(table, 0) if "metaData" in action]
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = change(schema["fields"])
    commit_by_hand(table, 3, {"metaData": {**metadata, "schemaString": json.dumps(schema)}})
    with pytest.raises(tg.ReadError, match=f"visits: version 3 {words}"):
        follower.look()
    assert other.look() == []


def test_a_feature_that_a_version_sets_is_refused_by_name(table: Path) -> None:
    enumerator = following(table)
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["novel"], "writerFeatures": ["novel"]}
    commit_by_hand(table, 3, {"protocol": features})
    with pytest.raises(tg.ReadError, match="the reader feature novel, which ReadFromDelta can't read"):
        enumerator.discover(10)


def test_a_version_that_the_log_no_longer_has_is_position_lost(table: Path) -> None:
    follower = Follower(table)
    follower.look()
    for first in (60, 70):
        append(table, visits(10, first))
    DeltaTable(str(table)).create_checkpoint()
    for number in range(4):
        (table / "_delta_log" / f"{number:020}.json").unlink()
    with pytest.raises(
        tg.io.PositionLost, match="visits: version 3, which was to be read next, isn't in the table's l"
    ):
        follower.look()


def test_a_first_version_that_is_gone_before_all_its_files_were_returned_is_position_lost(table: Path) -> None:
    source = tg.ReadFromDelta(table, follow=True, as_=dict).source
    enumerator = source.enumerator()
    assert enumerator is not None
    enumerator.discover(1)
    state = enumerator.state()
    append(table, visits(10, 60))
    DeltaTable(str(table)).create_checkpoint()
    for number in range(3):
        (table / "_delta_log" / f"{number:020}.json").unlink()
    resumed = source.enumerator(state)
    assert resumed is not None
    with pytest.raises(tg.io.PositionLost, match="version 2, which was to be read next"):
        resumed.discover(1)


def test_a_table_that_was_replaced_is_position_lost(table: Path) -> None:
    source = tg.ReadFromDelta(table, follow=True, as_=dict).source
    running = source.enumerator()
    assert running is not None
    running.discover(100)
    shutil.rmtree(table)
    append(table, visits(1))
    with pytest.raises(tg.io.PositionLost, match="isn't the table any more that was read up to version 2"):
        running.discover(100)
    resumed = source.enumerator(running.state())
    assert resumed is not None
    with pytest.raises(tg.io.PositionLost, match="isn't the table any more that was read up to version 2"):
        resumed.discover(100)


def test_a_broken_log_is_an_error_that_names_the_file(table: Path) -> None:
    enumerator = following(table)
    (table / "_delta_log" / f"{3:020}.json").write_text('{"add": ')
    with pytest.raises(tg.ReadError, match=r"_delta_log/00000000000000000003\.json is broken"):
        enumerator.discover(10)


def test_the_followed_source_keeps_the_rules_of_sources(tmp_path: Path) -> None:
    table = table_of_visits(tmp_path, versions=3, rows=7)

    def add() -> list[dict[str, Any]]:
        append(table, visits(5, 21))
        return visits(5, 21)

    report = check_source(
        lambda: tg.ReadFromDelta(table, as_=dict, follow=True, poll_interval=0.001).source, expected=visits(21), add=add
    )
    assert {"discovers_what_is_added", "enumerator_restarts_between_any_two_looks"} <= set(report.passed)
