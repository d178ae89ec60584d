"""Random functions of one expression, as texts, and elements for which they may fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

from tests.engine.loops.inlined_steps import author

ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")

NOTED: Final[list[str]] = []
"""What the functions have noted in this process, in order. Pickled functions import this module when they run."""

_AUTHOR: Final = """
import math
g = 7
text = "abc"
table = {0: "zero", 1: [1, 2], "ab": 3}
numbers = [3, 1, 2]
def note(x):
    from tests.engine.loops import random_functions
    random_functions.NOTED.append(random_functions.ADDRESS.sub("", repr(x)))
    return x
def fail(x):
    raise KeyError(x)
def make(n):
    return lambda x, d=(1, 2): EXPRESSION
fn = make(5)
"""
_ATOMS: Final = "x x x x n d g text table numbers None True 0 1 2 2.5 'ab' [] () math.pi len note".split()
_UNARY: Final = [
    "note({})", "fail({})", "len({})", "str({})", "abs({})", "sum({})", "int({})", "({},)", "[{}]", "{{{}}}",
    "({}).real", "({}).upper()", "({})[0]", "({})[1:]", "table[{}]", "(not {})", "(-{})", "f'{{{}}}'", "math.sqrt({})",
    "list({})", "[*{}]", "str(*{})", "max(n, *{})", "dict(**{})",
]  # fmt: skip
_BINARY: Final = "+ - * / // % and or < == is in".split()


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(_BINARY), inner),
        st.builds(lambda form, part: form.format(part), st.sampled_from(_UNARY), inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("[{} for y in {} if {}]".format, inner, inner, inner),
        st.builds("{{{} for y in {} for z in {}}}".format, inner, inner, inner),
        st.builds("{{{}: (x, {}) for x in {}}}".format, inner, inner, inner),
        st.builds("(\n  {},\n {})".format, inner, inner),
    )


def _compiles(expression: str) -> bool:
    """Before Python 3.12, expressions in f-strings can't have line ends."""
    try:
        compile(expression, "", "eval")
    except SyntaxError:
        return False
    return True


EXPRESSIONS: Final = st.recursive(st.sampled_from(_ATOMS), _larger, max_leaves=8).filter(_compiles)
VALUES: Final[tuple[Any, ...]] = (0, 1, 2, -3, "ab", "", None, (1, 2), [0], 2.5, {1: 2})


def function(expression: str) -> Callable[..., Any]:
    """A function of an author's module that evaluates an expression with `x`."""
    fn: Callable[..., Any] = author(_AUTHOR.replace("EXPRESSION", expression))["fn"]
    return fn
