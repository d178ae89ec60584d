"""`tidegate state`: the contents of a checkpoint that it shows, and its errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner, Result

from tidegate.cli.state import state
from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, PendingCommit, TaskPart
from tidegate.runners.checkpoint.manifest_json import dumps
from tidegate.runners.checkpoint.parts import AssignedSplit, SplitProgress, StateHandle
from tidegate.runners.checkpoint.state_files import frames, write_to
from tidegate.runners.checkpoint.step_state import StepFacts
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.checkpoint.task_state import TaskState
from tidegate.runners.checkpoint.task_state import dumps as dump_state
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.runners.streaming.checkpoint.inspect import opened
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.windowing.window import IntervalWindow


@dataclass(frozen=True)
class Visit:
    page: str


class Trap:
    """Records that it has been unpickled."""

    unpickled = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_trap, ()


def _unpickle_trap() -> Trap:
    Trap.unpickled = True
    return Trap()


def store_checkpoint(folder: Path, number: int, states: dict[str, Any]) -> None:
    """Store a checkpoint of a job that counts visits."""
    storage = LocalStorage(folder)
    data = BytesIO()
    write_to(data.write, frames(states.items(), states))
    files = []
    for name, contents in (("state", dump_state(TaskState({}))), ("data", data.getvalue())):
        storage.write(f"chk-{number:06}/1.0.1.{name}", contents)
        files.append((f"chk-{number:06}/1.0.1.{name}", len(contents), crc32(contents)))
    manifest = Manifest(
        job="job-1",
        run="run-1",
        epoch=1,
        checkpoint=number,
        kind="checkpoint",
        taken=1_700_000_000_000_000,
        max_parallelism=128,
        backend="memory",
        final=False,
        steps=(
            StepFacts("read", "read", "read", "source", "", 0),
            StepFacts("count", "count", "par_do", "stateful", "cells (seen: value)", 1),
            StepFacts("map", "map", "par_do", "plain", "", 1),
        ),
        tasks=(
            TaskPart(TaskId(0, 0), 1, False, None, (SplitProgress("read", ("a",), (("b", 17),)),)),
            TaskPart(TaskId(1, 0), 1, False, StateHandle(tuple(files))),
        ),
        lists={"read": (AssignedSplit("a", b""), AssignedSplit("b", b""), AssignedSplit("c", b""))},
        commits=(PendingCommit("write", "run-1", number, (Committable((0, 0), "x"),)),),
    )
    storage.write(manifest.name, dumps(manifest))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    window = IntervalWindow(0, 60)
    tables = {"seen": {window: {"ann": 3, ("bob", 1): Visit("home")}}}
    store_checkpoint(tmp_path, 7, {"count": KeyedState(tables)})
    return tmp_path


def run(*args: Any) -> Result:
    return CliRunner().invoke(state, [str(arg) for arg in args])


def test_steps_sizes_and_positions_are_printed(folder: Path) -> None:
    out = run(folder).output
    assert "checkpoint 7 of job job-1" in out
    assert "stateful  count: cells (seen: value)" in out
    assert "read: 1 of 3 splits are finished, 1 in progress" in out
    assert "b continues at 17" in out
    assert "write: 1 piece of output became final with 7" in out
    assert "map" not in out


def test_steps_sizes_and_positions_are_printed_as_json(folder: Path) -> None:
    facts = json.loads(run(folder, "--format", "json").output)
    assert facts["checkpoint"] == 7
    assert [step["name"] for step in facts["steps"]] == ["read", "count"]
    assert facts["steps"][1]["size_of_its_tasks"] == facts["size"] > 0
    assert facts["sources"] == {"read": {"splits": 3, "finished": 1, "current": {"b": 17}}}


def test_nothing_is_unpickled_unless_values_are_requested(tmp_path: Path) -> None:
    store_checkpoint(tmp_path, 1, {"count": KeyedState({"seen": {None: {"a": Trap()}}})})
    for extra in ([], ["--format", "json"]):
        assert run(tmp_path, *extra).exit_code == 0
        assert not Trap.unpickled
    assert run(tmp_path, "--values").exit_code == 0
    assert Trap.unpickled


def test_values_are_printed_as_one_json_object_per_line(folder: Path) -> None:
    rows = [json.loads(line) for line in run(folder, "--values").output.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [("ann", 3), (["bob", 1], "Visit(page='home')")]
    assert {(row["step"], row["task"], row["table"]) for row in rows} == {("count", "1.0", "seen")}
    assert rows[0]["window"] == str(IntervalWindow(0, 60))


def test_values_are_written_as_a_parquet_table(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    output = tmp_path / "values.parquet"
    assert run(folder, "--values", "--format", "parquet", "-o", output).exit_code == 0
    table = parquet.read_table(output).to_pydict()
    assert table["key"] == ['"ann"', '["bob", 1]']
    assert table["value"] == ["3", "\"Visit(page='home')\""]


def test_parquet_without_values_is_misuse(folder: Path) -> None:
    result = run(folder, "--format", "parquet")
    assert result.exit_code == 2
    assert "--values" in result.output


def test_an_earlier_checkpoint_can_be_requested_and_a_missing_one_is_an_error(folder: Path) -> None:
    store_checkpoint(folder, 8, {})
    assert "checkpoint 8 of" in run(folder).output
    assert "checkpoint 7 of" in run(folder, "--checkpoint", 7).output
    missing = run(folder, "--checkpoint", 5)
    assert isinstance(missing.exception, ManifestError)
    assert "there are: 7, 8" in str(missing.exception)


def test_a_folder_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    assert "there is no checkpoint in" in str(run(tmp_path / "nothing").exception)


def test_a_damaged_newest_checkpoint_is_reported_and_the_previous_one_is_shown(folder: Path) -> None:
    LocalStorage(folder).write("chk-000009/manifest.json", b"{")
    result = run(folder)
    assert "warning: checkpoint 9 is damaged" in result.output
    assert "checkpoint 7 of" in result.output


def test_a_damaged_file_is_reported_even_if_no_values_are_shown(folder: Path) -> None:
    store_checkpoint(folder, 8, {"count": KeyedState({"seen": {None: {"ann": 4}}})})
    storage = LocalStorage(folder)
    name = next(name for name in storage.list("chk-000008") if name.endswith(".state"))
    storage.write(name, storage.read(name)[:-1] + b"?")
    result = run(folder)
    assert f"warning: checkpoint 8 is damaged (its file {name} is damaged: checksum mismatch)" in result.output
    assert "checkpoint 7 of" in result.output
    storage.delete(name)
    assert f"(its file {name} is missing)" in run(folder).output
    error = run(folder, "--checkpoint", 8).exception
    assert isinstance(error, ManifestError)
    assert f"can't be used: its file {name} is missing" in str(error)


class Busy(LocalStorage):
    """A directory in which a job completes a checkpoint, and removes the previous one, while it is being read."""

    def read(self, name: str) -> bytes:
        if name.startswith("chk-000007/") and name.endswith(".state"):
            store_checkpoint(self.root, 8, {})
            for old in self.list("chk-000007"):
                self.delete(old)
        return super().read(name)


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_not_reported_as_damaged(folder: Path) -> None:
    manifest, damaged = opened(Busy(folder), str(folder))
    assert (manifest.checkpoint, damaged) == (8, [])


def test_the_error_of_a_value_with_a_missing_class_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(globals(), "Visit")
    error = run(folder, "--values").exception
    assert isinstance(error, ManifestError)
    assert "PYTHONPATH" in str(error)


def test_changes_are_applied_to_the_state_that_they_build_on(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    store_checkpoint(tmp_path, 1, {"count": KeyedState({"seen": {None: {"ann": 1, "bob": 1}}})})
    store_checkpoint(tmp_path, 2, {"count": KeyedState({"seen": {None: {"bob": 2}}}, keys=["bob"])})
    from tidegate.runners.checkpoint.manifest_json import loads

    first, second = (loads(storage.read(f"chk-00000{n}/manifest.json")) for n in (1, 2))
    changes, base = second.tasks[1].handle, first.tasks[1].handle
    assert changes is not None
    assert base is not None
    both = replace(second.tasks[1], handle=StateHandle((*changes.files, *base.files[1:])))
    storage.write(second.name, dumps(replace(second, tasks=(second.tasks[0], both))))
    rows = [json.loads(line) for line in run(tmp_path, "--values").output.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [("ann", 1), ("bob", 2)]
