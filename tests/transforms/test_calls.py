"""Pipelines with AsyncMap and LookupJoin: refused arguments, types, plans and graphs."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.planner import Traits, plan
from tidegate.runners.planner.explain import explain
from tidegate.sdk.drawing.graph import graph_of
from tidegate.sdk.portable import json
from tidegate.sdk.portable.model import ParDo


async def length(text: str) -> int:
    return len(text)


def sync_length(text: str) -> int:
    return len(text)


async def generator(text: str) -> Any:
    yield text


async def stamped(text: str, at: Any = tg.DoFn.TimestampParam) -> str:
    return text


class LengthClient(tg.AsyncFunction[str, int]):
    async def __call__(self, argument: str, /) -> int:
        return len(argument)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.AsyncMap(length, capacity=0), "capacity is a number of elements, at least 1, and not 0"),
        (lambda: tg.AsyncMap(sync_length, capacity=10_000), "plain function, so each call needs a thread"),
        (lambda: tg.AsyncMap(length, timeout=0), "timeout must be positive"),
        (lambda: tg.AsyncMap(length, timeout="soon"), "timeout: "),  # type: ignore[call-overload]
        (lambda: tg.AsyncMap(length, retry=3), "retry is a tg.Retry, and not 3"),  # type: ignore[call-overload]
        (lambda: tg.AsyncMap(length, cache=60), "cache is a tg.Cache, and not 60"),  # type: ignore[call-overload]
        (lambda: tg.AsyncMap(length, key=len), "there is no cache"),
        (lambda: tg.AsyncMap(LengthClient), "takes an instance: LengthClient(), not the class LengthClient"),
        (lambda: tg.AsyncMap(tg.DoFn()), "and not a DoFn"),  # type: ignore[call-overload]
        (lambda: tg.AsyncMap(generator), "generator is async"),
        (lambda: tg.Retry(attempts=0), "attempts is a number of calls"),
        (lambda: tg.Retry(backoff=-1), "backoff must be at least 0"),
        (lambda: tg.Retry(multiplier=0.5), "multiplier is at least 1"),
        (lambda: tg.Retry(on=(3,)), "on is an exception class"),  # type: ignore[arg-type]
        (lambda: tg.Cache(ttl=0), "ttl must be positive"),
        (lambda: tg.Cache(ttl=None, size=0), "size is a number of results"),
        (lambda: tg.LookupJoin(length, key=None), "key is a function of the element"),  # type: ignore[arg-type]
        (lambda: tg.LookupJoin(length, key=len, batch=5), "batch is (greatest number of keys, longest wait)"),
        (lambda: tg.LookupJoin(length, key=len, batch=(200, 1)), "a batch of 200 keys is never full"),
        (lambda: tg.Map(length), "length is async, and nothing awaits it. tg.AsyncMap does"),
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=re.escape(message)):
        make()


def test_parameters_of_a_call_are_not_injected() -> None:
    with pytest.raises(tg.BuildError, match="nothing can be injected"):
        _ = tg.Pipeline() | tg.Create(["a"]) | tg.AsyncMap(stamped)


def test_element_types_come_from_the_function() -> None:
    p = tg.Pipeline()
    words = p | tg.Create(["a"])
    assert (words | "async" >> tg.AsyncMap(length)).element_type is int
    assert (words | "plain" >> tg.AsyncMap(sync_length)).element_type is int
    assert (words | "object" >> tg.AsyncMap(LengthClient())).element_type is int
    assert (words | "pair" >> tg.LookupJoin(length, key=str.upper)).element_type == tuple[str, int]
    with pytest.raises(tg.TypeCheckError, match="takes str, but its input holds int"):
        _ = p | "numbers" >> tg.Create([1]) | tg.AsyncMap(length)


def asynchronous_pipeline() -> tg.Pipeline:
    p = tg.Pipeline()
    calls = tg.AsyncMap(
        length, capacity=50, ordered=False, timeout=2, retry=tg.Retry(on=OSError), cache=tg.Cache(ttl=60), key=str.upper
    )
    _ = p | tg.Create(["a"]) | tg.Map(str) | "call" >> calls | tg.Map(print)
    return p


def test_explain_describes_asynchronous_calls() -> None:
    text = explain(plan(asynchronous_pipeline().portable(), Traits(parallel=True)))
    assert "calls out" in text
    assert (
        "calls beside the stream: an event loop awaits them, up to 50 at a time, results as they return, but never "
        "across a watermark, timeout 2s, up to 3 attempts, 10,000 results cached for 60s" in text
    )


def test_an_asynchronous_step_is_not_fused() -> None:
    steps = plan(asynchronous_pipeline().portable(), Traits(parallel=True)).steps
    assert [[node.label for node in step.nodes] for step in steps] == [
        ["Create"],
        ["Map(str)"],
        ["call"],
        ["Map(print)"],
    ]


def test_a_graph_describes_asynchronous_calls() -> None:
    (box,) = [box for box in graph_of(asynchronous_pipeline().portable()).boxes if box.title == "call"]
    assert ("calls out", "up to 50 at a time, unordered") in box.facts


def test_settings_of_calls_survive_json() -> None:
    sealed = asynchronous_pipeline().sealed(values=True)
    loaded = json.load(json.dump(sealed))
    assert loaded == sealed
    (node,) = [node for node in loaded.nodes if isinstance(node, ParDo) and node.calls is not None]
    assert node.calls is not None
    assert node.calls.retry is not None
    assert node.calls.retry.on is not None
    assert node.calls.retry.on.load() is OSError
