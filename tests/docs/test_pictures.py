"""The pictures of docs/ are up to date, and on a page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_pictures_equal_the_output_of_make_pictures(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    subprocess.run([sys.executable, DOCS / "generate_pictures.py", tmp_path], env=environment, check=True)
    pages = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("tour.md", "iterations.md", "graphs.md"))
    linked = set(re.findall(r"\]\((\S+\.svg)\)", pages))
    assert {path.name for path in tmp_path.iterdir()} == linked
    for generated in tmp_path.iterdir():
        committed = (DOCS / generated.name).read_text(encoding="utf-8")
        assert ElementTree.fromstring(committed).tag.endswith("svg")
        assert committed == generated.read_text(encoding="utf-8"), "run `make pictures`"
