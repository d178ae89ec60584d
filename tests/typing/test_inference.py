"""mypy and pyright infer types along the pipe, and report wrong functions."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.typing.type_checkers import run_checker

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
FILES: Final = ("inferred.py", "refused.py")
pytestmark = pytest.mark.xdist_group("type checkers")


Found: TypeAlias = Mapping[str, tuple[dict[int, str], set[int]]]
"""The revealed types and the errors of each file, by line."""


@pytest.fixture(scope="module")
def by_mypy(tmp_path_factory: pytest.TempPathFactory) -> Found:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path_factory.mktemp("mypy"))]
    command += ["--no-error-summary", *(str(HERE / file) for file in FILES)]
    output = run_checker(command, cwd=ROOT).stdout
    found: Found = {file: ({}, set()) for file in FILES}
    for file, line, kind, text in re.findall(r"(\w+\.py):(\d+): (\w+): (.*)", output):
        types, errors = found[file]
        if kind == "error":
            errors.add(int(line))
        elif text.startswith("Revealed type is"):
            types[int(line)] = text[len('Revealed type is "') : -1]
    return found


@pytest.fixture(scope="module")
def by_pyright() -> Found:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    output = run_checker([*command, *(str(HERE / file) for file in FILES)], cwd=ROOT).stdout
    found: Found = {file: ({}, set()) for file in FILES}
    for diagnostic in json.loads(output)["generalDiagnostics"]:
        types, errors = found[Path(diagnostic["file"]).name]
        line = diagnostic["range"]["start"]["line"] + 1
        match diagnostic["severity"]:
            case "error":
                errors.add(line)
            case "information":
                types[line] = diagnostic["message"].rpartition(' is "')[2][:-1]
    return found


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


def test_mypy_infers_types_along_the_pipe(by_mypy: Found) -> None:
    types, errors = by_mypy["inferred.py"]
    assert {line: without_modules(name) for line, name in types.items()} == expected_types(0)
    assert errors == set()


def test_mypy_reports_wrong_steps_and_no_others(by_mypy: Found) -> None:
    assert by_mypy["refused.py"][1] == expected_errors()


def test_pyright_infers_types_along_the_pipe(by_pyright: Found) -> None:
    types, errors = by_pyright["inferred.py"]
    assert {line: without_modules(name) for line, name in types.items()} == expected_types(1)
    assert errors == set()


def test_pyright_reports_wrong_steps_and_no_others(by_pyright: Found) -> None:
    assert by_pyright["refused.py"][1] == expected_errors()
