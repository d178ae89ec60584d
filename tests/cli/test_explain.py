"""`explain`: a plan as text, with the reason for every decision, and as a graph."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import app
from tidegate.runners.plan import Decision, Edge, Exchange, Plan, Step
from tidegate.runners.planner.explain import explain, graph_of_plan, warnings
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.seal import this_environment
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.assigners import FixedWindows
from tidegate.sdk.windowing.strategy import ACCUMULATING, WindowingStrategy
from tidegate.sdk.windowing.triggers import AfterCount, AfterWatermark, Repeatedly


def at(line: int) -> Where:
    return Where("job.py", line)


def out(*ids: str) -> tuple[portable.Output, ...]:
    return tuple(portable.Output("main" if number == 0 else id, id) for number, id in enumerate(ids))


def step(label: str, line: int, source: str, *ids: str) -> portable.ParDo:
    return portable.ParDo(
        label=label, where=at(line), inputs=(source,), outputs=out(*ids), fn=UserFn.of(abs), form="map",
        params=(Param("element"),),
    )  # fmt: skip


MINUTES = WindowingStrategy(FixedWindows(60), AfterWatermark(early=Repeatedly(AfterCount(10))), ACCUMULATING)
CREATE = portable.Create(label="numbers", where=at(1), outputs=out("a"), values=portable.Values(None, 3))
PARSE = step("parse", 2, "a", "b", "bad")
PAIR = step("pair", 3, "b", "c")
WINDOW = portable.AssignWindows(label="minutes", where=at(4), inputs=("c",), outputs=out("d"), windowing=MINUTES)
SUM = portable.CombinePerKey(
    label="sum",
    where=at(5),
    inputs=("d",),
    outputs=out("e"),
    fn=UserFn.of(sum),
    name="sum",
    in_parts=True,
    has_identity=True,
)
AGAIN = portable.GroupByKey(label="again", where=at(6), inputs=("e",), outputs=out("f"))
JOIN = replace(step("join", 7, "f", "g"), side_inputs=(portable.SideInputRef("bad", "list"),))
WRITE = portable.Write(
    label="store", where=at(8), inputs=("g",), sink=UserFn.of(abs), name="Rows", delivery="at_least_once"
)


def make_plan() -> Plan:
    nodes = (CREATE, PARSE, PAIR, WINDOW, SUM, AGAIN, JOIN, WRITE)
    pipeline = portable.Pipeline(
        nodes,
        tuple(
            portable.Collection(id, windowing=MINUTES if id in "def" else WindowingStrategy())
            for node in nodes
            for id in (o.collection for o in node.outputs)
        ),
        this_environment(),
        name="job",
    )
    steps = (
        Step(0, (CREATE,), 0),
        Step(1, (PARSE,), 0),
        Step(2, (PAIR, WINDOW), 0),
        Step(3, (SUM,), 0, "parts", "table"),
        Step(4, (SUM,), 1, "merge", "table"),
        Step(5, (AGAIN,), 1, "whole", "general", in_time_order=True),
        Step(6, (JOIN,), 1),
        Step(7, (WRITE,), 1),
    )
    edges = (
        Edge("a", 0, 1),
        Edge("b", 1, 2),
        Edge("d", 2, 3),
        Edge("sum~parts", 3, 4, Exchange("hash", "blocking", "parts of one key meet")),
        Edge("e", 4, 5),
        Edge("f", 5, 6),
        Edge("bad", 1, 6, Exchange("broadcast", "blocking", "a side input"), side=0, node="join"),
        Edge("g", 6, 7),
    )
    decisions = (
        Decision("minutes", "fused 2 steps into one loop", "each has only one reader"),
        Decision("sum", "combined in parts before the exchange", "the input is bounded"),
        Decision("again", "no exchange", "'sum' has partitioned its input by the same key"),
        Decision("count", "dropped", "nothing reads its result"),
    )
    return Plan(pipeline, steps, edges, ((0,), (1,)), decisions)


def test_a_plan_is_printed_with_its_reasons() -> None:
    assert explain(make_plan()) == (
        """Plan of 'job': 2 regions, 2 stages, 8 steps, 2 exchanges

