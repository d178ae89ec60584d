"""Commits to a Delta table that die at any point, and those of processes that were taken for dead."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

import tidegate as tg
from tests.io.delta.test_writing import prepared, sink_of
from tests.support.delta_tables import rows_of
from tests.support.dying_commits import Crash, dying_commits
from tests.support.streaming.commit_points import DELTA_POINTS
from tidegate.io.files import Local

ROOT = Path(__file__).resolve().parents[3]


def numbers(table: Path) -> list[int]:
    return sorted(row["id"] for row in rows_of(table))


@pytest.mark.parametrize("checkpoint", [1, None])
def test_a_commit_that_dies_at_any_operation_on_files_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: int | None
) -> None:
    table = tmp_path / "t"
    sink = sink_of(table)

    def round_of(run: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        at = int(run.removeprefix("run"))
        pieces = [each for task in range(2) for each in prepared(sink, run, [{"id": 2 * at + task}], task)]
        return lambda: sink.commit(run, pieces, checkpoint), lambda: sink.abort(run)

    for rounds, _ in enumerate(dying_commits(Local, monkeypatch, round_of), start=1):
        assert numbers(table) == list(range(2 * rounds))
    assert rounds > 3
    assert [path for path in table.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", ["create", "create_write_transaction"])
def test_a_commit_that_dies_at_a_transaction_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    table = tmp_path / "t"
    sink = sink_of(table)
    pieces = prepared(sink, "run", [{"id": 1}])
    original = getattr(deltalake.DeltaTable, name)

    def dying(*arguments: Any, **options: Any) -> Any:
        if after:
            original(*arguments, **options)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(deltalake.DeltaTable, name, dying)
        with pytest.raises(Crash):
            sink.commit("run", pieces, 1)
    sink.commit("run", pieces, 1)
    assert numbers(table) == [1]


@pytest.fixture
def zombie(tmp_path: Path) -> Iterator[Callable[[str, Any], subprocess.Popen[bytes]]]:
    """Starts a process that makes a commit, and has stopped at a point of it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(point: str, work: Any) -> subprocess.Popen[bytes]:
        (tmp_path / "work").write_bytes(pickle.dumps(work))
        command = [sys.executable, "-m", "tests.support.delta_committer", point, str(tmp_path / "work")]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
        started.append(process)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), process.stderr.read() if process.stderr else ""
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("point", DELTA_POINTS)
def test_a_process_that_was_taken_for_dead_does_not_commit_twice(
    tmp_path: Path, point: str, zombie: Callable[[str, Any], subprocess.Popen[bytes]]
) -> None:
    table = tmp_path / "t"
    sink = sink_of(table)
    sink.commit("run", prepared(sink, "run", [{"id": 0}]), 1)
    pieces = [each for task in range(2) for each in prepared(sink, "run", [{"id": 1 + task}], task)]
    dead = zombie(point, (sink, "run", pieces, 2))
    sink.commit("run", pieces, 2)
    sink.commit("successor", prepared(sink, "successor", [{"id": 3}]), 3)
    assert numbers(table) == [0, 1, 2, 3]
    dead.send_signal(signal.SIGCONT)
    _, errors = dead.communicate(timeout=60)
    assert dead.returncode == 0, errors
    assert numbers(table) == [0, 1, 2, 3]


def test_output_that_was_removed_while_the_pipeline_ran_is_an_error(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "t")
    pieces = prepared(sink, "run", [{"id": 1}])
    sink.abort("run")
    with pytest.raises(tg.WriteError, match=r"output is lost: .*\.parquet is gone, and .* does not exist\. Was .*t/"):
        sink.commit("run", pieces, 1)


def test_a_writer_that_others_always_overtake_fails_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(tmp_path / "t")
    pieces = prepared(sink, "run", [{"id": 1}])

    def conflict(*arguments: Any, **options: Any) -> None:
        raise deltalake.exceptions.CommitFailedError("Metadata changed since last commit.")

    monkeypatch.setattr("tidegate.io.delta.commit.time.sleep", lambda seconds: None)
    with monkeypatch.context() as patch:
        patch.setattr(deltalake.DeltaTable, "create_write_transaction", conflict)
        with pytest.raises(tg.WriteError, match="the transaction failed 20 times, because other writers were faster"):
            sink.commit("run", pieces, 1)
    sink.commit("run", pieces, 1)
    assert numbers(tmp_path / "t") == [1]
