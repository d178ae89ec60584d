"""The world as coordinator and workers see it, passed in: a real one of processes and sockets, or a simulated one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.streaming.model.topology import ChannelId, TaskId
from tidegate.runners.streaming.protocol.stream_items import Item
from tidegate.runners.streaming.protocol.worker_messages import ToCoordinator
from tidegate.runners.streaming.state.uploads import Storing
from tidegate.runners.streaming.storage.base import Storage

if TYPE_CHECKING:
    from tidegate.runners.streaming.state.backend import Operators, StateBackend


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
