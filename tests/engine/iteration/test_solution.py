"""The solution of a loop: which values count as changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tidegate.runners.engine.iteration.solution import differ
from tidegate.sdk.errors import RunError


@dataclass
class Holder:
    values: Any


NAN = float("nan")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, np.array([1, 2]), True),
        (np.array([1, 2]), [1, 2], True),
        (np.array([1.0, NAN]), np.array([1.0, NAN]), False),
        (np.array([1, 2]), np.array([1, 3]), True),
        (np.array([1, 2]), np.array([1.0, 2.0]), False),
        (np.array(["a"], dtype=object), np.array(["a"], dtype=object), False),
        (np.float64(1), 1.0, False),
        (np.float64(NAN), NAN, False),
    ],
    ids=repr,
)
def test_arrays_are_compared_by_their_elements(old: Any, new: Any, expected: bool) -> None:
    assert differ(old, new) is expected
    assert differ(new, old) is expected


def test_tables_of_pandas_are_compared_as_pandas_does() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1.0, NAN]})
    assert not differ(table, table.copy())
    assert not differ(table["a"], table["a"].copy())
    assert differ(table, table + 1)


def test_an_ambiguous_comparison_asks_for_changed() -> None:
    with pytest.raises(RunError, match="give changed="):
        differ(Holder(np.array([1, 2])), Holder(np.array([1, 3])))
