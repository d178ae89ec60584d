"""Functions of generated lines, which tracebacks show, and the text of those functions."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tidegate.sdk.authoring.combine import CombineFn
from tidegate.sdk.user_code.body import Body, find_body

_numbers = itertools.count(1)


def compiled(name: str, parameters: str, lines: Sequence[str], names: dict[str, Any]) -> Callable[..., Any]:
    """A function of generated lines; tracebacks show them."""
    source = "\n    ".join([f"def {name}({parameters}):", *lines])
    file = f"{_FILE}{name} {next(_numbers)}>"
    environment = dict(names)
    exec(compile(source, file, "exec"), environment)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    function: Callable[..., Any] = environment[name]
    return function


_FILE: Final = "<tidegate "
"""How the names of the files begin that generated functions seem to be in."""


def body_of_compiled(function: Any) -> Body | None:
    """The text of a generated function; None for any other function."""
    code = getattr(function, "__code__", None)
    return find_body(function) if code is not None and code.co_filename.startswith(_FILE) else None


class GeneratedCombineFn(CombineFn[Any, list[Any], tuple[Any, ...]]):
    """A combiner of generated lines, which loops may contain as lines of their own.

    `adding` are lines that add an input `x` to an accumulator `a`, None if they call functions; `add_all` adds many
    inputs to an accumulator.
    """

    adding: tuple[str, ...] | None
    add_all: Callable[[list[Any], Iterable[Any]], list[Any]]

    @property
    def initial(self) -> str:
        """The expression of an accumulator without inputs."""
        raise NotImplementedError
