"""One worker without processes or a coordinator: the test sends it every message itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.streaming.inline_work import InlineWork
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.staging import StagedFileStore
from tidegate.runners.streaming.state.uploads import DirectFileStore


class IsolatedWorker:
    """A worker's environment that records what the worker sends."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.storage: Any = LocalStorage(folder)
        self.files: Any = DirectFileStore(self.storage)
        self.staged = StagedFileStore(self.storage)
        self.commits = InlineWork()
        self.reported: list[Any] = []

    def report(self, message: Any) -> None:
        self.reported.append(message)

    def send(self, *_: Any, flush: bool) -> None: ...

    def grant(self, *_: Any) -> None: ...

    def backend(self, task: TaskId, attempt: int, operators: Any, budget: int) -> Any:
        return MemoryBackend(operators, self.files, forks=False, full_every=10)

    def store(self, name: str, state: bytes) -> Any:
        return self.files.put(name, state)

    def background(self) -> InlineWork:
        return InlineWork()

    def wake(self) -> None: ...

    def seconds(self) -> float:
        return 0.0

    def directory(self) -> Path:
        raise AssertionError
