"""Layered layout of a graph: the members of each group are arranged in rows from top to bottom.

Members are assigned to rows so that links point down. Where a link passes a row, a *lane* reserves space for it among
the row's members. Rows are centred. Sizes are added by the browser or by `svg.py`; collapsing a group changes no rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tidegate.sdk.drawing.graph import Box, Graph, Group

SWEEPS: Final = 8


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a row: a box, a group, or a lane, whose `id` includes the link it belongs to."""

    kind: Literal["box", "group", "lane"]
    id: str


@dataclass(frozen=True, slots=True)
class Layout:
    """`rows` by group id ("" is the picture), and `ways`: for each link the ids of its lanes, in order."""

    rows: dict[str, list[list[Member]]]
    ways: tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class _Level:
    """A group being laid out: its members, and the links between them, each with the link's number.

    `outward` are the links that leave the group from a member, `inward` those that enter it to a member.
    """

    members: list[Member] = field(default_factory=list)
    links: list[tuple[Member, Member, int]] = field(default_factory=list)
    outward: list[tuple[Member, int]] = field(default_factory=list)
    inward: list[tuple[Member, int]] = field(default_factory=list)


def layout(graph: Graph) -> Layout:
    """The layout of a graph."""
    levels = _levels(graph)
    depth = {"": 0}
    for group in graph.groups:
        depth[group.id] = depth[group.parent] + 1
    rows: dict[str, list[list[Member]]] = {}
    lanes: _Lanes = [[] for _ in graph.links]
    for id, level in levels.items():
        rows[id] = _rows(level, id, depth[id], lanes)
    # Lanes were recorded group by group: a link first passes those on its way out, then those across, then those in.
    return Layout(rows, tuple(tuple(id for *_, id in sorted(passed)) for passed in lanes))


_Lanes: TypeAlias = list[list[tuple[int, int, int, str]]]
"""The lanes of each link: outward (0), across (1) or inward (2); the depth; the row; and the lane's id."""


def _levels(graph: Graph) -> dict[str, _Level]:
    groups = {group.id: group for group in graph.groups}
    boxes = {box.id: box for box in graph.boxes}
    levels = {"": _Level()} | {group.id: _Level() for group in graph.groups}
    # Members are in the order of their first boxes.
    placed: set[str] = set()
    for box in graph.boxes:
        for outer, inner in reversed(list(_ascent(box, groups))):
            if inner.id + inner.kind not in placed:
                placed.add(inner.id + inner.kind)
                levels[outer].members.append(inner)
    for number, link in enumerate(graph.links):
        up = list(_ascent(boxes[link.source], groups))
        down = list(_ascent(boxes[link.target], groups))
        shared = next(outer for outer, _ in up if any(outer == other for other, _ in down))
        for outer, inner in up:
            if outer == shared:
                source = inner
                break
            levels[outer].outward.append((inner, number))
        for outer, inner in down:
            if outer == shared:
                levels[shared].links.append((source, inner, number))
                break
            levels[outer].inward.append((inner, number))
    return levels


def _ascent(box: Box, groups: dict[str, Group]) -> list[tuple[str, Member]]:
    """Pairs of a group and its member that contains the box, from the innermost group outwards."""
    steps = [(box.group, Member("box", box.id))]
    while steps[-1][0]:
        inner = steps[-1][0]
        steps.append((groups[inner].parent, Member("group", inner)))
    return steps


def _rows(level: _Level, id: str, depth: int, lanes: _Lanes) -> list[list[Member]]:
    rank = _ranks(level)
    last = max(rank.values(), default=0)
    rows: list[list[Member]] = [[] for _ in range(last + 1)]
    for member in level.members:
        rows[rank[member]].append(member)
    neighbours: list[tuple[Member, Member]] = []

    def way(
        number: int, leg: tuple[int, int], through: range, ends: tuple[Member | None, Member | None], name: str
    ) -> None:
        before, end = ends
        for row in through:
            lane = Member("lane", f"{id}|{name}|{row}")
            if lane not in rows[row]:
                rows[row].append(lane)
            if before is not None:
                neighbours.append((before, lane))
            before = lane
            lanes[number].append((*leg, row, lane.id))
        if before is not None and end is not None:
            neighbours.append((before, end))

    for source, target, number in level.links:
        way(number, (1, 0), range(rank[source] + 1, rank[target]), (source, target), f"link{number}")
    for source, number in level.outward:
        way(number, (0, -depth), range(rank[source] + 1, last + 1), (source, None), f"out{source.id}")
    for target, number in level.inward:
        way(number, (2, depth), range(rank[target]), (None, target), f"in{number}")
    _order(rows, neighbours)
    return rows


def _ranks(level: _Level) -> dict[Member, int]:
    """The row of each member: below all members it reads from; sources directly above their first reader.

    Links between groups may form a cycle; links back are ignored.
    """
    after: dict[Member, list[Member]] = {member: [] for member in level.members}
    for source, target, _ in level.links:
        if source != target and target not in after[source]:
            after[source].append(target)
    rank: dict[Member, int] = {}
    order: list[Member] = []
    open_: set[Member] = set()
    for start in level.members:
        stack = [(start, iter(after[start]))]
        if start in rank:
            continue
        rank[start] = 0
        open_.add(start)
        while stack:
            member, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                open_.discard(member)
                order.append(member)
            elif following in open_:
                after[member] = [other for other in after[member] if other != following]
            elif following not in rank:
                rank[following] = 0
                open_.add(following)
                stack.append((following, iter(after[following])))
    order.reverse()
    for member in order:
        for following in after[member]:
            rank[following] = max(rank[following], rank[member] + 1)
    entered = {target for _, target, _ in level.links} | {target for target, _ in level.inward}
    for member in reversed(order):
        if member not in entered and after[member]:
            rank[member] = min(rank[following] for following in after[member]) - 1
    return rank


def _order(rows: list[list[Member]], neighbours: list[tuple[Member, Member]]) -> None:
    """Order each row by the positions of its members' neighbours, sweeping down and up alternately: the barycentre
    heuristic of Sugiyama, Tagawa and Toda (1981)."""
    above: dict[Member, list[Member]] = {}
    below: dict[Member, list[Member]] = {}
    for upper, lower in neighbours:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    place: dict[Member, float] = {}

    def set_places(row: list[Member]) -> None:
        place.update((member, (i + 0.5) / len(row)) for i, member in enumerate(row))

    for row in rows:
        set_places(row)
    for sweep in range(SWEEPS):
        near, ordered = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in ordered:
            means = {member: [place[other] for other in near.get(member, [member])] for member in row}
            row.sort(key=lambda member: sum(means[member]) / len(means[member]))
            set_places(row)
