"""Lines of JSON that are parsed together: the objects are those of each line alone, or the lines are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.io.formats.json_lines import _parsed

FRAGMENTS = (
    '{"a":1}',
    '{"a": "x", "b": null}',
    '{"a":{"b":[1, 2]}}',
    '{"a":"}"}',
    '{"a":"{"}',
    '{"a":"{}"}',
    '{"a":"\\u007b"}',
    '{"a":"é"}',
    # These are no object alone, and together they may be several or one.
    '{"a":1},{"b":2}',
    '{"a":[1',
    "2]}",
    '{"a":"x}',
    '{y"}',
    '{"a":[{"b":1}',
    '{"c":2}]}',
    '{"a":{"b":1}',
    "{",
    "}",
    "{}]",
    "[{}]",
    "1",
    "",
)


def alone(lines: list[str]) -> list[Any] | None:
    """What the lines hold, each parsed alone; None unless each holds one object."""
    try:
        found = [json.loads(line) for line in lines]
    except ValueError:
        return None
    return found if all(type(each) is dict for each in found) else None


@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6), st.booleans())
def test_lines_that_are_parsed_together_hold_what_each_holds_alone(lines: list[str], ended: bool) -> None:
    data = ("\n".join(lines) + ("\n" if ended else "")).encode()
    assume(data)
    expected = alone(lines)
    if expected is None:
        with pytest.raises(ValueError, match=r"."):
            _parsed(data)
    else:
        assert _parsed(data) == expected
