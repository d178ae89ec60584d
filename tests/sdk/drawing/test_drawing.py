"""Pictures of pipelines: their contents in each format, and their layout."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.sdk.drawing.graph import Box, Graph, Group, Link, composite_paths, describe, dot, graph_of, mermaid
from tidegate.sdk.drawing.html import html
from tidegate.sdk.drawing.layout import Member, layout
from tidegate.sdk.drawing.svg import svg
from tidegate.sdk.windowing.assigners import FixedWindows, Sessions
from tidegate.sdk.windowing.triggers import AfterCount, AfterWatermark, Repeatedly


class CountWords(tg.PTransform[Any, Any]):
    def expand(self, input: Any) -> Any:
        return input | "pair" >> tg.Map(lambda word: (word, 1)) | "sum" >> tg.CombinePerKey(sum)


def word_count() -> Graph:
    p = tg.Pipeline(name="words")
    lines = p | "lines" >> tg.Create(["a b"])
    stop = p | "stop words" >> tg.Create(["b"])
    good, bad = lines | "split" >> tg.FlatMap(str.split).with_exception_handling()
    content_words = good | "keep" >> tg.Filter(lambda word, unwanted: word not in unwanted, tg.AsList(stop))
    content_words | "minutes" >> tg.WindowInto(FixedWindows(60)) | CountWords()
    bad | "report <bad>" >> tg.Map(print)
    return graph_of(p.portable())


def test_a_graph_has_the_boxes_groups_and_links_of_the_pipeline() -> None:
    graph = word_count()
    assert [box.title for box in graph.boxes] == [
        "lines", "stop words", "split", "keep", "minutes", "pair", "sum", "report <bad>",
    ]  # fmt: skip
    assert graph.groups == (Group("CountWords", "CountWords"),)
    assert {box.title for box in graph.boxes if box.group == "CountWords"} == {"pair", "sum"}
    links = {(link.source, link.target): link for link in graph.links}
    assert links["split", "report <bad>"].label == "bad"
    assert links["stop words", "keep"].dashed
    assert links["stop words", "keep"].label == "side input (list)"
    assert not links["lines", "split"].label


def test_facts_describe_a_step_and_where_it_was_applied() -> None:
    facts = {box.title: dict(box.facts) for box in word_count().boxes}
    assert facts["split"]["dead letters"] == "to output 'bad'"
    assert facts["split"]["kind"] == "ParDo"
    assert facts["sum"]["step"] == "CountWords/sum"
    assert facts["sum"]["windowing"].startswith("FixedWindows(60s)")
    assert re.fullmatch(r".*test_drawing\.py:\d+", facts["keep"]["applied at"])
    assert facts["lines"]["elements"] == "1"


def test_mermaid_is_a_flowchart_with_subgraphs_and_escaped_labels() -> None:
    graph = Graph(
        "words",
        (
            Box("lines", "lines", "→ str", "source"),
            Box("C/sum", 'sum "all" #1', "→ tuple[str, int]", "grouping", (), "C"),
            Box("out", "report <bad>", "", "sink"),
        ),
        (Group("C", "Count & sum"),),
        (Link("lines", "C/sum", "hash, blocking", bold=True), Link("C/sum", "out"), Link("lines", "out", dashed=True)),
    )
    assert mermaid(graph) == (
        """flowchart TB
  subgraph g0["Count #amp; sum"]
    n1["sum #quot;all#quot; #35;1<br/><small>→ tuple[str, int]</small>"]:::grouping
  end
  n0(["lines<br/><small>→ str</small>"]):::source
  n2[("report #lt;bad#gt;")]:::sink
  n0 ==>|"hash, blocking"| n1
  n1 --> n2
  n0 -.-> n2
  classDef source stroke:#2f9e6e,stroke-width:2px
  classDef grouping stroke:#d9822b,stroke-width:2px
  classDef sink stroke:#c2476b,stroke-width:2px
