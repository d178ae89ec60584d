"""The interface of sinks: a two-phase commit, in which attempts write output and one commit makes it visible.

A `Sink` is a frozen, picklable description of where output goes. Two phases make visible output exactly-once, however
often parts of the work are repeated:

1. Each writing task opens an `Attempt`. The attempt writes where output is not yet visible (a temporary file, an open
   transaction). Its `prepare` turns everything written since the last `prepare` into `Committable`s: small records
   that can be committed without the attempt, its process or its connection. A task that runs twice, or on two workers
   at once, has two independent attempts; the runner commits the committables of only one.
2. When a *set* of committables is durable with the runner (in the result of a run, or in a completed checkpoint), one
   process calls `Sink.commit` with it. If that process dies during the call, the call is repeated.

Bounded runs prepare once at the end and commit once for the run (`checkpoint=None`): the sink may then choose final
names that include the number of parts, and replace an earlier run's output. Streaming runs prepare at each checkpoint
barrier and commit when the checkpoint is complete; they only add output.

`abort` removes the output of a run that was never committed: that of failed attempts, of aborted checkpoints, and of
workers that kept writing after the runner had replaced them.

A sink that has no place of its own for output that is not visible yet stages files with the runner: a committable's
`files` are stored with the checkpoint that makes them final, and opened by `commit`.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Generic, Literal, Protocol, TypeAlias, TypeVar

from tidegate.sdk import moved
from tidegate.sdk.errors import WriteError

T_contra = TypeVar("T_contra", contravariant=True)


Delivery: TypeAlias = Literal["exactly_once", "at_least_once"]
"""A sink's guarantee for each element when parts of a run are repeated."""


class StagedContent(Protocol):
    """Where the contents of a staged file are. Runners have kinds of their own, for files that they have stored."""

    def open(self) -> BinaryIO:
        """Open the contents for reading, from their first byte."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """The contents of a staged file that an attempt has handed over as bytes."""

    data: bytes

    def open(self) -> BinaryIO:
        return io.BytesIO(self.data)


@dataclass(frozen=True, slots=True)
class InLocalFile:
    """The contents of a staged file that an attempt has written to a local path."""

    path: str

    def open(self) -> BinaryIO:
        return open(self.path, "rb")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that the runner stores for a committable until its commit has succeeded.

    `prepare` creates it with `of_bytes` or `of_path`, and `commit` receives it as part of the committable and opens it.
    Streaming runs store it in the checkpoint directory, so that it is as durable as the checkpoint that the commit
    belongs to, and remove it after the commit or if the attempt fails. `name` is chosen by the sink and need not be
    unique; `size` is in bytes.
    """

    name: str
    size: int
    content: StagedContent = field(repr=False)

    @classmethod
    def of_bytes(cls, name: str, data: bytes) -> StagedFile:
        """A file with these contents."""
        return cls(name, len(data), InMemory(bytes(data)))

    @classmethod
    def of_path(cls, name: str, path: str | os.PathLike[str]) -> StagedFile:
        """A file whose contents the attempt has written to a local path. The file there belongs to the runner from now
        on: it moves or removes it. Raises OSError if there is none."""
        local = os.path.abspath(path)
        return cls(name, os.stat(local).st_size, InLocalFile(local))

    def open(self) -> BinaryIO:
        """Open the file for reading. Raises WriteError if it is missing or damaged, OSError if it can't be read."""
        return self.content.open()


@dataclass(frozen=True, slots=True)
class Committable:
    """A piece of prepared output.

    `order` is `(task, sequence)`: the number of the writing task and the piece's number in its attempt. Sinks that
    number their output do so in this order, not in order of arrival, so that names are the same on each replay. After a
    restart a new attempt of a task may use the same numbers in a later checkpoint, so names that are unique in a run
    have the number of the checkpoint, too.
    `payload` is defined by the sink. It must survive JSON (numbers, strings, lists and dicts of them), because runners
    store committables in manifests that outlive processes and versions. What is too large for that, or not JSON, goes
    into `files`.
    """

    order: tuple[int, int]
    payload: Any
    files: tuple[StagedFile, ...] = ()

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


