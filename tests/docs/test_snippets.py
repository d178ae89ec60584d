"""What README.md and docs/ tell is true: their code runs and prints what they show; names and links lead somewhere.

Of each page, in order and in one fresh folder that has the repository's `examples` in it:

- a block marked `python` is run as a script; one that opens with `# name.py` is also kept under that name for what
  follows; one for pytest (`# test_….py`) or that defines `pipeline(options)` is only kept: a command has to use it;
- a block marked `sh` is run by the shell when each of its lines calls `tidegate`, `python` or `pytest`;
- a block marked `text` directly after either is what that printed, `…` standing for anything;
- one marked `text fails` is the end of what it said on stderr, or of pytest's report, and it has to fail;
- `<!-- not run: why -->` before a block leaves it out.
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

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

FENCE = re.compile(
    r"(?P<before><!-- not run: [^>]+ -->\n+)?^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
PLUGIN = "tidegate.testing.plugin"
UNHURRIED = "unhurried_examples"
"""A plugin for snippets that use hypothesis: what a machine with other things to do takes long for is no fault."""
COMMANDS = ("tidegate", "python", "pytest")


@dataclass(frozen=True)
class Snippet:
    """A fenced block: its language, its text and line, and what it should print (None: the page doesn't say)."""

    language: str
    code: str
    line: int
    printed: str | None = None
    fails: bool = False

    @property
    def file_name(self) -> str | None:
        """The name in a first line such as `# pipeline.py`."""
        found = re.match(r"# ([\w./-]+\.\w+)\n", self.code)
        return found[1] if found else None

    @property
    def is_kept_only(self) -> bool:
        """Whether it is a file for a command that follows: a test, or a pipeline that needs flags."""
        name = self.file_name
        return name is not None and (name.startswith("test_") or "def pipeline(" in self.code)

    @property
    def runs(self) -> bool:
        """Whether it can be run: Python, or commands that are ours."""
        if self.language == "sh":
            return all(line.startswith((*COMMANDS, " ")) for line in self.code.splitlines() if line.strip())
        return self.language == "python"


def snippets(page: str) -> list[Snippet]:
    """The page's blocks, each `text` one joined to what it follows."""
    found: list[Snippet] = []
    for match in FENCE.finditer(page):
        language, _, rest = match["info"].partition(" ")
        line = page.count("\n", 0, match.start("code")) + 1
        if language == "text" and found:
            asked = found.pop()
            found.append(Snippet(asked.language, asked.code, asked.line, match["code"], "fails" in rest))
        elif not match["before"]:
            found.append(Snippet(language, match["code"], line))
    return [snippet for snippet in found if snippet.runs]


def run(snippet: Snippet, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a snippet in the page's folder as a reader would."""
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
    """The environment of someone who has installed this working copy, and stands in `folder`."""
    bin = folder / ".bin"
    bin.mkdir(exist_ok=True)
    for name, call in (
        ("tidegate", "-c 'from tidegate.cli import main; main()'"),
        ("python", ""),
        ("pytest", "-m pytest"),
    ):
        (bin / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {call} "$@"\n')
        (bin / name).chmod(0o755)
    (bin / f"{UNHURRIED}.py").write_text(
        "from hypothesis import HealthCheck, settings\n"
        "settings.register_profile('unhurried', deadline=None, suppress_health_check=[HealthCheck.too_slow])\n"
        "settings.load_profile('unhurried')\n"
    )
    paths = [str(folder), str(ROOT), str(bin), os.environ.get("PYTHONPATH", "")]
    plugins = f"-p {UNHURRIED}" + ("" if plugin_is_installed() else f" -p {PLUGIN}")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": plugins,
        "COLUMNS": "100",
    }


def plugin_is_installed() -> bool:
    """Whether pytest finds our plugin by itself, as it does where Tidegate is installed."""
    return any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))


def matches(printed: str, expected: str) -> bool:
    """Whether `printed` is `expected`, in which `…` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_runs_and_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    found = snippets(page.read_text(encoding="utf-8"))
    for snippet in found:
        place = f"{page.relative_to(ROOT)}:{snippet.line}"
        if snippet.is_kept_only:
            name = str(snippet.file_name)
            (tmp_path / name).write_text(snippet.code, encoding="utf-8")
            assert any(s.language == "sh" and name in s.code for s in found), f"{place}: no command uses {name}"
            continue
        done = run(snippet, tmp_path)
        if snippet.fails:
            assert done.returncode != 0, f"{place} should fail, and prints\n{done.stdout}"
            said = done.stderr or done.stdout
            assert snippet.printed is not None
            assert matches(said, f"…{snippet.printed.strip()}"), (
                f"{place} should end with\n{snippet.printed}\nnot\n{said}"
            )
            continue
        assert done.returncode == 0, f"{place} fails:\n{done.stdout}{done.stderr}"
        if snippet.printed is not None:
            assert matches(done.stdout, snippet.printed), (
                f"{place} should print\n{snippet.printed}\nbut prints\n{done.stdout}"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_every_file_a_page_names_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    linked = [page.parent / target for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text)]
    named = [
        ROOT / name for name in re.findall(r"`((?:tidegate|tests|examples|benchmarks|docs)/[\w./]*)(?::\w+)?`", text)
    ]
    missing = [str(path) for path in [*linked, *named] if not path.exists()]
    assert not missing, f"{page.name} points to what is not there: {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_a_page_places_in_a_file_is_defined_there(page: Path) -> None:
    placed = re.findall(r"`(tidegate/[\w./]+\.py):(\w+)`", page.read_text(encoding="utf-8"))
    missing = [
        f"{file}:{name}"
        for file, name in placed
        if not re.search(
            rf"^(?:class|def) {name}\b|^{name}\b.*=", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert not missing, f"{page.name} looks in vain for {missing}"


def test_a_snippet_that_prints_something_else_is_noticed() -> None:
    assert matches("1\n2\n", "1\n2")
    assert matches("took 31 ms\n", "took … ms")
    assert not matches("1\n3\n", "1\n2")


def test_blocks_are_found_with_what_they_print() -> None:
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
