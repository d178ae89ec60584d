"""`MatchFiles`, `MatchAll`, `ReadMatches` and `ReadAllFromText`."""

from __future__ import annotations

import bz2
import gzip
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.io import files
from tidegate.io.file_source.listing import matching
from tidegate.io.file_source.matching import MatchSource

RUNNERS = ["direct", "streaming", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("three\n")
    (tmp_path / "c.csv").write_text("x,y\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.txt").write_text("four\n")
    (tmp_path / ".tidegate-run").mkdir()
    (tmp_path / ".tidegate-run" / "e.txt").write_text("unfinished\n")
    os.utime(tmp_path / "a.txt", (1_000, 1_500))
    return tmp_path


@pytest.mark.parametrize("runner", RUNNERS)
def test_matched_files_have_their_size_and_time(folder: Path, runner: str) -> None:
    found = collect(lambda p: {"files": p | tg.io.MatchFiles(folder / "**" / "*.txt")}, runner).values("files")
    by_name = {os.path.relpath(file.path, folder): file for file in found}
    assert sorted(by_name) == ["a.txt", "b.txt", "deep/d.txt"]
    assert by_name["a.txt"] == tg.io.FileMetadata(str(folder / "a.txt"), 8, tg.Timestamp(1_500), None)


def test_splits_contain_each_file_once_and_readers_resume_between_files(folder: Path) -> None:
    source = MatchSource((str(folder / "*.txt"), str(folder / "a.txt"), str(folder / "*")))
    for desired in (1, 2, 5):
        found = []
        for split in source.splits(desired):
            position = None
            ended = False
            while not ended:
                reader = source.reader(split, position)
                batch = reader.read(1)
                found += [os.path.basename(file.path) for file in batch.block.values]
                position, ended = reader.position(), batch.end
        assert found == ["a.txt", "b.txt", "c.csv"]


@pytest.mark.parametrize("runner", RUNNERS)
def test_elements_may_be_paths_patterns_and_matched_files(folder: Path, runner: str) -> None:
    def names(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        named = p | tg.Create([str(folder / "*.csv"), str(folder / "b.txt")])
        found = p | tg.io.MatchFiles(folder / "a.txt")
        return {"files": (named, found) | tg.Flatten() | tg.io.MatchAll()}

    found = collect(names, runner).values("files")
    assert sorted(os.path.basename(file.path) for file in found) == ["a.txt", "b.txt", "c.csv"]


@pytest.mark.parametrize("runner", RUNNERS)
def test_files_are_read_completely_and_decompressed(tmp_path: Path, runner: str) -> None:
    (tmp_path / "a.txt").write_text("plain")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"zipped"))
    (tmp_path / "c.bz2").write_bytes(bz2.compress("zweiß".encode()))

    def texts(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        opened = p | tg.io.MatchFiles(tmp_path / "*") | tg.io.ReadMatches()
        return {"texts": opened | tg.Map(lambda file: (os.path.basename(file.path), file.size, file.read_utf8()))}

    found = collect(texts, runner).values("texts")
    assert sorted((name, text) for name, _, text in found) == [
        ("a.txt", "plain"),
        ("b.gz", "zipped"),
        ("c.bz2", "zweiß"),
    ]


def test_an_opened_file_can_be_read_in_pieces_and_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (tmp_path / "b.zip").touch()
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("member", "x")
    readable = tg.io.ReadableFile(str(tmp_path / "a.gz"))
    with readable.open() as file:
        assert file.readline() == b"one\n"
    assert file.closed
    assert tg.io.ReadableFile(str(tmp_path / "a.gz"), compression="none").read()[:2] == b"\x1f\x8b"
    assert tg.io.ReadableFile(str(tmp_path / "b.zip")).read()[:2] == b"PK"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"x" * 1000)[:-10])
    (tmp_path / "latin.txt").write_bytes(b"b\xe4d")
    with pytest.raises(tg.ReadError, match=r"cut\.gz: can't be read: "):
        tg.io.ReadableFile(str(tmp_path / "cut.gz")).read()
    with pytest.raises(tg.ReadError, match=r"gone: can't be read: No such file"):
        tg.io.ReadableFile(str(tmp_path / "gone")).read()
    with pytest.raises(tg.ReadError, match=r"latin\.txt, byte 1: not UTF-8; read\(\) returns the bytes"):
        tg.io.ReadableFile(str(tmp_path / "latin.txt")).read_utf8()


