"""mypy and pyright, without any settings, accept the code of the README, docs and examples."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.test_snippets import PAGES, ROOT, snippets
from tests.typing.type_checkers import run_checker

pytestmark = pytest.mark.xdist_group("type checkers")


def name_of(page: Path) -> str:
    return re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))


@pytest.fixture(scope="module")
def code_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the Python snippets of each page to a folder, under the names they declare, and copy the examples."""
    root = tmp_path_factory.mktemp("code")
    for page in PAGES:
        folder = root / name_of(page)
        folder.mkdir()
        for snippet in snippets(page.read_text(encoding="utf-8")):
            if snippet.language == "python" and not snippet.fails:
                name = snippet.file_name or f"{folder.name}_line_{snippet.line}.py"
                (folder / name).write_text(snippet.code, encoding="utf-8")
    (root / "examples").mkdir()
    for example in (ROOT / "examples").glob("*.py"):
        (root / "examples" / example.name).write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    return root


def apart(folders: Iterable[Path]) -> list[dict[str, Path]]:
    """The files of the folders by name, in as few groups as have no name twice: mypy starts once for each group."""
    groups: list[dict[str, Path]] = []
    for folder in folders:
        files = {path.name: path for path in folder.glob("*.py")}
        for group in groups:
            if group.keys().isdisjoint(files):
                group.update(files)
                break
        else:
            groups.append(files)
    return groups


def test_mypy_accepts_the_code_shown(code_folder: Path, tmp_path: Path) -> None:
    checked = [sys.executable, "-m", "mypy", "--no-error-summary", "--config-file", os.devnull]
    checked += ["--python-executable", sys.executable, "--cache-dir", str(tmp_path / "cache")]
    checked += ["--ignore-missing-imports"]
    errors = []
    for number, files in enumerate(apart(sorted(path for path in code_folder.iterdir() if path.is_dir()))):
        together = tmp_path / str(number)
        together.mkdir()
        for name, path in files.items():
            (together / name).write_bytes(path.read_bytes())
        completed = run_checker([*checked, *sorted(files)], together, {"MYPYPATH": str(ROOT)})
        assert completed.returncode in (0, 1), completed.stderr
        errors += [
            f"{files[line.partition(':')[0]].parent.name}/{line}"
            for line in completed.stdout.splitlines()
            if ": error:" in line
        ]
    assert errors == []


def test_pyright_accepts_the_code_shown(code_folder: Path) -> None:
    # A page may import packages that are not installed (the author's, an extra). The steps of a pipeline are
    # expressions whose values are not used, a warning that authors disable once.
    settings = {"reportMissingImports": False, "reportUnusedExpression": False, "extraPaths": [str(ROOT)]}
    (code_folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(code_folder)]
    completed = run_checker(command, code_folder)
    report = json.loads(completed.stdout)
    assert report["summary"]["filesAnalyzed"] > 40
    errors = [
        f"{Path(found['file']).relative_to(code_folder)}:{found['range']['start']['line'] + 1}: {found['message']}"
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    ]
    assert errors == []
