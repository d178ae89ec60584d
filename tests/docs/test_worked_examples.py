"""Runs the worked examples (`>>>`) in the package's docstrings."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import tidegate

ROOT = Path(tidegate.__file__).parent


def modules_with_examples() -> list[str]:
    """The modules of the package with examples in docstrings."""
    files = [
        path for path in sorted(ROOT.rglob("*.py")) if "    >>> " in path.read_text() or "\n>>> " in path.read_text()
    ]
    return [".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__") for path in files]


@pytest.mark.parametrize("module", modules_with_examples())
def test_worked_examples_give_the_results_shown(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module), raise_on_error=False)
    assert results.attempted
    assert not results.failed
