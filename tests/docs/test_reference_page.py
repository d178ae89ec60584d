"""docs/reference.md is generated from the docstrings, and has every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
import tidegate.graph
import tidegate.testing

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_equals_the_output_of_make_reference(tmp_path: Path) -> None:
    written = tmp_path / "reference.md"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "docs" / "generate_reference.py", written], env=environment, check=True)
    assert written.read_text(encoding="utf-8") == TEXT, "run `make reference`"


@pytest.mark.parametrize(
    ("prefix", "module"),
    [
        ("tg", tg),
        ("tg.io", tg.io),
        ("tg.fn", tg.fn),
        ("tg.combiners", tg.combiners),
        ("graph", tidegate.graph),
        ("testing", tidegate.testing),
    ],
)
def test_the_page_has_every_public_name_once(prefix: str, module: Any) -> None:
    listed = re.findall(rf"^### `{re.escape(prefix)}\.(\w+)`$", TEXT, re.MULTILINE)
    excluded = {"io", "fn", "combiners", "__version__"} if module is tg else set()
    assert sorted(listed) == sorted(set(module.__all__) - excluded)


def test_every_public_name_has_a_description() -> None:
    empty = re.findall(r"^### `(\S+)`\n+(?:```text\n[^`]*```\n+)?(?=#|See its base class\.)", TEXT, re.MULTILINE)
    assert empty == []


def test_the_page_does_not_depend_on_the_run_or_the_machine() -> None:
    assert not re.findall(r"0x[0-9a-f]+| object at |<lambda>|<locals>", TEXT)
    assert str(ROOT) not in TEXT
