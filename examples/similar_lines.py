"""Find lines that say nearly the same, anywhere in a pile of text files.

    tidegate run examples/similar_lines.py --input 'examples/data/*.txt' --output build/similar

writes lines of `similarity`, one line and the other, separated by tabs, the most similar first. Two lines are as
similar as the words they share are among all words of both (Jaccard's index); `--at_least 0.6` is where similar begins.

Comparing each line with every other would take the square of their number. The pipeline compares only lines that meet
in an inverted index, and not even under all their words (the prefix filter of Chaudhuri, Ganti and Kaushik, 2006, "A
Primitive Operator for Similarity Joins in Data Cleaning"): if two sets are to share the part `t` of their words, then
in any fixed order of words the first they share is among the first `n - ceil(t * n) + 1` of each, n being its size.
Long words are rare, so they come first.
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
"""0.7 * 10 is a little more than 7 in floating point; no similar lines must be lost to that."""

WORD = re.compile(r"\w+(?:['’]\w+)*")


class SimilarLinesOptions(tg.PipelineOptions):
    """What to read, what counts as similar, and where to write."""

    input: str = Field(description="text files to read: a path or a pattern")
    output: str = Field(description="how the names of the files to write begin")
    at_least: float = Field(0.6, gt=0, le=1, description="the share of words that similar lines have in common")
    words: int = Field(4, ge=1, description="leave out lines of fewer different words")
    limit: int = Field(100, ge=1, description="how many pairs to write")


Pair = tuple[float, str, str]


def in_order(line: str) -> list[str]:
    """The different words of a line, those that are likely to be rare first."""
    return sorted(set(WORD.findall(line.lower())), key=lambda word: (-len(word), word))


def has_words(line: str, least: int) -> bool:
    """Whether a line has enough different words to be compared."""
    return len(in_order(line)) >= least


def index_entries(line: str, at_least: float) -> Iterator[tuple[str, str]]:
    """`(word, line)` for each word under which a line similar to this one might be met."""
    words = in_order(line)
    prefix = len(words) - math.ceil(at_least * len(words) - TOLERANCE) + 1
    for word in words[:prefix]:
        yield word, line


def similar_pairs(entry: tuple[str, Iterable[str]], at_least: float) -> Iterator[Pair]:
    """The similar ones among the lines of one index entry, those only whose first common word it is: each pair once."""
    word, lines = entry
    known = sorted((line, in_order(line)) for line in lines)
    for (line, words), (other, others) in itertools.combinations(known, 2):
        common = set(words).intersection(others)
        similarity = len(common) / (len(words) + len(others) - len(common))
        if similarity >= at_least and next(w for w in words if w in common) == word:
            yield similarity, line, other


def most_similar(pairs: Iterable[Pair], limit: int) -> list[Pair]:
    """The first of all pairs, the most similar first, equal ones by the alphabet."""
    return heapq.nsmallest(limit, pairs, key=lambda pair: (-pair[0], pair[1:]))


def rows(ranking: list[Pair]) -> Iterator[str]:
    """The lines to write."""
    for similarity, line, other in ranking:
        yield f"{similarity:.2f}\t{line}\t{other}"


def pipeline(options: SimilarLinesOptions) -> tg.Pipeline:
    """Find lines that say nearly the same, anywhere in a pile of text files."""
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
