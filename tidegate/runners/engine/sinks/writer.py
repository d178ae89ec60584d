"""Writes one task's output through the attempts of its shards, in turn, and prepares them together."""

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
    """The attempts of one task. `always`: also where nothing is written, which is a result too."""

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
        self._over = False

    def write(self, block: Block) -> None:
        """A block to the next attempt in turn."""
        if not len(block):
            return
        attempts = self._open()
        values = list(block.values) if type(block.values) is Pairs else block.values
        sink_call(self.node, attempts[self._next].write, values, method="write")
        self._next = (self._next + 1) % len(attempts)

    def prepare(self, *, last: bool) -> tuple[Committable, ...]:
        """What has been written since the last time, as what a commit makes visible. `last`: nothing more comes."""
        if self._over:
            return ()
        committables: list[Committable] = []
        for attempt in self._open() if last and self._always else self._attempts:
            committables += sink_call(self.node, attempt.prepare, method="prepare")
        if last:
            self._over = True
            attempts, self._attempts = self._attempts, []
            for attempt in attempts:
                sink_call(self.node, attempt.close, method="close")
        return tuple(committables)

    def abandon(self) -> None:
        """The task has failed: throw away what was written, whatever that says."""
        for attempt in self._attempts:
            quietly(attempt.close)
        self._attempts = []

    def _open(self) -> list[Attempt[Any]]:
        while len(self._attempts) < len(self._shards):
            shard = self._shards[len(self._attempts)]
            self._attempts.append(sink_call(self.node, self.sink.attempt, self.run, shard, method="attempt"))
        return self._attempts


def loaded_sink(node: Write) -> Sink[Any]:
    """The author's sink; an error names the step."""
    try:
        sink: Sink[Any] = node.sink.load()
    except TidegateError as error:
        rethrow(located(error, node.label, node.where))
    return sink


def remove_output(node: Write, runs: Iterable[str]) -> Exception | None:
    """Have a sink remove what these runs have written and nobody is going to commit: of each, also when that of another
    can't be removed. The first error."""
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
    """Make output visible. The files that the sink names become metrics: how many there are, and the last one."""
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
