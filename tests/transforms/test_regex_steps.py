"""Regex compared with Python's `re`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate import Regex

TEXTS = st.lists(st.text(alphabet="ab1 ", max_size=8), max_size=10)
LETTERS = re.compile(r"([ab])(?P<digit>1)?")


def collected(elements: list[str], step: Any) -> list[Any]:
    return collect(lambda p: {"out": p | tg.Create(elements) | step}).values("out")


@settings(max_examples=25)
@given(TEXTS)
def test_matches_start_at_the_beginning_of_the_text(texts: list[str]) -> None:
    found = [m for m in map(LETTERS.match, texts) if m]
    assert collected(texts, Regex.matches(LETTERS)) == [m.group() for m in found]
    assert collected(texts, Regex.matches(LETTERS.pattern, 1)) == [m.group(1) for m in found]
    assert collected(texts, Regex.matches(LETTERS, "digit")) == [m.group("digit") for m in found]
    assert collected(texts, Regex.all_matches(LETTERS)) == [[m.group(), *m.groups()] for m in found]
    assert collected(texts, Regex.matches_kv(LETTERS, 1)) == [(m.group(1), m.group()) for m in found]
    assert collected(texts, Regex.matches_kv(LETTERS, keyGroup="digit", valueGroup=1)) == [m.group(2, 1) for m in found]


@settings(max_examples=25)
@given(TEXTS)
def test_finds_may_be_anywhere_in_the_text(texts: list[str]) -> None:
    every = [list(LETTERS.finditer(text)) for text in texts]
    assert collected(texts, Regex.find(LETTERS)) == [ms[0].group() for ms in every if ms]
    assert collected(texts, Regex.find(LETTERS, "digit")) == [ms[0].group(2) for ms in every if ms]
    assert collected(texts, Regex.find_all(LETTERS)) == [[m.group() for m in ms] for ms in every]
    assert collected(texts, Regex.find_all(LETTERS, 2, outputEmpty=False)) == [
        [m.group(2) for m in ms if m.group(2)] for ms in every
    ]
    assert collected(texts, Regex.find_all(LETTERS, Regex.ALL)) == [
        [(m.group(), *m.groups()) for m in ms] for ms in every
    ]
    assert collected(texts, Regex.find_kv(LETTERS, 1, 2)) == [m.group(1, 2) for ms in every for m in ms]


@settings(max_examples=25)
@given(TEXTS)
def test_replacing_and_splitting_equal_those_of_re(texts: list[str]) -> None:
    assert collected(texts, Regex.replace_all(LETTERS, r"<\1>")) == [LETTERS.sub(r"<\1>", text) for text in texts]
    assert collected(texts, Regex.replace_first("[ab]", "-")) == [re.sub("[ab]", "-", text, count=1) for text in texts]
    assert collected(texts, Regex.split("1")) == [[part for part in text.split("1") if part] for text in texts]
    assert collected(texts, Regex.split("1", outputEmpty=True)) == [text.split("1") for text in texts]


def test_an_invalid_expression_or_group_is_refused_when_the_pipeline_is_built() -> None:
    with pytest.raises(tg.BuildError, match=re.escape("'(' is not a regular expression: missing )")):
        Regex.find("(")
    with pytest.raises(tg.BuildError, match=re.escape("has no group 2: its groups are 0 to 1, 'n'")):
        Regex.find("(?P<n>a)", 2)
    with pytest.raises(tg.BuildError, match="has no group 'm'"):
        Regex.find_kv("(?P<n>a)", "m", "n")
    with pytest.raises(tg.BuildError, match="None is not a regular expression"):
        Regex.split(None)  # type: ignore[arg-type]


def test_regex_transforms_refuse_elements_that_are_not_text() -> None:
    with pytest.raises(tg.TypeCheckError, match=re.escape("Regex.find takes str, but its input holds int")):
        _ = tg.Pipeline() | tg.Create([1]) | Regex.find("a")