Region 0
  Stage 0
    [0] read, Create
          numbers   3 elements; job.py:1
    │ from [0]
    [1] step
          parse   job.py:2
    │ from [1]
    [2] 2 steps in one loop
          pair   job.py:3
          minutes   FixedWindows(60s), AfterWatermark(Repeatedly(AfterCount(10))), accumulating; job.py:4
          · fused 2 steps into one loop: each has only one reader
    │ from [2]
    [3] combine in parts
          sum   FixedWindows(60s), AfterWatermark(Repeatedly(AfterCount(10))), accumulating; job.py:5
          · combined in parts before the exchange: the input is bounded

Region 1, starts when region 0 is done
  Stage 1
    ╪ from [3]: hash exchange, blocking (parts of one key meet)
    [4] merge the parts, table path
          sum   FixedWindows(60s), AfterWatermark(Repeatedly(AfterCount(10))), accumulating; job.py:5
          · combined in parts before the exchange: the input is bounded
    │ from [4]
    [5] group, general path
          again   FixedWindows(60s), AfterWatermark(Repeatedly(AfterCount(10))), accumulating; job.py:6
          · no exchange: 'sum' has partitioned its input by the same key
          · each key's elements in timestamp order: the input is bounded, and their order can show
    │ from [5]
    ╪ from [1], output 'bad': side input 0 of 'join': broadcast exchange, blocking (a side input)
    [6] step
          join   job.py:7
    │ from [6]
    [7] write
          store   Rows, at_least_once; job.py:8

Dropped
  count: nothing reads its result

Mind
  - 'again' groups the panes of 'sum', which accumulate and may fire more than once: values are counted again with \
every pane
  - 'store' delivers at least once: after a failure it may write elements again
"""
    )


def test_the_same_plan_gives_the_same_text() -> None:
    assert explain(make_plan()) == explain(make_plan())


def test_new_windows_between_two_groupings_do_not_stop_values_from_counting_again() -> None:
    plan = make_plan()
    rewindow = portable.AssignWindows(
        label="rewindow", where=at(9), inputs=("e",), outputs=out("n"), windowing=WindowingStrategy()
    )
    nodes = [node if node is not AGAIN else replace(AGAIN, inputs=("n",)) for node in plan.pipeline.nodes]
    nodes.insert(5, rewindow)
    collections = (*plan.pipeline.collections, portable.Collection("n"))
    pipeline = replace(plan.pipeline, nodes=tuple(nodes), collections=collections)
    assert list(warnings(replace(plan, pipeline=pipeline))) == list(warnings(plan))


def test_the_graph_of_a_plan_shows_regions_stages_steps_and_exchanges() -> None:
    graph = graph_of_plan(make_plan())
    assert [(group.title, group.kind, group.parent) for group in graph.groups] == [
        ("Region 0", "region", ""),
        ("Stage 0", "stage", "region 0"),
        ("Region 1", "region", ""),
        ("Stage 1", "stage", "region 1"),
        ("Step 2: 2 steps in one loop", "step", "stage 0"),
    ]
    titles = {box.id: box.title for box in graph.boxes}
    assert list(titles.values()) == ["numbers", "parse", "pair", "minutes", "sum (parts)", "sum (merge)", *[
        "again", "join", "store",
    ]]  # fmt: skip
    links = {(titles[link.source], titles[link.target]): link for link in graph.links}
    assert links["sum (parts)", "sum (merge)"].bold
    assert links["sum (parts)", "sum (merge)"].label == "hash, blocking"
    assert ("because", "parts of one key meet") in links["sum (parts)", "sum (merge)"].facts
    assert links["parse", "join"].dashed
    assert links["pair", "minutes"].label == ""
    facts = dict(next(box for box in graph.boxes if box.title == "again").facts)
    assert facts["no exchange"] == "'sum' has partitioned its input by the same key"


JOB = """
import tidegate as tg

LIMIT = 3

def shout(word):
    \"\"\"In capitals.\"\"\"
    return word.upper()

