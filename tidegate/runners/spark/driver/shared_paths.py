"""Paths that have to mean the same place to the driver and to the workers: looked at before a run on a cluster starts.

The driver puts a file where a sink is going to write, and asks tasks whether they see it; files that sources read are
looked for with the size that the driver sees.
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
"""How many of a source's files are looked for."""


class _Place(NamedTuple):
    """What a worker has to find: a file of some size, for a step."""

    path: str
    size: int
    shown: str
    step: str
    where: Where


def check_shared(spark: Any, plan: Plan, run_id: str, tasks: int) -> None:
    """UnsupportedError, naming step, path and worker, for a path of this machine that workers don't share."""
    with contextlib.ExitStack() as stack:
        places: list[_Place] = []
        for step in plan.steps:
            match step.head, step.tail:
                case Read() as node, _:
                    for path in list(node.source.load().local_files())[:_SAMPLE]:
                        if os.path.isfile(path):
                            places.append(_Place(path, os.path.getsize(path), path, node.label, node.where))
                case _, Write() as node:
                    for folder in node.sink.load().local_folders():
                        token = stack.enter_context(_token(folder, f".tidegate-{run_id}"))
                        places.append(_Place(token, len(run_id), folder or ".", node.label, node.where))
        if not places:
            return
        wanted = list(dict.fromkeys((place.path, place.size) for place in places))
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(_probe(wanted), "missing int, host string").collect()
    for row in rows:
        path, _ = wanted[row[0]]
        place = next(place for place in places if place.path == path)
        verb = "the file" if place.shown == path else "the folder"
        error = UnsupportedError(
            f"{verb} {place.shown} is not there for the worker on {row[1]}: driver and workers have to share it. "
            "Give an absolute path on a file system that all of them mount, or an object store (s3://…)"
        )
        raise located(error, place.step, place.where)


def _probe(wanted: list[tuple[str, int]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function that travels by value."""

    def tidegate_shared_paths(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import socket

        import pyarrow as pa  # type: ignore[import-untyped]

        missing = []
        for _ in batches:
            missing = [
                number
                for number, (path, size) in enumerate(wanted)
                if not os.path.isfile(path) or os.path.getsize(path) != size
            ]
        hosts = [socket.gethostname()] * len(missing)
        yield pa.RecordBatch.from_arrays([pa.array(missing, pa.int32()), pa.array(hosts)], names=["missing", "host"])

    return tidegate_shared_paths


@contextlib.contextmanager
def _token(folder: str, name: str) -> Iterator[str]:
    """A file in a folder of its own there; afterwards all is as it was."""
    made = []
    above = folder or "."
    while above and not os.path.isdir(above):
        made.append(above)
        above = os.path.dirname(above.rstrip("/"))
    home = os.path.join(folder, name)
    os.makedirs(home, exist_ok=True)
    path = os.path.join(home, "shared")
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(name.removeprefix(".tidegate-"))
        yield path
    finally:
        shutil.rmtree(home, ignore_errors=True)
        for each in made:
            with contextlib.suppress(OSError):
                os.rmdir(each)
