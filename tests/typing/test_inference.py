"""mypy and pyright infer types along the pipe, and report wrong functions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def mypy(file: str, cache: Path) -> tuple[dict[int, str], set[int]]:
    """The revealed types and the errors of a file, by line."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(cache),
        "--no-error-summary",
        str(HERE / file),
    ]
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    found = re.findall(rf"{re.escape(file)}:(\d+): (\w+): (.*)", output)
    types = {
        int(line): text[len('Revealed type is "') : -1]
        for line, kind, text in found
        if kind == "note" and text.startswith("Revealed type")
    }
    return types, {int(line) for line, kind, _ in found if kind == "error"}


def pyright(file: str) -> tuple[dict[int, str], set[int]]:
    """The revealed types and the errors of a file, by line."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(HERE / file)]
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    found = [
        (diagnostic["range"]["start"]["line"] + 1, diagnostic["severity"], diagnostic["message"])
        for diagnostic in json.loads(output)["generalDiagnostics"]
    ]
    types = {line: text.rpartition(' is "')[2][:-1] for line, kind, text in found if kind == "information"}
    return types, {line for line, kind, _ in found if kind == "error"}


def without_modules(type_name: str) -> str:
    """Remove the module names from a type."""
    return re.sub(r"\b(?:[a-z_]+\.)+(?=\w)", "", type_name)


def expected_types(checker: int) -> dict[int, str]:
    expected = {}
    for number, line in enumerate((HERE / "inferred.py").read_text().splitlines(), 1):
        if line.startswith("reveal_type("):
            alternatives = line.rpartition("  # ")[2].split(" / ")
            expected[number] = alternatives[min(checker, len(alternatives) - 1)]
    return expected


def expected_errors() -> set[int]:
    lines = (HERE / "refused.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_mypy_infers_types_along_the_pipe(cache: Path) -> None:
    types, errors = mypy("inferred.py", cache)
    assert {line: without_modules(name) for line, name in types.items()} == expected_types(0)
    assert errors == set()


def test_mypy_reports_wrong_steps_and_no_others(cache: Path) -> None:
    assert mypy("refused.py", cache)[1] == expected_errors()


def test_pyright_infers_types_along_the_pipe() -> None:
    types, errors = pyright("inferred.py")
    assert {line: without_modules(name) for line, name in types.items()} == expected_types(1)
    assert errors == set()


def test_pyright_reports_wrong_steps_and_no_others() -> None:
    assert pyright("refused.py")[1] == expected_errors()
