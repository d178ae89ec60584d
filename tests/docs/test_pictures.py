"""The pictures of docs/tour.md are what the commands on that page draw."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_pictures_are_what_make_pictures_draws(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    subprocess.run([sys.executable, DOCS / "generate_pictures.py", tmp_path], env=environment, check=True)
    shown = set(re.findall(r"\]\((\S+\.svg)\)", (DOCS / "tour.md").read_text(encoding="utf-8")))
    assert {path.name for path in tmp_path.iterdir()} == shown
    for drawn in tmp_path.iterdir():
        kept = (DOCS / drawn.name).read_text(encoding="utf-8")
        assert ElementTree.fromstring(kept).tag.endswith("svg")
        assert kept == drawn.read_text(encoding="utf-8"), "run `make pictures`"