"""
    )


def test_dot_has_clusters_and_quoted_labels() -> None:
    graph = Graph('say "hi"', (Box("a", 'back\\slash "quoted"', "", "step"),), (), ())
    text = dot(graph)
    assert text.startswith('digraph "say \\"hi\\"" {')
    assert 'n0 [label="back\\\\slash \\"quoted\\""' in text
    words = dot(word_count())
    assert 'subgraph cluster_g0 {\n    label="CountWords";' in words
    assert 'n1 -> n3 [label="side input (list)", style=dashed];' in words
    assert words.count("{") == words.count("}")


def test_svg_is_well_formed_and_shows_every_title() -> None:
    graph = word_count()
    tree = ElementTree.fromstring(svg(graph))
    texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    for title in [*(box.title for box in graph.boxes), "CountWords", "bad", "side input (list)"]:
        assert title in texts


def boxes_of(picture: str) -> list[tuple[float, float, float, float]]:
    tree = ElementTree.fromstring(picture)
    name = "{http://www.w3.org/2000/svg}"
    rects = [group.find(f"{name}rect") for group in tree.iter(f"{name}g") if group.get("class") == "box"]
    return [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height")) for rect in rects if rect is not None
    ]  # type: ignore[misc]


def overlapping(areas: list[tuple[float, float, float, float]]) -> bool:
    return any(
        ax < bx + bw and bx < ax + aw and ay < by + bh and by < ay + ah
        for i, (ax, ay, aw, ah) in enumerate(areas)
        for bx, by, bw, bh in areas[:i]
    )


def test_boxes_do_not_overlap_in_the_picture() -> None:
    assert not overlapping(boxes_of(svg(word_count())))


def areas(picture: str, kind: str) -> list[tuple[float, float, float, float]]:
    rects = re.findall(rf'<rect class="{kind}" x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', picture)
    return [(float(x), float(y), float(width), float(height)) for x, y, width, height in rects]


def test_the_label_of_a_link_does_not_overlap_the_title_of_the_group_it_enters() -> None:
    graph = Graph(
        "g",
        (Box("a", "a", "", "step"), Box("G/b", "b", "", "step", (), "G"), Box("c", "c", "", "step")),
        (Group("G", "a title as wide as the group"),),
        (Link("a", "G/b", "said"), Link("a", "c", "also said")),
    )
    picture = svg(graph)
    titles, tags = areas(picture, "heading-back"), areas(picture, "tag-back")
    assert (len(titles), len(tags)) == (1, 2)
    assert not overlapping(titles + tags)


def test_links_pass_behind_titles() -> None:
    picture = svg(word_count())
    assert picture.rindex('<path class="link') < picture.index('<rect class="heading-back"')


def test_long_titles_are_shortened_in_the_picture_and_complete_in_the_tooltip() -> None:
    graph = Graph("g", (Box("a", "x" * 100, "", "step", (("step", "x" * 100),)),), (), ())
    picture = svg(graph)
    assert "x" * 43 + "…<" in picture
    assert f"step: {'x' * 100}</title>" in picture


def test_the_page_loads_no_other_resources() -> None:
    page = html({"Pipeline": word_count()})
    assert not re.search(r"""(src|href)\s*=|url\(|@import|fetch\(|XMLHttp|https?://(?!www\.w3\.org/2000/svg)""", page)
    assert page.startswith("<!doctype html>")


def test_no_label_can_break_out_of_the_page() -> None:
    evil = "</script><script>alert('x')</script>&<b>$title"
    page = html({evil: Graph(evil, (Box("a", evil, evil, "step"),), (Group("g", evil),), ())})
    assert page.count("<script") == 2
    assert "<b>" not in page
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["views"][0]["boxes"][0]["title"] == evil


def test_the_page_has_a_view_for_each_graph_with_rows_for_each_group() -> None:
    page = html({"Pipeline": word_count(), "Plan": word_count()})
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    views = json.loads(data[1])["views"]
    assert [view["name"] for view in views] == ["Pipeline", "Plan"]
    assert views[0]["rows"]["CountWords"] == [[["box", "CountWords/pair"]], [["box", "CountWords/sum"]]]
    assert len(views[0]["ways"]) == len(views[0]["links"])


# --- layout --------------------------------------------------------------------------------------------------------


def graph_of_links(
    *links: tuple[str, str], groups: dict[str, str] | None = None, frames: tuple[Group, ...] = ()
) -> Graph:
    names = dict.fromkeys(name for link in links for name in link)
    boxes = tuple(Box(name, name, "", "step", (), (groups or {}).get(name, "")) for name in names)
    return Graph("g", boxes, frames, tuple(Link(*link) for link in links))


def row_of(graph: Graph, group: str = "") -> dict[str, int]:
    return {
        member.id: number
        for number, row in enumerate(layout(graph).rows[group])
        for member in row
        if member.kind != "lane"
    }


def test_every_step_is_below_its_inputs() -> None:
    rows = row_of(graph_of_links(("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")))
    assert rows == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_a_source_is_in_the_row_above_its_first_reader() -> None:
    assert row_of(graph_of_links(("a", "b"), ("b", "c"), ("late", "c")))["late"] == 1


def test_a_link_across_a_row_has_a_lane_in_it() -> None:
    graph = graph_of_links(("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"))
    plan = layout(graph)
    assert len(plan.ways[3]) == 2
    lanes = [member.id for row in plan.rows[""] for member in row if member.kind == "lane"]
    assert sorted(lanes) == sorted(plan.ways[3])


def test_a_link_out_of_a_group_crosses_the_rows_below_its_source() -> None:
    graph = graph_of_links(("a", "b"), ("b", "x"), ("a", "y"), groups={"a": "G", "b": "G"}, frames=(Group("G", "G"),))
    plan = layout(graph)
    assert [member.kind for member in plan.rows["G"][1]] in (["box", "lane"], ["lane", "box"])
    assert plan.ways[2] == (next(member.id for member in plan.rows["G"][1] if member.kind == "lane"),)


def test_links_do_not_cross_unnecessarily() -> None:
    graph = graph_of_links(("a", "x"), ("b", "y"), ("c", "z"), ("x", "c2"), ("a", "y2"))
    first, second, *_ = layout(graph).rows[""]
    order = [member.id for member in first]
    below = [member.id for member in second if member.kind == "box"]
    assert sorted(below, key=lambda name: order.index({"x": "a", "y": "b", "z": "c", "y2": "a"}[name])) == below


def test_groups_that_depend_on_each_other_are_laid_out() -> None:
    graph = graph_of_links(("a", "b"), ("b", "c"), groups={"a": "G", "c": "G"}, frames=(Group("G", "G"),))
    plan = layout(graph)
    assert {member.id for row in plan.rows[""] for member in row if member.kind != "lane"} == {"G", "b"}
    assert "<svg" in svg(graph)


TITLES = st.text(st.sampled_from("abilmWM@_ ()ö漢字😀e\u0301"), min_size=1, max_size=60)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 12))
    frames: list[Group] = []
    for number in range(draw(st.integers(0, 4))):
        frames.append(Group(f"G{number}", draw(TITLES), draw(st.sampled_from(["", *(g.id for g in frames)]))))
    ids = ["", *(group.id for group in frames)]
    boxes = tuple(Box(f"b{n}", draw(TITLES), "", "step", (), draw(st.sampled_from(ids))) for n in range(count))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20))
    labels = st.one_of(st.just(""), TITLES)
    links = tuple(Link(f"b{min(pair)}", f"b{max(pair)}", draw(labels)) for pair in pairs if pair[0] != pair[1])
    held: set[str] = set()
    for box in boxes:
        group = box.group
        while group:
            held.add(group)
            group = next(frame.parent for frame in frames if frame.id == group)
    return Graph("g", boxes, tuple(frame for frame in frames if frame.id in held), links)


