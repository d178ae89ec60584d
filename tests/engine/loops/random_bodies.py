"""Random functions of several statements, as texts, also with state cells, and the module that they stand in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

from tests.engine.loops.inlined_steps import author
from tests.engine.loops.random_functions import EXPRESSIONS

_AUTHOR: Final = """
import math
import tidegate as tg
g = 7
text = "abc"
table = {0: "zero", 1: [1, 2], "ab": 3}
numbers = [3, 1, 2]
def note(*x):
    from tests.engine.loops import random_functions
    random_functions.NOTED.append(random_functions.ADDRESS.sub("", repr(x)))
    return x[0] if x else None
def fail(x):
    raise KeyError(x)
def few(x):
    return list(x)[:3]
def cap(x):
    if isinstance(x, (int, float)):
        return x if abs(x) < 9 else 0
    return x if len(repr(x)) < 99 else 0
def several(x):
    return [x] if isinstance(x, (str, bytes, dict)) else x
def plain(x):
    return x if type(x) in (int, float, str, bool, type(None)) else type(x).__name__
CELL = tg.DoFn.StateParam(tg.ValueStateSpec("cell"))
BAG = tg.DoFn.StateParam(tg.BagStateSpec("bag"))
def make(n):
    def fn(PARAMETERS):
        BODY
    return fn
fn = make(5)
"""


LOCALS = ("a", "b", "c")
VARIABLES = st.sampled_from([*LOCALS, *LOCALS, "x", "d"])
VALUE = st.one_of(
    VARIABLES,
    VARIABLES,
    st.builds(lambda e, v: re.sub(r"\bx\b", v, e), EXPRESSIONS, VARIABLES),
)
SIMPLE = st.one_of(
    st.builds("{} = cap({})".format, VARIABLES, VALUE),
    st.builds("{} = cap({})".format, VARIABLES, VALUE),
    st.builds("{} += 1".format, VARIABLES),
    st.builds("{} = cap({} + {})".format, VARIABLES, VARIABLES, VARIABLES),
    st.builds("{}, {} = {}".format, VARIABLES, VARIABLES, VALUE),
    st.builds("{}, *{} = few({})".format, VARIABLES, VARIABLES, VALUE),
    st.builds("{}: int = {}".format, VARIABLES, VARIABLES),
    st.builds("note({}, {})".format, VARIABLES, VALUE),
    st.builds("return GIVEN({})".format, VALUE),
    st.builds("YIELD {}".format, VALUE),
    st.builds("YIELD {}".format, VARIABLES),
    st.builds("raise ValueError({})".format, VALUE),
    st.builds("assert {}, {}".format, VALUE, VARIABLES),
    st.sampled_from(["break", "continue", "return", "pass"]),
    st.builds("note(({} := cap({})), {})".format, st.sampled_from(LOCALS), VALUE, VARIABLES),
    st.builds("note(sorted({}, key=lambda y: note(y, n)))".format, VALUE),
    st.builds("{} = cap(list(note(y) for y in few({})))".format, VARIABLES, VALUE),
    st.builds("{} = [cap(y) for y in few({}) if {}]".format, VARIABLES, VALUE, VARIABLES),
)


def indented(block: str) -> str:
    """A block inside of another. Its loops count with other variables, so that they all end."""
    block = re.sub(r"\bk+\b", r"k\g<0>", block)
    return "\n".join("    " + line for line in block.split("\n"))


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    inside = block.map(indented)
    return st.one_of(
        block,
        st.builds("if {}:\n{}".format, VALUE, inside),
        st.builds("if {}:\n{}\nelse:\n{}".format, VALUE, inside, inside),
        st.builds("if {}:\n{}\nelif ({} := {}):\n{}".format, VALUE, inside, VARIABLES, VALUE, inside),
        st.builds("for {} in few({}):\n{}".format, VARIABLES, VALUE, inside),
        st.builds("for {} in few({}):\n{}\nelse:\n{}".format, VARIABLES, VALUE, inside, inside),
        st.builds("for {} in {}:\n{}".format, VARIABLES, VARIABLES, inside),
        st.builds("k = 0\nwhile k < 2 and {}:\n    k += 1\n{}".format, VALUE, inside),
        st.builds("k = 0\nwhile k < 2:\n    k += 1\n{}\nelse:\n{}".format, inside, inside),
    )


def _bodies(simple: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.recursive(simple, larger, max_leaves=6), min_size=1, max_size=3).map("\n".join)


BODIES: Final = _bodies(SIMPLE)
WITH_CELLS: Final = _bodies(
    st.one_of(
        SIMPLE,
        st.builds("cell.write(plain({}))".format, VALUE),
        st.builds("cell.write(cap(cell.read(0)) if plain({}) else c)".format, VALUE),
        st.builds("{} = cell.read()".format, VARIABLES),
        st.builds("{} = cell.read({}), bag.read()".format, VARIABLES, VARIABLES),
        st.builds("bag.add(plain({}))".format, VALUE),
        st.builds("note([cell.read(y) for y in few({})])".format, VALUE),
        st.sampled_from(["cell.clear()", "bag.clear()", "c = cell.read", "note(*bag.read())", "cell.write(c := g)"]),
    )
)
PRELUDE: Final = "a = x\nb = n\nc = 0\n"


def body_function(body: str, parameters: str = "x, d=(1, 2)", given: str = "") -> Callable[..., Any] | None:
    """The function of an author's module with this body; None if it is no Python.

    It returns what the function `given` makes of its results. It is no Python if it has a `break` outside of a loop,
    or, before Python 3.12, a line end in an f-string.
    """
    lines = body.replace("GIVEN", given).replace("\n", "\n        ")
    try:
        fn: Callable[..., Any] = author(_AUTHOR.replace("PARAMETERS", parameters).replace("BODY", lines))["fn"]
    except SyntaxError:
        return None
    return fn
