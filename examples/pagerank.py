"""Rank the words of text files by PageRank: a word links to those that follow it in a line.

    tidegate run examples/pagerank.py --input 'examples/data/*.txt' --output build/ranks
    python examples/pagerank.py --input 'examples/data/*.txt' --output build/ranks

writes lines such as `0.0247 the` to one file, the highest rank first. The ranks have settled when a round has moved
none by more than `--by`; a word that nothing follows passes nothing on.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from pydantic import Field

import tidegate as tg

WORD = re.compile(r"\w+(?:['’]\w+)*")

Links = tuple[str, list[str]]
Ranks = tuple[str, float]


class PageRankOptions(tg.PipelineOptions):
    """The input, the file to write, and when the ranks have settled."""

    input: str = Field(description="text files to read: a path or a pattern")
    output: str = Field(description="the prefix of the file to write")
    damping: float = Field(0.85, description="the share of its rank that a word passes on")
    by: float = Field(1e-6, description="the ranks have settled when none moves by more than this")
    top: int = Field(100, description="how many words to write")


def followers(line: str) -> Iterator[tuple[str, str]]:
    """The words of a line, each with the one that follows it."""
    found = WORD.findall(line.lower())
    yield from itertools.pairwise(found)


def equal_rank(word: str, words: int) -> Ranks:
    """A word with the rank that it has before the first round."""
    return word, 1 / words


def spread(group: tuple[str, tuple[list[list[str]], list[float]]], words: int, damping: float) -> Iterator[Ranks]:
    """What a word passes on to those that follow it, and the share that every word has anyway."""
    word, (links, (rank,)) = group
    yield word, (1 - damping) / words
    for follower in links[0] if links else ():
        yield follower, damping * rank / len(links[0])


def as_text(ranks: list[tuple[float, str]]) -> Iterator[str]:
    """A line for each word, the highest rank first."""
    for rank, word in ranks:
        yield f"{rank:.4f} {word}"


def pipeline(options: PageRankOptions) -> tg.Pipeline:
    """Rank words by PageRank."""
    p = tg.Pipeline(options=options, name="pagerank")
    pairs = p | tg.io.ReadFromText(options.input) | tg.FlatMap(followers) | tg.Distinct()
    links = pairs | tg.GroupByKey() | tg.MapValues(sorted).with_output_types(Links)
    words = pairs | tg.FlatMap(lambda pair: pair) | "words" >> tg.Distinct()
    count = words | tg.combiners.Count.Globally()
    start = words | "start" >> tg.Map(equal_rank, tg.AsSingleton(count))

    def step(ranks: tg.PCollection[Ranks]) -> tg.PCollection[Ranks]:
        shares = (links, ranks) | tg.CoGroupByKey() | tg.FlatMap(spread, tg.AsSingleton(count), options.damping)
        return shares | tg.combiners.ExactSum.PerKey()

    ranks = start | tg.Iterate(step, rounds=100, until=tg.Settled(by=options.by))
    (
        ranks
        | tg.KvSwap()
        | tg.combiners.Top.Of(options.top)
        | tg.FlatMap(as_text)
        | tg.io.WriteToText(options.output, num_shards=1)
    )
    return p


if __name__ == "__main__":
    pipeline(PageRankOptions.from_args()).run().wait_until_finish()