@pytest.mark.parametrize("runner", RUNNERS)
def test_lines_are_read_from_files_whose_names_are_elements(folder: Path, runner: str) -> None:
    def lines(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        names = p | tg.Create([str(folder / "*.txt"), str(folder / "deep" / "d.txt")])
        found = p | tg.io.MatchFiles(folder / "*.csv")
        return {
            "lines": names | "lines" >> tg.io.ReadAllFromText(),
            "named": found | "named" >> tg.io.ReadAllFromText(with_filename=True),
        }

    found = collect(lines, runner)
    assert sorted(found.values("lines")) == ["four", "one", "three", "two"]
    assert found.values("named") == [(str(folder / "c.csv"), "x,y")]


def test_the_types_of_elements_are_known(folder: Path) -> None:
    p = tg.Pipeline()
    found = p | tg.io.MatchFiles(folder / "*")
    assert found.element_type is tg.io.FileMetadata
    assert (found | tg.io.ReadMatches()).element_type is tg.io.ReadableFile
    assert (found | "lines" >> tg.io.ReadAllFromText()).element_type is str
    assert (found | "named" >> tg.io.ReadAllFromText(with_filename=True)).element_type == tuple[str, str]


def test_a_pattern_that_matches_no_file_is_refused_unless_that_is_allowed(folder: Path) -> None:
    with pytest.raises(tg.BuildError, match=r"no file matches .*\.parquet'.*set allow_empty=True"):
        _ = tg.Pipeline() | tg.io.MatchFiles(folder / "*.parquet")
    found = collect(lambda p: {"files": p | tg.io.MatchFiles(folder / "*.parquet", allow_empty=True)}, "direct")
    assert found.values("files") == []

    def matched(allow_empty: bool) -> Any:
        return lambda p: {"files": p | tg.Create([str(folder / "*.x")]) | tg.io.MatchAll(allow_empty=allow_empty)}

    assert collect(matched(True), "direct").values("files") == []
    with pytest.raises(tg.ReadError, match=r"no file matches .*\.x'"):
        collect(matched(False), "direct")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.io.MatchFiles(3), "MatchFiles takes a path, a pattern, or a list of them, not 3"),
        (lambda: tg.io.MatchFiles([]), "MatchFiles: the path is empty"),
        (lambda: tg.io.ReadMatches(compression="rar"), "ReadMatches: compression is one of"),
        (
            lambda: tg.Pipeline() | tg.Create(["x"]) | tg.io.ReadAllFromText(encoding="klingon"),
            "ReadAllFromText: Python has no text encoding 'klingon'",
        ),
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        make()


def test_files_of_a_remote_store_have_urls_and_times() -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe("/matching/a.txt", b"one\n")
    try:
        (found,) = matching(("memory://matching/*.txt",), False, tg.ReadError)
        assert (found.url, found.metadata.size) == ("memory:///matching/a.txt", 4)
        assert found.metadata.modified is not None
        assert tg.io.ReadableFile(found.url).read() == b"one\n"
    finally:
        fs.rm("/matching", recursive=True)


@pytest.mark.parametrize(
    ("info", "nanoseconds", "tag"),
    [
        ({"mtime": 1.5}, 1_500_000_000, None),
        ({"LastModified": "2020-01-01T00:00:00+00:00", "ETag": '"abc"'}, 1_577_836_800 * 10**9, "abc"),
        ({"Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT"}, 1_577_836_800 * 10**9, None),
        ({"updated": "2020-01-01T00:00:00.5Z", "generation": 7}, 1_577_836_800_500_000_000, "7"),
        ({"created": "lately"}, None, None),
        ({}, None, None),
    ],
)
def test_file_information_of_different_file_systems_is_understood(
    info: Any, nanoseconds: int | None, tag: str | None
) -> None:
    found = files._remote_info("a", {"size": 3, **info})
    assert (found.size, found.modified, found.content_tag) == (3, nanoseconds, tag)
