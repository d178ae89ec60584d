"""Copies a checkpoint's files to another storage, which makes it a savepoint."""

from __future__ import annotations

from collections.abc import Generator

from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.sdk.errors import RunError


def copy_savepoint(source: Storage, target: Storage, name: str, data: bytes) -> Generator[None, None, None]:
    """Copy a checkpoint, one file for each `next()`.

    `data` is the manifest. It is written last, under `name`, so that an interrupted copy is no savepoint.
    """
    for file, size, _ in loads(data).files():
        content = source.read(file)
        if len(content) != size:
            raise RunError(f"{file} has {len(content)} bytes, not {size}: it is damaged")
        target.write(file, content)
        yield
    target.write(name, data)
