"""The exact messages about bad files, flags and compiled pipelines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegate as tg
from tests.support.failing_pipelines import error_message
from tidegate.cli import app
from tidegate.sdk.portable.json import dump


def reading(path: Path) -> Callable[[tg.Pipeline], Any]:
    return lambda p: p | "read" >> tg.io.ReadFromText(path) | tg.Map(len)


def test_a_missing_file_is_reported_when_the_pipeline_is_built(tmp_path: Path) -> None:
    (tmp_path / "sales.txt").touch()
    assert error_message(reading(tmp_path / "sale.txt")) == (
        f"BuildError: no file matches '{tmp_path}/sale.txt': looked in {tmp_path}; there is sales.txt. "
        "If there may be no such file, set allow_empty=True\n  in step 'read/Read', applied at HERE"
    )


def test_a_truncated_gzip_file_is_reported_with_its_step(tmp_path: Path) -> None:
    path = tmp_path / "sales.txt.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 40, mtime=0)[:60])
    assert error_message(reading(path)) == (
        f"ReadError: {path}: not a valid gzip file: EOFError: it is truncated. "
        "If it is not gzip, pass compression='none'\n  in step 'read/Read', applied at HERE"
    )


def test_an_invalid_gzip_file_is_reported_with_its_step(tmp_path: Path) -> None:
    path = tmp_path / "sales.txt.gz"
    path.write_text("plain text\n")
    assert error_message(reading(path)) == (
        f"ReadError: {path}: not a valid gzip file: error: Error -3 while decompressing data: incorrect header check. "
        "If it is not gzip, pass compression='none'\n  in step 'read/Read', applied at HERE"
    )


def test_an_undecodable_line_is_reported_with_its_number_and_step(tmp_path: Path) -> None:
    path = tmp_path / "sales.txt"
    path.write_bytes(b"first\ncaf\xe9 au lait\n")
    assert error_message(reading(path)) == (
        f"ReadError: {path}, line 2 (byte 9): 0xe9 is not valid utf-8. If the file is in another encoding, pass "
        "encoding=…; errors='replace' replaces bytes that can't be decoded by U+FFFD\n"
        "  in step 'read/Read', applied at HERE"
    )


ALARM = tg.EventTimer("alarm")


class FailsOnTime(tg.DoFn):
    """A stateful DoFn that raises in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method

    def fail(self, method: str) -> None:
        if method == self.method:
            raise OSError("disk full")

    def process(self, element: tuple[str, int], alarm: Any = tg.DoFn.TimerParam(ALARM)) -> None:
        self.fail("process")
        alarm.set(5)

    @tg.on_timer(ALARM)
    def ring(self) -> None:
        self.fail("ring")

    @tg.on_window_expiration
    def leave(self) -> None:
        self.fail("leave")


@pytest.mark.parametrize(
    ("method", "about"), [("process", "element: ('a', 1)"), ("ring", "key: 'a'"), ("leave", "key: 'a'")]
)
def test_the_error_of_a_stateful_step_names_the_method_and_the_key(method: str, about: str) -> None:
    assert error_message(lambda p: p | tg.Create([("a", 1)]) | "save" >> tg.ParDo(FailsOnTime(method))) == (
        f"UserCodeError: OSError: disk full\n  in step 'save', applied at HERE\n  while calling {method}\n  {about}"
    )


# -- compiled pipelines on the command line


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pipeline = tg.Pipeline(name="two steps")
    _ = pipeline | tg.Create([1]) | "double" >> tg.Map(abs) | "text" >> tg.Map(str)
    path = tmp_path / "pipeline.json"
    path.write_text(dump(pipeline.sealed(values=True)))
    return path


def refused(*args: str) -> str:
    done = CliRunner().invoke(app, ["run", "pipeline.json", *args], prog_name="tidegate")
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


def test_a_truncated_pipeline_is_refused(compiled: Path) -> None:
    lines = compiled.read_text().splitlines()
    compiled.write_text("\n".join(lines[:10]))
    assert refused() == (
        f"error: pipeline.json ends in the middle, at line 10, column {len(lines[9]) + 1}: it is truncated. "
        "Compile the pipeline again\n"
    )


def test_a_pipeline_of_another_version_is_refused(compiled: Path) -> None:
    compiled.write_text(compiled.read_text().replace('"version": 3,', '"version": 9,', 1))
    assert refused() == (
        "error: pipeline.json has format version 9, but this Tidegate reads versions 1 to 3: "
        "compile the pipeline again with the Tidegate that runs it\n"
    )


def test_a_pipeline_edited_to_contain_a_cycle_is_refused(compiled: Path) -> None:
    raw = json.loads(compiled.read_text())
    node = next(node for node in raw["nodes"] if node["label"] == "double")
    node["inputs"] = ["text"]
    compiled.write_text(json.dumps(raw))
    assert refused() == (
        f"error: pipeline.json: the steps form a cycle: 'double' → 'text' → 'double'\n"
        f"  applied at {node['where']['file']}:{node['where']['line']}\n"
    )


def test_an_unknown_flag_is_refused_with_the_most_similar_name(compiled: Path) -> None:
    assert refused("--chekcs", "all") == "error: unknown flag --chekcs: did you mean --checks?\n"


def test_a_field_as_timestamp_of_a_read_is_refused_when_built() -> None:
    with pytest.raises(
        tg.BuildError, match=r"timestamp is a function of an element, as in lambda row: row\.at, not 'at'"
    ):
        tg.io.GenerateSequence(0, 3, timestamp="at")  # type: ignore[arg-type]