class Attempt(ABC, Generic[T_contra]):
    """One attempt of a task to write its output. Used by one thread at a time."""

    @abstractmethod
    def write(self, values: Sequence[T_contra]) -> None:
        """Writes the values of a block without making them visible. Raises WriteError, naming the place."""

    def prepare(self) -> list[Committable]:
        """Makes everything written since the last `prepare` durable and returns its committables.

        The output is not visible yet, and the attempt may continue to write. Returns [] if nothing was written, or if
        the sink has nothing to commit (at-least-once sinks flush here).
        """
        return []

    def close(self) -> None:
        """Releases the attempt's resources and discards the output written since the last `prepare`. Prepared output
        stays. Called once, also after an error; does not raise if that output is already lost."""


class Sink(ABC, Generic[T_contra]):
    """Writes elements to an external system. Subclasses are frozen dataclasses, or otherwise picklable and immutable.

    `run` is a name of letters, digits, `-`, `_` and `.`, unique to one run of one pipeline: it is the same for all
    attempts and commits of the run, and after restarts of its workers. A stream that resumes from a checkpoint in
    another process has another name for the output it writes from then on. Compare names for equality only: one name
    may be a prefix of another.
    """

    delivery: Delivery = "at_least_once"
    """The sink's guarantee; a sink without `commit` can only be at-least-once."""

    commit_by: Literal["job", "task"] = "job"
    """How a stream divides the commit of a checkpoint. "job": one call of `commit` receives the committables of all
    tasks. "task": each writing task's committables are committed by a call of their own, in the worker of that task, so
    that the work is divided among the workers. The calls for one checkpoint have the same `run` and `checkpoint` and
    may run at the same time; the task, the first number of each committable's `order`, tells them apart. A bounded run
    has one call in either case."""

    read_back: bool = False
    """True if the process in which the pipeline was built reads the output after the run, so that a runner may just as
    well write it there."""

    forks_safely: bool = True
    """False if the client that `attempt` or `commit` uses starts threads, or breaks in another way when its process is
    forked: a worker that writes to such a sink then captures its state for checkpoints in small steps, instead of in a
    forked child. Clients are created in the process that uses them, never in `__init__` or `check`."""

    @property
    def name(self) -> str:
        """The name shown in `explain`, graphs and errors. It also identifies where output goes, and in which format: a
        stream commits output of an earlier run only if its sink has the name of the one that wrote it. So it must be
        the same in every run that writes there, without what may change, such as credentials."""
        return type(self).__name__

    def check(self) -> None:
        """Called before anything runs. Raises BuildError if writing can't work. Has no side effects."""

    def local_folders(self) -> Sequence[str]:
        """Folders of the local file system in which the commit looks for the output of attempts. Tasks on other
        machines must be able to access them."""
        return ()

    def writes(self) -> Hashable | None:
        """Identifies output that no other sink of the pipeline may write, such as a set of files: two sinks that return
        equal values are refused when the pipeline is built. None if other sinks may write to the same place."""
        return None

    @abstractmethod
    def attempt(self, run: str, task: int) -> Attempt[T_contra]:
        """A new attempt of task number `task` (from 0). Attempts of the same task must not interfere."""

    def commit(
        self, run: str, committables: Sequence[Committable], checkpoint: int | None = None
    ) -> Sequence[str] | None:
        """Makes the output of a set of committables visible. May return the names of the files it made visible, of
        which the summary of a run shows the number and one example.

        If `checkpoint` is None, these are all committables of a bounded run (perhaps none), in one call. Otherwise
        they are those that became final with that checkpoint, whose numbers increase within the run.

        Idempotent: may be called again with the same arguments, after success or after a crash at any point. The order
        of the sequence has no meaning. Raises WriteError if the output of a committable is neither prepared nor
        committed, and therefore lost.
        """
        if committables:
            raise NotImplementedError(f"{type(self).__name__} prepares committables but has no commit")
        return None

    def abort(self, run: str) -> None:
        """Removes all output of this run that is not committed. May be called repeatedly: after a failure, when a run
        resumes (after its pending commits, before new attempts), and at the end, for attempts that were still writing.
        Never touches committed output, and doesn't raise if there is nothing to remove."""


def in_order(committables: Sequence[Committable]) -> list[Committable]:
    """The committables sorted by `order`, without repetitions, which are due to replays. Raises WriteError if a commit
    has committables of two attempts of the same task, whose elements would be written twice."""
    by_order: dict[tuple[int, int], Committable] = {}
    for committable in committables:
        other = by_order.setdefault(committable.order, committable)
        if other != committable:
            task, sequence = committable.order
            raise WriteError(
                f"piece {sequence} of writing task {task} is in one commit twice, from two attempts: "
                "the runner must commit the committables of one attempt of each task"
            )
    return [by_order[order] for order in sorted(by_order)]
