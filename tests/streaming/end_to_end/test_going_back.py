"""A stream that is restored from an older savepoint or checkpoint: the fate of the output committed since."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.child_processes import TIMEOUT
from tests.support.written_files import rows_of
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.streaming.checkpoint.inspect import opened
from tidegate.sdk.errors import WriteError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

WRITERS: dict[str, Callable[[str], Any]] = {
    "text": lambda path: tg.io.WriteToText(path, format=lambda row: f"{row['n']}"),
    "csv": tg.WriteToCsv,
    "json": tg.WriteToJson,
    "parquet": tg.WriteToParquet,
    "avro": tg.WriteToAvro,
    "arrow": tg.WriteToArrow,
}
ONCE = {1: 1, 2: 1, 3: 1, 4: 1}


class Stream:
    """Follows a folder of numbers, and writes them in some formats; it can be stopped and started restored."""

    def __init__(self, folder: Path, *formats: str) -> None:
        self.folder, self.formats = folder, formats
        (folder / "in").mkdir()

    def deliver(self, *numbers: int) -> None:
        (self.folder / ".new").write_text("".join(f"{n}\n" for n in numbers))
        (self.folder / ".new").rename(self.folder / "in" / f"{numbers[0]:04}.txt")

    def begin(self, *flags: str) -> Any:
        options = ["--runner", "streaming", "--workers", "1", "--checkpoint_interval", "0.1", "--restart_strategy=none"]
        p = tg.Pipeline(name="going back", options=[*options, *flags])
        lines = p | "lines" >> tg.io.ReadFromText(f"{self.folder}/in/*.txt", follow=True, poll_interval=0.02, min_age=0)
        rows = lines | "row" >> tg.Map(lambda line: {"n": int(line)})
        for format in self.formats:
            _ = rows | format >> WRITERS[format](f"{self.folder}/{format}/part")
        return p.run()

    def files(self) -> dict[str, list[int]]:
        """The numbers in each visible file."""
        return {
            f"{format}/{path.name}": self._numbers(path, format)
            for format in self.formats
            for path in sorted((self.folder / format).glob("part*"))
        }

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    def occurrences(self) -> dict[str, Counter[int]]:
        """The number of occurrences of each number, by format."""
        found = {format: Counter[int]() for format in self.formats}
        for name, numbers in self.files().items():
            found[name.partition("/")[0]].update(numbers)
        return found

    def wait_for(self, expected: dict[int, int]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while self.occurrences() != dict.fromkeys(self.formats, expected):
            assert time.monotonic() < deadline, f"{self.files()} should have {expected}"
            time.sleep(0.02)

    def _numbers(self, path: Path, format: str) -> list[int]:
        if format == "text":
            return [int(line) for line in path.read_text().splitlines()]
        return [int(row["n"]) for row in rows_of(path.read_bytes(), format)]


def run_and_number(directory: Path) -> tuple[str, int]:
    """The run and the number of a savepoint, or of the newest checkpoint."""
    manifest, _ = opened(open_storage(str(directory)), str(directory))
    return manifest.run, manifest.checkpoint


def stop(result: Any) -> None:
    result.stop()
    result.wait_until_finish()


def test_files_committed_after_the_restored_savepoint_stay_and_can_be_identified_by_name(tmp_path: Path) -> None:
    stream = Stream(tmp_path, *WRITERS)
    stream.deliver(1, 2)
    first = stream.begin("--checkpoint_dir", str(tmp_path / "first"))
    stream.wait_for({1: 1, 2: 1})
    first.savepoint(str(tmp_path / "savepoint"))
    stream.deliver(3, 4)
    stream.wait_for(ONCE)
    stop(first)
    before = stream.files()

    restored = stream.begin(
        "--checkpoint_dir", str(tmp_path / "second"), "--from_savepoint", str(tmp_path / "savepoint")
    )
    stream.wait_for({1: 1, 2: 1, 3: 2, 4: 2})
    stop(restored)
    assert before.items() <= stream.files().items()

    run, number = run_and_number(tmp_path / "savepoint")
    for name in stream.files():
        _, _, written_by = name.partition(f"/part-{run}-")
        if written_by and int(written_by[:5]) > number:
            stream.remove(name)
    stream.wait_for(ONCE)


def go_back_to_the_first_checkpoint(tmp_path: Path) -> tuple[Stream, list[str]]:
    """A stream that has written 1 to 4 and stopped, of whose checkpoints only the first is left, and its flags."""
    stream = Stream(tmp_path, "text")
    flags = ["--checkpoint_dir", str(tmp_path / "checkpoints"), "--retained_checkpoints", "9"]
    stream.deliver(1, 2)
    first = stream.begin(*flags)
    stream.wait_for({1: 1, 2: 1})
    stream.deliver(3, 4)
    stream.wait_for(ONCE)
    stop(first)
    _, *later = sorted((tmp_path / "checkpoints").glob("chk-*"))
    for folder in later:
        shutil.rmtree(folder)
    return stream, flags


def test_files_committed_after_the_restored_checkpoint_stay_beside_those_of_the_resumed_run(tmp_path: Path) -> None:
    stream, flags = go_back_to_the_first_checkpoint(tmp_path)
    before = stream.files()
    run, _ = run_and_number(tmp_path / "checkpoints")
    restored = stream.begin(*flags)
    stream.wait_for({1: 1, 2: 1, 3: 2, 4: 2})
    stop(restored)
    after = stream.files()
    assert before.items() <= after.items()
    assert all(name.startswith(f"text/part-{run}.2-") for name in after.keys() - before.keys())


def test_missing_output_of_the_restored_checkpoint_is_an_error(tmp_path: Path) -> None:
    stream, flags = go_back_to_the_first_checkpoint(tmp_path)
    for name in stream.files():
        stream.remove(name)
    with pytest.raises(WriteError, match=r"output is lost: the parts of .*/text/part-.*-00001-00000-of-00001 are gone"):
        stream.begin(*flags).wait_until_finish()