def lengths(word):
    return locals()

pipeline = tg.Pipeline(name="words")
pipeline | tg.Create(["a"]) | tg.Map(shout) | tg.Map(lambda word: [
    word,
    LIMIT,
]) | tg.Map(str) | tg.Map(lengths) | "sum" >> tg.Map(lambda x: (x, 1)) | tg.CombinePerKey(sum) | tg.Map(print)
"""
INLINED = '''
Functions
  Map(shout)   inlined
      def shout(word):
          """In capitals."""
          return word.upper()
  Map(<lambda>)   inlined
      [
          word,
          LIMIT,
      ]
  Map(str)   called: its source is not known
  Map(lengths)   called: it uses 'locals', which may look at the function's frame
  sum   inlined
      (x, 1)
  CombinePerKey(sum)   called: it is a combiner
  Map(print)   called: its source is not known
'''


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "words.py").write_text(JOB)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.endswith("words"):
            del sys.modules[name]


def explained(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["explain", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("job")
def test_verbose_says_of_each_function_whether_it_is_inlined_or_why_it_is_called() -> None:
    plain, verbose = explained("words.py"), explained("words.py", "--verbose")
    assert verbose == plain + INLINED


COMBINES = """
import tidegate as tg

class Total(tg.CombineFn):
    def create_accumulator(self):
        return 0

    def add_input(self, total, x):
        return total + x

    def merge_accumulators(self, totals):
        return sum(totals)

    def extract_output(self, total):
        return total

class Named(tg.WindowAssigner):
    def assign(self, timestamp, element):
        return []

EARLY = tg.AfterWatermark(early=tg.Repeatedly(tg.AfterCount(2)))
WINDOWS = {
    "fixed": tg.WindowInto(tg.FixedWindows(60)),
    "named": tg.WindowInto(Named()),
    "sessions": tg.WindowInto(tg.Sessions(60)),
    "early": tg.WindowInto(tg.FixedWindows(60), trigger=EARLY, accumulation=tg.DISCARDING),
    "lenient": tg.WindowInto(tg.FixedWindows(60), allowed_lateness=60),
}

def write(read):
    pipeline = tg.Pipeline(name="combines")
    numbers = pipeline | read
    for name, windows in WINDOWS.items():
        windowed = numbers | f"{name} windows" >> windows
        pairs = windowed | f"{name} pairs" >> tg.WithKeys(str)
        made = (
            pairs | f"{name} by key" >> tg.CombinePerKey(Total()),
            windowed | f"{name} of elements" >> tg.CombinePerElement(Total()),
            windowed | f"{name} globally" >> tg.CombineGlobally(Total()).without_defaults(),
        )
        for number, each in enumerate(made):
            each | f"{name} {number}" >> tg.Map(print)
    return pipeline

def bounded():
    return write(tg.Create([tg.TimestampedValue(1, 0)]))

def stream():
    return write(tg.io.GenerateSequence(0))
"""


@pytest.mark.parametrize(
    ("function", "runner", "paths"),
    [
        ("bounded", "direct", {"sessions": "sessions", "early": "general"}),
        ("bounded", "streaming", {"sessions": "sessions", "early": "general"}),
        ("stream", "streaming", {"sessions": "live_sessions", "early": "general", "lenient": "general"}),
    ],
)
def test_verbose_says_of_combiners_that_they_are_called_where_the_loop_does_not_contain_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, runner: str, paths: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "combines.py").write_text(COMBINES)
    text = explained(f"combines.py:{function}", "--verbose", f"--runner={runner}").partition("\nFunctions\n")[2]
    calls = dict(re.findall(r"^  (\w+ (?:by key|of elements|globally))   (.*)$", text, re.MULTILINE))
    expected = {}
    for windows in ("fixed", "named", "sessions", "early", "lenient"):
        path = paths.get(windows)
        by_key = f"called: it is a combiner, and its grouping takes the {path} path" if path else "inlined"
        expected |= {f"{windows} by key": by_key, f"{windows} of elements": by_key}
        expected[f"{windows} globally"] = "called: it is a combiner without keys"
    assert calls == expected


TIMESTAMPS = """
import tidegate as tg

