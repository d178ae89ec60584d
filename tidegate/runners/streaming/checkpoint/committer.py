"""Makes the commits of a worker beside its loop, so that a slow one does not delay tasks, heartbeats or checkpoints."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tidegate.runners.engine.errors.transport import packed
from tidegate.runners.engine.sinks.staged_files import Open, openable
from tidegate.runners.engine.sinks.writer import commit_output, loaded_sink, sink_call
from tidegate.runners.streaming.model.exit_status import one_line
from tidegate.runners.streaming.protocol.worker_messages import Commit, Committed
from tidegate.runners.streaming.storage.background import PendingWork, Steps, Work
from tidegate.sdk.connectors.outage import is_outage
from tidegate.sdk.connectors.sinks import Sink
from tidegate.sdk.portable.model import Write


class Committer:
    """The commits of one worker, which `background` makes one after another. Each sink is unpickled once, where it
    commits. `opens` opens the staged files, and `report` sends the answers to the coordinator."""

    def __init__(self, background: Work, opens: Open, report: Callable[[Committed], None]) -> None:
        self._background = background
        self._opens = opens
        self._report = report
        self._sinks: dict[int, Sink[Any]] = {}
        self._pending: deque[PendingWork[Committed]] = deque()

    def begin(self, node: Write, message: Commit) -> None:
        """Make a commit after all earlier ones."""
        self._pending.append(self._background.begin(self._commit(node, message)))

    def poll(self) -> None:
        """Report the commits that have been made."""
        while self._pending and (done := self._pending[0].poll()) is not None:
            self._pending.popleft()
            self._report(done)

    def close(self) -> None:
        """Make no further commit. One that is in progress goes on."""
        for work in self._pending:
            work.abandon()
        self._pending.clear()

    def _commit(self, node: Write, message: Commit) -> Steps[Committed]:
        committed = partial(Committed, message.step, message.checkpoint, task=message.task)
        try:
            sink = self._sinks.get(message.step)
            if sink is None:
                sink = self._sinks[message.step] = loaded_sink(node)
            committables = openable(message.committables, self._opens)
            written = commit_output(node, sink, message.run, committables, message.checkpoint)
            if message.checkpoint is None:
                sink_call(node, sink.abort, message.run, method="abort")
        except Exception as error:
            return committed(packed(error), one_line(error), outage=is_outage(error))
        return committed(written=written)
        yield
