"""Checks, before a run on a cluster starts, that the driver and the workers share the paths of sources and sinks.

For a sink, the driver creates a file in the sink's folder, and tasks check that they see it. For a source, tasks check
that its files exist and have the same size as on the driver.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.plan import Plan
from tidegate.sdk.errors import UnsupportedError
from tidegate.sdk.portable.model import Read, Write
from tidegate.sdk.user_code.frames import Where

_SAMPLE = 16
"""How many of a source's files are checked."""


class _RequiredFile(NamedTuple):
    """A file that a worker must find, with this size. `shown` is the path in the error message."""

    path: str
    size: int
    shown: str
    step: str
    where: Where


def check_shared(spark: Any, plan: Plan, run_id: str, tasks: int) -> None:
    """Raise UnsupportedError, naming step, path and worker, for a local path that the workers don't share."""
    with contextlib.ExitStack() as stack:
        required: list[_RequiredFile] = []
        for step in plan.steps:
            match step.head, step.tail:
                case Read() as node, _:
                    for path in list(node.source.load().local_files())[:_SAMPLE]:
                        if os.path.isfile(path):
                            required.append(_RequiredFile(path, os.path.getsize(path), path, node.label, node.where))
                case _, Write() as node:
                    for folder in node.sink.load().local_folders():
                        marker = stack.enter_context(_marker_file(folder, f".tidegate-{run_id}"))
                        required.append(_RequiredFile(marker, len(run_id), folder or ".", node.label, node.where))
        if not required:
            return
        sizes = list(dict.fromkeys((file.path, file.size) for file in required))
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(_probe(sizes), "missing int, host string").collect()
    for row in rows:
        path, _ = sizes[row[0]]
        file = next(file for file in required if file.path == path)
        kind = "the file" if file.shown == path else "the folder"
        error = UnsupportedError(
            f"{kind} {file.shown} is not there for the worker on {row[1]}: driver and workers have to share it. "
            "Give an absolute path on a file system that all of them mount, or an object store (s3://…)"
        )
        raise located(error, file.step, file.where)


def _probe(sizes: list[tuple[str, int]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that checks the files in a task. It is pickled by value."""

    def tidegate_shared_paths(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import socket

        import pyarrow as pa

        missing = []
        for _ in batches:
            missing = [
                number
                for number, (path, size) in enumerate(sizes)
                if not os.path.isfile(path) or os.path.getsize(path) != size
            ]
        hosts = [socket.gethostname()] * len(missing)
        yield pa.RecordBatch.from_arrays([pa.array(missing, pa.int32()), pa.array(hosts)], names=["missing", "host"])

    return tidegate_shared_paths


@contextlib.contextmanager
def _marker_file(folder: str, name: str) -> Iterator[str]:
    """Create a file in a new subfolder of `folder`; remove it, and the folders created for it, at the end."""
    created = []
    parent = folder or "."
    while parent and not os.path.isdir(parent):
        created.append(parent)
        parent = os.path.dirname(parent.rstrip("/"))
    subfolder = os.path.join(folder, name)
    os.makedirs(subfolder, exist_ok=True)
    path = os.path.join(subfolder, "shared")
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(name.removeprefix(".tidegate-"))
        yield path
    finally:
        shutil.rmtree(subfolder, ignore_errors=True)
        for path in created:
            with contextlib.suppress(OSError):
                os.rmdir(path)
