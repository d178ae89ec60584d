"""The two ends of a channel: blocks go as far as the receiver has given credit, events need none and keep their place.

Small blocks wait for others until together they are a full one, or the buffer timeout has passed; a mark waits with
them, and gives way to a later one: a watermark that is late does no harm, one that is early does. A barrier waits for
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from tidegate.runners.engine.time.watermarks import Mark
from tidegate.runners.streaming.model.topology import ChannelId
from tidegate.runners.streaming.protocol.stream_items import Barrier, Item
from tidegate.sdk.data.block import Block, joined


class OutputChannel:
    """The sending end. `send` takes items that may leave: for every block among them there was credit."""

    __slots__ = (
        "_block_size",
        "_held",
        "_mark",
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
        """Those that are full of the channels that share this set."""
        self.since: int | None = None
        """Since when (µs of the monotonic clock) something has been waiting for more."""
        self._block_size = block_size
        self._send = send
        self._held: list[Block] = []
        self._size = 0
        self._mark: Mark | None = None
        self._queue: deque[Item] = deque()

    @property
    def full(self) -> bool:
        """Whether blocks wait for credit: the task should make no more."""
        return bool(self._queue)

    def add(self, block: Block, now: int) -> None:
        """Some elements. A mark that waits now waits for them, too."""
        self._held.append(block)
        self._size += len(block)
        if self._size >= self._block_size:
            self.flush()
        elif self.since is None:
            self.since = now

    def mark(self, mark: Mark, now: int) -> None:
        """How the collection stands now; one that has ended leaves at once."""
        self._mark = mark
        if mark.ended:
            self.ended = True
            self.flush()
        elif self.since is None:
            self.since = now

    def barrier(self, barrier: Barrier) -> None:
        """A barrier, behind all that has been given."""
        self._cut()
        self._queue.append(barrier)
        self.since = None
        self.pump()

    def overtake(self, barrier: Barrier) -> list[Block]:
        """A barrier, ahead of what waits for credit; returns the blocks that it has overtaken."""
        self._cut()
        overtaken = [item for item in self._queue if isinstance(item, Block)]
        self._queue.appendleft(barrier)
        self.since = None
        self.pump()
        return overtaken

    def flush(self) -> None:
        """Let go of what is there."""
        self._cut()
        self.since = None
        self.pump()

    def grant(self, credit: int) -> None:
        """The receiver takes this many blocks more."""
        self.credit += credit
        self.pump()

    def pump(self) -> None:
        """Send what may leave."""
        leaving: list[Item] = []
        while self._queue:
            if isinstance(self._queue[0], Block):
                if self.credit <= 0:
                    break
                self.credit -= 1
            leaving.append(self._queue.popleft())
        if self._queue:
            self.all_full.add(self.id)
        else:
            self.all_full.discard(self.id)
        if leaving:
            self._send(leaving)

    def _cut(self) -> None:
        """What is held becomes one block, and the mark follows it."""
        if self._held:
            self._queue.append(joined(self._held))
            self._held = []
            self._size = 0
        if self._mark is not None:
            self._queue.append(self._mark)
            self._mark = None


class InputChannel:
    """The receiving end. `grant` tells the sender that it may send so many blocks more."""

    __slots__ = ("_free", "_grant", "_items", "_owed", "_recording", "_step", "_until", "blocked", "id")

    def __init__(self, id: ChannelId, credit: int, grant: Callable[[int], None]) -> None:
        self.id = id
        self.blocked = False
        """Whether what comes next belongs behind a barrier that others have yet to reach."""
        self._items: deque[Item] = deque()
        self._grant = grant
        self._owed = 0
        self._free = 0
        self._step = max(1, credit // 2)
        self._recording: Callable[[Block], None] | None = None
        self._until: tuple[int, Callable[[], None]] = (0, lambda: None)

    @property
    def ready(self) -> bool:
        """Whether there is something to take now."""
        return bool(self._items) and not self.blocked

    def put(self, items: Iterable[Item]) -> None:
        """Items from the sender, in order."""
        if self._recording is None:
            self._items.extend(items)
            return
        for item in items:
            self._items.append(item)
            self._record(item)

    def take(self) -> Item:
        """The next item; room for a block is given back in runs."""
        item = self._items.popleft()
        if isinstance(item, Block):
            if self._free:
                self._free -= 1
                return item
            self._owed += 1
            if self._owed >= self._step:
                owed, self._owed = self._owed, 0
                self._grant(owed)
        return item

    def put_back(self, blocks: Sequence[Block]) -> None:
        """Blocks that had been under way when a snapshot was taken, ahead of what comes now; they took no credit."""
        self._items.extendleft(reversed(blocks))
        self._free += len(blocks)

    def record(self, checkpoint: int, note: Callable[[Block], None], done: Callable[[], None]) -> None:
        """Tell `note` of the blocks ahead of a checkpoint's barrier, which overtakes them: those that are here, and
        those to come; `done` is called when it has come, perhaps at once."""
        self._recording = note
        self._until = checkpoint, done
        for item in list(self._items):
            if self._recording is None:
                break
            self._record(item)

    def stop_recording(self) -> None:
        """The checkpoint is given up, or the channel has ended."""
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
            case Mark(ended=True) if self._recording is not None:
                self._recording = None
                done()
