"""Writes the tables of operations and casts into a page: `python docs/generate_operations.py docs/expressions.md`.

They are made from the table that binding and the back ends use. `make reference` runs it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tidegate
from tidegate.sdk.relational.expressions import INFIX
from tidegate.sdk.relational.operations import CASTS, IMPLICIT, OPERATIONS, Operation, Signature

WRITTEN = {
    "part": "a[b]",
    "negate": "-a",
    "not": "~a",
    "abs": "abs(a)",
    "is_null": "a.is_null()",
    "not_distinct": "a.is_not_distinct_from(b)",
    "is_in": "a.is_in([…])",
    "like": "a.like(pattern)",
}
"""How authors write the operations that are neither infix operators nor functions of `tg.fn`."""

NULLS = {"strict": "if an argument is NULL", "never": "never", "own": "by its meaning"}


def tables() -> dict[str, str]:
    """Each table by the name of its place."""
    every = OPERATIONS.values()
    return {
        "operations": "".join(_operations(each for each in every if not each.aggregate)),
        "aggregates": "".join(_aggregates(each for each in every if each.aggregate)),
        "casts": "".join(_casts()),
    }


def page(text: str) -> str:
    """The page with its tables written anew. SystemExit if it has no place for one."""
    for name, table in tables().items():
        begin, end = f"<!-- {name}: written by `make reference` -->\n\n", f"\n<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            sys.exit(f"the page has no place for the {name}: put {begin.strip()!r} and {end.strip()!r} there")
        text = before + begin + table + end + after
    return text


def written(operation: Operation) -> str:
    """How authors write an operation."""
    if operation.name in INFIX:
        return f"a {INFIX[operation.name]} b"
    if operation.name in tidegate.fn.__all__:
        return f"tg.fn.{operation.name}"
    return WRITTEN[operation.name]


def _operations(rows: Iterable[Operation]) -> Iterator[str]:
    yield "| operation | meaning | types | is NULL | can fail |\n|---|---|---|---|---|\n"
    for each in rows:
        fails = "yes" if each.fails else ""
        yield f"| {_code(written(each))} | {_cell(each.summary)} | {_types(each)} | {NULLS[each.nulls]} | {fails} |\n"


def _aggregates(rows: Iterable[Operation]) -> Iterator[str]:
    yield "| aggregate | meaning | types | of no values |\n|---|---|---|---|\n"
    for each in rows:
        empty = "0" if each.nulls == "never" else "NULL"
        yield f"| {_code(written(each))} | {_cell(each.summary)} | {_types(each)} | {empty} |\n"


def _casts() -> Iterator[str]:
    yield "| from | to | implicit | can fail |\n|---|---|---|---|\n"
    for (given, to), fails in CASTS.items():
        yield f"| {given} | {to} | {'yes' if (given, to) in IMPLICIT else ''} | {'yes' if fails else ''} |\n"


def _types(operation: Operation) -> str:
    return "; ".join(map(_signature, operation.signatures))


def _signature(signature: Signature) -> str:
    takes = ", ".join(f"{each.type}{' …' if each.repeated else ''}" for each in signature.parameters)
    return f"{takes or 'nothing'} → {signature.result}"


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return re.sub(r"\|", r"\\|", text)


def main() -> None:
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
