"""Commits of files that can't be concatenated: commits that die, are repeated, or find their parts missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.io.formats.writing.test_formats import sink_of
from tests.support.dying_commits import dying_commits
from tests.support.written_files import FORMATS, rows_in, rows_of, write
from tidegate.io import files
from tidegate.sdk.errors import WriteError

SCHEMA = {"k": str, "n": int}


def addressed(*pairs: tuple[str, int]) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    return [((f"k={k}",), {"k": k, "n": n}) for k, n in pairs]


# A commit that dies leaves files open.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("checkpoint", [None, 7])
@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.parametrize("format", FORMATS)
def test_a_commit_that_dies_at_any_step_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, shards: int, checkpoint: int | None
) -> None:
    sink = sink_of(format, f"{tmp_path}/x", SCHEMA, partition_by="k", num_shards=shards)

    def round_of(run: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        sink.commit("old", write(sink, "old", addressed(("old", 1), ("a", 2))))
        prepared = write(sink, run, addressed(("a", 1), ("b", 2), ("a", 3)), addressed(("c", 4), ("a", 5)))
        return lambda: sink.commit(run, prepared, checkpoint), lambda: sink.abort(run)

    results = []
    for run in dying_commits(files.Local, monkeypatch, round_of):
        results.append({name.replace(run, "RUN"): rows for name, rows in rows_in(tmp_path, format).items()})
        for path in tmp_path.rglob(f"*{run}*"):
            path.unlink()
    assert len(results) > 8
    assert all(result == results[0] for result in results)
    assert any(name.startswith("k=old/") for name in results[0]) == (checkpoint is not None)
    new = [row for name, rows in results[0].items() for row in rows if checkpoint is None or "RUN" in name]
    assert sorted(int(row["n"]) for row in new) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("format", FORMATS)
def test_a_store_that_cannot_append_gets_the_same_files(format: str) -> None:
    fs = fsspec.filesystem("memory")
    sink = sink_of(format, "memory://formats/x", SCHEMA, partition_by="k", num_shards=1)
    try:
        sink.commit("run", write(sink, "run", addressed(("a", 1), ("b", 2)), addressed(("a", 3))))
        found = {path: rows_of(fs.cat_file(path), format) for path in fs.find("/formats") if "/.tidegate-" not in path}
        assert {path: [int(row["n"]) for row in rows] for path, rows in found.items()} == {
            "/formats/k=a/x-00000-of-00001": [1, 3],
            "/formats/k=b/x-00000-of-00001": [2],
        }
    finally:
        fs.rm("/formats", recursive=True)


@pytest.mark.parametrize("format", ["parquet", "avro", "arrow"])
def test_a_late_replay_does_not_touch_the_output_of_a_later_run(tmp_path: Path, format: str) -> None:
    sink = sink_of(format, f"{tmp_path}/x", {"n": int})
    first = write(sink, "run1", [{"n": 1}], [{"n": 2}])
    sink.commit("run1", first)
    sink.commit("run2", write(sink, "run2", [{"n": n} for n in range(1000)]))
    after_second_run = rows_in(tmp_path, format)
    with pytest.raises(WriteError, match=r"output is lost: the parts of .*x-00000-of-00002 are gone"):
        sink.commit("run1", first)
    assert rows_in(tmp_path, format) == after_second_run


@pytest.mark.parametrize("format", FORMATS)
def test_an_attempt_that_is_closed_leaves_nothing(tmp_path: Path, format: str) -> None:
    sink = sink_of(format, f"{tmp_path}/x", SCHEMA, partition_by="k", max_file_bytes=1000)
    attempt = sink.attempt("run", 0)
    attempt.write(addressed(*((str(n % 7), n) for n in range(5000))))
    attempt.close()
    sink.abort("run")
    assert list(tmp_path.rglob("*")) == []
