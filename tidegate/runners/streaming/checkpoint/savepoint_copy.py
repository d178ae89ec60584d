"""Copying a checkpoint's files into another storage, which makes it a savepoint."""

from __future__ import annotations

from collections.abc import Generator

from tidegate.runners.streaming.checkpoint.manifest_json import loads
from tidegate.runners.streaming.storage.base import Storage
from tidegate.sdk.errors import RunError


def copy_savepoint(source: Storage, target: Storage, name: str, data: bytes) -> Generator[None, None, None]:
    """Copy what a manifest names from one store to another, file by file, and then, under `name`, the manifest."""
    for file, size, _ in loads(data).files():
        content = source.read(file)
        if len(content) != size:
            raise RunError(f"{file} has {len(content)} bytes, not {size}: it is damaged")
        target.write(file, content)
        yield
    target.write(name, data)
