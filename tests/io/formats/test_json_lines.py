"""Lines of JSON that are parsed together: the objects are those of each line alone, or the lines are refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.record_files import elements_of, write
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
    expected = alone(data.decode().removesuffix("\n").split("\n"))
    if expected is None:
        with pytest.raises(ValueError, match=r"."):
            _parsed(data)
    else:
        assert _parsed(data) == expected


@dataclass(frozen=True)
class Opening:
    day: date
    at: time


def test_dates_and_times_of_day_are_read_as_they_are_written(tmp_path: Path) -> None:
    hours = [Opening(date(2013, 1, 1), time(8, 30)), Opening(date(2013, 1, 2), time(9, 0, 1, 5))]
    with tg.Pipeline(options=[]) as p:
        _ = p | tg.Create(hours) | tg.WriteToJson(tmp_path / "hours", num_shards=1)
    assert elements_of(tg.ReadFromJson(tmp_path / "hours*", as_=Opening)) == hours
    path = write(tmp_path / "bad.jsonl", b'{"day": "2013-01-01", "at": "08:30+01:00"}\n')
    with pytest.raises(tg.ReadError, match=r"line 1, column 'at': .*a time of day has no time zone"):
        elements_of(tg.ReadFromJson(path, as_=Opening))


def test_an_integer_that_no_float_represents_is_not_rounded(tmp_path: Path) -> None:
    path = write(tmp_path / "it.jsonl", b'{"a": 1.5}\n{"a": 99999999999999999999}\n{"b": {"a": 12345678901234567}}\n')
    with pytest.raises(
        tg.BuildError, match=r"it.jsonl, column 'a': no column of numbers can have 99999999999999999999"
    ):
        elements_of(tg.ReadFromJson(path))
    assert elements_of(tg.ReadFromJson(path, as_=dict))[1] == {"a": 99999999999999999999}
    assert elements_of(tg.ReadFromJson(path, as_=dict, schema={"a": float | None}))[1] == {"a": 1e20}


@pytest.mark.parametrize("digits", [400, 5000])
def test_an_integer_that_is_greater_than_any_float_is_not_infinite(digits: int, tmp_path: Path) -> None:
    path = write(tmp_path / "it.jsonl", b'{"a": 1.5}\n{"a": %b}\n' % (b"9" * digits))
    with pytest.raises(tg.BuildError, match=r"it.jsonl, column 'a': no column of numbers can have 99+… and the other"):
        elements_of(tg.ReadFromJson(path))


def test_a_record_that_is_too_deep_is_a_bad_one_beside_long_integers(tmp_path: Path) -> None:
    deep = b"[" * 3000 + b"1234567890123456" + b"]" * 3000
    path = write(tmp_path / "it.jsonl", b'{"a": 1.5}\n{"a": %b}\n' % deep)
    with pytest.raises(tg.ReadError, match=r"it.jsonl, line 2"):
        elements_of(tg.ReadFromJson(path))


def test_what_looks_like_another_format_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        tg.ReadError, match=r"line 1: it is not JSON: .*each line of a file of JSON lines has one object"
    ):
        elements_of(tg.ReadFromJson(write(tmp_path / "1.json", b'{\n  "a": 1\n}\n')))
    with pytest.raises(
        tg.ReadError, match=r"line 1: .* It looks as if it is compressed by gzip: say compression='gzip'"
    ):
        elements_of(tg.ReadFromJson(write(tmp_path / "2.json", b"\x1f\x8b\x08\xff"), as_=dict))
    with pytest.raises(tg.ReadError, match="line 1, column 'a': it is there twice"):
        elements_of(tg.ReadFromJson(write(tmp_path / "3.json", b'{"a": 1, "a": 2}\n{"a": 3}\n')))
