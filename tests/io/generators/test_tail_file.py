"""`TailFile`: a growing file, its rotation, and the resuming of its readers."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.io.generators.tail_file import TailSource
from tidegate.sdk.connectors.sources import Reader

OPENED: list[Reader[str]] = []


def reader(path: Path, position: Any = None, **options: Any) -> Reader[str]:
    source = TailSource(str(path), **options)
    source.check()
    [split] = source.splits(4)
    OPENED.append(source.reader(split, json.loads(json.dumps(position))))
    return OPENED[-1]


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def available(reader: Reader[str], limit: int = 100) -> list[str]:
    """Read lines until several consecutive reads return none."""
    found: list[str] = []
    empty = 0
    while empty < 4:
        batch = reader.read(limit)
        assert len(batch.block) <= limit
        assert not batch.end
        found += batch.block.values
        empty = 0 if len(batch.block) else empty + 1
    return found


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)


def test_a_line_is_emitted_once_its_end_is_written(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "ada\nben\r\nca")
    tail = reader(log)
    assert available(tail) == ["ada", "ben"]
    append(log, "rl")
    assert available(tail) == []
    append(log, "\nzoë\n")
    assert available(tail, limit=1) == ["carl", "zoë"]


@pytest.mark.parametrize("stopped_after", range(8))
def test_a_reader_resumes_with_the_next_line(tmp_path: Path, stopped_after: int) -> None:
    log = tmp_path / "app.log"
    append(log, "".join(f"{n}\n" for n in range(4)))
    first = reader(log)
    found: list[str] = []
    for n in range(stopped_after):
        if n == 4:
            append(log, "4\n5\n6\n")
        found += first.read(1).block.values
    if stopped_after <= 4:
        append(log, "4\n5\n6\n")
    position = first.position()
    first.close()
    found += available(reader(log, position))
    assert found == [str(n) for n in range(7)]


def test_a_position_before_the_first_read_is_the_place_in_the_file_at_that_time(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "old\n")
    position = reader(log, start="end").position()
    append(log, "new\n")
    assert available(reader(log, position, start="end")) == ["new"]


@pytest.mark.parametrize(
    ("before", "expected"),
    [("", ["new"]), ("old\n", ["new"]), ("old\nne", ["nenew"]), ("x" * 300_000, [f"{'x' * 300_000}new"])],
)
def test_starting_at_the_end_skips_existing_lines(tmp_path: Path, before: str, expected: list[str]) -> None:
    log = tmp_path / "app.log"
    append(log, before)
    tail = reader(log, start="end")
    append(log, "new\n")
    assert available(tail) == expected


def test_a_file_that_is_missing_may_appear(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    with pytest.raises(tg.BuildError, match=r"there is no file .* say allow_missing=True"):
        reader(log)
    tail = reader(log, allow_missing=True, start="end")
    assert available(tail) == []
    position = tail.position()
    append(log, "first\n")
    assert available(tail) == ["first"]
    assert available(reader(log, position, allow_missing=True, start="end")) == ["first"]


def rename(log: Path) -> None:
    log.rename(log.with_name("app.log.1"))


def replace(log: Path) -> None:
    rename(log)
    append(log, "a much longer line than before\n")


def truncate(log: Path) -> None:
    log.write_text("x\n")


def rewrite(log: Path) -> None:
    """Replace the contents in place by others of the same length."""
    log.write_text("c\nd\n")


LOSSES: list[tuple[Callable[[Path], Any], str]] = [
    (rename, "was renamed or removed|is no longer there"),
    (replace, "is another file now"),
    (truncate, "was truncated: it has 2 bytes, and 4 had been read|is another file now"),
]


@pytest.mark.parametrize(("change", "message"), LOSSES)
@pytest.mark.parametrize("running", [True, False])
def test_a_file_that_is_rotated_or_truncated_is_refused(
    tmp_path: Path, change: Callable[[Path], Any], message: str, running: bool
) -> None:
    log = tmp_path / "app.log"
    append(log, "a\nb\n")
    tail = reader(log)
    assert available(tail) == ["a", "b"]
    position = tail.position()
    change(log)
    with pytest.raises(
        tg.io.PositionLost, match=f"app.log ({message}).*after it had been read to byte 4.*rotation='follow'"
    ):
        available(tail if running else reader(log, position, allow_missing=True))


def test_another_file_with_the_same_inode_is_detected_by_its_first_bytes(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "a\nb\n")
    first = reader(log)
    available(first)
    position = first.position()
    rewrite(log)
    with pytest.raises(tg.io.PositionLost, match="is another file now"):
        reader(log, position)


def test_a_truncated_file_is_read_from_its_beginning_with_rotation_follow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "app.log"
    append(log, "a\nb\n")
    tail = reader(log, rotation="follow")
    assert available(tail) == ["a", "b"]
    truncate(log)
    assert available(tail) == ["x"]
    assert "was truncated: it has 2 bytes, and 4 had been read. It is read from its beginning" in caplog.messages[0]


def test_a_renamed_file_is_read_to_its_end_before_its_successor(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "a\nb\nc")
    tail = reader(log, rotation="follow")
    assert available(tail) == ["a", "b"]
    rename(log)
    assert available(tail) == []
    append(log.with_name("app.log.1"), "c\nlast without an end")
    append(log, "d\n")
    assert available(tail) == ["cc", "last without an end", "d"]


@pytest.mark.parametrize(
    "names", [("app.log.3", "app.log.2", "app.log.1"), ("app.log-20260101", "app.log-20260102", "app.log-20260103")]
)
@pytest.mark.parametrize("same_time", [True, False])
def test_files_that_were_rotated_between_two_readers_are_read_in_order(
    tmp_path: Path, names: tuple[str, str, str], same_time: bool
) -> None:
    log = tmp_path / "app.log"
    append(log, "a\nb\n")
    first = reader(log, rotation="follow")
    assert first.read(1).block.values == ["a"]
    position = first.position()
    log.rename(tmp_path / names[0])
    append(tmp_path / names[0], "c\n")
    append(tmp_path / names[1], "d\n")
    append(tmp_path / names[2], "e\n")
    append(log, "f\n")
    (tmp_path / "app.log.offset").write_text("not a log\n")
    for n, name in enumerate((*names, "app.log")):
        os.utime(tmp_path / name, (1000, 1000 if same_time else 1000 + n))
    assert available(reader(log, position, rotation="follow")) == ["b", "c", "d", "e", "f"]


def test_a_rotated_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "a\nb\n")
    first = reader(log, rotation="follow")  # keeps the file open, so that its inode isn't reused
    first.read(1)
    log.unlink()
    append(log, "c\n")
    with pytest.raises(tg.io.PositionLost, match="is not in its folder any more, under no rotated name"):
        reader(log, first.position(), rotation="follow")


def test_a_file_that_was_compressed_before_it_was_read_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "a\n")
    tail = reader(log, rotation="follow")
    assert available(tail) == ["a"]
    log.rename(tmp_path / "app.log.2")
    os.utime(tmp_path / "app.log.2", (1000, 1000))
    with gzip.open(tmp_path / "app.log.1.gz", "wb") as file:
        file.write(b"b\n")
    os.utime(tmp_path / "app.log.1.gz", (1001, 1001))
    append(log, "c\n")
    with pytest.raises(tg.io.PositionLost, match=r"app\.log\.1\.gz was rotated and compressed before it was read"):
        available(tail)


def test_a_compressed_copy_of_a_file_that_was_read_is_skipped(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "a\n")
    tail = reader(log, rotation="follow")
    assert available(tail) == ["a"]
    modified = log.stat().st_mtime_ns
    log.unlink()
    with gzip.open(tmp_path / "app.log.1.gz", "wb") as file:
        file.write(b"a\n")
    os.utime(tmp_path / "app.log.1.gz", ns=(modified, modified))
    append(log, "b\n")
    assert available(tail) == ["b"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.text("abö\n", max_size=8)),
        st.tuples(st.just("read"), st.integers(1, 3)),
        st.just(("rotate", None)),
        st.just(("resume", None)),
    ),
    max_size=25,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(STEPS)
def test_every_line_is_read_once_and_in_order_with_any_rotations(tmp_path_factory: Any, steps: Any) -> None:
    log = tmp_path_factory.mktemp("tail") / "app.log"
    log.touch()
    tail = reader(log, rotation="follow")
    written, found, rotated = [""], list[str](), 0
    for step, argument in steps:
        match step:
            case "append":
                append(log, argument)
                written[-1] += argument
            case "read":
                found += tail.read(argument).block.values
            case "rotate":
                rotated += 1
                for n in range(rotated - 1, 0, -1):
                    log.with_name(f"app.log.{n}").rename(log.with_name(f"app.log.{n + 1}"))
                log.rename(log.with_name("app.log.1"))
                log.touch()
                written.append("")
            case "resume":
                position = tail.position()
                tail.close()
                tail = reader(log, position, rotation="follow")
    found += available(tail)
    for _ in range(rotated):
        found += available(tail)
    tail.close()
    expected = []
    for n, text in enumerate(written):
        lines = text.split("\n")
        last = lines.pop()
        expected += [*lines, last] if last and n < len(written) - 1 else lines
    assert found == expected


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_file_is_followed_on_every_runner_that_supports_streams(tmp_path: Path, runner: str) -> None:
    log = tmp_path / "app.log"
    append(log, "a 1\nb 2\na 3\n")
    pipeline = tg.Pipeline(runner, options=["--run_for", "2s"])
    lines = pipeline | tg.io.TailFile(log)
    _ = lines | tg.io.WriteToText(str(tmp_path / "out"))
    pipeline.run().wait_until_finish()
    found = [line for file in tmp_path.glob("out*") for line in file.read_text().splitlines()]
    assert sorted(found) == ["a 1", "a 3", "b 2"]


def test_an_undecodable_line_names_the_file_and_the_byte(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"good\nb\xe4d\n")
    with pytest.raises(tg.ReadError, match=r"app\.log, byte 6: 0xe4 is not valid utf-8"):
        available(reader(log))
    assert available(reader(log, errors="replace")) == ["good", "b\ufffdd"]


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        (".", {}, r"is a folder: its files are read by ReadFromText\(pattern, follow=True\)"),
        ("s3://bucket/app.log", {}, "a file of the local file system"),
        ("x", {"rotation": "ignore"}, "rotation is 'refuse' or 'follow', not 'ignore'"),
        ("x", {"start": "middle"}, "start is 'beginning' or 'end', not 'middle'"),
        ("x", {"poll_interval": 0}, "poll_interval must be positive"),
        (["a", "b"], {}, "needs the path of one file"),
    ],
)
def test_invalid_paths_and_options_are_refused(path: Any, options: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        _ = tg.Pipeline() | tg.io.TailFile(path, **options)
