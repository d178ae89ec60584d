"""mypy and pyright, as they are without any settings, accept the code of the README, docs and examples as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_snippets import PAGES, ROOT, snippets


def name_of(page: Path) -> str:
    return re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each page, with its Python snippets under the names that they give themselves; and the examples."""
    root = tmp_path_factory.mktemp("shown")
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


def test_mypy_accepts_what_is_shown(shown: Path, tmp_path: Path) -> None:
    checked = [sys.executable, "-m", "mypy", "--no-error-summary", "--config-file", os.devnull]
    checked += ["--python-executable", sys.executable, "--cache-dir", str(tmp_path), "--ignore-missing-imports"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    said = []
    for folder in sorted(path for path in shown.iterdir() if any(path.glob("*.py"))):
        files = [path.name for path in sorted(folder.glob("*.py"))]
        done = subprocess.run([*checked, *files], capture_output=True, text=True, cwd=folder, env=environment)
        assert done.returncode in (0, 1), done.stderr
        said += [f"{folder.name}/{line}" for line in done.stdout.splitlines() if ": error:" in line]
    assert said == []


def test_pyright_accepts_what_is_shown(shown: Path) -> None:
    # Imports that are not there (an author's own package, an extra) are the page's business; a pipeline's steps are
    # expressions whose value nobody uses, which is a warning that the author switches off once.
    settings = {"reportMissingImports": False, "reportUnusedExpression": False, "extraPaths": [str(ROOT)]}
    (shown / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(shown)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=shown)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] > 40
    said = [
        f"{Path(one['file']).relative_to(shown)}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    assert said == []
