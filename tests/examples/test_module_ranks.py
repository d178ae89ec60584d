"""The ranks of modules are those that networkx gives for the imports between them."""

from __future__ import annotations

import re
from pathlib import Path

import networkx as nx
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from tests.support.example_scripts import lines_of, load_example

module_ranks = load_example("module_ranks")

MODULES = {
    "alpha": "import beta, gamma.deep\nfrom . import hidden\n",
    "beta": "def late():\n    from gamma import x\n    import alpha\n",
    "gamma": "import gamma\n",
    "delta": "import epsilon\n",
}
LINKS = [("alpha", "beta"), ("alpha", "gamma"), ("beta", "gamma"), ("beta", "alpha"), ("delta", "epsilon")]


def test_modules_are_ranked_by_their_imports(tmp_path: Path) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    options = module_ranks.ModuleOptions(input=f"{tmp_path}/*.py", output=str(tmp_path / "out"))
    module_ranks.pipeline(options).run().wait_until_finish()
    ranks = _pagerank_python(nx.DiGraph(LINKS), tol=1e-12)
    found = [
        re.fullmatch(r"([\d.]+) (\w+), (\d) imports, with (\d) others", line) for line in lines_of(tmp_path / "out")
    ]
    shown = {line[2]: (float(line[1]), int(line[3]), int(line[4])) for line in found if line}
    assert next(iter(shown)) == "gamma"
    assert {name: rank for name, (rank, _, _) in shown.items()} == pytest.approx(ranks, abs=1e-4)
    assert {name: rest for name, (_, *rest) in shown.items()} == {
        "alpha": [2, 2],
        "beta": [2, 2],
        "gamma": [0, 2],
        "delta": [1, 1],
        "epsilon": [0, 1],
    }
