"""A recorded run: what was seen of each of its steps, and the page that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.testing.trace.model import Traced

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run: its groupings and stateful steps, in the pipeline's order. `error` is what it failed with."""

    name: str
    steps: tuple[Traced, ...]
    error: str | None = None

    def step(self, label: str) -> Traced:
        """The step of that label path, or whose path ends so. KeyError, with those there are, if there is none."""
        for step in self.steps:
            if step.label == label or step.label.endswith("/" + label):
                return step
        raise KeyError(f"no traced step {label!r}; there are: {', '.join(step.label for step in self.steps) or 'none'}")

    def __repr__(self) -> str:
        steps = ", ".join(repr(step.label) for step in self.steps) or "nothing"
        return f"<Trace of {self.name!r}: {steps}{f'; failed: {self.error}' if self.error else ''}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f'<iframe style="width: 100%; height: 640px; border: 0" srcdoc="{escape(self.html())}"></iframe>'

    def html(self) -> str:
        """The picture, as a page that needs nothing else."""
        from tidegate.testing.trace.page import page

        return page(self.name, self.steps, self.error)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file."""
        from pathlib import Path

        Path(path).write_text(self.html(), encoding="utf-8")
