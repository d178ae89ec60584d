"""Count the words of text files.

    tidegate run examples/wordcount.py --input 'examples/data/*.txt' --output build/counts
    python examples/wordcount.py --input 'examples/data/*.txt' --output build/counts

writes lines such as `Juliet: 97` to files whose names begin with `build/counts`.
"""

from __future__ import annotations

import re

from pydantic import Field

import tidegate as tg

WORD = re.compile(r"\w+(?:['’]\w+)*")


class WordCountOptions(tg.PipelineOptions):
    """The input, and the files to write."""

    input: str = Field(description="text files to read: a path or a pattern; .gz, .bz2, .xz and .zst are decompressed")
    output: str = Field(description="the prefix of the files to write")
    ignore_case: bool = Field(False, description="count The and the as one word")


def words(line: str, ignore_case: bool = False) -> list[str]:
    """The words of a line, which consist of letters, digits and inner apostrophes, as in `know't`."""
    return WORD.findall(line.lower() if ignore_case else line)


def pipeline(options: WordCountOptions) -> tg.Pipeline:
    """Count the words of text files."""
    p = tg.Pipeline(options=options, name="wordcount")
    (
        p
        | tg.io.ReadFromText(options.input)
        | tg.FlatMap(words, options.ignore_case)
        | tg.CombinePerElement(len, name="count")
        | tg.MapTuple(lambda word, count: f"{word}: {count}", name="format")
        | tg.io.WriteToText(options.output)
    )
    return p


if __name__ == "__main__":
    pipeline(WordCountOptions.from_args()).run().wait_until_finish()
