"""Joins of tables in windows: whether conditions equate the windows of all, so that rows are joined in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.sdk.relational.expressions import Call, Column, Tree
from tidegate.sql.planning.context import Context
from tidegate.sql.planning.sources import Source
from tidegate.sql.steps.relation import ROLES
from tidegate.sql.steps.rows import in_global_window


def settle_windows(
    sources: Sequence[Source], conditions: list[Tree], ons: Mapping[int, list[Tree]], context: Context
) -> None:
    """Let tables whose windows the conditions equate be joined in their windows, and move others to the global one.

    The equations are removed: rows of one window have its bounds.
    """
    roles = {source.fields[c.field]: (k, c.role) for k, source in enumerate(sources) for c in source.relation.columns}
    equal: dict[str, list[set[int]]] = {role: [{k} for k in range(len(sources))] for role in ROLES}
    found: list[tuple[list[Tree], Tree]] = []
    for number, trees in [(None, conditions), *ons.items()]:
        for tree in trees:
            match tree:
                case Call(operation="equal", arguments=(Column(name=one), Column(name=two))):
                    (a, first), (b, second) = roles.get(one, (-1, None)), roles.get(two, (-1, None))
                    if first is None or first != second or a == b or not _selects(sources, number, (a, b)):
                        continue
                    found.append((trees, tree))
                    groups = equal[first]
                    together = {k for each in groups if a in each or b in each for k in each}
                    equal[first] = [each for each in groups if not each & together] + [together]
    windowed = [k for k, each in enumerate(sources) if each.relation.windows != "none"]
    in_windows = bool(found) and all(
        any(set(windowed) <= group for group in equal[role]) for role in ("window_start", "window_end")
    )
    only_one = len(windowed) == 1 and _can_stay(sources, windowed[0])
    if in_windows:
        for trees, tree in found:
            trees.remove(tree)
        return
    if only_one or all(sources[k].relation.windows == "author" for k in windowed):
        return
    for k in windowed:
        relation = sources[k].relation
        if not relation.rows.is_bounded:
            raise context.refusal(
                "this join of windows would have to update its results: add ON l.window_start = r.window_start AND "
                "l.window_end = r.window_end, for all such tables, l being one that no outer join pads with NULLs",
                sources[k].node,
            )
        if relation.windows == "session":
            raise context.refusal("sessions are joined after they are grouped: write a subquery", sources[k].node)
        sources[k].relation = in_global_window(relation, context.labels(f"Rows of {sources[k].alias}"))


def _selects(sources: Sequence[Source], number: int | None, pair: tuple[int, int]) -> bool:
    """Whether an equation of two tables' windows, of WHERE or of the join with a number, keeps just rows of one window.

    It doesn't if it finds rows that a join has padded with NULLs, or if it is of an outer join with a third table.
    """
    if number is not None and sources[number].kind != "inner" and number not in pair:
        return False
    before = len(sources) if number is None else number
    for k in pair:
        padded = sources[k].kind in ("left", "full") or any(
            each.kind in ("right", "full") for each in sources[k + 1 : before]
        )
        if k != number and padded:
            return False
    return True


def _can_stay(sources: Sequence[Source], at: int) -> bool:
    """Whether the only windowed table keeps its windows: it is the first, and others are looked up for its rows."""
    others = [each for k, each in enumerate(sources) if k != at]
    return at == 0 and all(each.relation.rows.is_bounded and each.kind in ("inner", "left") for each in others)
