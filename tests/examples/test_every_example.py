"""Every example is listed on a page, its docstring gives the command to run it, and its pipeline passes `check`."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.example_scripts import EXAMPLES, tidegate_command

NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_the_page_of_examples_lists_each_of_them() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_of_an_example_has_its_command(name: str) -> None:
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8")))
    assert docstring is not None
    assert f"tidegate run examples/{name} " in docstring


@pytest.mark.parametrize("name", NAMES)
def test_the_runner_accepts_the_command_of_an_example(name: str) -> None:
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))) or ""
    found = re.search(rf"tidegate run examples/{name} (.+)", docstring)
    assert found is not None
    flags = found[1].replace("'examples/data/", f"'{EXAMPLES}/data/").replace("'", "").split()
    assert tidegate_command("check", EXAMPLES / name, *flags).startswith("ok: ")
