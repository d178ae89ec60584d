"""The checks of elements and results in generated loops, for `--checks` and for runtime type checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidegate.runners.engine.checks import contracts
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.errors.attribution import located, rethrow
from tidegate.runners.engine.operator import Context
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import CheckError, shorten
from tidegate.sdk.typehints.compatibility import matches
from tidegate.sdk.typehints.hints import type_name

_FEW: Final = 16


class ResultChecks:
    """The checks of one chain: functions must not change elements that they receive or have emitted, and their results
    must match their annotations."""

    def __init__(self, links: tuple[Link, ...], context: Context) -> None:
        self._links = links
        self._checks = context.checks
        self._emitted = [contracts.EmittedElements() for _ in links] if context.checks is not None else []
        self._seen = self._blocks = 0

    def environment(self) -> dict[str, Any]:
        """The names that generated code uses."""
        return {
            "track_result": self._track_result,
            "track": self.track,
            "track_next": self._track_next,
            "verify_tracked": self.verify_tracked,
            "snapshot": contracts.snapshot,
            "typed": self.typed,
            "unchanged": self._unchanged,
            "checked_results": self._checked_results,
        }

    def sampled(self, block: Block) -> Iterator[tuple[Block, bool]]:
        """The block in parts: the elements to be checked, and the others. True marks the former.

        A step's first few elements are a part of their own: the loop for the others is written for what they have
        shown, such as results with timestamps.
        """
        few = _FEW if self._blocks == 0 else 0
        self._blocks += 1
        n = 0 if self._checks is None else self._checks.elements_to_check(self._seen, self._blocks, len(block))
        self._seen += len(block)
        if n > few > 0:
            yield block.slice(0, few), True
            yield block.slice(few, n), True
        elif n:
            yield block.slice(0, n), True
        if n < len(block):
            yield block.slice(n, len(block)) if n else block, False

    def track(self, k: int, results: Any, element: Any) -> Any:
        """The results; `verify_tracked` raises if one of them has changed since it was emitted."""
        return self._emitted[k].track(results, element) if self._emitted and hasattr(results, "__iter__") else results

    def verify_tracked(self, k: int) -> None:
        """Check the results of an element, after link `k` has emitted all of them."""
        if self._emitted:
            self._emitted[k].verify_new()

    def typed(self, k: int, result: Any) -> None:
        """Raise CheckError for a result that does not match the annotation of link `k`."""
        hint = self._links[k].hint
        if not matches(result, hint):
            raise CheckError(f"the step returned {shorten(result)}, but its annotation says {type_name(hint)}")

    def verify(self) -> None:
        """Raise CheckError if an element that was emitted in this bundle has been changed since."""
        for link, given in zip(self._links, self._emitted, strict=False):
            try:
                given.verify()
            except CheckError as error:
                rethrow(located(error, link.label, link.where))

    def _unchanged(self, k: int, before: bytes | None, element: Any) -> None:
        if contracts.changed(before, element):
            raise contracts.mutated(before, element, "the element was")

    def _checked_results(self, k: int, results: Any, before: bytes | None, element: Any) -> Any:
        """The results; after the last, raises CheckError if the element or one of the results has been changed."""
        if not hasattr(results, "__iter__"):
            return results

        def checked() -> Iterator[Any]:
            yield from self._emitted[k].track(results, element)
            self._unchanged(k, before, element)
            self._emitted[k].verify_new()

        return checked()

    def _track_next(self, k: int, number: int, result: Any, element: Any) -> None:
        self._emitted[k].track_next(number, result, element)

    def _track_result(self, k: int, result: Any, element: Any) -> None:
        if result is not element:
            self._emitted[k].track_only(result)
