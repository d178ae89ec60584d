"""Which nodes are run even if nothing reads their results."""

from __future__ import annotations

from tidegate.sdk.portable.model import Feedback, Iterate, Node, ParDo, Write


def has_effects(node: Node) -> bool:
    """Whether a node writes, or the author's functions in it may do something besides computing its results."""
    match node:
        case ParDo(pure=pure):
            return not pure
        case _:
            return isinstance(node, (Write, Iterate, Feedback))
