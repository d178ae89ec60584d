"""Cells that are run again, with or without changes, in a real kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

from tests.support.notebook_kernel import run_cells

START = (
    "start",
    "import tidegate as tg\np = tg.Pipeline()\nwords = p | 'words' >> tg.Create(['tea', 'jam', 'tea'])",
)
COUNT = ("count", "counts = words | 'count' >> tg.CombinePerElement(len)")
PRINT = ("print", "counts | tg.MapTuple(lambda word, n: print(word, n))")
RUN = ("run", "result = p.run()")


def lines(printed: str) -> list[str]:
    return sorted(printed.splitlines())


def test_a_cell_that_is_run_again_applies_its_steps_once() -> None:
    cells = run_cells(START, COUNT, PRINT, PRINT, RUN)
    assert [cell.error for cell in cells] == [""] * 5
    assert lines(cells[4].printed) == ["jam 1", "tea 2"]


def test_steps_that_read_from_a_replaced_step_are_removed_with_a_warning() -> None:
    cells = run_cells(START, COUNT, PRINT, COUNT, ("repr", "p"), PRINT, RUN)
    assert [cell.error for cell in cells] == [""] * 7
    assert (
        "TidegateWarning: removed from the pipeline, because a step they read from was replaced: "
        "'MapTuple(<lambda>)' (cell In[3], line 1). Run them again"
    ) in cells[3].warned
    assert cells[4].value == "<Pipeline 'pipeline': 2 steps, not run>"
    assert lines(cells[6].printed) == ["jam 1", "tea 2"]


def test_an_edited_cell_replaces_its_earlier_steps() -> None:
    cells = run_cells(
        START,
        ("edited", "words | tg.Map(lambda word: print('wrong', word))"),
        ("edited", "words | tg.FlatMap(lambda word: print('right', word) or ())"),
        RUN,
        ("edited", "p.run()"),
    )
    assert lines(cells[3].printed) == ["right jam", "right tea", "right tea"]
    assert cells[4].printed == ""


def test_a_later_cell_replaces_a_label_if_the_editor_does_not_identify_cells() -> None:
    cells = run_cells(START[1], COUNT[1], COUNT[1], "p", "print(sorted(counts.collect()))")
    assert [cell.error for cell in cells] == [""] * 5
    assert cells[3].value == "<Pipeline 'pipeline': 2 steps, not run>"
    assert cells[4].printed == "[('jam', 1), ('tea', 2)]\n"


def test_a_label_that_a_cell_uses_twice_is_refused() -> None:
    cells = run_cells(START, ("twice", f"{COUNT[1]}\n{COUNT[1]}"))
    assert "another step is already labelled 'count': give this one a label of its own" in cells[1].error
    assert "applied at cell In[2], line 2" in cells[1].error
    assert "contextlib" not in cells[1].error


@pytest.mark.parametrize("identity", ["write", ""])
def test_a_sink_in_a_cell_that_is_run_again_is_replaced(tmp_path: Path, identity: str) -> None:
    source = f"counts | tg.Map(str) | tg.io.WriteToText({os.fspath(tmp_path / 'out')!r})"
    write = (identity, source) if identity else source
    cells = run_cells(START, COUNT, write, write, RUN)
    assert [cell.error for cell in cells] == [""] * 5
    written = [line for path in tmp_path.glob("out*") for line in path.read_text().splitlines()]
    assert sorted(written) == ["('jam', 1)", "('tea', 2)"]


def test_a_step_that_could_not_be_applied_leaves_its_label_free() -> None:
    cells = run_cells(
        START,
        "words | 'count' >> tg.Map(3)",
        "words | 'count' >> tg.ptransform_fn(lambda c: (c | tg.Map(len)) / 0)()",
        COUNT,
        PRINT,
        RUN,
    )
    assert "Map takes a function, not 3" in cells[1].error
    assert "TypeError" in cells[2].error
    assert cells[3].error == ""
    assert lines(cells[5].printed) == ["jam 1", "tea 2"]


def test_a_cell_that_would_read_its_own_earlier_output_is_refused_without_effect() -> None:
    again = ("again", "words = words | 'louder' >> tg.Map(str.upper)")
    cells = run_cells(START, again, again, ("look", "words.collect()"), START, again, ("look", "words.collect()"))
    assert "this step replaces 'louder', applied at cell In[2], line 1, but its input 'louder' was" in (cells[2].error)
    assert cells[3].value == cells[6].value == "['TEA', 'JAM', 'TEA']"


def test_the_error_of_a_collection_whose_step_was_removed_says_what_to_run() -> None:
    cells = run_cells(START, COUNT, ("fork", "words2 = words"), ("words", "del p['words']"), ("look", "counts.head(1)"))
    assert cells[3].error == ""
    assert "PCollection('count') is no longer in the pipeline" in cells[4].error
    assert "run its cell again" in cells[4].error


@pytest.mark.parametrize(
    "look",
    [
        "(words | tg.Map(lambda word: word['pgae'])).head(2)",
        "(words\n  | 'first' >> tg.Map(str)\n  | tg.Map(lambda word: word['pgae'])).collect(limit=9)",
        "for n in [1, 2]:\n    print((words | tg.Map(lambda word: word['pgae'])).head(n))",
        "tg.show(words | tg.Map(lambda word: word['pgae']))",
    ],
)
def test_steps_applied_in_the_expression_of_a_failed_look_are_removed(look: str) -> None:
    cells = run_cells(START, COUNT, PRINT, ("look", look), ("repr", "p"), RUN)
    assert "TypeError" in cells[3].error
    assert cells[4].value == "<Pipeline 'pipeline': 3 steps, not run>"
    assert cells[5].error == ""
    assert lines(cells[5].printed) == ["jam 1", "tea 2"]


def test_steps_whose_result_has_a_name_stay_after_a_look() -> None:
    cells = run_cells(
        START,
        ("named", "shown = words | tg.Map(lambda word: print('saw', word))\nshown.head(1)\ntg.show(shown, 1)"),
        ("assigned", "(loud := words | tg.Map(str.upper)).head(1)"),
        ("repr", "p"),
        ("use", "(loud | tg.Map(len)).collect()"),
    )
    assert [cell.error for cell in cells] == [""] * 5
    assert cells[3].value == "<Pipeline 'pipeline': 3 steps, not run>"
    assert cells[4].value == "[3, 3, 3]"
