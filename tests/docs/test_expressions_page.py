"""docs/expressions.md has the operations and casts of the table, and its tables are generated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "expressions.md"


def test_the_tables_on_the_page_equal_the_output_of_make_reference(tmp_path: Path) -> None:
    written = Path(shutil.copy(PAGE, tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "docs" / "generate_operations.py", written], env=environment, check=True)
    assert PAGE.read_text(encoding="utf-8") == written.read_text(encoding="utf-8"), "run `make reference`"
