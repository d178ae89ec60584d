"""A worker that a test speaks to by hand, without processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

from tidegate.runners.engine.clock import ManualClock
from tidegate.runners.streaming.backends import MemoryBackend, StorageFiles
from tidegate.runners.streaming.layout import TaskId
from tidegate.runners.streaming.messages import StateHandle
from tidegate.runners.streaming.storage import LocalStorage


class Alone:
    """The world of one worker that the test speaks to."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.storage = LocalStorage(folder)
        self.told: list[Any] = []

    def tell(self, message: Any) -> None:
        self.told.append(message)

    def send(self, *_: Any, flush: bool) -> None: ...

    def grant(self, *_: Any) -> None: ...

    def backend(self, task: TaskId, attempt: int, operators: Any, budget: int) -> Any:
        return MemoryBackend(operators, StorageFiles(self.storage), forks=False, full_every=10)

    def store(self, name: str, state: bytes) -> StateHandle:
        self.storage.put(name, state)
        return StateHandle(((name, len(state), crc32(state)),))

    def seconds(self) -> float:
        return 0.0

    def directory(self) -> Path:
        raise AssertionError
