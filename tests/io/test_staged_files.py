"""Staged files and the committables that carry them, without a runner."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink, StagedFile, in_order
from tidegate.sdk.errors import WriteError


def test_a_staged_file_of_bytes_can_be_opened_again() -> None:
    file = StagedFile.of_bytes("rows", bytearray(b"abc"))
    assert (file.name, file.size) == ("rows", 3)
    for _ in range(2):
        with file.open() as opened:
            assert opened.read() == b"abc"


def test_a_staged_file_of_a_path_has_the_size_and_contents_of_the_file_there(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"12345")
    file = StagedFile.of_path("rows", tmp_path / "part")
    assert (file.name, file.size) == ("rows", 5)
    with file.open() as opened:
        assert opened.read() == b"12345"


def test_a_path_without_a_file_can_not_be_staged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        StagedFile.of_path("rows", tmp_path / "missing")


def test_committables_of_one_piece_with_different_files_are_refused() -> None:
    one = Committable((0, 1), "part", (StagedFile.of_bytes("rows", b"a"),))
    same = Committable((0, 1), "part", (StagedFile.of_bytes("rows", b"a"),))
    assert in_order([one, same]) == [one]
    other = Committable((0, 1), "part", (StagedFile.of_bytes("rows", b"b"),))
    with pytest.raises(WriteError, match="from two attempts"):
        in_order([one, other])


def test_a_committable_survives_pickling_and_an_older_pickle_has_no_files() -> None:
    committable = Committable((3, 1), {"rows": 2}, (StagedFile.of_bytes("rows", b"ab"),))
    assert pickle.loads(pickle.dumps(committable)) == committable
    older = Committable.__new__(Committable)
    older.__setstate__([(3, 1), {"rows": 2}])
    assert older == Committable((3, 1), {"rows": 2})


@dataclass(frozen=True)
class SinkWithOptions(Sink[Any]):
    commit_by: Any = "task"
    forks_safely: bool = False

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        raise NotImplementedError


def test_a_pipeline_records_how_a_sink_commits_and_whether_its_process_may_fork() -> None:
    pipeline = tg.Pipeline()
    pipeline | tg.Create([1]) | tg.Write(SinkWithOptions())
    (node,) = [node for node in pipeline.sealed().nodes if node.kind == "write"]
    assert (node.commit_by, node.forks_safely) == ("task", False)


def test_a_node_pickled_before_these_fields_existed_has_their_defaults() -> None:
    pipeline = tg.Pipeline()
    pipeline | tg.Create([1]) | tg.Write(SinkWithOptions())
    (node,) = [node for node in pipeline.sealed().nodes if node.kind == "write"]
    assert pickle.loads(pickle.dumps(node)) == node
    older = type(node).__new__(type(node))
    older.__setstate__([getattr(node, field.name) for field in fields(node)][:-2])
    assert older == replace(node, commit_by="job", forks_safely=True)


def test_an_unknown_commit_by_is_refused_when_the_pipeline_is_built() -> None:
    pipeline = tg.Pipeline()
    with pytest.raises(tg.BuildError, match='commit_by must be "job" or "task", but is \'worker\''):
        pipeline | tg.Create([1]) | tg.Write(SinkWithOptions(commit_by="worker"))
