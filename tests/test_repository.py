"""Promises of the repository: a light import, documented modules, types that ship, pinned versions."""

from __future__ import annotations

import ast
import importlib.resources
import importlib.util
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tidegate

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = sorted((ROOT / "tidegate").rglob("*.py"))

HEAVY = ("click", "cloudpickle", "fsspec", "numpy", "pandas", "pyarrow", "pydantic", "pyspark", "rich", "zstandard")
UNUSED_BY_A_SMALL_PIPELINE = (
    "asyncio",
    "decimal",
    "difflib",
    "pathlib",
    "pydantic",
    "tempfile",
    "tidegate.runners.engine.asynchronous",
    "tidegate.runners.engine.grouping.global_combine",
    "tidegate.runners.engine.grouping.sessions",
    "tidegate.runners.engine.grouping.window_table",
    "tidegate.runners.engine.iteration.operator",
    "tidegate.runners.engine.ordering",
    "tidegate.runners.engine.side_inputs",
    "tidegate.runners.engine.sources.async_reader",
    "tidegate.runners.engine.sources.test_stream",
    "tidegate.runners.engine.stateful",
    "tidegate.runners.engine.triggers",
    "tidegate.runners.engine.windowing",
    "tidegate.runners.planner.relational",
    "tidegate.sdk.relational.operations",
    "tidegate.sdk.relational.python.row_function",
    "tidegate.sdk.relational.steps",
    "tidegate.transforms.calls.settings",
)
"""Modules that the run of a pipeline of plain functions and one grouping, with `--runner` alone, does without."""
SLOW_TO_IMPORT = ("asyncio", "importlib.metadata", "logging", "multiprocessing", "subprocess", "tempfile")


def run_python(script: str) -> str:
    """What `script` prints in a fresh interpreter that has loaded nothing else."""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_loaded_by_importing_tidegate() -> set[str]:
    """Names of the modules that `import tidegate` adds to those of a bare interpreter."""
    script = "import sys; before = set(sys.modules); import tidegate; print(*(set(sys.modules) - before))"
    return set(run_python(script).split())


def test_importing_tidegate_loads_no_heavy_package() -> None:
    loaded = modules_loaded_by_importing_tidegate()
    assert "tidegate" in loaded
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))


def test_importing_tidegate_loads_no_slow_part_of_the_standard_library() -> None:
    loaded = modules_loaded_by_importing_tidegate()
    assert loaded.isdisjoint(SLOW_TO_IMPORT), sorted(loaded.intersection(SLOW_TO_IMPORT))


def test_importing_tidegate_loads_no_module_of_pipelines_and_windows() -> None:
    loaded = modules_loaded_by_importing_tidegate()
    rooms = ("tidegate.transforms", "tidegate.sdk.primitives", "tidegate.sdk.windowing", "tidegate.sdk.portable")
    assert [name for name in loaded if name.startswith(rooms)] == []


def test_a_run_loads_no_parts_of_the_engine_that_its_pipeline_does_not_use() -> None:
    script = """
import sys
import tidegate as tg
with tg.Pipeline(options=["--runner", "direct"]) as p:
    p | tg.Create([1]) | tg.Map(lambda x: (x, x)) | tg.CombinePerKey(sum) | tg.Map(str)
print(*sys.modules)
"""
    loaded = set(run_python(script).split())
    assert "tidegate.runners.direct.execute" in loaded
    assert sorted(loaded.intersection(UNUSED_BY_A_SMALL_PIPELINE)) == []
    assert [name for name in UNUSED_BY_A_SMALL_PIPELINE if importlib.util.find_spec(name) is None] == []


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_importing_tidegate_takes_less_than_40_megabytes() -> None:
    status = run_python("import tidegate; print(open('/proc/self/status').read())")
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert peak is not None, status
    assert int(peak[1]) < 40 * 1024


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{path.relative_to(ROOT)} has no docstring"


def test_every_room_of_the_package_can_be_imported() -> None:
    without_init = {path.parent for path in MODULES if not (path.parent / "__init__.py").exists()}
    assert not without_init, f"no __init__.py in {sorted(str(room.relative_to(ROOT)) for room in without_init)}"


