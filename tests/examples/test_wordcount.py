"""The word count, run as a script, by the command and compiled, has the counts of a Counter."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.example_scripts import (
    DATA,
    EXAMPLES,
    lines_of,
    load_example,
    run_command,
    run_successfully,
    tidegate_command,
)

wordcount = load_example("wordcount")
TEXTS = sorted(DATA.glob("*.txt"))


def expected(ignore_case: bool = False) -> Counter[str]:
    """The counts of all texts, by a plain loop over the same words."""
    return Counter(
        word
        for path in TEXTS
        for line in path.read_text(encoding="utf-8").splitlines()
        for word in wordcount.words(line, ignore_case)
    )


def counts_in(prefix: Path) -> dict[str, int]:
    """The counts in the files that a run wrote."""
    pairs = [line.rsplit(": ", 1) for line in lines_of(prefix)]
    counts = {word: int(count) for word, count in pairs}
    assert len(counts) == len(pairs), "a word is counted in two lines"
    return counts


def test_apostrophes_inside_words_are_kept() -> None:
    assert wordcount.words("We know't, 'tis so: the lads' -- O!") == ["We", "know't", "tis", "so", "the", "lads", "O"]


def test_the_script_has_the_counts_of_a_counter(tmp_path: Path) -> None:
    run_successfully(
        sys.executable, EXAMPLES / "wordcount.py", "--input", DATA / "*.txt", "--output", tmp_path / "counts"
    )
    assert counts_in(tmp_path / "counts") == expected()


def test_case_can_be_ignored(tmp_path: Path) -> None:
    options = wordcount.WordCountOptions(input=str(DATA / "*.txt"), output=str(tmp_path / "counts"), ignore_case=True)
    wordcount.pipeline(options).run().wait_until_finish()
    assert counts_in(tmp_path / "counts") == expected(ignore_case=True)


def test_the_command_has_the_counts_of_a_counter(tmp_path: Path) -> None:
    tidegate_command("run", EXAMPLES / "wordcount.py", "--input", DATA / "*.txt", "--output", tmp_path / "counts")
    assert counts_in(tmp_path / "counts") == expected()


def test_gzipped_input_has_the_same_counts(tmp_path: Path) -> None:
    for path in TEXTS:
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    tidegate_command("run", EXAMPLES / "wordcount.py", "--input", tmp_path / "*.gz", "--output", tmp_path / "counts")
    assert counts_in(tmp_path / "counts") == expected()


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzipped"])
def test_the_compiled_pipeline_has_the_same_counts(tmp_path: Path, zipped: bool) -> None:
    text = tmp_path / ("text.gz" if zipped else "text")
    content = b"".join(path.read_bytes() for path in TEXTS)
    text.write_bytes(gzip.compress(content) if zipped else content)
    compiled = tmp_path / "pipeline.json"
    flags = ("--input", text, "--output", tmp_path / "counts")
    tidegate_command("compile", EXAMPLES / "wordcount.py", "-o", compiled, *flags)
    assert not list(tmp_path.glob("counts*")), "compiling runs nothing"
    tidegate_command("run", compiled)
    assert counts_in(tmp_path / "counts") == expected()


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        options = wordcount.WordCountOptions(input=str(DATA / "*.txt"), output=str(tmp_path / name))
        wordcount.pipeline(options).run().wait_until_finish()
    assert lines_of(tmp_path / "one") == lines_of(tmp_path / "two")


def test_a_missing_input_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = run_command(
        sys.executable, EXAMPLES / "wordcount.py", "--input", tmp_path / "none", "--output", tmp_path / "counts"
    )
    assert done.returncode != 0
    assert f"no file matches '{tmp_path}/none'" in done.stderr
    assert not list(tmp_path.iterdir())
