"""Errors while a script builds its pipeline name the line of the script, however it is started."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.errors.test_script import script_run
from tidegate.cli import app

BEGINNING = """\
import datetime
import tidegate as tg
out = []
def each(x):
    yield x
class Each(tg.DoFn):
    def process(self, x):
        yield x
class Doubled(tg.PTransform):
    def expand(self, pcoll):
        ready = pcoll | tg.Map(str)
        return ready | tg.Map(each)
p = tg.Pipeline()
x = p | tg.Create([1])
y = tg.Pipeline(options=[], name="q") | tg.Create([1])
"""
LINE = BEGINNING.count("\n") + 1

REFUSED = [
    ('tg.FixedWindows("1h")', "FixedWindows: size must be a duration"),
    ("x | tg.Map(each)", "Map takes a function that returns its result"),
    ("x | tg.Map(out.append)", "Map can't take list.append"),
    ("x | tg.ParDo(Each)", "ParDo takes an instance: Each()"),
    ('p | tg.Create("abc")', "Create takes an iterable of elements"),
    ("x | tg.Map(str).with_exception_handling() | tg.Map(str)", "the step 'Map(str)' has with_exception_handling"),
    (
        '(x | tg.ParDo(Each()).with_outputs("negative", main="m")).negativ',
        "the step has no output 'negativ'; it has: m, ",
    ),
    ('x | tg.io.WriteToText("o/{date}/x")', "{date} is not a placeholder"),
    ("x | tg.Map([1, 2])", "Map takes a function, not [1, 2]"),
    ("(x, y) | tg.Flatten()", "Flatten: PCollections of two different pipelines"),
    ("for each in x: pass", "PCollection('Create') can't be iterated"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tidegate"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("__main__.script", None)


def run(folder: Path, ending: str) -> Result:
    (folder / "script.py").write_text(f"{BEGINNING}{ending}\n")
    return CliRunner().invoke(app, ["run", "script.py:p"], prog_name="tidegate")


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_the_run_command_names_the_line(folder: Path, line: str, message: str) -> None:
    done = run(folder, line)
    assert done.exit_code == 2
    error, location = done.stderr.splitlines()
    assert error.startswith(f"error: {message}")
    assert location == f"  at {folder / 'script.py'}:{LINE}: {line}"


def test_in_a_chain_of_several_lines_the_line_of_the_step_is_named(folder: Path) -> None:
    done = run(folder, "z = (\n    x\n    | tg.Map(str).with_exception_handling()\n    | tg.Map(str)\n)")
    assert done.stderr.splitlines()[-1] == f"  at {folder / 'script.py'}:{LINE + 3}: | tg.Map(str)"


def test_the_line_of_the_step_being_applied_is_named_once(folder: Path) -> None:
    done = run(folder, "x | tg.Map(lambda x, y: x)")
    assert done.stderr.count(f"script.py:{LINE}") == 1
    assert f"in step 'Map(<lambda>)', applied at {folder / 'script.py'}:{LINE}" in done.stderr


def test_the_line_in_an_expand_and_the_line_that_applies_it_are_both_named(folder: Path) -> None:
    done = run(folder, "x | Doubled()")
    line_in_expand = BEGINNING.splitlines().index("        return ready | tg.Map(each)") + 1
    assert done.exit_code == 2
    assert done.stderr.splitlines()[1:] == [
        f"  in step 'Doubled', applied at {folder / 'script.py'}:{LINE}",
        f"  while its expand was at {folder / 'script.py'}:{line_in_expand}",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x.negativ", "AttributeError: 'PCollection' object has no attribute 'negativ'"),
        ("tg.window.FixedWindows(60)", "AttributeError: tidegate has no window"),
        ("tg.WindowInto(tg.FixedWindows(60), allowed_latenes=3)", "TypeError: WindowInto() has no argument"),
        ("tg.FixedWindows()", "TypeError: FixedWindows.__init__() missing 1 required positional argument: 'size'"),
        ("tg.Timestamp.of(datetime.datetime(2026, 1, 1))", "ValueError: datetime.datetime(2026, 1, 1, 0, 0) has no"),
        ("undefined", "NameError: name 'undefined' is not defined"),
    ],
)
def test_a_programming_error_in_the_script_is_a_usage_error_shown_with_its_line(
    folder: Path, line: str, message: str
) -> None:
    done = run(folder, line)
    assert done.exit_code == 2
    error, _, location, source, *_ = done.stderr.splitlines()
    assert error.startswith(f"error: {message}")
    assert location == f'  File "{folder / "script.py"}", line {LINE}, in <module>'
    assert source == f"    {line}"


@pytest.mark.parametrize("line", ["int('x')", "open('missing')", "raise ConnectionError('down')"])
def test_any_other_exception_of_the_script_is_a_failure(folder: Path, line: str) -> None:
    assert run(folder, line).exit_code == 1


@pytest.mark.parametrize("line", ['x | tg.WindowInto(tg.FixedWindows("1h"))', "x | tg.Map(each)", "x | Doubled()"])
def test_the_traceback_of_a_script_run_by_python_ends_at_the_line_of_the_script(tmp_path: Path, line: str) -> None:
    done = script_run(tmp_path, BEGINNING + line + "\n")
    assert done.returncode == 1
    first, location, *_ = done.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert location.endswith(f'script.py", line {LINE}, in <module>')
    assert done.stderr.count("  File ") == 1, done.stderr
    assert "\ntidegate.sdk.errors.BuildError: " in done.stderr


def test_any_other_error_keeps_its_full_traceback(tmp_path: Path) -> None:
    done = script_run(tmp_path, BEGINNING + "tg.Timestamp.of(datetime.datetime(2026, 1, 1))\n")
    assert done.stderr.count("  File ") > 1, done.stderr