def test_the_marker_of_a_typed_package_ships() -> None:
    assert (importlib.resources.files("tidegate") / "py.typed").is_file()


def test_the_package_has_the_version_of_the_project() -> None:
    assert tidegate.__version__ == PROJECT["version"]


def test_the_console_script_leads_to_something_callable() -> None:
    assert callable(pkgutil.resolve_name(PROJECT["scripts"]["tidegate"]))


def requirements() -> list[Requirement]:
    """All that the project and its extras ask for, but for the extras' references to one another."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    asked = [Requirement(text) for group in groups for text in group]
    return [requirement for requirement in asked if requirement.name != PROJECT["name"]]


def pins() -> dict[str, str]:
    """Package name to the exact version that constraints.txt gives it."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_requirement_has_a_pin_within_its_bounds(requirement: Requirement) -> None:
    pin = pins().get(canonicalize_name(requirement.name))
    assert pin is not None, f"run 'make constraints': {requirement.name} has no pin"
    assert requirement.specifier.contains(pin), f"run 'make constraints': {requirement} is pinned to {pin}"


def test_the_contributors_guide_names_only_files_that_exist() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tidegate|tests|examples|benchmarks|docs)/[\w./]*)`", guide)
    assert named
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing, f"CONTRIBUTING.md names what is not there: {missing}"


LONG_MODULES: frozenset[str] = frozenset()
"""Modules of more than 500 lines. Remove a module once it is shorter; add none."""
LARGE_CLASSES: frozenset[str] = frozenset()
"""Classes of more than 300 lines. Remove a class once its responsibilities have been divided; add none."""


CROWDED_FOLDERS: frozenset[str] = frozenset()
"""Folders with too many modules. Remove a folder once it has been divided; add none."""


def test_no_module_has_more_than_500_lines_but_those_known() -> None:
    long = {str(path.relative_to(ROOT)) for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > 500}
    assert long - LONG_MODULES == set(), "split modules that do more than one thing into modules of one idea each"
    assert LONG_MODULES - long == set(), "no longer long: take them out of the list"


def test_no_class_has_more_than_300_lines_but_those_known() -> None:
    large = {
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno >= 300
    }
    assert large - LARGE_CLASSES == set(), "give one of the responsibilities a class of its own"
    assert LARGE_CLASSES - large == set(), "no longer large: take them out of the list"


@pytest.mark.parametrize(("root", "most"), [("tidegate", 15), ("tests", 20)])
def test_no_folder_holds_more_modules_than_one_can_take_in(root: str, most: int) -> None:
    folders = Counter(path.parent for path in (ROOT / root).rglob("*.py") if path.name != "__init__.py")
    full = {str(folder.relative_to(ROOT)) for folder, number in folders.items() if number > most}
    assert full - CROWDED_FOLDERS == set(), f"more than {most} modules: divide the folder by subject"
    known = {folder for folder in CROWDED_FOLDERS if folder.startswith(root)}
    assert known - full == set(), "no longer crowded: take them out of the list"


def test_no_module_imports_a_package_that_it_is_in() -> None:
    """Such an import closes a circle that import-linter does not look for: it compares siblings."""
    graph = grimp.build_graph("tidegate", cache_dir=None)
    upwards = {
        (module, imported)
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if module.startswith(f"{imported}.") and imported != "tidegate"  # its own imports are of sdk, io and transforms
    }
    assert upwards == set()


def generate_tree() -> Any:
    """The script that writes the tree."""
    spec = importlib.util.spec_from_file_location("generate_tree", ROOT / "docs" / "generate_tree.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_tree_in_the_page_on_architecture_is_the_real_one() -> None:
    listed = generate_tree().paths_in((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    modules = {path.relative_to(ROOT) for path in MODULES}
    real = {str(path) for path in modules if path.name != "__init__.py"} | {f"{path.parent}/" for path in modules}
    assert listed == real, "run `make tree`"


def test_the_first_sentence_of_every_module_fits_in_the_tree() -> None:
    assert generate_tree().too_long() == []
