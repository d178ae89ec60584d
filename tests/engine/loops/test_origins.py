"""Where functions come from: a script, a module, a cell of a notebook, a test, an archive, a compiled pipeline."""

from __future__ import annotations

import importlib
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidegate as tg
from tests.support.example_scripts import run_command
from tests.support.run_and_collect import collect
from tidegate.runners.engine.loops.inlining import INLINED
from tidegate.sdk.portable.json import dump

MODULE = """
LIMIT = 3

def scaled(x):
    return x * LIMIT

shifted = lambda x: x + 1
"""
SCRIPT = f"""
import tidegate as tg
{MODULE}
def inlined(result):
    return sorted((each.key.step, each.value) for each in result.metrics().query({INLINED!r}))

p = tg.Pipeline(options={{"checks": "off"}})
p | tg.Create([1, 2]) | "scale" >> tg.Map(scaled) | "shift" >> tg.Map(lambda x: x + 1) | "print" >> tg.Map(print)
if __name__ == "__main__":
    print(inlined(p.run()))
"""
PRINTED = "4\n7\n[('scale', 2), ('shift', 2)]\n"
RUN_COMPILED = f"""
import sys
from pathlib import Path
from tidegate.sdk.options.defaults import DEFAULTS, replaced
from tidegate.sdk.portable.json import load
from tidegate.sdk.runner import find_runner

job = load(Path(sys.argv[1]).read_bytes())
result = find_runner("direct").run(job, replaced(DEFAULTS, checks="off"))
print(sorted((each.key.step, each.value) for each in result.metrics().query({INLINED!r})))
"""


def run(*functions: Callable[..., Any]) -> tuple[list[Any], dict[str, int]]:
    """The results of functions, one after another, for 1 and 2; and how many elements were inlined in each, by its
    number."""

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        values = p | tg.Create([1, 2])
        for number, fn in enumerate(functions):
            values = values | str(number) >> tg.Map(fn)
        return {"values": values}

    found = collect(build, "direct", {"checks": "off"})
    counters = found.result.metrics().query(INLINED)
    return found.values("values"), {each.key.step: each.value for each in counters if each.key.step.isdigit()}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "an_author.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("an_author")
    del sys.modules["an_author"]


def test_functions_of_a_script_are_inlined(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_command(sys.executable, script)
    assert (done.stdout, done.stderr) == (PRINTED, "")


def test_functions_of_a_module_are_inlined(module: ModuleType) -> None:
    assert run(module.scaled, module.shifted) == ([4, 7], {"0": 2, "1": 2})


def test_a_loop_with_text_that_python_warns_about_is_compiled_without_a_further_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_careless_author.py").write_text("def three(x):\n    return 'yes' if x + 1 is 3 else 'no'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module("a_careless_author")
    assert run(module.three) == (["no", "yes"], {"0": 2})  # warnings are errors here


def test_functions_of_a_notebook_are_inlined() -> None:
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    from tests.support.notebook_kernel import run_cells

    before, after = SCRIPT.split("p = tg")
    pipeline = "p = tg" + after
    cells = run_cells(before, pipeline, "LIMIT = 5", pipeline, "def scaled(x):\n    return x - LIMIT", pipeline)
    assert [cell.error for cell in cells] == [""] * 6
    both = "[('scale', 2), ('shift', 2)]\n"
    assert [cell.printed for cell in cells[1::2]] == [PRINTED, f"6\n11\n{both}", f"-3\n-2\n{both}"]


def asserting(x: int) -> int:
    assert x > 0
    return x * 2


def test_functions_of_a_test_are_inlined_unless_pytest_has_rewritten_them() -> None:
    values, inlined = run(lambda x: x + 1, asserting)
    assert values == [4, 6]
    assert inlined == {"0": 2}


def test_functions_in_an_archive_are_inlined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "authors.zip", "w") as archive:
        archive.writestr("zipped/__init__.py", "")
        archive.writestr("zipped/author.py", MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "authors.zip"))
    module = importlib.import_module("zipped.author")
    assert run(module.scaled, module.shifted) == ([4, 7], {"0": 2, "1": 2})
    for name in ("zipped", "zipped.author"):
        monkeypatch.delitem(sys.modules, name)


def test_functions_of_a_file_that_was_edited_after_its_import_do_what_was_imported(module: ModuleType) -> None:
    assert module.__file__ is not None
    Path(module.__file__).write_text(MODULE.replace("x * LIMIT", "x * 10").replace("x + 1", "x  + 1"))
    assert run(module.scaled, module.shifted) == ([4, 7], {})


def test_an_edit_of_other_functions_in_the_file_makes_no_difference(module: ModuleType) -> None:
    assert module.__file__ is not None
    Path(module.__file__).write_text(MODULE.replace("x + 1", "x - 1"))
    assert run(module.scaled, module.shifted) == ([4, 7], {"0": 2})


def test_functions_of_a_compiled_script_are_inlined_where_its_source_is_not(tmp_path: Path) -> None:
    script, job, runs = tmp_path / "script.py", tmp_path / "job.json", tmp_path / "elsewhere.py"
    script.write_text(SCRIPT)
    runs.write_text(RUN_COMPILED)
    compiled = run_command(sys.executable, "-m", "tidegate", "compile", script, "-o", job)
    assert compiled.returncode == 0, compiled.stderr
    script.unlink()
    done = run_command(sys.executable, runs, job)
    assert (done.stdout, done.stderr) == (PRINTED, "")


def test_functions_of_a_compiled_pipeline_stay_as_they_were_when_their_module_changes(
    module: ModuleType, tmp_path: Path
) -> None:
    assert module.__file__ is not None
    pipeline = tg.Pipeline()
    pipeline | tg.Create([1, 2]) | "scale" >> tg.Map(module.scaled) | "print" >> tg.Map(print)
    (tmp_path / "job.json").write_text(dump(pipeline.sealed(values=True)))
    (tmp_path / "elsewhere.py").write_text(RUN_COMPILED)
    Path(module.__file__).write_text(MODULE.replace("x * LIMIT", "x * 10"))
    done = run_command(sys.executable, tmp_path / "elsewhere.py", tmp_path / "job.json")
    assert (done.stdout, done.stderr) == ("3\n6\n[('scale', 2)]\n", "")
