"""The world as coordinator and workers see it, passed in: a real one of processes and sockets, or a simulated one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.streaming.model.topology import ChannelId, TaskId
from tidegate.runners.streaming.protocol.stream_items import Item
from tidegate.runners.streaming.protocol.worker_messages import ToCoordinator

if TYPE_CHECKING:
    from tidegate.runners.streaming.state.backend import Operators, StateBackend
    from tidegate.runners.streaming.state.files import StateFile


class Storage(Protocol):
    """Where checkpoints are; names are relative paths with `/`. Raises OSError: FileNotFoundError for what is gone."""

    def read(self, name: str) -> bytes:
        """The whole of a file."""

    def write(self, name: str, data: bytes) -> None:
        """Durable when it returns, whole or not at all; replaces what was there."""

    def put(self, name: str, data: bytes) -> None:
        """As `write`, but durable only when `settle` has been told its name: nobody waits for the disk."""

    def put_file(self, name: str, path: Path) -> None:
        """As `put`, what a file of this machine holds, which need not fit into memory."""

    def settle(self, names: Iterable[str]) -> None:
        """Make durable what has been put under these names, by this process or another."""

    def create(self, name: str, data: bytes) -> bool:
        """As `write`, but False, and nothing changed, where the name exists already. Exactly one of many succeeds."""

    def unfinished(self, folder: str) -> list[str]:
        """What `list` does not name: files that writes which were cut short have left under a folder."""

    def list(self, folder: str) -> list[str]:
        """The names of all files under a folder, [] if it isn't there. Raises if any part of it can't be listed."""

    def delete(self, name: str) -> None:
        """A file that need not be there."""


class Storing(Protocol):
    """A file on its way into the checkpoint directory."""

    def poll(self) -> StateFile | None:
        """Which file it is, once it is stored; None: not yet. Never waits. OSError when it can't be stored."""

    def abandon(self) -> None:
        """It is not wanted any more."""


class World(Protocol):
    """What a worker is given."""

    clock: Clock
    storage: Storage | None
    """None when the run keeps no checkpoints."""

    def tell(self, message: ToCoordinator) -> None:
        """Send to the coordinator; in order, never blocks."""

    def send(self, worker: int, channel: ChannelId, items: Sequence[Item], *, flush: bool) -> None:
        """Send to a channel's receiving end in another worker; in order within the channel, never blocks: credit has
        been granted for every block."""

    def grant(self, worker: int, channel: ChannelId, credit: int) -> None:
        """Tell a channel's sending end in another worker that it may send `credit` more blocks."""

    def backend(self, task: TaskId, attempt: int, operators: Operators, budget: int) -> StateBackend:
        """What keeps the state of a task, of which `budget` bytes in memory where it need not all be there."""

    def store(self, name: str, state: bytes) -> Storing:
        """Store a task's state, without waiting for it; whoever stores the manifest settles it."""

    def seconds(self) -> float:
        """A clock that only tells how long things take."""

    def directory(self) -> Path:
        """Where results that are kept between regions, and what is spilled, go: shared by all workers of the run."""
