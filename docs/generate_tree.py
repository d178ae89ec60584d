"""Writes the tree of the package into a page: `python docs/generate_tree.py docs/architecture.md`.

Every folder and module of `tidegate/` is listed with the first sentence of its docstring, between two comments that
mark the place. `make tree` runs it; tests/test_repository.py compares the paths, and refuses long sentences.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "tidegate"
BEGIN, END = "<!-- tree: written by `make tree` -->\n\n", "<!-- end of tree -->"
LONGEST_SENTENCE = 113
"""The characters of a sentence, without its period, that fit in a docstring of one line."""


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    summary = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"\.(?:\s|$)", summary, maxsplit=1)[0]


def rows(folder: Path, indent: str = "") -> Iterator[tuple[str, str]]:
    """A folder, then its subfolders and its modules: the path's last part, indented, and the sentence."""
    yield f"{indent}{folder.name}/", first_sentence(folder / "__init__.py")
    inside = sorted(folder.iterdir())
    for sub in inside:
        if (sub / "__init__.py").is_file():
            yield from rows(sub, indent + "  ")
    for module in inside:
        if module.suffix == ".py" and module.name != "__init__.py":
            yield f"{indent}  {module.name}", first_sentence(module)


def tree() -> str:
    """The tree as an indented block of Markdown."""
    listed = list(rows(PACKAGE))
    column = max(len(name) for name, _ in listed) + 2
    return "".join(f"    {name.ljust(column)}{sentence}".rstrip() + "\n" for name, sentence in listed)


def too_long() -> list[str]:
    """The sentences that the tree has no room for, each after the name of its module."""
    return [f"{name.strip()}: {sentence}" for name, sentence in rows(PACKAGE) if len(sentence) > LONGEST_SENTENCE]


def paths_in(page: str) -> set[str]:
    """The paths, from the repository's root, that the tree in a page lists."""
    found: set[str] = set()
    above: list[str] = []
    for line in page.partition(BEGIN)[2].partition(END)[0].splitlines():
        if not line:
            continue
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip()) - 4) // 2
        above[depth:] = [name]
        found.add("".join(above))
    return found


def main() -> None:
    page = Path(sys.argv[1])
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{page} has no place for the tree: put {BEGIN.strip()!r} and {END.strip()!r} where it belongs")
    page.write_text(before + begin + tree() + "\n" + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
