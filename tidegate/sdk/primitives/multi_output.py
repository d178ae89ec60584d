"""The outputs of a step that has several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection


class MultiOutput:
    """The outputs of a step with several: `out.tag` or `out["tag"]`; iteration begins with the main one."""

    def __init__(self, outputs: dict[str, PCollection[Any]]) -> None:
        self._outputs = outputs

    def __getattr__(self, tag: str) -> PCollection[Any]:
        if tag.startswith("__"):
            raise AttributeError(tag)
        return self[tag]

    def __getitem__(self, tag: str | None) -> PCollection[Any]:
        if tag is None:
            return next(iter(self._outputs.values()))
        try:
            return self._outputs[tag]
        except KeyError:
            raise BuildError(f"the step has no output {tag!r}; it has: {', '.join(self._outputs)}") from None

    def __iter__(self) -> Iterator[PCollection[Any]]:
        return iter(self._outputs.values())

    def __repr__(self) -> str:
        return f"MultiOutput({', '.join(self._outputs)})"
