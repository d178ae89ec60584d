"""The text of functions in the portable form: recorded, shown, and never needed."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.runners.planner import Traits, plan
from tidegate.runners.planner.explain import explain
from tidegate.sdk.drawing.graph import graph_of
from tidegate.sdk.portable.code_parts import map_code
from tidegate.sdk.portable.fingerprint import digest, fingerprint
from tidegate.sdk.portable.json import dump, load
from tidegate.sdk.portable.model import FORMAT_VERSION, ParDo, Pipeline
from tidegate.sdk.user_code.body import Body
from tidegate.sdk.user_code.user_fn import Payload, UserFn

FIRST_FORMAT = Path(__file__).parent / "fixtures" / "format-1.json"
LIMIT = 3


def shout(word: str) -> str:
    return word.upper()


def pipeline() -> Any:
    p = tg.Pipeline(name="bodies")
    p | tg.Create([1]) | tg.Map(lambda x: x + LIMIT) | tg.Map(str) | tg.Map(shout)
    return p


def functions(of: Pipeline) -> list[UserFn]:
    return [node.fn for node in of.nodes if isinstance(node, ParDo)]


def without_bodies(of: Pipeline) -> Pipeline:
    def bare(part: Any) -> Any:
        return UserFn(part.name, part.where, part.code) if isinstance(part, UserFn) else part

    return replace(of, nodes=map_code(of.nodes, bare), collections=map_code(of.collections, bare))


def test_the_body_of_a_function_is_written_and_read() -> None:
    sealed = pipeline().sealed(values=True)
    text = dump(sealed)
    (entry,) = (entry for entry in json.loads(text)["functions"].values() if entry["name"] == "<lambda>")
    line = entry["where"]["line"]
    column = Path(__file__).read_text().splitlines()[line - 1].index("x + LIMIT")
    assert entry["body"] == {
        "text": "x + LIMIT",
        "file": __file__,
        "line": line,
        "column": column,
        "parameters": ["x"],
        "names": ["LIMIT"],
    }
    assert load(text) == sealed
    assert [fn.body and fn.body.text for fn in functions(load(text))] == [
        "x + LIMIT",
        None,
        "def shout(word: str) -> str:\n    return word.upper()",
    ]


def test_a_file_of_the_first_format_is_read_and_runs() -> None:
    before = load(FIRST_FORMAT.read_bytes())
    assert [fn.body for fn in functions(before)] == [None] * 4
    written = dump(before)
    assert json.loads(written)["version"] == FORMAT_VERSION
    assert load(written) == before
    if sys.version_info[:2] == (3, 11):  # the version whose bytecode is in the file
        shout_of_before, twice = functions(before)[2:]
        assert twice.load()(shout_of_before.load()("a")) == "AA"


def test_the_fingerprint_does_not_depend_on_bodies() -> None:
    sealed = pipeline().sealed(values=True)
    bare = without_bodies(sealed)
    assert [fn.body for fn in functions(bare)] == [None] * 3
    assert functions(bare) != functions(sealed)
    assert fingerprint(bare) == fingerprint(sealed)
    assert digest(functions(bare)[0]) != digest(functions(bare)[2])


def test_a_pickled_function_keeps_its_body_and_one_of_before_has_none() -> None:
    fn = functions(pipeline().sealed(values=True))[0]
    again = pickle.loads(pickle.dumps(fn))
    assert again == fn
    assert again.body == fn.body is not None
    assert UserFn(fn.name, fn.where, fn.code).body is None  # as `__reduce__` had it before there were bodies


def test_explain_and_graph_show_a_lambda_by_its_expression() -> None:
    sealed = pipeline().sealed(values=True)
    facts = [dict(box.facts)["function"].partition(",")[0] for box in graph_of(sealed).boxes[1:]]
    assert facts == ["x + LIMIT", "str", "shout"]
    where = sealed.nodes[1].where
    lines = explain(plan(sealed, Traits(parallel=False))).splitlines()
    assert f"Map(<lambda>)   x + LIMIT; {where}" in map(str.strip, lines)


def test_a_pipeline_is_shown_without_compiling_what_its_bodies_say() -> None:
    code = Payload(b"no pickle", hashlib.sha256(b"no pickle").hexdigest())
    sealed = pipeline().sealed(values=True)
    bad = UserFn("<lambda>", None, code, body=Body("no python\n at all", "job.py", 1, 0))
    node = next(node for node in sealed.nodes if isinstance(node, ParDo))
    changed = replace(sealed, nodes=tuple(replace(each, fn=bad) if each is node else each for each in sealed.nodes))
    assert ("function", "no python at all") in graph_of(load(dump(changed))).boxes[1].facts
