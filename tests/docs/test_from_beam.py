"""Names that Beam has: each is answered with ours, which are there, and docs/from_beam.md is the table of them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.sdk import beam_names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from_beam.md"
OWNERS: dict[str, Any] = {"beam": tg, "beam.io": tg.io, "beam.combiners": tg.combiners, "beam.DoFn": tg.DoFn}
NAMES = [(owner, name) for owner, table in beam_names.TABLES.items() for name in table]


def rows() -> list[str]:
    return [f"| `{owner}.{name}` | {beam_names.TABLES[owner][name]} |" for owner, name in NAMES]


def test_the_page_has_the_table_that_answers() -> None:
    page = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `beam")]
    assert page == rows()


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_a_name_of_beams_is_answered_with_ours(owner: str, name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(OWNERS[owner], name)
    where = {"beam": "tidegate", "beam.DoFn": "tg.DoFn"}.get(owner, owner.replace("beam", "tidegate"))
    assert str(caught.value) == f"{where} has no {name}; " + beam_names.TABLES[owner][name].replace("`", "")
    assert not hasattr(OWNERS[owner], name)


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_what_the_answer_names_is_there(owner: str, name: str) -> None:
    for path in re.findall(r"\btg((?:\.\w+)+)", beam_names.TABLES[owner][name]):
        found: Any = tg
        for part in path[1:].split("."):
            found = getattr(found, part)


@pytest.mark.parametrize(
    ("owner", "name", "answer"),
    [
        (tg, "ReadFromJdbc", "tidegate has no ReadFromJdbc; tg.io.ReadFromSpark reads what Spark can; "),
        (tg, "ReadFromText", "tidegate has no ReadFromText; did you mean tg.io.ReadFromText?"),
        (tg, "Top", "tidegate has no Top; did you mean tg.combiners.Top?"),
        (tg, "FixedWindow", "tidegate has no FixedWindow; did you mean tg.FixedWindows?"),
        (tg, "group_by_key", "tidegate has no group_by_key; did you mean tg.GroupByKey?"),
        (tg, "Frobnicate", "tidegate has no Frobnicate"),
        (tg.io, "ReadFromTxt", "tidegate.io has no ReadFromTxt; did you mean tg.io.ReadFromText?"),
        (tg.combiners, "Means", "tidegate.combiners has no Means; did you mean tg.combiners.Mean?"),
    ],
)
def test_a_typing_error_is_answered_with_the_nearest_name(owner: Any, name: str, answer: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert str(caught.value).startswith(answer)


@pytest.mark.parametrize("name", ["__path_of__", "_private"])
def test_names_that_python_looks_for_are_not_searched_for(name: str) -> None:
    for owner in (tg, tg.io, tg.combiners):
        assert getattr(owner, name, None) is None


def test_submodules_are_imported_as_before() -> None:
    for name in ("tidegate.io.text.transforms", "tidegate.testing", "tidegate.io.spark"):
        assert importlib.import_module(name).__name__ == name


def test_flags_given_as_a_list_are_answered_with_how_they_are_read() -> None:
    class Own(tg.PipelineOptions):
        limit: int = 3

    with pytest.raises(tg.OptionsError) as caught:
        Own(["--limit", "4"])  # type: ignore[arg-type]
    assert str(caught.value) == "Own takes its options by name; a command line is read by Own.from_args(sys.argv[1:])"
    assert Own.from_args(["--limit", "4"]).limit == 4
