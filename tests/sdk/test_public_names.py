"""`dir()` of the public modules lists the names meant for authors, and no others."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidegate as tg
import tidegate.testing
from tidegate.sdk.connectors import sinks, sources
from tidegate.sdk.data import block

MODULES = [tg, tg.io, tg.combiners]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_dir_lists_only_the_public_names(module: Any) -> None:
    assert dir(module) == sorted(module.__all__)


def test_dir_of_the_testing_kit_includes_its_two_lazy_modules() -> None:
    names = {"harness", "strategies"}
    assert dir(tidegate.testing) == sorted({*tidegate.testing.__all__, *names})
    assert {type(getattr(tidegate.testing, name)) for name in names} == {ModuleType}


@pytest.mark.parametrize("module", [*MODULES, tidegate.testing], ids=lambda module: module.__name__)
def test_every_name_that_dir_lists_exists_once_and_is_no_type_variable(module: Any) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    found = {name: getattr(module, name) for name in dir(module)}
    assert [name for name, value in found.items() if type(value).__name__ == "TypeVar"] == []


def test_names_that_are_imported_on_first_use_are_those_that_type_checkers_see() -> None:
    parsed = ast.parse(Path(tg.__file__).read_text(encoding="utf-8"))
    [for_checkers] = [each for each in parsed.body if isinstance(each, ast.If)]
    seen = {
        alias.asname or alias.name: (each.module, alias.name)
        for each in for_checkers.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    defined = {name: (module, name) for name, module in tg._MODULES.items()}
    modules = {name: tuple(module.rsplit(".", 1)) for name, module in tg._WHOLE_MODULES.items()}
    assert seen == {**defined, **modules}
    assert set(seen) <= set(tg.__all__)


def test_a_name_is_imported_once() -> None:
    tg.__dict__.pop("FixedWindows", None)
    assert tg.FixedWindows is tg.__dict__["FixedWindows"]


def test_the_classes_for_connectors_are_in_io_and_in_their_original_modules() -> None:
    from_sources = ("Source", "SimpleSource", "Reader", "Split", "Batch", "Position")
    from_sinks = ("Sink", "Attempt", "Committable", "StagedFile", "Delivery", "in_order")
    for module, names in ((sources, from_sources), (sinks, from_sinks), (block, ("Block",))):
        for name in names:
            assert getattr(tg.io, name) is getattr(module, name)


def test_every_combiner_function_of_the_library_is_public() -> None:
    names = vars(tg.combiners)
    functions = {name for name in names if name.endswith("Fn") and name not in ("CombineFn", "DoFn")}
    assert functions <= set(tg.combiners.__all__)
