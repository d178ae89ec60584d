"""Similar lines: the pairs are those of a comparison of each line with every other."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.example_scripts import lines_of, load_example

similar_lines = load_example("similar_lines")

PLAY = """\
But, soft! what light through yonder window breaks?
  But soft, what light through yonder windows breaks
O Romeo, Romeo! wherefore art thou Romeo?
Deny thy father and refuse thy name;
Refuse thy father and deny thy name!
Ay me!
Ay me!
What light is light, if Silvia be not seen?
"""


def all_pairs(lines: set[str], at_least: float) -> list[tuple[float, str, str]]:
    """The pairs of a comparison of each line with every other."""
    found = []
    for line, other in itertools.combinations(sorted(lines), 2):
        a, b = set(similar_lines.in_order(line)), set(similar_lines.in_order(other))
        if a and b and len(a & b) / len(a | b) >= at_least:
            found.append((len(a & b) / len(a | b), line, other))
    return sorted(found)


def run(text: str, folder: Path, **flags: object) -> list[list[str]]:
    """The rows that the pipeline writes for one file of this text."""
    (folder / "text").write_text(text)
    options = similar_lines.SimilarLinesOptions(input=str(folder / "text"), output=str(folder / "out"), **flags)
    similar_lines.pipeline(options).run().wait_until_finish()
    return [line.split("\t") for line in lines_of(folder / "out")]


def test_lines_with_the_same_words_are_found_and_the_most_similar_come_first(tmp_path: Path) -> None:
    assert run(PLAY, tmp_path) == [
        ["1.00", "Deny thy father and refuse thy name;", "Refuse thy father and deny thy name!"],
        [
            "0.78",
            "But soft, what light through yonder windows breaks",
            "But, soft! what light through yonder window breaks?",
        ],
    ]


def test_the_limit_and_the_minimum_number_of_words_are_observed(tmp_path: Path) -> None:
    assert [row[0] for row in run(PLAY, tmp_path, limit=1)] == ["1.00"]
    assert run(PLAY, tmp_path, words=8) == [
        [
            "0.78",
            "But soft, what light through yonder windows breaks",
            "But, soft! what light through yonder window breaks?",
        ]
    ]


def test_the_file_is_empty_without_similar_lines(tmp_path: Path) -> None:
    assert run("one two three four\nfive six seven eight\n", tmp_path) == []


lines = st.lists(st.sampled_from("a bb ccc dddd e ff ggg hhhh i jj kkk".split()), min_size=1, max_size=12).map(" ".join)


@settings(max_examples=60)
@given(st.sets(lines, max_size=25), st.sampled_from([0.1, 0.3, 0.5, 0.6, 0.7, 0.9, 1.0]))
def test_the_index_loses_no_pair_and_finds_none_twice(lines: set[str], at_least: float) -> None:
    index: dict[str, list[str]] = {}
    for line in lines:
        for word, entry in similar_lines.index_entries(line, at_least):
            index.setdefault(word, []).append(entry)
    found = [pair for entry in index.items() for pair in similar_lines.similar_pairs(entry, at_least)]
    assert sorted(found) == all_pairs(lines, at_least)


@pytest.mark.parametrize("flag", [{"at_least": 0}, {"at_least": 1.5}, {"words": 0}, {"limit": 0}])
def test_flags_out_of_range_are_refused(flag: dict[str, float]) -> None:
    with pytest.raises(tg.OptionsError, match=f"--{next(iter(flag))}"):
        similar_lines.SimilarLinesOptions(input="x", output="y", **flag)
