"""A Graph as a self-contained SVG picture, drawn without other programs."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import Final, Literal

from tidegate.sdk.drawing.graph import COLOURS, Box, Graph, Group, readable
from tidegate.sdk.drawing.labels import BOLD, SMALL, Area, Point, Tags, curve, fitted, tag_width, text_width
from tidegate.sdk.drawing.layout import Layout, Member, layout

BOX_WIDTH: Final = 168
"""The minimum width, which most boxes have, so that they line up in columns."""
BOX_HEIGHT: Final = 44
LANE_WIDTH: Final = 14
COLUMN_GAP: Final = 26
ROW_GAPS: Final = (46, 76, 126, 206, 336)
"""Gaps between rows; the first that has room for the labels of all links on their curves is used."""
PADDING: Final = 18
TITLE_HEIGHT: Final = 26

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
    """The picture, with light and dark colours; facts are `<title>` elements, which viewers show as tooltips."""
    graph = readable(graph)
    plan = layout(graph)
    for gap in ROW_GAPS:
        page = _Page(graph, plan, gap)
        width, height = page.size("")
        page.put("", (0, 0), (width, height))
        if page.label(width, anywhere=gap == ROW_GAPS[-1]):
            break
    height = max([height, *(tag.y + tag.height + PADDING for tag in page.tags.values())])
    parts = [page.frame(group) for group in graph.groups]
    parts += page.links()
    parts += [page.title(group) for group in graph.groups]
    parts += [_tag(graph.links[number].label, area) for number, area in page.tags.items()]
    parts += [page.box(box) for box in graph.boxes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(graph.title)}">'
        f'<style>{_STYLE}</style><rect class="page" width="100%" height="100%"/>{"".join(parts)}</svg>\n'
    )


class _Page:
    def __init__(self, graph: Graph, plan: Layout, gap: float) -> None:
        self.graph = graph
        self.plan = plan
        self.gap = gap
        self.boxes = {box.id: box for box in graph.boxes}
        self.groups = {group.id: group for group in graph.groups}
        self.areas: dict[tuple[str, str], Area] = {}
        self.row_ends: dict[tuple[str, str], tuple[float, float]] = {}
        self.tags: dict[int, Area] = {}
        self.min_widths = self._min_widths()

    def _min_widths(self) -> dict[str, float]:
        """The width of the widest label of a link that may be placed in each group."""
        widths: dict[str, float] = {}
        for link in self.graph.links:
            if link.label:
                for group, _ in (*self._ancestors(link.source), *self._ancestors(link.target)):
                    widths[group] = max(widths.get(group, 0.0), tag_width(link.label))
        return widths

    def size(self, group: str) -> Point:
        """Width and height of a group with its contents."""
        rows = [[self._member_size(member) for member in row] for row in self.plan.rows[group]]
        widths = [sum(w for w, _ in row) + COLUMN_GAP * (len(row) - 1) for row in rows]
        heights = [max((h for _, h in row), default=0) for row in rows]
        title = TITLE_HEIGHT if group else 0
        title_width = text_width(self.groups[group].title) * BOLD if group else 0
        return (
            max([*widths, title_width, self.min_widths.get(group, 0)]) + 2 * PADDING,
            sum(heights) + self.gap * (len(rows) - 1) + 2 * PADDING + title,
        )

    def put(self, group: str, at: Point, size: Point) -> None:
        """Place everything in a group whose upper left corner is at `at`."""
        top = at[1] + PADDING + (TITLE_HEIGHT if group else 0)
        for row in self.plan.rows[group]:
            sizes = [self._member_size(member) for member in row]
            left = at[0] + (size[0] - sum(w for w, _ in sizes) - COLUMN_GAP * (len(row) - 1)) / 2
            height = max((h for _, h in sizes), default=0)
            for member, (w, h) in zip(row, sizes, strict=True):
                drop = 0 if member.kind == "lane" else (height - h) / 2
                self.areas[member.kind, member.id] = Area(left, top + drop, w, height if member.kind == "lane" else h)
                self.row_ends[member.kind, member.id] = top, top + height
                if member.kind == "group":
                    self.put(member.id, (left, top + drop), (w, h))
                left += w + COLUMN_GAP
            top += height + self.gap

    def _member_size(self, member: Member) -> Point:
        match member.kind:
            case "box":
                box = self.boxes[member.id]
                return max(text_width(box.title) + 30, text_width(box.note, SMALL) + 30, BOX_WIDTH), BOX_HEIGHT
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
        """A group's title, drawn over links that pass behind it."""
        a = self._heading(group)
        return (
            f'<rect class="heading-back" x="{a.x:.1f}" y="{a.y:.1f}" width="{a.width:.1f}" height="{a.height:.0f}" '
            f'rx="6"/><text class="heading" x="{a.x + 7:.1f}" y="{a.y + 14:.1f}">{_fit(group.title)}</text>'
        )

    def _heading(self, group: Group) -> Area:
        a = self.areas["group", group.id]
        return Area(a.x + 7, a.y + 6, text_width(group.title) * BOLD + 14, 20)

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
        """All links, drawn below the boxes; those that share an end are spread along it in the order of their
        targets."""
        lines = []
        for link, points in zip(self.graph.links, self._ways(), strict=True):
            look = "link" + (" bold" if link.bold else "") + (" dashed" if link.dashed else "")
            x, y = points[-1]
            lines.append(
                f'<path class="{look}" d="{curve(points)}"/>'
                f'<path class="{look.replace("link", "head")}" d="M{x - 5:.1f} {y - 2:.1f}l5 9 5-9z"/>'
            )
        return lines

    def label(self, width: float, *, anywhere: bool) -> bool:
        """Place the labels of links, in `tags`. False if a label finds no place on its link, and may not be placed
        `anywhere` else."""
        boxes = [area for (kind, _), area in self.areas.items() if kind == "box"]
        tags = Tags([*boxes, *map(self._heading, self.graph.groups)], width)
        for number, (link, points) in enumerate(zip(self.graph.links, self._ways(), strict=True)):
            if link.label:
                (x, y), (nx, ny) = self._open_segment(number, points)
                wanted = (x + nx) / 2, (y + ny) / 2
                place = tags.on_link(link.label, points, wanted)
                if place is None and anywhere:
                    place = tags.anywhere(link.label, wanted)
                if place is None:
                    return False
                self.tags[number] = place
        return True

    def _ways(self) -> list[list[Point]]:
        """The points on the path of each link."""
        leaving, coming = self._ports("source", "target"), self._ports("target", "source")
        ways = []
        for number, link in enumerate(self.graph.links):
            source, target = self.areas["box", link.source], self.areas["box", link.target]
            start, stop = (leaving[number], source.y + source.height), (coming[number], target.y - 7)
            ways.append(self._waypoints(number, start, stop))
        return ways

    def _waypoints(self, number: int, start: Point, stop: Point) -> list[Point]:
        """The path of a link: through its lanes, but straight down to the end of the source's row and from the top of
        the target's row, so that it does not cross a taller neighbour."""
        link = self.graph.links[number]
        passed: list[tuple[float, float | Literal["before", "after"]]] = []
        if start[1] < stop[1]:
            up, down = self._ancestors(link.source), self._ancestors(link.target)
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

    def _open_segment(self, number: int, points: list[Point]) -> tuple[Point, Point]:
        """The last segment of a link's path before it enters a group, where it might collide with the group's title."""
        around = [group for group, _ in self._ancestors(self.graph.links[number].source)]
        entered = [group for group, _ in self._ancestors(self.graph.links[number].target) if group not in around]
        top = self.areas["group", entered[-1]].y if entered else points[-1][1]
        segments = list(pairwise(points))
        return next((segment for segment in reversed(segments) if segment[1][1] <= top), segments[-1])

    def _ancestors(self, box: str) -> list[tuple[str, tuple[str, str]]]:
        """Pairs of a group and its member that contains the box, from the innermost group outwards."""
        found = [(self.boxes[box].group, ("box", box))]
        while found[-1][0]:
            group = found[-1][0]
            found.append((self.groups[group].parent, ("group", group)))
        return found

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


def _until(ancestors: list[tuple[str, tuple[str, str]]], shared: str) -> Iterator[tuple[str, str]]:
    for group, member in ancestors:
        yield member
        if group == shared:
            return


def _tag(label: str, area: Area) -> str:
    return (
        f'<rect class="tag-back" x="{area.x:.1f}" y="{area.y:.1f}" width="{area.width:.1f}" '
        f'height="{area.height:.0f}" rx="9.5"/><text class="tag" x="{area.x + area.width / 2:.1f}" '
        f'y="{area.y + 13.5:.1f}" text-anchor="middle">{_fit(label)}</text>'
    )


def _fit(text: str) -> str:
    return escape(fitted(text))
