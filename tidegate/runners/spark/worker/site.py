"""Runs as its `sitecustomize` when a Python process of a local master starts: lets it import PySpark as installed.

It also keeps PySpark's own processes, which serve the source of ticks, from printing tracebacks when Spark closes their
connections: that of a worker which has been idle for a minute, and that of the source when a stream stops.

Spark puts an archive of PySpark first on the module path. From an archive, every process compiles all modules anew:
two seconds of processor time, while Spark waits only ten seconds for the processes that it starts with a query.

The processes import this module from a copy, so it must not import Tidegate.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import TracebackType
from typing import Any


def without_archives(path: list[str]) -> list[str]:
    """The module path without those archives in an installed PySpark whose packages are installed beside it."""
    return [entry for entry in path if not _is_installed(entry, path)]


def _is_installed(archive: str, path: list[str]) -> bool:
    folder, name = os.path.split(archive)
    site, inside = folder[: -len(_INSIDE)], folder[-len(_INSIDE) :]
    package = os.path.join(site, name.partition(".zip")[0].partition("-")[0])
    return name.endswith(".zip") and inside == _INSIDE and site in path and os.path.isdir(package)


_INSIDE = os.sep + os.path.join("pyspark", "python", "lib")


_LOST = (BrokenPipeError, ConnectionResetError)


def unless_connection_is_lost(print_exc: Callable[..., None]) -> Callable[..., None]:
    """The function, which does nothing while the exception of a lost connection is handled."""

    def printing(*arguments: Any, **options: Any) -> None:
        if not isinstance(sys.exc_info()[1], _LOST):
            print_exc(*arguments, **options)

    return printing


def for_other_exceptions(hook: Callable[..., Any]) -> Callable[..., None]:
    """An exception hook that calls another one, but not for a lost connection."""

    def handle(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, _LOST):
            hook(kind, error, trace)

    return handle


def main() -> None:
    """Change the module path, and run the `sitecustomize` that this one hides, if any.

    That is searched for behind this one: it may be another copy, which does the same.
    """
    sys.path[:] = without_archives(sys.path)
    if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
        os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"  # without, it would print by other means
        traceback.print_exc = unless_connection_is_lost(traceback.print_exc)
    if sys.orig_argv[1:3] == ["-m", "pyspark.sql.streaming.python_streaming_source_runner"]:
        sys.excepthook = for_other_exceptions(sys.excepthook)
    entries, here = list(dict.fromkeys(sys.path)), os.path.dirname(__file__)
    behind = entries[entries.index(here) + 1 :] if here in entries else []
    hidden = PathFinder.find_spec("sitecustomize", behind)
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(module_from_spec(hidden))


if __name__ == "sitecustomize":
    main()
