"""A portable pipeline as JSON: nothing is lost, the same script yields the same bytes, and bad files are refused."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.authoring.state import StateSpec, TimerSpec
from tidegate.sdk.data.columns import BIGINT, Field, Schema
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.integrity import with_bodies
from tidegate.sdk.portable.json import dump, load
from tidegate.sdk.portable.loading import check_environment, install_code
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.portable.seal import this_environment
from tidegate.sdk.relational.expressions import Call, Column
from tidegate.sdk.relational.relations import Aggregate, Named
from tidegate.sdk.time import MAX_TIMESTAMP, MIN_MICROS, MIN_TIMESTAMP, Duration, Timestamp
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.user_fn import ImportRef, Payload, UserFn
from tidegate.sdk.windowing.assigners import (
    Assigner,
    CumulativeWindows,
    CustomAssigner,
    FixedWindows,
    GlobalWindows,
    GlobalWindowsSince,
    Merged,
    Sessions,
    SlidingWindows,
)
from tidegate.sdk.windowing.calendar import CalendarWindows
from tidegate.sdk.windowing.evictors import CustomEvictor, KeepLast, KeepRecent, KeepWithinDelta
from tidegate.sdk.windowing.strategy import ACCUMULATING, DISCARDING, TimestampCombiner, WindowingStrategy
from tidegate.sdk.windowing.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterDelta,
    AfterEach,
    AfterElement,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    EveryEventTime,
    EveryProcessingTime,
    Never,
    Repeatedly,
    Trigger,
)

HERE = Where("job.py", 7)
LOWER = UserFn("str.lower", None, ImportRef("builtins", "str.lower"))


def by_value(text: bytes, name: str = "<lambda>") -> UserFn:
    return UserFn(name, Where("job.py", 3), Payload(text, hashlib.sha256(text).hexdigest()))


def outputs(*ids: str) -> tuple[portable.Output, ...]:
    return tuple(portable.Output("main" if number == 0 else f"tag{number}", id) for number, id in enumerate(ids))


def every_kind() -> portable.Pipeline:
    """A pipeline with one node of each kind, each with all fields set."""
    fn, other = by_value(b"one"), by_value(b"two")
    element, side = Param("element"), Param("side", "names", "0")
    session = WindowingStrategy(
        Sessions(Duration(600)),
        AfterWatermark(late=AfterCount(1)),
        DISCARDING,
        Duration(30),
        TimestampCombiner.EARLIEST,
    )
    nodes: tuple[portable.Node, ...] = (
        portable.Create(label="Create", where=HERE, outputs=outputs("a"), values=portable.Values(None, 2, b"elements")),
        portable.Read(
            label="Read",
            where=HERE,
            outputs=outputs("b"),
            source=by_value(b"source", "Files"),
            name="Files",
            bounded=False,
        ),
        portable.TestStream(
            label="Stream",
            where=HERE,
            outputs=outputs("s"),
            events=(
                portable.AddElements(portable.Values(None, 2, b"more"), (0, MIN_MICROS)),
                portable.AdvanceWatermark(10),
                portable.AdvanceClock(5_000_000),
                portable.Idle(),
            ),
        ),
        portable.ParDo(
            label="Outer/Do",
            where=HERE,
            composite="Outer",
            inputs=("a",),
            outputs=(*outputs("c", "c:x"), portable.Output("bad", "c:bad")),
            numbered=True,
            hints=(("memory", "2GB"),),
            fn=fn,
            form="process",
            params=(element, Param("const", "k", "0"), side, Param("state", "cell", "sum")),
            consts=by_value(b"constants", "extra arguments"),
            side_inputs=(portable.SideInputRef("b", "dict", by_value(b"default")),),
            states=(StateSpec("sum", "combining", Duration(3600), other), StateSpec("seen", "set")),
            timers=(TimerSpec("flush", "processing"),),
            callbacks=(portable.Callback("on_flush", "flush", (Param("key", "key"),)), portable.Callback("end", None)),
            dead_letters=portable.DeadLetters("bad", by_value(b"ValueError"), True, 0.25),
            bundle_hooks=True,
            keeps_key=True,
            emits="plain",
        ),
        portable.AssignWindows(label="Window", where=HERE, inputs=("c",), outputs=outputs("d"), windowing=session),
        portable.GroupByKey(
            label="Group",
            where=HERE,
            inputs=("d",),
            outputs=(*outputs("e"), portable.Output("late", "e:l")),
            late_tag="late",
        ),
        portable.CombinePerKey(
            label="Combine",
            where=HERE,
            inputs=("d",),
            outputs=outputs("f"),
            fn=other,
            name="mean",
            in_parts=True,
            has_identity=False,
            key="none",
            default=True,
            params=(side,),
            consts=by_value(b"constants", "extra arguments"),
            side_inputs=(portable.SideInputRef("b", "singleton"),),
        ),
        portable.Flatten(label="Flatten", where=HERE, inputs=("c:x", "c:bad"), outputs=outputs("g")),
        portable.Reshuffle(label="Reshuffle", where=HERE, inputs=("g",), outputs=outputs("h")),
        portable.Write(
            label="Write", where=HERE, inputs=("h",), sink=LOWER, name="Files", delivery="at_least_once", shards=3
        ),
        portable.Relate(
            label="Relate",
            where=HERE,
            inputs=("f",),
            outputs=(*outputs("r"), portable.Output("late", "r:l")),
            relation=Aggregate((Named("k", Column("k", BIGINT)),), (Named("n", Call("count", (), BIGINT, False)),)),
            reads=("attribute",),
            late_tag="late",
        ),
    )
    step = portable.ParDo(
        label="Loop/step",
        where=HERE,
        inputs=("before",),
        outputs=outputs("x"),
        fn=fn,
        form="map",
        params=(element,),
    )
    lookup = portable.Lookup(label="Loop/Lookup", where=HERE, inputs=("x", "solution"), outputs=outputs("y"))
    nodes += (
        portable.Iterate(
            label="Loop",
            where=HERE,
            inputs=("h", "a"),
            outputs=outputs("i", "j", "k", "l"),
            variables=(
                LoopVariable("x", "h", "before", "x", drives=True),
                LoopVariable("known", "h", "solution", "x", "solution"),
                LoopVariable("new", "h", "changes", "x", "changes"),
            ),
            body=(step, lookup),
            collections=tuple(map(portable.Collection, ("before", "solution", "changes", "x", "y"))),
            rounds=7,
            again=("x",),
            until="before",
            gives=("x",),
            strict=True,
            merge=other,
            changed=LOWER,
        ),
        portable.Feedback(
            label="Round",
            where=HERE,
            inputs=("h", "a"),
            outputs=outputs("m", "n"),
            before="going",
            after="back",
            body=(replace(step, label="Round/step", inputs=("going",), outputs=outputs("back")),),
            collections=tuple(map(portable.Collection, ("going", "back"))),
            gives=("back",),
            max_backlog=4096,
            max_hops=5,
        ),
    )
    ids = [out.collection for node in nodes for out in node.outputs]
    collections = tuple(
        portable.Collection(id, id != "b", session, portable.TypeRef("str", LOWER), Schema((Field("k", BIGINT),)))
        for id in ids
    )
    return portable.Pipeline(
        nodes,
        collections,
        this_environment(),
        classes=(by_value(b"class", "__main__:Point"),),
        coders=((by_value(b"class", "Point"), by_value(b"coder", "PointCoder")),),
        options=(("limit", "10"),),
        name="every kind",
    )


def one_window(windowing: WindowingStrategy) -> portable.Pipeline:
    nodes = (
        portable.Create(label="Create", where=HERE, outputs=outputs("a"), values=portable.Values(None, 0, b"")),
        portable.AssignWindows(label="Window", where=HERE, inputs=("a",), outputs=outputs("b"), windowing=windowing),
    )
    return portable.Pipeline(nodes, (portable.Collection("a"), portable.Collection("b")), this_environment())


def test_every_kind_of_node_survives_with_all_its_fields() -> None:
    pipeline = every_kind()
    kinds = {type(node) for node in with_bodies(pipeline.nodes)}
    assert kinds == set(get_args(portable.Node))
    text = dump(pipeline)
    assert load(text) == pipeline
    assert dump(load(text)) == text
    assert load(text.encode()) == pipeline


@pytest.mark.parametrize(
    "assigner",
    [
        GlobalWindows(),
        GlobalWindowsSince(Timestamp(1.5)),
        GlobalWindowsSince(MIN_TIMESTAMP),
        GlobalWindowsSince(MAX_TIMESTAMP),
        FixedWindows(60, offset=-0.000001),
        SlidingWindows(600, 60, offset=30),
        CumulativeWindows(86400, 3600),
        Sessions(600),
        Sessions(by_value(b"gap")),
        CalendarWindows.months(3, "Europe/Paris"),
        CustomAssigner(by_value(b"mine"), merges=True),
        Merged(Sessions(10)),
    ],
    ids=lambda assigner: type(assigner).__name__,
)
def test_every_assigner_survives(assigner: Assigner) -> None:
    pipeline = one_window(WindowingStrategy(assigner))
    assert load(dump(pipeline)) == pipeline


@pytest.mark.parametrize(
    "trigger",
    [
        DefaultTrigger(),
        Never(),
        AfterWatermark(early=AfterCount(3), late=AfterProcessingTime(1, align_to=60)),
        EveryEventTime(60),
        EveryProcessingTime(0.25),
        AfterElement(by_value(b"predicate")),
        AfterDelta(3, by_value(b"delta")),
        AfterDelta(float("inf"), by_value(b"delta")),
        Repeatedly(AfterAny(AfterCount(2), AfterAll(AfterCount(1), AfterCount(5)))),
        AfterEach(AfterCount(1), Repeatedly(AfterCount(2))),
        Repeatedly(AfterCount(1)).or_finally(AfterWatermark()),
    ],
    ids=repr,
)
def test_every_trigger_survives(trigger: Trigger) -> None:
    pipeline = one_window(WindowingStrategy(trigger=trigger, accumulation=ACCUMULATING))
    assert load(dump(pipeline)) == pipeline


@pytest.mark.parametrize(
    "evictor",
    [
        KeepLast(3, when="after"),
        KeepRecent(60),
        KeepWithinDelta(0.5, by_value(b"delta")),
        CustomEvictor(by_value(b"mine"), "after"),
    ],
    ids=lambda evictor: type(evictor).__name__,
)
def test_every_evictor_survives(evictor: Any) -> None:
    pipeline = one_window(WindowingStrategy(evictor=evictor, partial="drop"))
    assert load(dump(pipeline)) == pipeline


def test_integers_and_floats_keep_their_types() -> None:
    for threshold in (1, 1.0):
        pipeline = one_window(WindowingStrategy(trigger=AfterDelta(threshold, by_value(b"delta"))))
        loaded = load(dump(pipeline)).nodes[1]
        assert isinstance(loaded, portable.AssignWindows)
        assert isinstance(loaded.windowing.trigger, AfterDelta)
        assert type(loaded.windowing.trigger.threshold) is type(threshold)


@given(st.integers(MIN_MICROS, 2**63 - 1))
def test_every_duration_and_instant_survives(micros: int) -> None:
    windowing = WindowingStrategy(
        GlobalWindowsSince(Timestamp(micros=micros)), allowed_lateness=Duration(micros=micros)
    )
    pipeline = one_window(windowing)
    assert load(dump(pipeline)) == pipeline


def test_json_is_readable() -> None:
    p = tg.Pipeline(name="small")
    pairs = p | tg.Create(["a"]) | "upper" >> tg.Map(str.upper)
    pairs | tg.WindowInto(FixedWindows(60))
    written = json.loads(dump(p.sealed(values=True)))
    assert list(written) == [
        "version", "name", "environment", "options", "nodes", "collections", "classes", "coders", "functions", "values",
    ]  # fmt: skip
    upper = {key: value for key, value in written["nodes"][1].items() if key != "where"}
    assert upper == {
        "kind": "par_do",
        "label": "upper",
        "inputs": ["Create"],
        "outputs": [{"tag": "main", "collection": "upper"}],
        "fn": "str.upper",
        "form": "map",
        "params": [{"kind": "element"}],
        **({"emits": "plain"} if "emits" in written["nodes"][1] else {}),
    }
    assert written["nodes"][2]["windowing"] == {"assigner": {"kind": "fixed", "size": "60s"}}
    assert written["functions"]["str.upper"] == {
        "name": "str.upper",
        "code": {"module": "builtins", "name": "str.upper"},
    }


def test_functions_are_written_once_and_named_in_the_order_of_first_use() -> None:
    first, second = by_value(b"1"), by_value(b"2")
    steps = [
        portable.ParDo(
            label=f"Map{n}", where=HERE, inputs=(str(n),), outputs=outputs(str(n + 1)), fn=fn, form="map", params=()
        )
        for n, fn in enumerate([first, second, first])
    ]
    create = portable.Create(label="Create", where=HERE, outputs=outputs("0"), values=portable.Values(None, 0, b""))
    collections = tuple(portable.Collection(str(n)) for n in range(4))
    written = json.loads(dump(portable.Pipeline((create, *steps), collections, this_environment())))
    assert [node.get("fn") for node in written["nodes"]] == [None, "<lambda>", "<lambda>#2", "<lambda>"]
    assert list(written["functions"]) == ["<lambda>", "<lambda>#2"]


def test_a_pipeline_that_is_not_sealed_is_refused_for_writing() -> None:
    p = tg.Pipeline()
    p | tg.Create([1]) | tg.Map(lambda x: x)
    with pytest.raises(tg.BuildError, match=r"^the values of a Create can't be written before it is sealed"):
        dump(p.sealed())
    with pytest.raises(tg.BuildError, match="can't be written before it is sealed"):
        dump(p.portable())


def test_text_that_is_not_unicode_is_refused_for_writing() -> None:
    pipeline = replace(one_window(WindowingStrategy()), name="half \ud800")
    with pytest.raises(tg.BuildError, match="not Unicode"):
        dump(pipeline)


SCRIPT = """
import tidegate as tg
from tidegate.sdk.portable.json import dump

