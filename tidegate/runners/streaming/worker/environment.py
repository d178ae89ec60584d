"""The services that a worker uses, passed in: real sockets and files, or simulated ones in tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.streaming.protocol.stream_items import Item
from tidegate.runners.streaming.protocol.worker_messages import ToCoordinator
from tidegate.runners.streaming.state.staging import StagedFiles
from tidegate.runners.streaming.state.uploads import PendingFile
from tidegate.runners.streaming.storage.background import Work

if TYPE_CHECKING:
    from tidegate.runners.streaming.state.backend import Operators, StateBackend


class WorkerServices(Protocol):
    """Clock, network and storage of one worker."""

    clock: Clock
    storage: Storage | None
    """None if the job takes no checkpoints."""
    staged: StagedFiles
    """The files that sinks stage until they are committed."""
    commits: Work
    """The background thread that makes commits."""

    def report(self, message: ToCoordinator) -> None:
        """Send a message to the coordinator. Keeps the order, never blocks."""

    def send(self, worker: int, channel: ChannelId, items: Sequence[Item], *, flush: bool) -> None:
        """Send items to a channel's receiving end in another worker. Keeps the order within the channel and never
        blocks, because credit has been granted for every block."""

    def grant(self, worker: int, channel: ChannelId, credit: int) -> None:
        """Grant the sending end of a channel, in another worker, credit for this many more blocks."""

    def backend(self, task: TaskId, attempt: int, operators: Operators, budget: int) -> StateBackend:
        """The state backend of a task. A backend that stores state on disk may cache `budget` bytes of it in memory."""

    def store(self, name: str, state: bytes) -> PendingFile:
        """Begin to store a task's state without blocking; it becomes durable before the manifest is stored."""

    def background(self) -> Work:
        """Another background thread for work that may block."""

    def wake(self) -> None:
        """End the current wait of the worker's loop, or the next; any thread may call this."""

    def seconds(self) -> float:
        """A clock for measuring durations, in seconds."""

    def directory(self) -> Path:
        """The directory of the run, shared by all its workers: for blocking exchanges and spilled files."""
