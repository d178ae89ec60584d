"""Writes one task's output: blocks go to the attempts of its shards in turn, and all attempts are prepared together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidegate.runners.engine.errors.attribution import located, quietly, rethrow, user_error
from tidegate.runners.plan import Step
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink
from tidegate.sdk.data.block import Block, Pairs
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.metrics import ENGINE, FILES_WRITTEN, LAST_FILE, MetricCells, MetricKey
from tidegate.sdk.portable.model import Write


class SinkWriter:
    """The attempts of one task. `always`: prepare them even if nothing was written; no output is a result, too."""

    def __init__(self, step: Step, run: str, shards: Sequence[int], *, always: bool) -> None:
        node = step.tail
        assert isinstance(node, Write)
        self.step = step
        self.node = node
        self.run = run
        self.sink = loaded_sink(node)
        self._shards = shards
        self._always = always
        self._attempts: list[Attempt[Any]] = []
        self._next = 0
        self._closed = False

    def write(self, block: Block) -> None:
        """Write a block through the next attempt."""
        if not len(block):
            return
        attempts = self._open()
        values = list(block.values) if type(block.values) is Pairs else block.values
        sink_call(self.node, attempts[self._next].write, values, method="write")
        self._next = (self._next + 1) % len(attempts)

    def prepare(self, *, last: bool) -> tuple[Committable, ...]:
        """The committables of what was written since the last call. `last`: no more output follows."""
        if self._closed:
            return ()
        committables: list[Committable] = []
        for attempt in self._open() if last and self._always else self._attempts:
            committables += sink_call(self.node, attempt.prepare, method="prepare")
        if last:
            self._closed = True
            attempts, self._attempts = self._attempts, []
            for attempt in attempts:
                sink_call(self.node, attempt.close, method="close")
        return tuple(committables)

    def abandon(self) -> None:
        """Discard what was written, since the task has failed; errors are ignored."""
        for attempt in self._attempts:
            quietly(attempt.close)
        self._attempts = []

    def _open(self) -> list[Attempt[Any]]:
        while len(self._attempts) < len(self._shards):
            shard = self._shards[len(self._attempts)]
            self._attempts.append(sink_call(self.node, self.sink.attempt, self.run, shard, method="attempt"))
        return self._attempts


def loaded_sink(node: Write) -> Sink[Any]:
    """Unpickle the author's sink; an error names the step."""
    try:
        sink: Sink[Any] = node.sink.load()
    except TidegateError as error:
        rethrow(located(error, node.label, node.where))
    return sink


def remove_output(node: Write, runs: Iterable[str]) -> Exception | None:
    """Abort these runs in the sink, which removes their uncommitted output; the failure of one does not keep the others
    from being aborted. Return the first error."""
    errors: list[Exception] = []
    for run in runs:
        try:
            sink_call(node, loaded_sink(node).abort, run, method="abort")
        except Exception as raised:
            errors.append(raised)
    return next(iter(errors), None)


def commit_output(
    node: Write, sink: Sink[Any], run: str, committables: Sequence[Committable], checkpoint: int | None = None
) -> MetricCells:
    """Commit output. The metrics returned have the number of files that the sink names, and the last of them."""
    names = sink_call(node, sink.commit, run, committables, checkpoint, method="commit")
    cells = MetricCells()
    if isinstance(names, Sequence) and not isinstance(names, str) and names:
        cells.count(MetricKey(node.label, ENGINE, FILES_WRITTEN), len(names))
        cells.gauges[MetricKey(node.label, ENGINE, LAST_FILE)] = str(names[-1])
    return cells


def sink_call(node: Write, call: Callable[..., Any], *args: Any, method: str) -> Any:
    """Call a sink's method; an error names the step."""
    try:
        return call(*args)
    except TidegateError as error:
        rethrow(located(error, node.label, node.where))
    except Exception as error:
        rethrow(user_error(error, step=node.label, where=node.where, method=method))