class Point:
    pass

p = tg.Pipeline(name="twice")
numbers = p | tg.Create([1, 2, 3])
a = numbers | tg.Map(abs) | tg.Map(lambda x: (x, 1))
b = numbers | tg.Map(lambda x: (x, {"c", "a", "b"} and 2))
(a, b) | tg.Flatten() | tg.CombinePerKey(sum) | tg.Map(print)
print(dump(p.sealed(values=True)))
"""


def test_two_processes_write_the_same_bytes_except_payloads(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    texts = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(tg.__file__).parent.parent)},
        )
        written = json.loads(done.stdout)
        for entry in written["functions"].values():
            if "data" in entry["code"]:
                del entry["code"]
        texts.append(json.dumps(written))
    assert texts[0] == texts[1]


# --- refused input -------------------------------------------------------------------------------------------------


def load_error(text: str | bytes) -> str:
    with pytest.raises(tg.LoadError) as caught:
        load(text, "job.json")
    return str(caught.value)


def json_with(*path: str | int, to: Any = None, pipeline: portable.Pipeline | None = None) -> str:
    """The JSON of `every_kind()`, or of `pipeline`, with one value replaced."""
    raw = json.loads(dump(pipeline or every_kind()))
    container = raw
    for part in path[:-1]:
        container = container[part]
    container[path[-1]] = to
    return json.dumps(raw)


def test_a_truncated_file_is_refused() -> None:
    text = dump(every_kind())
    lines = text[: len(text) // 2].splitlines()
    message = load_error(text[: len(text) // 2])
    assert message.startswith(f"job.json ends in the middle, at line {len(lines)}")
    assert message.endswith("it is truncated. Compile the pipeline again")
    assert (
        load_error("")
        == "job.json ends in the middle, at line 1, column 1: it is truncated. Compile the pipeline again"
    )


def test_every_truncation_is_refused() -> None:
    text = dump(one_window(WindowingStrategy())).rstrip()
    for end in range(0, len(text), 7):
        assert "job.json" in load_error(text[:end])


def test_invalid_json_is_refused() -> None:
    assert load_error('{"version": 2,\n oops}') == (
        "job.json is not JSON: Expecting property name enclosed in double quotes at line 2, column 2"
    )
    assert load_error(b'{"version": "\xff"}') == "job.json is not JSON: it is not UTF-8 at byte 13"
    assert load_error("[1, 2]") == "job.json is not a compiled pipeline: it contains [1, 2]"
    assert "nested too deeply" in load_error("[" * 200_000)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_encodings_other_than_utf_8_are_refused_and_a_byte_order_mark_is_named(encoding: str) -> None:
    message = load_error(dump(every_kind()).encode(encoding))
    if encoding.endswith(("le", "be")):
        assert message.startswith("job.json is not JSON: ")
    else:
        name = encoding.upper().removesuffix("-SIG")
        assert message == (
            f"job.json begins with a byte order mark of {name}: save it as UTF-8 without one, or compile the pipeline "
            "again"
        )


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF", "a\\udbffb"])
def test_an_unpaired_surrogate_is_refused_anywhere(half: str) -> None:
    text = dump(every_kind())
    for original in ('"every kind"', '"element"', '"label"'):
        assert "job.json contains text that is not Unicode: " in load_error(text.replace(original, f'"{half}"', 1))
    pair = text.replace('"every kind"', '"\\ud83c\\udf0a"', 1)
    assert load(pair, "job.json").name == "🌊"
    assert "that is not Unicode: '\\ud800'" in load_error(text.replace("every kind", "\ud800", 1))


def test_a_number_with_thousands_of_digits_is_refused() -> None:
    for digits in (5_000, 4_000):
        message = load_error(json_with("nodes", 0, "values", to="@").replace('"@"', "9" * digits))
        assert message.startswith("job.json"), message
    assert "can't be read: Exceeds the limit" in load_error('{"version": ' + "1" * 5_000 + "}")


HOSTILE = [
    '"\\ud800"', "1" * 5_000, "-" + "9" * 4_200, "1e999", "NaN", "-Infinity", '"\\u0000\\u001b[31m"',
    "[" * 3_000 + "]" * 3_000,
    '{"a":' * 900 + "1" + "}" * 900, "9223372036854775808", '""', "null", '"\\ud83d\\ude00"',
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(HOSTILE))
def test_load_raises_only_load_errors_for_hostile_values(position: int, value: str) -> None:
    raw = copy.deepcopy(EDITED)
    places = list(_places(raw))
    container, key = places[position % len(places)]
    container[key] = "@@"
    _assert_loads_or_is_refused(json.dumps(raw).replace('"@@"', value).encode())


def _places(raw: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(raw) if isinstance(raw, dict) else range(len(raw)):
        yield raw, key
        if isinstance(raw[key], (dict, list)):
            yield from _places(raw[key])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 20), st.binary(max_size=6)), min_size=1, max_size=4))
def test_load_raises_only_load_errors_for_changed_bytes(edits: list[tuple[int, int, bytes]]) -> None:
    data = bytearray(dump(every_kind()).encode())
    for start, removed, inserted in edits:
        start %= len(data)
        data[start : start + removed] = inserted
    _assert_loads_or_is_refused(bytes(data))


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_load_raises_only_load_errors_for_arbitrary_bytes(data: bytes) -> None:
    assert load_error(data).startswith("job.json")


def _assert_loads_or_is_refused(data: bytes) -> None:
    try:
        written = dump(load(data, "job.json"))
    except tg.LoadError as error:
        message = str(error)
    else:
        message = "job.json"
        assert dump(load(written)) == written
    assert message.startswith("job.json")
    message.encode()  # the message can be printed


def test_another_format_version_is_refused_before_anything_else() -> None:
    text = json.dumps({"version": 4, "whatever": "it has"})
    assert load_error(text) == (
        "job.json has format version 4, but this Tidegate reads versions 1 to 3: "
        "compile the pipeline again with the Tidegate that runs it"
    )
    assert load_error('{"version": 0}').startswith("job.json has format version 0")
    assert load_error('{"version": 1.0}').startswith("job.json has format version 1.0")
    assert load_error("{}").startswith("job.json has no format version")
    assert load_error('{"version": true}').startswith("job.json has format version True")


def test_unknown_fields_are_refused_anywhere() -> None:
    unknown = "this field is not known to this version of Tidegate"
    assert load_error(json_with("surprise", to=1)) == f"job.json: surprise: {unknown}"
    assert load_error(json_with("nodes", 3, "speed", to=9)) == f"job.json: nodes[3].speed (step 'Outer/Do'): {unknown}"
    windowing = ("nodes", 4, "windowing", "assigner", "length")
    assert (
        load_error(json_with(*windowing, to=9))
        == f"job.json: nodes[4].windowing.assigner.length (step 'Window'): {unknown}"
    )


def test_a_missing_field_is_named() -> None:
    raw = json.loads(dump(every_kind()))
    del raw["nodes"][3]["form"]
    assert load_error(json.dumps(raw)) == "job.json: nodes[3].form (step 'Outer/Do'): this field is missing"
    del raw["nodes"]
    assert load_error(json.dumps(raw)) == "job.json: nodes: this field is missing"


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (("nodes", 0, "kind"), "crate", "nodes[0] (step 'Create'): the kind 'crate' is not one of 'create', 'read', "),
        (
            ("nodes", 4, "windowing", "trigger", "late", "kind"),
            "after_lunch",
            "nodes[4].windowing.trigger.late.kind (step 'Window'): the kind 'after_lunch' is not allowed here",
        ),
        (("nodes", 3, "label"), 3, "nodes[3].label: input should be a valid string, not 3"),
        (("nodes", 9, "shards"), "3", "nodes[9].shards (step 'Write'): input should be a valid integer, not '3'"),
        (("nodes", 3, "form"), "mop", "nodes[3].form (step 'Outer/Do'): input should be 'process', 'map', "),
        (
            ("nodes", 4, "windowing", "allowed_lateness"),
            30,
            "nodes[4].windowing.allowed_lateness (step 'Window'): a duration is written '10s' or '0.25s', not 30",
        ),
        (
            ("nodes", 4, "windowing", "allowed_lateness"),
            "99999999999999999999s",
            "nodes[4].windowing.allowed_lateness (step 'Window'): '99999999999999999999s' is beyond the ends of time",
        ),
        (
            ("nodes", 3, "fn"),
            "ghost",
            "nodes[3].fn (step 'Outer/Do'): there is no function 'ghost' in the table of functions",
        ),
        (
            ("nodes", 0, "values"),
            "v9",
            "nodes[0].values (step 'Create'): there is no entry 'v9' in the table of values",
        ),
        (("classes", 0), None, "classes[0]: there is no function None in the table of functions"),
        (
            ("nodes", 4, "windowing", "trigger", "late", "n"),
            0,
            "nodes[4] (step 'Window'): AfterCount: n must be a whole number of at least 1, not 0",
        ),
        (
            ("collections", 0, "windowing", "assigner", "gap"),
            "0s",
            "collections[0] (collection 'a'): Sessions: gap must be longer than 0",
        ),
    ],
)
def test_an_invalid_value_is_refused_with_its_path(path: tuple[str | int, ...], to: Any, message: str) -> None:
    assert load_error(json_with(*path, to=to)).startswith(f"job.json: {message}")


def test_damaged_payloads_are_refused() -> None:
    raw = json.loads(dump(every_kind()))
    raw["functions"]["<lambda>"]["code"]["sha256"] = "0" * 64
    assert load_error(json.dumps(raw)) == (
        "job.json: functions: the payload of function '<lambda>' is corrupt: its SHA-256 is not the recorded one"
    )
    raw = json.loads(dump(every_kind()))
    raw["values"]["values"]["data"] = "AAAA"
    assert load_error(json.dumps(raw)) == (
        "job.json: values: the values 'values' are corrupt: their SHA-256 is not the recorded one"
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ({"data": "AAAA"}, "functions.<lambda>.code.sha256: this field is missing"),
        ({"sha256": "0" * 64}, "functions.<lambda>.code.data: this field is missing"),
        (
            {"data": "A§", "sha256": ""},
            "functions.<lambda>.code.data: this is not base64: Invalid symbol 194, offset 1",
        ),
        ({"data": 5, "sha256": ""}, "functions.<lambda>.code.data: input should be a valid bytes, not 5"),
        (
            {"data": "AAAA", "sha256": "", "module": "math"},
            "functions.<lambda>.code.module: this field is not known to this version of Tidegate",
        ),
        ({"module": "math"}, "functions.<lambda>.code.name: this field is missing"),
        (
            {"module": "math", "name": "sqrt", "line": 3},
            "functions.<lambda>.code.line: this field is not known to this version of Tidegate",
        ),
        ({}, "functions.<lambda>.code.module: this field is missing"),
        (7, "functions.<lambda>.code: input should be an object, not 7"),
    ],
)
def test_code_that_is_neither_a_reference_nor_a_payload_is_refused(code: Any, message: str) -> None:
    raw = json.loads(dump(every_kind()))
    raw["functions"]["<lambda>"]["code"] = code
    assert load_error(json.dumps(raw)) == f"job.json: {message}"


def test_values_that_are_not_base64_or_lack_a_hash_are_refused() -> None:
    raw = json.loads(dump(every_kind()))
    raw["values"]["values"]["data"] = "§"
    assert (
        load_error(json.dumps(raw)) == "job.json: values.values.data: this is not base64: Invalid symbol 194, offset 0"
    )
    del raw["values"]["values"]["sha256"]
    raw["values"]["values"]["data"] = "AAAA"
    assert load_error(json.dumps(raw)) == "job.json: values.values.sha256: this field is missing"


def test_a_hand_edited_cycle_is_refused_with_its_steps() -> None:
    raw = json.loads(dump(every_kind()))
    raw["nodes"][3]["inputs"] = ["h"]
    assert load_error(json.dumps(raw)) == (
        "job.json: the steps form a cycle: 'Outer/Do' → 'Flatten' → 'Reshuffle' → 'Outer/Do'\n  applied at job.py:7"
    )


def test_a_step_that_reads_itself_is_a_cycle() -> None:
    assert "the steps form a cycle: 'Reshuffle' → 'Reshuffle'" in load_error(json_with("nodes", 8, "inputs", to=["h"]))


def test_steps_in_the_wrong_order_are_refused() -> None:
    raw = json.loads(dump(every_kind()))
    raw["nodes"][7], raw["nodes"][8] = raw["nodes"][8], raw["nodes"][7]
    assert load_error(json.dumps(raw)) == (
        "job.json: step 'Reshuffle' comes before step 'Flatten', whose output 'g' it reads\n  applied at job.py:7"
    )


def test_broken_references_are_refused() -> None:
    assert "step 'Reshuffle' reads 'nowhere', which no step makes" in load_error(
        json_with("nodes", 8, "inputs", to=["nowhere"])
    )
    assert "two steps are labelled 'Read'" in load_error(json_with("nodes", 0, "label", to="Read"))
    duplicate = json_with("nodes", 8, "outputs", to=[{"tag": "main", "collection": "g"}])
    assert "two steps make 'g': 'Flatten' and 'Reshuffle'" in load_error(duplicate)
    unknown = json_with("nodes", 8, "outputs", to=[{"tag": "main", "collection": "zz"}])
    assert "step 'Reshuffle' makes 'zz', which is not among the collections" in load_error(unknown)
    assert "two collections have the id 'b'" in load_error(json_with("collections", 0, "id", to="b"))
    assert "has 0 inputs and 1 outputs, which a reshuffle can't have" in load_error(
        json_with("nodes", 8, "inputs", to=[])
    )
    side = json_with("nodes", 3, "params", 2, "ref", to="7")
    assert "step 'Outer/Do' refers to side input '7', which it doesn't have" in load_error(side)
    late = json_with("nodes", 5, "late_tag", to="later")
    assert "step 'Group' has no output 'later', to which it sends elements" in load_error(late)
    extra = json.loads(dump(every_kind()))
    extra["collections"].append({"id": "orphan"})
    assert "no step makes the collection 'orphan'" in load_error(json.dumps(extra))


def test_a_repeated_key_is_refused() -> None:
    text = dump(every_kind()).replace('"name": "every kind",', '"name": "every kind", "name": "other",', 1)
    assert load_error(text) == "job.json: 'name' occurs twice in one object"


POSITIONS = st.lists(st.integers(0, 40), min_size=1, max_size=7)
VALUES = st.sampled_from(
    [None, True, 0, -1, 1.5, 10**30, "", "x", "10s", [], {}, [[]], {"kind": "create"}, ["a"], "DELETE"]
)


@settings(max_examples=300, deadline=None)
@given(POSITIONS, VALUES)
def test_load_raises_only_load_errors_for_edited_json(position: list[int], value: Any) -> None:
    container = raw = copy.deepcopy(EDITED)
    for step in position[:-1]:
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        below = container[keys[step % len(keys)]] if keys else None
        if not isinstance(below, (dict, list)) or not below:
            break
        container = below
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    key = keys[position[-1] % len(keys)]
    if value == "DELETE":
        del container[key]
    else:
        container[key] = value
    try:
        loaded = load(json.dumps(raw), "job.json")
    except tg.LoadError as error:
        message = str(error)
    else:
        message = "job.json"
        assert load(dump(loaded)) == loaded
    assert message.startswith("job.json")


EDITED = json.loads(dump(every_kind()))


# --- unpickling happens only where the pipeline runs ---------------------------------------------------------------


class Bomb:
    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    raise AssertionError("something was unpickled")


def test_loading_and_writing_unpickle_nothing() -> None:
    import pickle

    bomb = pickle.dumps(Bomb())
    assert b"_explode" in bomb
    pipeline = one_window(WindowingStrategy(trigger=AfterElement(by_value(bomb))))
    create = replace(pipeline.nodes[0], values=portable.Values(None, 1, bomb))
    pipeline = replace(pipeline, nodes=(create, *pipeline.nodes[1:]), classes=(by_value(bomb, "m:Bomb"),))
    loaded = load(dump(pipeline))
    assert loaded == pipeline
    with pytest.raises(tg.LoadError, match="unpickled"):
        loaded.classes[0].load()


def sealed_lambda() -> portable.Pipeline:
    p = tg.Pipeline()
    p | tg.Create([1]) | "mine" >> tg.Map(lambda x: x)
    return load(dump(p.sealed(values=True)), "job.json")


def test_bytecode_of_another_python_is_refused_and_plain_data_is_accepted() -> None:
    other = replace(this_environment(), python="3.99")
    with pytest.raises(tg.LoadError) as caught:
        check_environment(replace(sealed_lambda(), environment=other), "job.json")
    here = this_environment().python
    assert str(caught.value) == (
        f"job.json was compiled on Python 3.99, but this is Python {here}: step 'mine' has code pickled by value, "
        "which runs only on the version that compiled it. Compile it again here, or run it on Python 3.99"
    )
    p = tg.Pipeline()
    p | tg.Create([1, 2]) | tg.Map(abs)
    portable_everywhere = replace(p.sealed(values=True), environment=other)
    assert check_environment(portable_everywhere) == []


def test_other_versions_of_distributions_are_a_warning() -> None:
    environment = replace(
        this_environment(), tidegate="0.0.1", distributions=(("click", "0.1"), ("no-such-distribution", "3"))
    )
    warnings = check_environment(replace(sealed_lambda(), environment=environment))
    assert warnings[0].startswith("compiled with Tidegate 0.0.1; this is ")
    assert warnings[1].startswith("compiled with click 0.1; installed here is ")
    assert warnings[2] == "compiled with no-such-distribution 3, which is not installed here"


RUNS_ELSEWHERE = """
import pickle, sys
from tidegate.sdk.portable.json import load
from tidegate.sdk.portable.loading import install_code

