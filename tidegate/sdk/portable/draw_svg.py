"""A Graph as an SVG picture, laid out here: no other program is needed to make it or to look at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from tidegate.sdk.portable.draw import COLOURS, Box, Graph, Group, readable
from tidegate.sdk.portable.draw_layout import Layout, Member, layout

Point: TypeAlias = tuple[float, float]

BOX_WIDTH: Final = 168
"""The least; boxes of one width stand in columns."""
BOX_HEIGHT: Final = 44
LANE_WIDTH: Final = 14
COLUMN_GAP: Final = 26
ROW_GAP: Final = 46
PADDING: Final = 18
TITLE_HEIGHT: Final = 26
LETTER_WIDTH: Final = 7.9
"""About that of the titles' letters; where fonts differ, boxes are a little wide."""
BOLD: Final = 1.08
"""How much wider a heading's letters are."""
LONGEST: Final = 44

_STYLE: Final = """
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1d2733 }
.note, .tag { font-size: 11px; fill: #5b6775 } .heading { font-weight: 600; fill: #435061 }
.page, .heading-back { fill: #fbfcfe }
.box rect { fill: #fff; stroke: #cfd7e2 } .frame rect { fill: #5b6f8a; fill-opacity: .06;
stroke: #b7c2d0; stroke-dasharray: 5 4 } .frame.stage rect { stroke-dasharray: none } .frame.region rect {
stroke-dasharray: none; stroke: #8fa3bd; stroke-width: 1.5 } .link { fill: none; stroke: #8895a7; stroke-width: 1.5 }
.link.bold { stroke: #d9822b; stroke-width: 3 } .link.dashed { stroke-dasharray: 5 4 } .tag-back { fill: #fbfcfe;
fill-opacity: .92; stroke: #cfd7e2 } .head { fill: #8895a7 } .head.bold { fill: #d9822b }
@media (prefers-color-scheme: dark) { text { fill: #e3e9f1 } .note, .tag { fill: #9fadbd } .heading { fill: #b9c6d6 }
.page, .heading-back { fill: #12171e }
.box rect { fill: #1b222c; stroke: #364252 } .frame rect { fill: #9db4d4; stroke: #46566a }
.frame.region rect { stroke: #64788f } .link { stroke: #73839a } .head { fill: #73839a } .tag-back { fill: #12171e;
stroke: #364252 } }
""".replace("\n", " ")


def svg(graph: Graph) -> str:
    """The picture, with light and dark colours; facts stand in `<title>`s, which viewers show as tooltips."""
    graph = readable(graph)
    page = _Page(graph, layout(graph))
    width, height = page.size("")
    page.put("", (0, 0), (width, height))
    parts = [page.frame(group) for group in graph.groups]
    parts += page.links()
    parts += [page.title(group) for group in graph.groups]
    parts += [page.box(box) for box in graph.boxes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(graph.title)}">'
        f'<style>{_STYLE}</style><rect class="page" width="100%" height="100%"/>{"".join(parts)}</svg>\n'
    )


@dataclass(frozen=True, slots=True)
class _Area:
    x: float
    y: float
    width: float
    height: float


