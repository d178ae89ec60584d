"""How a function that Spark sends to a Python worker makes the worker find Tidegate before it imports any of it."""

from __future__ import annotations

from collections.abc import Callable


def path_appender(paths: tuple[str, ...]) -> Callable[[], None]:
    """The function that appends `paths` to `sys.path`, those that are missing there.

    A path that begins with `./` is relative to the files that Spark sent to the workers. It is a nested function, so
    that it is pickled by value, as part of the function or class that calls it.
    """

    def append_paths() -> None:
        import os
        import sys

        for path in paths:
            if path.startswith("./"):
                from pyspark import SparkFiles

                path = os.path.join(SparkFiles.getRootDirectory(), path[2:])
            if path not in sys.path:
                sys.path.append(path)

    return append_paths