pipeline = load(open(sys.argv[1]).read(), sys.argv[1])
install_code(pipeline)
from tidegate.sdk.data.block import Block
create = pipeline.nodes[0]
point = create.values.load()[0]
print(pickle.loads(pickle.dumps(point)) == point, type(point).__name__)
"""


def test_classes_of_a_script_can_be_pickled_where_the_pipeline_runs(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        textwrap.dedent("""
        import dataclasses
        import tidegate as tg
        from tidegate.sdk.portable.json import dump

        @dataclasses.dataclass(frozen=True)
        class Point:
            x: int

        p = tg.Pipeline()
        p | tg.Create([Point(1)]) | tg.Map(lambda point: point.x)
        open("job.json", "w").write(dump(p.sealed(values=True)))
    """)
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.py").write_text(RUNS_ELSEWHERE)
    env = {"PYTHONPATH": str(Path(tg.__file__).parent.parent)}
    subprocess.run([sys.executable, "job.py"], cwd=tmp_path, env=env, check=True)
    done = subprocess.run(
        [sys.executable, "elsewhere/other.py", "job.json"],
        cwd=tmp_path,
        env=env,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True Point\n"


def test_loading_in_the_same_environment_gives_no_warnings() -> None:
    assert install_code(sealed_lambda()) == []
