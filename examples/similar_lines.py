"""Find pairs of similar lines in a set of text files.

    tidegate run examples/similar_lines.py --input 'examples/data/*.txt' --output build/similar

writes the similarity and the two lines of each pair, separated by tabs, the most similar pairs first. The similarity is
the number of words in both lines divided by the number of words in either (the Jaccard index). Pairs below `--at_least`
(0.6) are left out.

Comparing each line with every other one would take quadratic time. The pipeline compares only lines that share an entry
of an inverted index, and indexes each line under some of its words only (the prefix filter of Chaudhuri, Ganti and
Kaushik, 2006, "A Primitive Operator for Similarity Joins in Data Cleaning"). If two sets of words have a similarity of
at least `t`, then in any fixed order of words, the first common word is among the first `n - ceil(t * n) + 1` words of
each set, where `n` is its size. Long words come first, because they are rare.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Iterable, Iterator

from pydantic import Field

import tidegate as tg

TOLERANCE = 1e-9
"""In floating point, 0.7 * 10 may be a little more than 7; without a tolerance, similar lines could be missed."""

WORD = re.compile(r"\w+(?:['’]\w+)*")


class SimilarLinesOptions(tg.PipelineOptions):
    """The input, the measure of similarity, and the files to write."""

    input: str = Field(description="text files to read: a path or a pattern")
    output: str = Field(description="the prefix of the files to write")
    at_least: float = Field(0.6, gt=0, le=1, description="the minimum similarity of a pair of lines")
    words: int = Field(4, ge=1, description="leave out lines of fewer different words")
    limit: int = Field(100, ge=1, description="the maximum number of pairs to write")


Pair = tuple[float, str, str]


def in_order(line: str) -> list[str]:
    """The different words of a line; those that are likely to be rare come first."""
    return sorted(set(WORD.findall(line.lower())), key=lambda word: (-len(word), word))


def has_words(line: str, minimum: int) -> bool:
    """Whether a line has enough different words to be compared."""
    return len(in_order(line)) >= minimum


def index_entries(line: str, at_least: float) -> Iterator[tuple[str, str]]:
    """`(word, line)` for each word under which the line is indexed."""
    words = in_order(line)
    prefix = len(words) - math.ceil(at_least * len(words) - TOLERANCE) + 1
    for word in words[:prefix]:
        yield word, line


def similar_pairs(entry: tuple[str, Iterable[str]], at_least: float) -> Iterator[Pair]:
    """The similar pairs of lines in an entry of the index. A pair that shares several entries is emitted only by that
    of its first common word."""
    word, lines = entry
    with_words = sorted((line, in_order(line)) for line in lines)
    for (line, words), (other, others) in itertools.combinations(with_words, 2):
        common = set(words).intersection(others)
        similarity = len(common) / (len(words) + len(others) - len(common))
        if similarity >= at_least and next(w for w in words if w in common) == word:
            yield similarity, line, other


def most_similar(pairs: Iterable[Pair], limit: int) -> list[Pair]:
    """The most similar pairs in descending order; equally similar ones in alphabetical order."""
    return heapq.nsmallest(limit, pairs, key=lambda pair: (-pair[0], pair[1:]))


def rows(ranking: list[Pair]) -> Iterator[str]:
    """The lines to write."""
    for similarity, line, other in ranking:
        yield f"{similarity:.2f}\t{line}\t{other}"


def pipeline(options: SimilarLinesOptions) -> tg.Pipeline:
    """Find pairs of similar lines in a set of text files."""
    p = tg.Pipeline(options=options, name="similar_lines")
    lines = (
        p | tg.io.ReadFromText(options.input) | tg.Map(str.strip) | tg.Filter(has_words, options.words) | tg.Distinct()
    )
    pairs = (
        lines
        | tg.FlatMap(index_entries, options.at_least)
        | tg.GroupByKey()
        | tg.FlatMap(similar_pairs, options.at_least)
    )
    ranking = pairs | tg.CombineGlobally(most_similar, options.limit)
    ranking | tg.FlatMap(rows) | tg.io.WriteToText(options.output)
    return p


if __name__ == "__main__":
    pipeline(SimilarLinesOptions.from_args()).run().wait_until_finish()
