"""The checks of elements and results that generated loops make where `--checks` or runtime types ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.runners.engine.checks import contracts
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.errors.attribution import located, rethrow
from tidegate.runners.engine.operator import Context
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import CheckError, shorten
from tidegate.sdk.typehints.compatibility import matches
from tidegate.sdk.typehints.hints import type_name


class ResultChecks:
    """The checks of one chain of links: authors' functions must not change elements that they receive or have emitted,
    and results must match their annotation."""

    def __init__(self, links: tuple[Link, ...], context: Context) -> None:
        self._links = links
        self._checks = context.checks
        self._given = [contracts.EmittedElements() for _ in links] if context.checks is not None else []
        self._seen = self._blocks = 0

    def environment(self) -> dict[str, Any]:
        """The names that generated code uses."""
        return {
            "gave": self._gave,
            "held": self.held,
            "settled": self.settled,
            "snapshot": contracts.snapshot,
            "typed": self.typed,
            "unchanged": self._unchanged,
            "watched": self._watched,
        }

    def sampled(self, block: Block) -> Iterator[tuple[Block, bool]]:
        """A block's elements, those to be checked before the others."""
        self._blocks += 1
        n = 0 if self._checks is None else self._checks.elements_to_check(self._seen, self._blocks, len(block))
        self._seen += len(block)
        if n:
            yield block.slice(0, n), True
        if n < len(block):
            yield block.slice(n, len(block)) if n else block, False

    def held(self, k: int, results: Any, element: Any) -> Any:
        """The results, compared with what they were once all of them have been emitted (`settled`)."""
        return self._given[k].track(results, element) if self._given and hasattr(results, "__iter__") else results

    def settled(self, k: int) -> None:
        """Link `k` has emitted all results of an element."""
        if self._given:
            self._given[k].verify_new()

    def typed(self, k: int, made: Any) -> None:
        """Raise CheckError for a result that does not match the annotation of link `k`."""
        hint = self._links[k].hint
        if not matches(made, hint):
            raise CheckError(f"the step gave {shorten(made)}, which is no {type_name(hint)}, as its annotation says")

    def verify(self) -> None:
        """At the end of a bundle: raise CheckError if an element that was emitted in it has been changed since."""
        for link, given in zip(self._links, self._given, strict=False):
            try:
                given.verify()
            except CheckError as error:
                rethrow(located(error, link.label, link.where))

    def _unchanged(self, k: int, before: bytes | None, element: Any) -> None:
        if contracts.changed(before, element):
            raise contracts.mutated(before, element, "the element was")

    def _watched(self, k: int, results: Any, before: bytes | None, element: Any) -> Any:
        """The results; after the last, a CheckError if making them has changed the element, or one of them."""
        if not hasattr(results, "__iter__"):
            return results

        def watched() -> Iterator[Any]:
            yield from self._given[k].track(results, element)
            self._unchanged(k, before, element)
            self._given[k].verify_new()

        return watched()

    def _gave(self, k: int, made: Any, element: Any) -> None:
        if made is not element:
            self._given[k].track_only(made)