@given(graphs())
def test_any_graph_is_laid_out_completely_and_without_overlaps(graph: Graph) -> None:
    plan = layout(graph)
    placed = [member for rows in plan.rows.values() for row in rows for member in row if member.kind == "box"]
    assert sorted(placed, key=repr) == sorted((Member("box", box.id) for box in graph.boxes), key=repr)
    lanes = {member.id for rows in plan.rows.values() for row in rows for member in row if member.kind == "lane"}
    assert {lane for way in plan.ways for lane in way} == lanes
    picture = svg(graph)
    assert not overlapping(boxes_of(picture))
    assert_labels_do_not_overlap(picture)
    assert len(areas(picture, "tag-back")) == sum(bool(link.label) for link in graph.links)


# Widths of letters in DejaVu Sans, in em, rounded up to two digits, to check that texts fit.
EMS = dict(zip("abcdefghilmnorstuwWM@_ ()ö漢字😀\u0301…", (
    0.62, 0.64, 0.55, 0.64, 0.62, 0.36, 0.64, 0.64, 0.28, 0.28, 0.98, 0.64, 0.62, 0.42, 0.53, 0.40, 0.64, 0.82, 0.99,
    0.87, 1.0, 0.5, 0.32, 0.4, 0.4, 0.62, 1.0, 1.0, 1.1, 0.0, 1.0,
), strict=True))  # fmt: skip


def text_width(text: str, size: float) -> float:
    return sum(EMS[letter] for letter in text) * size