class _Page:
    def __init__(self, graph: Graph, plan: Layout) -> None:
        self.graph = graph
        self.plan = plan
        self.boxes = {box.id: box for box in graph.boxes}
        self.groups = {group.id: group for group in graph.groups}
        self.areas: dict[tuple[str, str], _Area] = {}
        self.row_ends: dict[tuple[str, str], tuple[float, float]] = {}

    def size(self, group: str) -> Point:
        """Width and height of a group with all that is in it."""
        rows = [[self._member_size(member) for member in row] for row in self.plan.rows[group]]
        widths = [sum(w for w, _ in row) + COLUMN_GAP * (len(row) - 1) for row in rows]
        heights = [max((h for _, h in row), default=0) for row in rows]
        title = TITLE_HEIGHT if group else 0
        least = _text_width(self.groups[group].title) * BOLD if group else 0
        return (
            max([*widths, least]) + 2 * PADDING,
            sum(heights) + ROW_GAP * (len(rows) - 1) + 2 * PADDING + title,
        )

    def put(self, group: str, at: Point, size: Point) -> None:
        """Give everything in a group its place, the group's corner being at `at`."""
        top = at[1] + PADDING + (TITLE_HEIGHT if group else 0)
        for row in self.plan.rows[group]:
            sizes = [self._member_size(member) for member in row]
            left = at[0] + (size[0] - sum(w for w, _ in sizes) - COLUMN_GAP * (len(row) - 1)) / 2
            height = max((h for _, h in sizes), default=0)
            for member, (w, h) in zip(row, sizes, strict=True):
                drop = 0 if member.kind == "lane" else (height - h) / 2
                self.areas[member.kind, member.id] = _Area(left, top + drop, w, height if member.kind == "lane" else h)
                self.row_ends[member.kind, member.id] = top, top + height
                if member.kind == "group":
                    self.put(member.id, (left, top + drop), (w, h))
                left += w + COLUMN_GAP
            top += height + ROW_GAP

    def _member_size(self, member: Member) -> Point:
        match member.kind:
            case "box":
                box = self.boxes[member.id]
                return max(_text_width(box.title) + 30, _text_width(box.note) * 0.86 + 30, BOX_WIDTH), BOX_HEIGHT
            case "group":
                return self.size(member.id)
            case "lane":
                return LANE_WIDTH, 0

    def frame(self, group: Group) -> str:
        a = self.areas["group", group.id]
        return (
            f'<g class="frame {group.kind}"><rect x="{a.x:.1f}" y="{a.y:.1f}" width="{a.width:.1f}" '
            f'height="{a.height:.1f}" rx="12"/></g>'
        )

    def title(self, group: Group) -> str:
        """Above the links, one of which may pass behind it."""
        a = self.areas["group", group.id]
        x, y, width = a.x + 7, a.y + 6, _text_width(group.title) * BOLD + 14
        return (
            f'<rect class="heading-back" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="20" rx="6"/>'
            f'<text class="heading" x="{x + 7:.1f}" y="{y + 14:.1f}">{_fit(group.title)}</text>'
        )

    def box(self, box: Box) -> str:
        a = self.areas["box", box.id]
        facts = "\n".join(f"{name}: {value}" for name, value in box.facts)
        x, middle = a.x + 16, a.y + a.height / 2
        note = f'<text class="note" x="{x:.1f}" y="{middle + 14:.1f}">{_fit(box.note)}</text>' if box.note else ""
        return (
            f'<g class="box"><title>{escape(facts)}</title><rect x="{a.x:.1f}" y="{a.y:.1f}" width="{a.width:.1f}" '
            f'height="{a.height:.1f}" rx="8"/><path d="M{a.x + 5:.1f} {a.y + 9:.1f}v{a.height - 18:.1f}" '
            f'stroke="{COLOURS[box.look]}" stroke-width="4" stroke-linecap="round"/>'
            f'<text x="{x:.1f}" y="{middle + (-2 if note else 4.5):.1f}">{_fit(box.title)}</text>{note}</g>'
        )

    def links(self) -> list[str]:
        """All links, below the boxes; those that share an end are spread along it in the order of where they go."""
        leaving, coming = self._ports("source", "target"), self._ports("target", "source")
        lines, tags = [], []
        for number, link in enumerate(self.graph.links):
            source, target = self.areas["box", link.source], self.areas["box", link.target]
            start, stop = (leaving[number], source.y + source.height), (coming[number], target.y - 7)
            points = self._waypoints(number, start, stop)
            look = "link" + (" bold" if link.bold else "") + (" dashed" if link.dashed else "")
            x, y = points[-1]
            lines.append(
                f'<path class="{look}" d="{curve(points)}"/>'
                f'<path class="{look.replace("link", "head")}" d="M{x - 5:.1f} {y - 2:.1f}l5 9 5-9z"/>'
            )
            if link.label:
                tags.append(_tag(link.label, self._open_stretch(number, points)))
        return lines + tags

    def _waypoints(self, number: int, start: Point, stop: Point) -> list[Point]:
        """Where a link passes: through its lanes, and straight down to the end of its row before it turns, so that it
        does not cut through a taller neighbour; in the same way from the top of the target's row."""
        link = self.graph.links[number]
        passed: list[tuple[float, float | Literal["before", "after"]]] = []
        if start[1] < stop[1]:
            up, down = self._held_by(link.source), self._held_by(link.target)
            shared = next(group for group, _ in up if any(group == other for other, _ in down))
            passed += [(self.row_ends[member][1], "before") for member in _until(up, shared)]
            passed += [(self.row_ends[member][0], "after") for member in _until(down, shared)]
        for lane in self.plan.ways[number]:
            area = self.areas["lane", lane]
            passed += [(area.y, area.x + area.width / 2), (area.y + area.height, area.x + area.width / 2)]
        passed = sorted(((y, x) for y, x in passed if start[1] + 2 < y < stop[1] - 2), key=lambda point: point[0])
        points = [(stop[1], stop[0])]
        for y, x in reversed(passed):
            points.append((y, points[-1][1] if x == "after" else x))  # type: ignore[arg-type]
        points.append((start[1], start[0]))
        way: list[Point] = []
        for y, x in reversed(points):
            way.append((way[-1][0] if isinstance(x, str) else x, y))
        return way

    def _open_stretch(self, number: int, points: list[Point]) -> tuple[Point, Point]:
        """The last stretch of a link's way before it enters a group, whose title stands there."""
        held = [group for group, _ in self._held_by(self.graph.links[number].source)]
        entered = [group for group, _ in self._held_by(self.graph.links[number].target) if group not in held]
        top = self.areas["group", entered[-1]].y if entered else points[-1][1]
        stretches = list(pairwise(points))
        return next((stretch for stretch in reversed(stretches) if stretch[1][1] <= top), stretches[-1])

    def _held_by(self, box: str) -> list[tuple[str, tuple[str, str]]]:
        """(group, the member of it that holds the box), from the innermost group outwards."""
        held = [(self.boxes[box].group, ("box", box))]
        while held[-1][0]:
            group = held[-1][0]
            held.append((self.groups[group].parent, ("group", group)))
        return held

    def _ports(self, end: str, other: str) -> dict[int, float]:
        ports: dict[int, float] = {}
        for box in self.graph.boxes:
            here = [number for number, link in enumerate(self.graph.links) if getattr(link, end) == box.id]
            here.sort(key=lambda number: self._towards(number, getattr(self.graph.links[number], other), end))
            area = self.areas["box", box.id]
            for i, number in enumerate(here):
                ports[number] = area.x + area.width * (i + 1) / (len(here) + 1)
        return ports

    def _towards(self, number: int, other: str, end: str) -> float:
        way = self.plan.ways[number]
        area = self.areas["lane", way[0 if end == "source" else -1]] if way else self.areas["box", other]
        return area.x + area.width / 2


def curve(points: list[Point]) -> str:
    """A path that leaves every point downwards and comes to the next from above."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (nx, ny) in pairwise(points):
        bend = max(abs(ny - y) / 2, 12)
        path += f"C{x:.1f} {y + bend:.1f} {nx:.1f} {ny - bend:.1f} {nx:.1f} {ny:.1f}"
    return path


def _until(held: list[tuple[str, tuple[str, str]]], shared: str) -> Iterator[tuple[str, str]]:
    for group, member in held:
        yield member
        if group == shared:
            return


def _tag(label: str, stretch: tuple[Point, Point]) -> str:
    (x, y), (nx, ny) = stretch
    x, y, width = (x + nx) / 2, (y + ny) / 2, _text_width(label) * 0.86 + 14
    return (
        f'<rect class="tag-back" x="{x - width / 2:.1f}" y="{y - 10:.1f}" width="{width:.1f}" height="19" rx="9.5"/>'
        f'<text class="tag" x="{x:.1f}" y="{y + 3.5:.1f}" text-anchor="middle">{_fit(label)}</text>'
    )


def _text_width(text: str) -> float:
    return min(len(text), LONGEST) * LETTER_WIDTH


def _fit(text: str) -> str:
    return escape(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")
