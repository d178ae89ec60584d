"""Functions among much data that change a global are found, and the data is not searched object by object."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tidegate.runners.engine.loops.bodies.changing_globals import _codes, changes_of_globals

DEFINED = """
n = 0
def made():
    def bump():
        global n
        n += 1
    return bump
def made_class():
    class Bumps:
        __slots__ = ()
        def bump(self):
            global n
            n += 1
    return Bumps()
def step(x):
    return n + x
bump, instance = made(), made_class()
del made, made_class
many = [(k, k) for k in range(5000)]
"""
PLACES = {
    "a list": "many.append(bump)",
    "a tuple in a list": "many.insert(9, (1, [bump]))",
    "a dict in a list": "many.append({'a': bump})",
    "a large dict": "many = dict(enumerate([*many, bump]))",
    "a large set": "many = {*many, bump}",
    "an object without a dict": "many.append(instance)",
    "a deque": "from collections import deque\nmany = deque([1, bump])",
    "a registry that is an attribute": "step.known = {1: bump}",
    "the registry of a generic function": (
        "from functools import singledispatch as s\nfirst = s(print)\nfirst.register(int, bump)"
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_code_among_much_data_is_found(place: str) -> None:
    space: dict[str, Any] = {}
    exec(DEFINED, space)
    gc.collect()
    exec(f"{PLACES[place]}\ndel bump, instance", space)
    assert list(changes_of_globals(space["step"], {"n"})) == ["'bump' changes the global 'n'"]
    assert list(changes_of_globals(space["step"], frozenset(), {"n"})) == []


def test_to_store_a_global_that_is_only_to_be_kept_is_no_change_but_to_delete_it_is() -> None:
    text = "n = 0\ndef step(x): return n\ndef bump():\n    global n\n    n += 1\n"
    space: dict[str, Any] = {}
    exec(f"{text}    del n\n", space)
    assert list(changes_of_globals(space["step"], frozenset(), {"n"})) == ["'bump' changes the global 'n'"]
    space = {}
    exec(f"{text}class Here: pass\nhere = Here()\ndef drop():\n    del here.n\n", space)
    why = "'drop' sets or deletes an attribute 'n', which may be the global of a module"
    assert list(changes_of_globals(space["step"], frozenset(), {"n"})) == [why]


def test_pairs_are_searched_only_by_their_types() -> None:
    pairs = [(n, n) for n in range(5000)]
    gc.collect()
    seen: set[int] = set()
    assert list(_codes(pairs, {}, seen)) == []
    assert len(seen) < 10
