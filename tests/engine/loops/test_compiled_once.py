"""Loops that are equal are compiled once in a process."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

import tidegate as tg
from tests.engine.loops.inlined_steps import author
from tidegate.runners.engine.loops.inlining import INLINED

BRANCHES = 50
TEXT = """
import tidegate as tg

def branches(number):
    p = tg.Pipeline(options={"checks": "off"})
    values = p | tg.Create([1, 2])
    for n in range(number):
        values | f"branch {n}" >> tg.Map(lambda x, n=n: x + n)
    return p

def captured(n):
    return lambda x: x + n
"""


def compiled(monkeypatch: pytest.MonkeyPatch, pipeline: tg.Pipeline) -> int:
    """Run a pipeline, and return how often something was compiled."""
    calls: list[Any] = []
    compiles = builtins.compile
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "compile", lambda *args, **kwargs: calls.append(args) or compiles(*args, **kwargs))
        metrics = pipeline.run().metrics()
    assert sum(each.value for each in metrics.query(INLINED)) > 0
    return sum(1 for _, _, mode, *_ in calls if mode == "exec")


def test_equal_branches_compile_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    branches = author(TEXT)["branches"]
    one = compiled(monkeypatch, author(TEXT)["branches"](1))
    assert one > 0
    assert compiled(monkeypatch, branches(BRANCHES)) <= one


def test_a_pipeline_that_is_built_again_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    branches = author(TEXT)["branches"]
    assert compiled(monkeypatch, branches(1)) > 0
    assert compiled(monkeypatch, branches(1)) == 0


def test_loops_of_one_code_keep_the_variables_that_each_function_has_captured() -> None:
    captured = author(TEXT)["captured"]
    values = tg.Pipeline(options={"checks": "off"}) | tg.Create([1])
    assert [(values | f"{n}" >> tg.Map(captured(n))).collect() for n in (1, 10)] == [[2], [11]]
