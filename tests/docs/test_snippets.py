"""The code in README.md and docs/ runs and prints the output shown there; the names and links on the pages exist.

The blocks of each page are used in order, in a new folder that contains the repository's `examples`:

- a block marked `python` is run as a script. If it starts with `# name.py`, it is also saved under that name for the
  blocks after it; a test (`# test_….py`) or a module that defines `pipeline(options)` is only saved, and some command
  has to use it;
- a block marked `sh` is run by the shell if each of its lines calls `tidegate`, `python` or `pytest`;
- a block marked `text` after one of these is its expected output, in which `…` matches any text;
- a block marked `text fails` is the end of the expected stderr, or of pytest's report, and the command has to fail;
- a block after `<!-- not run: why -->` is skipped.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tidegate.runners.spark.driver.session import missing

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

FENCE = re.compile(
    r"(?P<before><!-- not run: [^>]+ -->\n+)?^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
PLUGIN = "tidegate.testing.plugin"
NO_DEADLINE = "unhurried_examples"
"""A plugin for snippets that use Hypothesis: no deadlines, because the machine may be busy."""
COMMANDS = ("tidegate", "python", "pytest")


@dataclass(frozen=True)
class Snippet:
    """A fenced block: its language, text, line, and expected output (None if the page shows none)."""

    language: str
    code: str
    line: int
    printed: str | None = None
    fails: bool = False

    @property
    def file_name(self) -> str | None:
        """The name given in a first line such as `# pipeline.py`."""
        found = re.match(r"# ([\w./-]+\.\w+)\n", self.code)
        return found[1] if found else None

    @property
    def is_saved_only(self) -> bool:
        """Whether it is a file for a later command: a test, or a pipeline that needs flags."""
        name = self.file_name
        return name is not None and (name.startswith("test_") or "def pipeline(" in self.code)

    @property
    def runs(self) -> bool:
        """Whether it can be run: it is Python, or consists of known commands."""
        if self.language == "sh":
            return all(line.startswith((*COMMANDS, " ")) for line in self.code.splitlines() if line.strip())
        return self.language == "python"


def snippets(page: str) -> list[Snippet]:
    """The blocks of a page that can be run, with their expected output."""
    found: list[Snippet] = []
    for match in FENCE.finditer(page):
        language, _, options = match["info"].partition(" ")
        line = page.count("\n", 0, match.start("code")) + 1
        if language == "text" and found:
            command = found.pop()
            found.append(Snippet(command.language, command.code, command.line, match["code"], "fails" in options))
        elif not match["before"]:
            found.append(Snippet(language, match["code"], line))
    return [snippet for snippet in found if snippet.runs]


def run(snippet: Snippet, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a snippet in the page's folder, as a reader would."""
    name = snippet.file_name
    if snippet.language == "sh":
        command = ["sh", "-e", "-c", snippet.code]
    else:
        script = folder / (name or "snippet.py")
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(snippet.code, encoding="utf-8")
        command = [sys.executable, str(script.relative_to(folder))]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a user who has installed this working copy and works in `folder`."""
    bin = folder / ".bin"
    bin.mkdir(exist_ok=True)
    for name, call in (
        ("tidegate", "-c 'from tidegate.cli import main; main()'"),
        ("python", ""),
        ("pytest", "-m pytest"),
    ):
        (bin / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {call} "$@"\n')
        (bin / name).chmod(0o755)
    (bin / f"{NO_DEADLINE}.py").write_text(
        "from hypothesis import HealthCheck, settings\n"
        "settings.register_profile('unhurried', deadline=None, suppress_health_check=[HealthCheck.too_slow])\n"
        "settings.load_profile('unhurried')\n"
    )
    paths = [str(folder), str(ROOT), str(bin), os.environ.get("PYTHONPATH", "")]
    plugins = f"-p {NO_DEADLINE}" + ("" if plugin_is_installed() else f" -p {PLUGIN}")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": plugins,
        "COLUMNS": "100",
    }


def plugin_is_installed() -> bool:
    """Whether pytest discovers our plugin, as it does if Tidegate is installed."""
    return any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))


def matches(printed: str, expected: str) -> bool:
    """Whether `printed` equals `expected`, in which `…` matches any text."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_and_prints_the_output_shown(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if page.name == "spark.md" and not missing():
        request.getfixturevalue("spark_classes")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    found = snippets(page.read_text(encoding="utf-8"))
    for snippet in found:
        location = f"{page.relative_to(ROOT)}:{snippet.line}"
        if snippet.is_saved_only:
            name = str(snippet.file_name)
            (tmp_path / name).write_text(snippet.code, encoding="utf-8")
            assert any(s.language == "sh" and name in s.code for s in found), f"{location}: no command uses {name}"
            continue
        completed = run(snippet, tmp_path)
        if snippet.fails:
            assert completed.returncode != 0, f"{location} should fail, but prints\n{completed.stdout}"
            output = completed.stderr or completed.stdout
            assert snippet.printed is not None
            assert matches(output, f"…{snippet.printed.strip()}"), (
                f"{location} should end with\n{snippet.printed}\nnot\n{output}"
            )
            continue
        assert completed.returncode == 0, f"{location} fails:\n{completed.stdout}{completed.stderr}"
        if snippet.printed is not None:
            assert matches(completed.stdout, snippet.printed), (
                f"{location} should print\n{snippet.printed}\nbut prints\n{completed.stdout}"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_file_name_on_a_page_exists(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    linked = [page.parent / target for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text)]
    named = [
        ROOT / name for name in re.findall(r"`((?:tidegate|tests|examples|benchmarks|docs)/[\w./]*)(?::\w+)?`", text)
    ]
    missing = [str(path) for path in [*linked, *named] if not path.exists()]
    assert not missing, f"{page.name} refers to files that do not exist: {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_that_a_page_locates_in_a_file_is_defined_there(page: Path) -> None:
    placed = re.findall(r"`(tidegate/[\w./]+\.py):(\w+)`", page.read_text(encoding="utf-8"))
    missing = [
        f"{file}:{name}"
        for file, name in placed
        if not re.search(
            rf"^(?:class|def) {name}\b|^{name}\b.*=", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert not missing, f"{page.name} refers to names that are not defined: {missing}"


def test_output_matches_only_the_expected_text() -> None:
    assert matches("1\n2\n", "1\n2")
    assert matches("took 31 ms\n", "took … ms")
    assert not matches("1\n3\n", "1\n2")


def test_blocks_are_found_with_their_expected_output() -> None:
    page = """\
```python
print(1)
```

```text
1
```
<!-- not run: it is long -->
```sh
tidegate run
```
```sh
rm -r x
```
"""
    assert snippets(page) == [Snippet("python", "print(1)\n", 2, "1\n")]
