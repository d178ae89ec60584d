"""PageRank: the ranks are those of rounds by hand, and the same on every runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.example_scripts import lines_of, load_example

pagerank = load_example("pagerank")

TEXT = "a b c\na b a\nC d\n"


def by_hand(damping: float = 0.85) -> list[str]:
    """The lines of a hundred rounds over the links of TEXT."""
    links = {"a": ["b"], "b": ["a", "c"], "c": ["d"], "d": []}
    ranks = dict.fromkeys(links, 0.25)
    for _ in range(100):
        new = dict.fromkeys(links, (1 - damping) / 4)
        for word, followers in links.items():
            for follower in followers:
                new[follower] += damping * ranks[word] / len(followers)
        ranks = new
    return [f"{rank:.4f} {word}" for rank, word in sorted(((r, w) for w, r in ranks.items()), reverse=True)]


@pytest.mark.parametrize(
    "runner", ["direct", "streaming", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))]
)
def test_words_are_ranked_as_by_hand(runner: str, tmp_path: Path, request: Any) -> None:
    if runner == "spark":
        request.getfixturevalue("spark_session")
    (tmp_path / "text").write_text(TEXT)
    options = pagerank.PageRankOptions(
        input=str(tmp_path / "text"), output=str(tmp_path / "out"), runner=runner, by=1e-9
    )
    result = pagerank.pipeline(options).run()
    result.wait_until_finish()
    assert lines_of(tmp_path / "out") == by_hand()
    assert result.metrics().counter("converged") == 1
