"""The two ends of a channel, with credit-based flow control: only blocks need credit, but all items stay in order.

Small blocks are buffered until together they fill a block, or until the buffer timeout. A collection status is buffered
behind them and replaced by a later one: a watermark may be delayed, but never overtake elements. Other events are not
buffered.

>>> sent = []
>>> channel = OutputChannel(ChannelId(0, 0, 0), credit=1, block_size=2, send=sent.extend)
>>> for value in "abcd":
...     channel.add(Block([value], 0), now=0)
>>> [block.values for block in sent], channel.full
([['a', 'b']], True)
>>> channel.grant(1)
>>> [block.values for block in sent], channel.full
([['a', 'b'], ['c', 'd']], False)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.protocol.stream_items import Barrier, Event, Item
from tidegate.sdk.data.block import Block, joined


class OutputChannel:
    """The sending end. `send` transmits items; there is credit for every block among them."""

    __slots__ = (
        "_block_size",
        "_buffer",
        "_status",
        "_queue",
        "_send",
        "_size",
        "all_full",
        "credit",
        "ended",
        "id",
        "since",
    )

    def __init__(self, id: ChannelId, credit: int, block_size: int, send: Callable[[list[Item]], None]) -> None:
        self.id = id
        self.credit = credit
        self.ended = False
        self.all_full: set[ChannelId] = set()
        """The channels without credit, among those that share this set."""
        self.since: int | None = None
        """Since when (µs of the monotonic clock) blocks or a status have been buffered."""
        self._block_size = block_size
        self._send = send
        self._buffer: list[Block] = []
        self._size = 0
        self._status: CollectionStatus | None = None
        self._queue: deque[Item] = deque()

    @property
    def full(self) -> bool:
        """Whether items wait for credit: the task should produce no more."""
        return bool(self._queue)

    def add(self, block: Block, now: int) -> None:
        """Buffer elements, ahead of a status that is buffered."""
        self._buffer.append(block)
        self._size += len(block)
        if self._size >= self._block_size:
            self.flush()
        elif self.since is None:
            self.since = now

    def send_status(self, status: CollectionStatus, now: int) -> None:
        """Buffer the status of the collection; the end of the collection is sent at once."""
        self._status = status
        if status.ended:
            self.ended = True
            self.flush()
        elif self.since is None:
            self.since = now

    def event(self, event: Event) -> None:
        """Send an event that is not buffered, such as a barrier, behind all earlier items."""
        self._queue_buffered()
        self._queue.append(event)
        self.since = None
        self.pump()

    def overtake(self, barrier: Barrier) -> list[Block]:
        """Send a barrier ahead of all items that wait for credit; returns the blocks that it overtakes."""
        self._queue_buffered()
        overtaken = [item for item in self._queue if isinstance(item, Block)]
        self._queue.appendleft(barrier)
        self.since = None
        self.pump()
        return overtaken

    def flush(self) -> None:
        """Send the buffered items, as far as there is credit."""
        self._queue_buffered()
        self.since = None
        self.pump()

    def grant(self, credit: int) -> None:
        """Add credit for this many more blocks."""
        self.credit += credit
        self.pump()

    def pump(self) -> None:
        """Send queued items as far as there is credit."""
        batch: list[Item] = []
        while self._queue:
            if isinstance(self._queue[0], Block):
                if self.credit <= 0:
                    break
                self.credit -= 1
            batch.append(self._queue.popleft())
        if self._queue:
            self.all_full.add(self.id)
        else:
            self.all_full.discard(self.id)
        if batch:
            self._send(batch)

    def _queue_buffered(self) -> None:
        """Queue the buffered blocks as one, and the status behind it."""
        if self._buffer:
            self._queue.append(joined(self._buffer))
            self._buffer = []
            self._size = 0
        if self._status is not None:
            self._queue.append(self._status)
            self._status = None


class InputChannel:
    """The receiving end. `grant` gives the sender credit for further blocks."""

    __slots__ = (
        "_without_credit",
        "_grant",
        "_items",
        "_consumed",
        "_recording",
        "_grant_size",
        "_until",
        "blocked",
        "id",
    )

    def __init__(self, id: ChannelId, credit: int, grant: Callable[[int], None]) -> None:
        self.id = id
        self.blocked = False
        """Whether the channel has delivered a barrier that other channels have not delivered yet."""
        self._items: deque[Item] = deque()
        self._grant = grant
        self._consumed = 0
        self._without_credit = 0
        self._grant_size = max(1, credit // 2)
        self._recording: Callable[[Block], None] | None = None
        self._until: tuple[int, Callable[[], None]] = (0, lambda: None)

    @property
    def ready(self) -> bool:
        """Whether there is an item to take now."""
        return bool(self._items) and not self.blocked

    def next_is(self, kind: type) -> bool:
        """Whether the next item is of this class; there must be one."""
        return isinstance(self._items[0], kind)

    def put(self, items: Iterable[Item]) -> None:
        """Append items from the sender, in order."""
        if self._recording is None:
            self._items.extend(items)
            return
        for item in items:
            self._items.append(item)
            self._record(item)

    def take(self) -> Item:
        """Remove and return the next item. Credit is granted in batches."""
        item = self._items.popleft()
        if isinstance(item, Block):
            if self._without_credit:
                self._without_credit -= 1
                return item
            self._consumed += 1
            if self._consumed >= self._grant_size:
                consumed, self._consumed = self._consumed, 0
                self._grant(consumed)
        return item

    def put_back(self, blocks: Sequence[Block]) -> None:
        """Restore blocks that were in flight in a snapshot, ahead of new ones. The sender used no credit for them."""
        self._items.extendleft(reversed(blocks))
        self._without_credit += len(blocks)

    def record(self, checkpoint: int, note: Callable[[Block], None], done: Callable[[], None]) -> None:
        """Call `note` with each block that a checkpoint's barrier has overtaken: those in the queue, and those that
        arrive before the barrier. Call `done` when the barrier arrives, or at once if it already has."""
        self._recording = note
        self._until = checkpoint, done
        for item in list(self._items):
            if self._recording is None:
                break
            self._record(item)

    def stop_recording(self) -> None:
        """Stop recording, because the checkpoint was aborted or the channel has ended."""
        self._recording = None

    def _record(self, item: Item) -> None:
        checkpoint, done = self._until
        match item:
            case Block() if self._recording is not None:
                self._recording(item)
            case Barrier(checkpoint=number) if self._recording is not None and number == checkpoint:
                self._recording = None
                self._items.remove(item)
                done()
            case CollectionStatus(ended=True) if self._recording is not None:
                self._recording = None
                done()