def assert_labels_do_not_overlap(picture: str) -> None:
    """Labels of links cover no other label, box or group title; every text fits into its box and the page."""
    titles, tags = areas(picture, "heading-back"), areas(picture, "tag-back")
    boxes = boxes_of(picture)
    for tag in tags:
        assert not any(overlapping([tag, other]) for other in [*boxes, *titles])
    assert not overlapping(tags)
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', picture).groups())  # type: ignore[union-attr]
    for x, y, w, h in [*boxes, *titles, *tags]:
        assert x >= 0
        assert y >= 0
        assert x + w <= width + 0.6
        assert y + h <= height + 0.6
    tree = ElementTree.fromstring(picture)
    name = "{http://www.w3.org/2000/svg}"
    for box, group in zip(boxes, [g for g in tree.iter(f"{name}g") if g.get("class") == "box"], strict=True):
        for text in group.iter(f"{name}text"):
            inside = box[0] + box[2] - float(text.attrib["x"])
            assert text_width(text.text or "", 11 if text.get("class") == "note" else 13) <= inside
    texts = {
        kind: [t.text or "" for t in tree.iter(f"{name}text") if t.get("class") == kind] for kind in ("heading", "tag")
    }
    for kind, size, rects in (("heading", 13 * 1.1, titles), ("tag", 11, tags)):
        for text, (_, _, w, _) in zip(texts[kind], rects, strict=True):
            assert text_width(text, size) <= w


@pytest.mark.parametrize("label", ["", "l", "a label that has some length", "W" * 44])
@pytest.mark.parametrize("count", [2, 7, 30])
def test_many_labels_around_one_step_do_not_overlap(label: str, count: int) -> None:
    names = [f"{letter}{n}" for letter in "ab" for n in range(count)]
    boxes = [Box("hub", "hub", "", "step"), *(Box(name, "a title", "", "step") for name in names)]
    links = [Link(f"a{n}", "hub", label) for n in range(count)]
    links += [Link("hub", f"b{n}", label) for n in range(count)]
    links += [Link("a0", "hub", label)] * 5
    picture = svg(Graph("g", tuple(boxes), (), tuple(links)))
    assert_labels_do_not_overlap(picture)
    assert len(areas(picture, "tag-back")) == (len(links) if label else 0)


def test_labels_are_on_their_links_if_there_is_room() -> None:
    picture = svg(Graph("g", (Box("a", "a", "", "step"), Box("b", "b", "", "step")), (), (Link("a", "b", "said"),)))
    ((x, y, width, height),) = areas(picture, "tag-back")
    (above, below) = boxes_of(picture)
    assert abs(x + width / 2 - (above[0] + above[2] / 2)) < 1
    assert above[1] + above[3] < y < y + height < below[1]


# --- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (FixedWindows(60), "FixedWindows(60s)"),
        (FixedWindows(60, offset=5), "FixedWindows(60s, offset=5s)"),
        (Sessions(0.5), "Sessions(0.5s)"),
        (AfterWatermark(early=AfterCount(3)), "AfterWatermark(AfterCount(3))"),
        (Repeatedly(AfterCount(3)), "Repeatedly(AfterCount(3))"),
        (tg.Timestamp(0), "1970-01-01T00:00:00Z"),
    ],
)
def test_transforms_are_described_in_the_words_of_the_api(value: Any, text: str) -> None:
    assert describe(value) == text


def test_a_slash_in_parentheses_is_part_of_a_name() -> None:
    assert list(composite_paths("Outer/Read(/data/x.txt)/Parse")) == [
        "Outer",
        "Outer/Read(/data/x.txt)",
        "Outer/Read(/data/x.txt)/Parse",
    ]
    assert list(composite_paths("")) == []


def test_unprintable_characters_are_escaped_in_every_format() -> None:
    hostile = "a\x1b[31m\n\u2028\u202e\x7fb"
    escaped = r"a\x1b[31m\n\u2028\u202e\x7fb"
    box = Box(hostile, hostile, hostile, "step", ((hostile, hostile),), hostile)
    graph = Graph(hostile, (box,), (Group(hostile, hostile),), (Link(hostile, hostile, hostile),))
    forms = {"mermaid": mermaid(graph), "dot": dot(graph), "svg": svg(graph)}
    for form, text in forms.items():
        assert all(letter.isprintable() or letter == "\n" for letter in text), form
    assert escaped.replace("\\", "\\\\") in forms["dot"]
    assert escaped.replace("\\", "#92;") in forms["mermaid"]
    assert escaped in forms["svg"]
    (view,) = data_of(html({hostile: graph}))["views"]
    assert (view["title"], view["boxes"][0]["title"], view["boxes"][0]["note"]) == (escaped, escaped, escaped)
    assert (view["groups"][0]["title"], view["links"][0]["label"]) == (escaped, escaped)
    assert view["boxes"][0]["facts"] == [[escaped, escaped]]


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])
