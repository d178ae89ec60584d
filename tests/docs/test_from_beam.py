"""Errors for names of Beam point to existing names of Tidegate, and docs/from_beam.md lists them."""

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


def test_the_page_lists_all_names_of_beam_with_their_answers() -> None:
    page = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `beam")]
    assert page == rows()


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_the_error_for_a_name_of_beam_points_to_ours(owner: str, name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(OWNERS[owner], name)
    module = {"beam": "tidegate", "beam.DoFn": "tg.DoFn"}.get(owner, owner.replace("beam", "tidegate"))
    assert str(caught.value) == f"{module} has no {name}; " + beam_names.TABLES[owner][name].replace("`", "")
    assert not hasattr(OWNERS[owner], name)


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_the_names_in_an_answer_exist(owner: str, name: str) -> None:
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
def test_the_error_for_a_misspelt_name_suggests_a_similar_one(owner: Any, name: str, answer: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert str(caught.value).startswith(answer)


@pytest.mark.parametrize("name", ["__path_of__", "_private"])
def test_private_names_get_no_suggestions(name: str) -> None:
    for owner in (tg, tg.io, tg.combiners):
        assert getattr(owner, name, None) is None


def test_submodules_can_be_imported() -> None:
    for name in ("tidegate.io.text.transforms", "tidegate.testing", "tidegate.io.spark"):
        assert importlib.import_module(name).__name__ == name


def test_the_error_for_flags_in_a_list_points_to_from_args() -> None:
    class MyOptions(tg.PipelineOptions):
        limit: int = 3

    with pytest.raises(tg.OptionsError) as caught:
        MyOptions(["--limit", "4"])  # type: ignore[arg-type]
    assert (
        str(caught.value)
        == "MyOptions takes its options by name; a command line is read by MyOptions.from_args(sys.argv[1:])"
    )
    assert MyOptions.from_args(["--limit", "4"]).limit == 4
