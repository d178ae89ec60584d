"""Looking at data in notebooks, in a real kernel."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

from tests.support.notebook_kernel import Cell, run_cells

IMPORT = "import tidegate as tg"
VISIT = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Visit:
    who: str
    pages: int
"""


@pytest.fixture(scope="module")
def cells_of_a_notebook() -> list[Cell]:
    return run_cells(
        IMPORT,
        "p = tg.Pipeline(name='tea')\nteas = p | tg.Create(['oolong', '<b>assam</b>', 'oolong'])",
        "counts = teas | tg.CombinePerElement(len)\nprint(sorted(counts.collect()), teas.head(1))",
        "tg.show(teas, n=2)",
        "p",
        "counts",
        "with p:\n    teas | tg.Map(len)\np.result",
    )


def test_cells_collect_a_collection_and_take_its_head(cells_of_a_notebook: list[Cell]) -> None:
    assert cells_of_a_notebook[2].error == ""
    assert cells_of_a_notebook[2].printed == "[('<b>assam</b>', 1), ('oolong', 2)] ['oolong']\n"


def test_show_draws_a_table_whose_elements_are_escaped(cells_of_a_notebook: list[Cell]) -> None:
    assert "<table>" in cells_of_a_notebook[3].html
    assert "&lt;b&gt;assam&lt;/b&gt;" in cells_of_a_notebook[3].html
    assert "<b>assam" not in cells_of_a_notebook[3].html
    assert "the first 2, of more" in cells_of_a_notebook[3].html


def test_show_has_a_text_form_for_notebooks_that_are_converted_to_text(cells_of_a_notebook: list[Cell]) -> None:
    assert [line.strip() for line in cells_of_a_notebook[3].value.splitlines() if line.strip()] == [
        "Create",
        "element",
        "─" * 14,
        "'oolong'",
        "'<b>assam</b>'",
        "the first 2, of more",
    ]


def test_pipelines_are_drawn_and_collections_and_results_are_described(cells_of_a_notebook: list[Cell]) -> None:
    assert "data:image/svg+xml;base64," in cells_of_a_notebook[4].html
    assert cells_of_a_notebook[4].value == "<Pipeline 'tea': 2 steps, not run>"
    assert "tuple[str, int]" in cells_of_a_notebook[5].html
    assert "run: DONE" in cells_of_a_notebook[6].html
    assert re.search(r"<td[^>]*>Map\(len\)</td><td[^>]*>3</td>", cells_of_a_notebook[6].html)


def test_what_a_newcomer_may_try_in_a_cell_works_or_says_what_to_write() -> None:
    cells = run_cells(
        IMPORT,
        "p = tg.Pipeline()\nx = p | 'make' >> tg.Create(range(9)) | tg.Map(lambda n: print('saw', n) or n)",
        "x.head(1)",
        "tg.show(x, 2)",
        "p['make'].collect()",
        "x.take(3)",
        "x | print",
        "tg.FixedWindows(sise=60)",
        "with tg.Pipeline() as q:\n    q | tg.Create(['once']) | tg.Map(print)\n    q.run()",
        "print(f'{tg.Timestamp(5)}')",
    )
    assert (cells[2].printed, cells[2].value) == ("saw 0\n", "[0]")
    assert "the first 2, of more" in cells[3].html
    assert cells[4].value == str(list(range(9)))
    assert cells[5].error.endswith("AttributeError: a PCollection has no take; write pcoll.head(3)")
    assert "tg.Map(print)" in cells[6].error
    assert "applied at cell In[7], line 1" in cells[6].error
    assert "did you mean 'size'? (at cell In[8], line 1)" in cells[7].error
    assert cells[8].printed == "once\n"
    assert cells[9].printed == "1970-01-01T00:00:05Z\n"


def test_an_error_names_the_cell_and_shows_no_frames_of_the_engine() -> None:
    cells = run_cells(
        IMPORT,
        "def parse(text):\n    return int(text)\nnumbers = tg.Pipeline() | tg.Create(['x']) | tg.Map(parse)",
        "numbers.collect()",
        "with tg.Pipeline() as p:\n    p | tg.Create([{1}]) | tg.Map(lambda s: (s, 1)) | tg.CombinePerKey(sum)\n"
        "    p | 3",
        "with tg.Pipeline() as p:\n    p | tg.Create([1]) | tg.Map(lambda n: n / 0)",
        "tg.Pipeline(runner='nonsense').run()",
        "(tg.Pipeline() | tg.Create([1])).mapp",
        "tg.Mapp(1)",
        "tg.Row(a=1).b",
    )
    for cell in cells[2:]:
        assert "/tidegate/" not in cell.error
        assert "ipykernel_" not in cell.error
    assert "in step 'Map(parse)', applied at cell In[2], line 3" in cells[2].error
    assert "Cell In[2], line 2, in parse(text)" in cells[2].error
    assert "----> 1 numbers.collect()" in cells[2].error
    assert "----> 3     p | 3" in cells[3].error
    assert "applied at cell In[5], line 2" in cells[4].error
    assert "OptionsError: there is no runner 'nonsense'" in cells[5].error
    assert "AttributeError: 'PCollection' object has no attribute 'mapp'" in cells[6].error
    assert "AttributeError: tidegate has no Mapp; did you mean tg.Map?" in cells[7].error
    assert "AttributeError: this row has no field 'b'; it has a" in cells[8].error


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_elements_keep_working_when_their_class_is_defined_again(runner: str) -> None:
    cells = run_cells(
        IMPORT + VISIT,
        "old = [Visit('ada', 1), Visit('ben', 2)]\n"
        "visits = tg.Pipeline() | tg.Create([('all', visit) for visit in old]).with_output_types(tuple)\n"
        "grouped = visits | tg.GroupByKey() | tg.MapTuple(lambda key, found: sorted(v.pages for v in found))",
        VISIT,
        f"found = visits.collect(runner={runner!r})\n"
        f"print(grouped.collect(runner={runner!r}), sorted(v.who for _, v in found))\n"
        "print([type(v) is type(old[0]) for _, v in found], sorted(v.pages for _, v in found if v in old))",
        "both = [*old, Visit('ada', 1)]\n"
        "counted = tg.Pipeline() | tg.Create(both) | tg.Map(lambda v: (v, 1)) | tg.CombinePerKey(sum)\n"
        f"print(sorted((v.who, type(v) is Visit, n) for v, n in counted.collect(runner={runner!r})))",
    )
    assert [cell.error for cell in cells] == ["", "", "", "", ""]
    assert cells[3].printed == "[[1, 2]] ['ada', 'ben']\n[True, True] [1, 2]\n"
    # By Python's own ==, instances of the earlier and the later class are different.
    assert cells[4].printed == "[('ada', False, 1), ('ada', True, 1), ('ben', False, 1)]\n"
