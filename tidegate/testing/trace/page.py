"""A trace as one self-contained HTML page: scripts in the template `page.html` draw the embedded data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from tidegate.sdk.errors import visible
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND
from tidegate.testing.trace.model import Moment, Traced


def page(name: str, steps: Sequence[Traced], error: str | None) -> str:
    """The page for a run of the pipeline `name`, with a tab for each step. `error` is the run's error, if it failed."""
    data = {"title": visible(name), "error": error, "steps": [_step(step) for step in steps]}
    # In a script element only "<" could end it or open a comment.
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    template = _Page(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(visible(name)), data=text)


class _Page(Template):
    """A template with `@@` for `$`, which scripts use a lot."""

    delimiter = "@@"


def _step(step: Traced) -> dict[str, Any]:
    """A step as data for the page. Times are in seconds, null at the ends of time; a moment is (event, clock)."""
    return {
        "label": visible(step.label),
        "where": step.where,
        "facts": step.facts,
        "bounded": step.bounded,
        "merging": step.merging,
        "keys": step.keys,
        "counts": step.counts,
        "every": step.every,
        "arrivals": _rows((*_at(a.at), a.key, _time(a.timestamp), a.value, a.standing) for a in step.arrivals),
        "windows": _rows(
            (w.key, w.name, _time(w.start), _time(w.end), *_at(w.opened), *_at(w.closed), w.into) for w in step.windows
        ),
        "firings": _rows(
            (
                *_at(f.at),
                f.key,
                f.value,
                _time(f.timestamp),
                f.window,
                f.name,
                _time(f.start),
                _time(f.end),
                f.timing,
                f.index,
                f.nonspeculative_index,
                f.is_first,
                f.is_last,
            )
            for f in step.firings
        ),
        "watermark": _rows((*_at(at), _time(micros)) for at, micros in step.watermark),
    }


def _rows(rows: Iterable[Iterable[Any]]) -> list[list[Any]]:
    return [list(row) for row in rows]


def _at(moment: Moment | None) -> tuple[int | None, float | None]:
    return (None, None) if moment is None else (moment.event, moment.clock / SECOND)


def _time(micros: int | None) -> float | None:
    """Seconds since 1970."""
    if micros is None or micros <= MIN_MICROS or micros >= MAX_MICROS - 1:
        return None
    return micros / SECOND
