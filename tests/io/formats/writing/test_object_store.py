"""Files of every format in an S3 server, written through s3fs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.io.formats.writing.test_formats import WRITERS, sink_of
from tests.support.object_store import s3_file_system
from tests.support.written_files import FORMATS, rows_of, write


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """An object store with the bucket `out`, which this process and those it starts find."""
    with s3_file_system("out") as system:
        yield system


@pytest.mark.parametrize("format", FORMATS)
def test_partitions_are_written_and_a_second_run_replaces_them(store: Any, format: str) -> None:
    for rows in ([("a/b", 1), ("c", 2)], [("a/b", 3), ("d", 4), ("a/b", 5)]):
        with tg.Pipeline() as p:
            records = p | tg.Create([tg.Row(k=k, n=n) for k, n in rows])
            _ = records | WRITERS[format](f"s3://out/{format}/x", partition_by="k", num_shards=1)
    store.invalidate_cache()
    found = {path: store.cat_file(path) for path in store.find(f"out/{format}") if "/.tidegate-" not in path}
    assert {path: [int(row["n"]) for row in rows_of(data, format)] for path, data in found.items()} == {
        f"out/{format}/k=a%2Fb/x-00000-of-00001": [3, 5],
        f"out/{format}/k=d/x-00000-of-00001": [4],
    }


@pytest.mark.parametrize("format", FORMATS)
def test_a_stream_commits_each_checkpoint_once(store: Any, format: str) -> None:
    sink = sink_of(format, f"s3://out/stream-{format}/x", {"n": int})
    first = write(sink, "run", [{"n": 1}, {"n": 2}], [{"n": 3}])
    sink.commit("run", first, 1)
    sink.commit("run", first, 1)
    sink.commit("run", write(sink, "run", [{"n": 4}]), 2)
    write(sink, "run", [{"n": 5}])
    sink.abort("run")
    store.invalidate_cache()
    paths = store.find(f"out/stream-{format}")
    assert [path.rpartition("/")[2] for path in paths] == [
        "x-run-00001-00000-of-00002",
        "x-run-00001-00001-of-00002",
        "x-run-00002-00000-of-00001",
    ]
    rows = [row for path in paths for row in rows_of(store.cat_file(path), format)]
    assert [int(row["n"]) for row in rows] == [1, 2, 3, 4]


def test_a_sink_in_an_object_store_does_not_allow_forking(store: Any, tmp_path: Any) -> None:
    assert not sink_of("parquet", "s3://out/x").forks_safely
    assert sink_of("parquet", f"{tmp_path}/x").forks_safely
    assert not tg.io.WriteToText("s3://out/x").sink.forks_safely
    assert tg.io.WriteToText(f"{tmp_path}/x").sink.forks_safely
