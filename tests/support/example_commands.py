"""The commands documented in the docstrings of examples, for tests that run them on every runner."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from pyarrow.parquet import ParquetFile

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
ENDLESS: Final = ("alerts.py",)
"""Examples that run until they are stopped."""
WITH_SERVICE: Final = ("enrichment.py",)
"""Examples that call a service, which their own tests start."""
GOING_ROUND: Final = ("retries.py",)
"""Examples whose elements go round in a loop, which not every runner runs."""
BOUNDED: Final = tuple(
    sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in (*ENDLESS, *WITH_SERVICE, *GOING_ROUND))
)
"""Examples that every runner runs to their end."""


def documented_arguments(name: str, output: Path) -> list[str]:
    """The arguments of the command in an example's docstring, with its output directed to the folder `output`."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))) or ""
    found = re.search(rf"tidegate run examples/{name} (.+)", docstring)
    assert found is not None
    flags = found[1].replace("'examples/", f"'{EXAMPLES}/").replace(" examples/", f" {EXAMPLES}/").replace("'", "")
    words = flags.split()
    if "--output" in words:
        words[words.index("--output") + 1] = str(output / "out")
    return ["run", str(EXAMPLES / name), *words]


def lines_written(output: Path) -> list[str]:
    """All lines of all files but logs of tables, and the rows of Parquet files with their folders, sorted."""
    found: list[str] = []
    for path in output.rglob("*"):
        if "_delta_log" in path.parts:
            continue
        if path.suffix == ".parquet":
            found += [f"{path.parent.relative_to(output)}: {row}" for row in ParquetFile(path).read().to_pylist()]
        elif path.is_file() and not path.name.startswith("."):
            found += path.read_text().splitlines()
    return sorted(found)
