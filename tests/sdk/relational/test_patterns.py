"""Regular expressions and patterns of dates: what is translated, and what is refused."""

from __future__ import annotations

import datetime
import re

import pytest

import tidegate as tg
from tests.support.expressions.cases import tree_of
from tidegate.sdk.relational.date_patterns import formatter
from tidegate.sdk.relational.regular_expressions import PatternError, translated

AT = datetime.datetime(2024, 2, 9, 3, 4, 5, 67_089, datetime.UTC)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a.c", "a\rc abc", ["abc"]),
        ("c$", "c\u2028", ["c"]),
        ("c$", "c\n\n", []),
        ("\r$", "a\r\n", []),
        (r"\w+", "Straße", ["Stra", "e"]),
        (r"[^\d\]-]+", "12a-b]c", ["a", "b", "c"]),
        (r"[a-c\-]{2,3}?", "ab-c", ["ab", "-c"]),
        ("(?:a|bc)?d", "add bcd", ["ad", "d", "bcd"]),
        (r"\.\t\[", "x.\t[", [".\t["]),
        ("[ #~|]", "# ", ["#", " "]),
    ],
)
def test_a_pattern_means_what_java_says(pattern: str, text: str, found: list[str]) -> None:
    assert [each[0] for each in re.finditer(translated(pattern).text, text)] == found


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)", "look-around, flags and names of groups are not supported, at position 2"),
        (r"(a)\1", r"\\1 is not supported, at position 5"),
        (r"\bword", r"\\b is not supported"),
        (r"[\W]", r"\\W is not supported"),
        ("a*+", "a quantifier follows another one"),
        ("a{2}{3}", "a quantifier follows another one"),
        ("*a", "a quantifier follows nothing"),
        ("(a*)*", "what may be empty is repeated"),
        ("(a|)+", "what may be empty is repeated"),
        ("^*", "a quantifier follows an anchor"),
        ("a{x}", "a brace that repeats nothing is written with a backslash"),
        ("a{3,2}", "a repetition is at most 1,000"),
        ("a]", "] is written with a backslash"),
        ("[a[b]]", r"\[ in a class is written with a backslash"),
        ("[a&&b]", "an intersection of classes is not supported"),
        ("[b-a]", "the ends of a range are in the wrong order"),
        (r"[\d-x]", "a class begins no range"),
        ("[]", "] in a class is written with a backslash"),
        ("(a", "a parenthesis is not closed"),
        ("a)", "a parenthesis is closed that was not opened"),
        ("a\\", "the pattern ends too early"),
    ],
)
def test_a_pattern_that_means_something_else_elsewhere_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(PatternError, match=why):
        translated(pattern)


def test_a_group_that_the_pattern_does_not_have_is_refused() -> None:
    with pytest.raises(tg.BuildError, match="the regular expression 'a' has the groups 0 to 0, and not 1"):
        tree_of(tg.fn.regexp_extract("s", "a"))
    with pytest.raises(tg.BuildError, match=r"the regular expression 'a\(': a parenthesis is not closed"):
        tree_of(tg.fn.regexp_extract("s", "a("))


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-02-09T03:04:05.067"),
        ("d.M. H:m:s", "9.2. 3:4:5"),
        ("'{day'' of ''}' SSSSSS''", "{day' of '} 067089'"),
    ],
)
def test_an_instant_is_written_by_a_pattern(pattern: str, written: str) -> None:
    assert formatter(pattern)(AT) == written


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("yy", "yy is not supported; there are yyyy, MM"),
        ("EEE", "EEE is not supported"),
        ("'at", '"\'" has to be in quotes, which have to be closed'),
        ("[HH]", r"'\[' has to be in quotes"),
    ],
)
def test_a_pattern_of_dates_with_other_letters_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(tg.BuildError, match=why):
        tree_of(tg.fn.date_format("at", pattern))
