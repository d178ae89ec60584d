"""Reading lines: any splits give the same lines, any position the same remainder, and errors name the bad input."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import os
import pickle
import re
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tidegate.io import byte_streams
from tidegate.io.text import source as text_source
from tidegate.io.text.source import FilePart, TextSource
from tidegate.sdk.connectors.sources import Split
from tidegate.sdk.errors import BuildError, PositionLost, ReadError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def lines_of(source: TextSource, desired: int = 1, limit: int = 1000) -> list[Any]:
    return [line for split in source.splits(desired) for line in drain(source, split, limit=limit)]


def drain(source: TextSource, split: Split, position: Any = None, limit: int = 1000) -> list[Any]:
    reader = source.reader(split, position)
    lines: list[Any] = []
    try:
        while True:
            batch = reader.read(limit)
            lines += batch.block.values
            if batch.end:
                return lines
    finally:
        reader.close()


def expected_lines(data: bytes, skip: int = 0) -> list[str]:
    text = data.removeprefix(b"\xef\xbb\xbf").decode()
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)[skip:]
    return [line.removesuffix("\n").removesuffix("\r") if line.endswith("\n") else line for line in lines]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "PIECE", 7)
    monkeypatch.setattr(byte_streams, "PIECE", 7)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "scratch.txt"


texts = st.lists(
    st.sampled_from(["\n", "\r\n", "\r", "a", "bc", "é", "\x0b", "\u2028", "𝄞", "\ufeff", "long " * 9]), max_size=30
).map(lambda parts: "".join(parts).encode())


@given(data=texts, size=st.integers(1, 60), skip=st.integers(0, 3), piece=st.integers(1, 40), limit=st.integers(1, 9))
def test_any_splits_give_the_same_lines_in_order(
    scratch: Path, data: bytes, size: int, skip: int, piece: int, limit: int
) -> None:
    scratch.write_bytes(data)
    source = TextSource((str(scratch),), min_split_size=size, skip_header_lines=skip)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_source, "PIECE", piece)
        patch.setattr(byte_streams, "PIECE", piece)
        assert lines_of(source, desired=1000, limit=limit) == expected_lines(data, skip)


@given(data=texts, count=st.integers(1, 4), piece=st.integers(1, 40), limit=st.integers(1, 9), compressed=st.booleans())
def test_resuming_at_any_position_gives_exactly_the_remaining_lines(
    scratch: Path, data: bytes, count: int, piece: int, limit: int, compressed: bool
) -> None:
    scratch.write_bytes(gzip.compress(data) if compressed else data)
    source = TextSource((str(scratch),), min_split_size=1, compression="gzip" if compressed else "none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_source, "PIECE", piece)
        patch.setattr(byte_streams, "PIECE", piece)
        for split in source.splits(count):
            expected = drain(source, split)
            reader = source.reader(split)
            lines: list[str] = []
            while True:
                position = json.loads(json.dumps(reader.position()))
                assert lines + drain(source, split, position, limit=2) == expected
                batch = reader.read(limit)
                lines += batch.block.values
                if batch.end:
                    break
            reader.close()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_each_compression_is_chosen_by_suffix_or_by_option(tmp_path: Path, suffix: str, small_pieces: None) -> None:
    data = b"one\ntwo\r\nthree"
    with_suffix, without_suffix = tmp_path / f"x.txt{suffix}", tmp_path / "x.dat"
    with_suffix.write_bytes(COMPRESS[suffix](data))
    without_suffix.write_bytes(with_suffix.read_bytes())
    compression = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}[suffix]
    assert lines_of(TextSource((str(with_suffix),))) == ["one", "two", "three"]
    assert lines_of(TextSource((str(without_suffix),), compression=compression)) == ["one", "two", "three"]  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_concatenated_compressed_files_are_read_to_the_end(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one\nt") + COMPRESS[suffix](b"wo\n") + b"\0\0")
    assert lines_of(TextSource((str(path),))) == ["one", "two"]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_broken_compressed_file_is_named(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"x{suffix}"
    packed = COMPRESS[suffix](os.urandom(5000))
    path.write_bytes(packed[:3000] if damage == "cut" else b"plain text\n")
    flag = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}[suffix]
    with pytest.raises(ReadError) as caught:
        lines_of(TextSource((str(path),), errors="replace"))
    message = str(caught.value)
    assert message.startswith(f"{path}: not a valid {flag} file: ")
    assert message.endswith(f"If it is not {flag}, pass compression='none'")
    assert ("truncated" in message) == (damage == "cut")


def test_a_gzip_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    packed = bytearray(gzip.compress(b"one\ntwo\n"))
    packed[-8] ^= 1
    path.write_bytes(bytes(packed))
    with pytest.raises(ReadError, match="incorrect data check"):
        lines_of(TextSource((str(path),)))


def test_all_members_of_a_zip_are_read_each_with_its_header(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b.txt", "head\none\n")
        archive.writestr("folder/", "")
        archive.writestr("folder/a.txt", "head\ntwo")
    source = TextSource((str(path),), skip_header_lines=1, with_filename=True)
    assert lines_of(source) == [(f"{path}!b.txt", "one"), (f"{path}!folder/a.txt", "two")]
    assert [split.size for split in source.splits(1)] == [9, 8]


def test_a_broken_zip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(ReadError) as caught:
        TextSource((str(path),)).splits(1)
    assert str(caught.value) == (
        f"{path}: not a valid zip file: BadZipFile: File is not a zip file. If it is not zip, pass compression='none'"
    )


def test_a_damaged_zip_member_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "one line of text\n")
    path.write_bytes(path.read_bytes().replace(b"one line", b"two line", 1))
    with pytest.raises(ReadError, match=re.escape(f"{path}!a.txt: not a valid zip file: BadZipFile: Bad CRC-32")):
        lines_of(TextSource((str(path),)))


@pytest.mark.parametrize("desired", [1, 5])
def test_an_undecodable_line_is_named_with_its_number_in_the_file(
    tmp_path: Path, desired: int, small_pieces: None
) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"first\nsecond\nthird\ncaf\xe9 au lait\n")
    with pytest.raises(ReadError) as caught:
        lines_of(TextSource((str(path),), min_split_size=1), desired=desired)
    assert str(caught.value) == (
        f"{path}, line 4 (byte 22): 0xe9 is not valid utf-8. If the file is in another encoding, pass encoding=…; "
        "errors='replace' replaces bytes that can't be decoded by U+FFFD"
    )


def test_undecodable_bytes_may_be_replaced_or_read_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"caf\xe9\n\xff\n")
    assert lines_of(TextSource((str(path),), errors="replace")) == ["caf\ufffd", "\ufffd"]
    assert lines_of(TextSource((str(path),), encoding="latin-1")) == ["café", "ÿ"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp037", "utf-8-sig", "iso2022_jp", "gb18030"])
def test_encodings_with_other_line_ends_are_read(tmp_path: Path, encoding: str, small_pieces: None) -> None:
    lines = ["one", "", "two" if encoding == "cp037" else "日本", "x" * 40]
    path = tmp_path / "x.txt"
    path.write_bytes("\n".join(lines).encode(encoding))
    source = TextSource((str(path),), encoding=encoding, min_split_size=4, skip_header_lines=1)
    assert lines_of(source, desired=9) == lines[1:]
    [split, *_] = source.splits(1)
    reader = source.reader(split)
    reader.read(1)
    assert drain(source, split, reader.position()) == lines[2:]
    reader.close()


def test_an_error_names_the_position_of_undecodable_utf_16(tmp_path: Path, small_pieces: None) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes("one\ntwo\nx".encode("utf-16-le") + b"\x00\xdc" + "y".encode("utf-16-le"))
    with pytest.raises(ReadError, match=re.escape(f"{path}, line 3 (byte 18): 0x00 0xdc is not valid utf-16-le.")):
        lines_of(TextSource((str(path),), encoding="utf-16-le"))


def test_line_ends_are_kept_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"one\r\n\ntwo")
    assert lines_of(TextSource((str(path),), strip_trailing_newlines=False)) == ["one\r\n", "\n", "two"]


def test_patterns_are_read_in_order_and_each_file_is_read_once(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/er/c.txt", ".tidegate-run1/x/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name + "\n")
    found = lines_of(TextSource((f"{tmp_path}/b.*", f"{tmp_path}/*.txt", f"{tmp_path}/**/*.txt")))
    assert found == ["b.txt", "a.txt", "deep/er/c.txt"]


def test_a_file_whose_name_looks_like_a_pattern_is_read_by_its_literal_name(tmp_path: Path) -> None:
    (tmp_path / "x[1].txt").write_text("literal\n")
    (tmp_path / "x1.txt").write_text("matched\n")
    assert lines_of(TextSource((f"{tmp_path}/x[1].txt",))) == ["literal"]


def test_paths_in_the_home_folder_and_file_urls_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.txt").write_text("home\n")
    assert lines_of(TextSource(("~/x.txt",))) == ["home"]
    assert lines_of(TextSource((f"file://{tmp_path}/x.txt",))) == ["home"]


def test_empty_files_and_no_files_give_no_lines(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "empty.gz").touch()
    assert lines_of(TextSource((f"{tmp_path}/*",))) == []
    source = TextSource((f"{tmp_path}/none*",), allow_empty=True)
    source.check()
    assert source.splits(3) == []


def test_a_line_of_many_pieces_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a" * 3_000_000 + "\nb\n")
    assert [len(line) for line in lines_of(TextSource((str(path),)), desired=3)] == [3_000_000, 1]


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("one\ntwo",))
    source = TextSource((str(path),), skip_header_lines=1)
    [split] = source.splits(8)
    writer.start()
    assert drain(source, split) == ["two"]
    writer.join()


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
@pytest.mark.parametrize("moment", ["before", "while", "after a stop"])
def test_a_file_that_was_written_again_since_it_was_split_is_refused(tmp_path: Path, name: str, moment: str) -> None:
    def write(lines: list[bytes]) -> None:
        """Write the file again, of the same size."""
        text = b"".join(lines)
        path.write_bytes(gzip.compress(text, 0, mtime=0) if name.endswith(".gz") else text)
        os.utime(path, ns=(next(times), next(times)))

    times = itertools.count(10**18, 10**9)
    path = tmp_path / name
    lines = [b"%07d\n" % n for n in range(100_000)]
    write(lines)
    source = TextSource((str(path),))
    [split] = source.splits(1)
    reader, position = source.reader(split), None
    if moment != "before":
        reader.read(10)
    if moment == "after a stop":
        position = reader.position()
        reader.close()
        reader = source.reader(split, position)
    write(lines[::-1])
    with pytest.raises(PositionLost if position else ReadError) as caught:
        list(iter(lambda: reader.read(10_000).end, True))
    reader.close()
    assert str(caught.value) == (
        f"{path}: the file has changed since the run found it: it has been written again. Write new data to new files; "
        "to read the file as it is now, start a new run"
    )


def test_a_file_that_has_another_size_or_is_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("one\ntwo")
    source = TextSource((str(path),))
    [split] = source.splits(1)
    for text in ("one\ntwofold\nthree\n", "one\n"):
        path.write_text(text)
        with pytest.raises(ReadError, match=f"it had 7 bytes and has {len(text)}"):
            drain(source, split)
    path.unlink()
    with pytest.raises(ReadError, match=re.escape(f"{path}: the file has been deleted since the run found it")):
        drain(source, split)


def test_an_object_that_was_replaced_is_refused() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/replaced/a.txt", b"one\n")
    source = TextSource(("memory://replaced/a.txt",))
    [split] = source.splits(1)
    memory.pipe("/replaced/a.txt", b"two\n")
    with pytest.raises(ReadError, match=re.escape("memory:///replaced/a.txt: the file has changed since the run fo")):
        drain(source, split)


def test_files_of_the_kernel_are_read_although_they_are_new_at_every_look() -> None:
    source = TextSource(("/proc/self/status",))
    [split] = source.splits(1)
    assert drain(source, split)[0].startswith("Name:")


def test_splits_are_balanced_and_survive_pickling(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("x" * 100)
    source = TextSource((str(path),), min_split_size=25)
    splits = source.splits(3)
    assert [split.id for split in splits] == [f"{path}:0-50", f"{path}:50-100"]
    assert splits == pickle.loads(pickle.dumps(source)).splits(3)
    tag = f"mtime={path.stat().st_mtime_ns}"
    assert splits[1].payload == FilePart(str(path), str(path), None, 50, 100, 100, tag)
    assert [split.size for split in source.splits(100)] == [25] * 4


def test_files_behind_a_url_are_read_and_split_as_local_ones_are() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/text_source/a.txt", b"one\ntwo\nthree\n")
    memory.pipe("/text_source/b.txt.gz", gzip.compress(b"four\n"))
    try:
        source = TextSource(("memory://text_source/*",), min_split_size=3, with_filename=True)
        source.check()
        a, b = "memory:///text_source/a.txt", "memory:///text_source/b.txt.gz"
        assert lines_of(source, desired=9) == [(a, "one"), (a, "two"), (a, "three"), (b, "four")]
        assert len(source.splits(9)) > 2
        with pytest.raises(BuildError) as caught:
            TextSource(("memory://text_source/c.txt",)).check()
        assert str(caught.value) == (
            "no file matches 'memory://text_source/c.txt': looked in memory:///text_source; there is a.txt. "
            "If there may be no such file, set allow_empty=True"
        )
    finally:
        memory.rm("/text_source", recursive=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("orders.csv", "orders_2.csv", "people.csv", "places.csv"):
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.fixture
def few_files(tmp_path: Path) -> Path:
    (tmp_path / "one").mkdir()
    for name in ("run1.log", "run2.log", "run3.log", "one/run.log"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("nope.log", "looked in {0}; none of the 4 names in it is similar"),
        ("one/nope.log", "looked in {0}/one; the only name in it is not similar"),
        ("one/runs.log", "looked in {0}/one; there is run.log"),
    ],
)
def test_only_similar_names_are_suggested(few_files: Path, pattern: str, problem: str) -> None:
    with pytest.raises(BuildError) as built:
        TextSource((f"{few_files}/{pattern}",)).check()
    assert f"no file matches '{few_files}/{pattern}': {problem.format(few_files)}. If there" in str(built.value)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("order.csv", "looked in {0}; there is orders.csv, orders_2.csv"),
        ("*.parquet", "looked in {0}; none of the 5 names in it is similar"),
        ("nowhere/*.csv", "there is no folder {0}/nowhere"),
        ("empty/*.csv", "looked in {0}/empty, which is empty"),
        ("empty", "it is a folder: for the files in it, say '{0}/empty/*'"),
        ("empty/", "it is a folder: for the files in it, say '{0}/empty/*'"),
        ("emp*", "only folders match it: for the files in them, and in their folders, say '{0}/**/emp*'"),
        ("empty/..", "it is a folder: for the files in it, say '{0}/empty/../*'"),
    ],
)
def test_a_path_that_matches_nothing_is_refused_with_suggestions(folder: Path, pattern: str, problem: str) -> None:
    source = TextSource((f"{folder}/{pattern}",))
    message = (
        f"no file matches '{folder}/{pattern}': {problem.format(folder)}. "
        "If there may be no such file, set allow_empty=True"
    )
    with pytest.raises(BuildError) as built:
        source.check()
    with pytest.raises(ReadError) as run:
        source.splits(1)
    assert str(built.value) == str(run.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "utf-9"}, "ReadFromText: Python has no text encoding 'utf-9'; most files are in 'utf-8'"),
        ({"encoding": "rot13"}, "ReadFromText: Python has no text encoding 'rot13'; most files are in 'utf-8'"),
        (
            {"errors": "lenient"},
            "ReadFromText: errors is one of 'strict', 'replace', 'ignore', 'backslashreplace', not 'lenient'",
        ),
        (
            {"compression": "gz"},
            "ReadFromText: compression is one of 'auto', 'none', 'gzip', 'bz2', 'xz', 'zstd', 'zip', not 'gz'",
        ),
        ({"skip_header_lines": -1}, "ReadFromText: skip_header_lines must be a whole number of at least 0, not -1"),
        ({"min_split_size": 0}, "ReadFromText: min_split_size must be a whole number of at least 1, not 0"),
    ],
)
def test_an_invalid_option_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError) as caught:
        TextSource((str(tmp_path / "x"),), **options).check()
    assert str(caught.value) == message


def test_an_unknown_protocol_or_one_whose_package_is_missing_is_refused() -> None:
    with pytest.raises(BuildError, match="nosuch://x: Protocol not known: nosuch; a local path has no '://'"):
        TextSource(("nosuch://x",)).check()


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        (".zst", "ReadFromText: zstd needs the module zstandard: pip install 'tidegate[zstd]'"),
        (".xz", "ReadFromText: xz needs the module lzma: this Python was built without it"),
    ],
)
def test_a_compression_whose_module_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, message: str
) -> None:
    (tmp_path / f"x{suffix}").touch()
    monkeypatch.setitem(sys.modules, {".zst": "zstandard", ".xz": "lzma"}[suffix], None)
    with pytest.raises(BuildError) as caught:
        TextSource((f"{tmp_path}/*",)).check()
    assert str(caught.value) == message


def test_a_file_that_can_no_longer_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("x")
    source = TextSource((str(path),))
    [split] = source.splits(1)
    path.unlink()
    path.mkdir()
    with pytest.raises(ReadError) as caught:
        drain(source, split)
    assert str(caught.value) == f"{path}: can't be read: Is a directory"
