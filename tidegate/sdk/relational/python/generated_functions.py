"""Functions of generated lines, which tracebacks show, and the text of those functions."""

from __future__ import annotations

import itertools
import linecache
from collections import deque
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
    _keep(file, source)
    function: Callable[..., Any] = environment[name]
    return function


def _keep(file: str, source: str) -> None:
    """Keep a text for tracebacks, and for the loops that contain it.

    A function is pickled and unpickled before it runs, so nobody knows when its last copy has gone. The oldest texts
    go, or a process that builds one pipeline after another would take more and more memory.
    """
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    _kept.append(file)
    if len(_kept) > _MOST:
        linecache.cache.pop(_kept.popleft(), None)


_MOST: Final = 4096
"""How many texts are kept. Functions whose text has gone are called by loops."""
_kept: Final[deque[str]] = deque()
_FILE: Final = "<tidegate "
"""How the names of the files begin that generated functions seem to be in."""


def body_of_compiled(function: Any) -> Body | None:
    """The text of a generated function; None for any other function."""
    code = getattr(function, "__code__", None)
    return find_body(function) if code is not None and code.co_filename.startswith(_FILE) else None


class GeneratedCombineFn(CombineFn[Any, list[Any], Any]):
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
