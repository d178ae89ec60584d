"""Graphs as one self-contained HTML page with collapsible groups, panning, zooming and tooltips.

The template `picture.html` gets the graphs as data with the rows computed by `layout.py`; the browser draws them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from tidegate.sdk.drawing.graph import COLOURS, Graph, readable
from tidegate.sdk.drawing.layout import layout
from tidegate.sdk.errors import visible


def html(views: Mapping[str, Graph]) -> str:
    """A page with a tab for each named graph; its title is that of the first graph."""
    title = visible(next(iter(views.values())).title)
    shown = [_view(name, readable(graph)) for name, graph in views.items()]
    data = {"title": title, "colours": COLOURS, "views": shown}
    # Inside a script element only "<" needs escaping: it could end the element or open a comment.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = Template(Path(__file__).with_name("picture.html").read_text(encoding="utf-8"))
    return page.substitute(title=escape(title), data=text)


def _view(name: str, graph: Graph) -> dict[str, Any]:
    plan = layout(graph)
    rows = {id: [[(member.kind, member.id) for member in row] for row in rows] for id, rows in plan.rows.items()}
    return {"name": name, **asdict(graph), "rows": rows, "ways": plan.ways}