from tidegate.io.generators.sequence import SequenceSource

def parsed(x):
    seconds = float(x)
    return seconds

def write():
    pipeline = tg.Pipeline(name="timestamps")
    for name, fn in {"plain": lambda x: x + 1, "parsed": parsed, "native": float, "none": None}.items():
        read = pipeline | f"read {name}" >> tg.Read(SequenceSource(0, 9, None), timestamp=fn)
        read | f"print {name}" >> tg.Map(print)
    return pipeline
"""


def test_verbose_says_how_the_timestamps_of_a_source_are_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "timestamps.py").write_text(TIMESTAMPS)

    def functions(*flags: str) -> list[str]:
        text = explained("timestamps.py:write", "--verbose", *flags)
        lines = text.partition("\nFunctions\n")[2].splitlines()
        return [line.strip() for line in lines if not line.startswith("  print")]

    assert functions() == [
        "read plain   inlined",
        "x + 1",
        "read parsed   called: it is more than one expression",
        "read native   called: its source is not known",
    ]
    assert functions("--inline", "off") == [
        f"read {name}   called: --inline is off" for name in ("plain", "parsed", "native")
    ]
    # Checked elements are not called for their timestamps any differently.
    assert functions("--checks", "all")[0] == "read plain   inlined"


@pytest.mark.usefixtures("job")
def test_verbose_says_that_flags_let_all_functions_be_called() -> None:
    for flags, why in (
        (["--inline", "off"], "--inline is off"),
        (["--checks", "all"], "--checks all checks every element"),
    ):
        functions = explained("words.py", "--verbose", *flags).partition("\nFunctions\n")[2].splitlines()
        assert functions[0] == f"  Map(shout)   called: {why}"
        assert all(line.endswith(f"   called: {why}") for line in functions)


def test_verbose_loads_no_code_of_a_compiled_pipeline(job: Path) -> None:
    assert CliRunner().invoke(app, ["compile", "words.py", "-o", "words.json"]).exit_code == 0
    text = (job / "words.json").read_text()
    (job / "words.json").write_text(re.sub(r'"(data|sha256)": "[^"]*"', _without_code, text))
    functions = explained("words.json", "--verbose").partition("\nFunctions\n")[2].splitlines()
    assert functions[:2] == [
        "  Map(shout)   unknown: its code is loaded only when it runs",
        "      def shout(word):",
    ]
    assert "  Map(str)   called: its source is not known" in functions


def _without_code(found: re.Match[str]) -> str:
    empty = hashlib.sha256(b"").hexdigest()
    return f'"{found[1]}": "{empty if found[1] == "sha256" else ""}"'


@pytest.mark.usefixtures("job")
def test_graphs_show_a_lambda_by_its_expression() -> None:
    for flags in ([], ["--plan"]):
        drawn = CliRunner().invoke(app, ["graph", "words.py", *flags]).stdout
        assert '["Map([ word, LIMIT, ])' in drawn
        assert "lambda" not in drawn
        assert '["Map(shout)' in drawn


def test_relational_steps_are_shown_by_what_they_compute(tmp_path: Path) -> None:
    (tmp_path / "report.py").write_text(
        "import tidegate as tg\np = tg.Pipeline()\n"
        "rows = p | tg.Create([tg.Row(user='a')]) | tg.Select(user=tg.col('user', str))\n"
        "rows | tg.Sql(\"SELECT user, COUNT(*) AS n FROM pcoll WHERE user > 'a' GROUP BY user\") | tg.Map(print)\n"
    )
    text = explained(str(tmp_path / "report.py"))
    assert "Select(user)   Select user → user string;" in text
    assert "   Filter user > 'a' → user string;" in text
    assert "Sql/GroupBy user   Aggregate count() as n by user → user string, n bigint not null;" in text
    drawn = CliRunner().invoke(app, ["graph", str(tmp_path / "report.py")]).stdout
    assert "Aggregate count() as n by user" in drawn
