"""Gives each step an object of its own where several were made of one, such as a DoFn with what it remembers.

>>> import tidegate as tg
>>> p = tg.Pipeline()
>>> step = tg.Map(lambda n: n + 1)
>>> _ = p | tg.Create([1]) | "one" >> step | "two" >> step
>>> _, one, two = with_own_functions(p.sealed(values=True)).nodes
>>> one.fn == two.fn, one.fn.load() is two.fn.load()
(True, False)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tidegate.sdk.portable.model import CombinePerKey, Feedback, Iterate, Node, ParDo, Pipeline
from tidegate.sdk.user_code.user_fn import UserFn

T = TypeVar("T", UserFn, UserFn | None)


def with_own_functions(pipeline: Pipeline) -> Pipeline:
    """The pipeline in which no two steps, with those in bodies of loops, load the same object."""
    seen: set[int] = set()
    return replace(pipeline, nodes=tuple(_own(node, seen) for node in pipeline.nodes))


def _own(node: Node, seen: set[int]) -> Node:
    match node:
        case Iterate() | Feedback():
            return replace(node, body=tuple(_own(each, seen) for each in node.body))
        case ParDo() | CombinePerKey():
            fn, consts = _another(node.fn, seen), _another(node.consts, seen)
            same = fn is node.fn and consts is node.consts
            return node if same else replace(node, fn=fn, consts=consts)
        case _:
            return node


def _another(fn: T, seen: set[int]) -> T:
    """The function, or another one of the same code if it was seen before."""
    if fn is None:
        return fn
    if id(fn) in seen:
        return fn.another()
    seen.add(id(fn))
    return fn
