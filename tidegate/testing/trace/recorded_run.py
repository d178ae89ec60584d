"""Trace: the records of a run's steps, and the page that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.testing.trace.model import Traced

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run: its groupings and stateful steps, in the pipeline's order, and its `error` if it failed."""

    name: str
    steps: tuple[Traced, ...]
    error: str | None = None

    def step(self, label: str) -> Traced:
        """The step whose label path is `label` or ends in `/label`. Raises KeyError, listing the steps, if none is."""
        for step in self.steps:
            if step.label == label or step.label.endswith("/" + label):
                return step
        traced = ", ".join(step.label for step in self.steps) or "none"
        raise KeyError(f"no traced step {label!r}; the traced steps are: {traced}")

    def __repr__(self) -> str:
        steps = ", ".join(repr(step.label) for step in self.steps) or "nothing"
        return f"<Trace of {self.name!r}: {steps}{f'; failed: {self.error}' if self.error else ''}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f'<iframe style="width: 100%; height: 640px; border: 0" srcdoc="{escape(self.html())}"></iframe>'

    def html(self) -> str:
        """The picture, as a self-contained page."""
        from tidegate.testing.trace.page import page

        return page(self.name, self.steps, self.error)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file."""
        from pathlib import Path

        Path(path).write_text(self.html(), encoding="utf-8")
