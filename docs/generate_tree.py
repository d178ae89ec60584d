"""Writes the tree of the package into a page: `python docs/generate_tree.py docs/architecture.md`.

Every folder and module of `tidegate/` is listed with the first sentence of its docstring, between two comments that
mark the place. `make tree` runs it, and tests/test_repository.py compares the paths.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "tidegate"
BEGIN, END = "<!-- tree: written by `make tree` -->\n\n", "<!-- end of tree -->"
WIDTH = 120


def phrase(path: Path) -> str:
    """The first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    summary = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"\.(?:\s|$)", summary, maxsplit=1)[0]


def rows(folder: Path, indent: str = "") -> Iterator[tuple[str, str]]:
    """A folder, then its subfolders and its modules: the path's last part, indented, and a phrase."""
    yield f"{indent}{folder.name}/", phrase(folder / "__init__.py")
    inside = sorted(folder.iterdir())
    for sub in inside:
        if (sub / "__init__.py").is_file():
            yield from rows(sub, indent + "  ")
    for module in inside:
        if module.suffix == ".py" and module.name != "__init__.py":
            yield f"{indent}  {module.name}", phrase(module)


def tree() -> str:
    """The tree as an indented block of Markdown."""
    listed = list(rows(PACKAGE))
    column = max(len(name) for name, _ in listed) + 2
    return "".join(
        f"    {name.ljust(column)}{shorten(said, WIDTH - column - 4)}".rstrip() + "\n" for name, said in listed
    )


def shorten(said: str, width: int) -> str:
    """A sentence that fits: its first thought, if that says something, or as many words as there is room for."""
    if len(said) <= width:
        return said
    first = re.split(r"[:;]\s", said, maxsplit=1)[0]
    return first if width / 2 < len(first) <= width else said[: width - 1].rpartition(" ")[0].rstrip(",:;") + "…"


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
