"""What a connector that writes implements: attempts write, one commit makes it visible.

A `Sink` is a frozen, picklable description of where output goes. The work has two phases, so that what is visible
outside is written exactly once however often parts of the work are repeated:

1. Each task that writes opens an `Attempt`. It writes where nobody looks (a temporary file, an open transaction)
   and, when asked to `prepare`, turns all it wrote since the last time into `Committable`s: small records of
   something that no longer needs the attempt, its process or its connection. A task that is tried twice, or by two
   workers at once, has two attempts that know nothing of each other; the runner keeps the committables of one.
2. When a *set* of committables is durable with the runner (the run's result, or a completed checkpoint), one
   process calls `Sink.commit` with it. If that process dies in the middle, the same call is made again.

Bounded runs prepare once at the end and commit once for the whole run (`checkpoint=None`): the sink may then give
final names that say how many parts there are, and replace an earlier run's output. Streams prepare at each
checkpoint barrier and commit when that checkpoint is complete: a stream only ever adds.

Whatever of a run is never committed is removed by `abort`: a failed try, a checkpoint that was not completed, a
worker that wrote on after it was given up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from tidegate.sdk.errors import WriteError

T_contra = TypeVar("T_contra", contravariant=True)


Delivery: TypeAlias = Literal["exactly_once", "at_least_once"]
"""What a sink promises about each element when parts of a run are repeated."""


@dataclass(frozen=True, slots=True)
class Committable:
    """One piece of prepared output.

    `order` is `(task, sequence)`: the number of the writing task and the piece's number in its attempt. Sinks that
    name their output name it in this order, never in that of arrival, so that names are the same on each replay.
    `payload` is the sink's own; it survives JSON (numbers, strings, lists and dicts of them), because runners keep
    committables in manifests that outlive processes and versions.
    """

    order: tuple[int, int]
    payload: Any


class Attempt(ABC, Generic[T_contra]):
    """One try of one task at writing. Used by one thread at a time."""

    @abstractmethod
    def write(self, values: Sequence[T_contra]) -> None:
        """Writes a block's values, where they are not yet visible. Raises WriteError, naming the place."""

    def prepare(self) -> list[Committable]:
        """Makes everything written since the last `prepare` durable and gives it away as committables.

        Nothing is visible yet; the attempt may go on writing. [] if nothing was written, or if the sink has nothing
        to commit (at-least-once sinks flush here).
        """
        return []

    def close(self) -> None:
        """Releases what the attempt holds and throws away what was written since the last `prepare`; what has been
        prepared is no longer the attempt's and stays. Called once, also after an error; does not raise for work
        that is already lost."""


class Sink(ABC, Generic[T_contra]):
    """Where elements go. Subclasses are frozen dataclasses, or otherwise picklable and unchanging.

    `run` names one run of one pipeline: letters, digits, `-`, `_` and `.`; the same for all attempts of the run, their
    commits, and through restarts of its workers, never used by another. A stream that goes on in another process, from
    its checkpoints, has another name there, for what it writes from then on: take names as a whole, since one may begin
    like another.
    """

    delivery: Delivery = "at_least_once"
    """What the sink promises; without a commit it is at least once."""

    @property
    def name(self) -> str:
        """For people: in `explain`, graphs and errors."""
        return type(self).__name__

    def check(self) -> None:
        """Called before anything runs. Raises BuildError when writing can't work. Changes nothing outside."""

    def local_folders(self) -> Sequence[str]:
        """Folders of this machine's file system where attempts write for the commit to find: tasks on other machines
        have to share them."""
        return ()

    def writes(self) -> Hashable | None:
        """What no other sink of the pipeline may write, such as a set of files: two sinks that give equal values are
        refused when the pipeline is built. None if other sinks may write to the same place."""
        return None

    @abstractmethod
    def attempt(self, run: str, task: int) -> Attempt[T_contra]:
        """A new attempt of task number `task` (from 0). Attempts of the same task must not disturb each other."""

    def commit(
        self, run: str, committables: Sequence[Committable], checkpoint: int | None = None
    ) -> Sequence[str] | None:
        """Makes a set of committables visible. May return the names of the files that it has made visible: the
        summary of a run shows how many there are, and one of them.

        `checkpoint` None: these are all of a bounded run (perhaps none), in one call. Otherwise they are those
        that became final with that checkpoint (numbered upwards within the run).

        May be called again with the same arguments, after success or after a crash anywhere in the middle, and then
        has the effect of one call; the order of the sequence is of no account. Raises WriteError when a committable
        is neither there nor already committed: that is lost output.
        """
        if committables:
            raise NotImplementedError(f"{type(self).__name__} prepares committables but has no commit")
        return None

    def abort(self, run: str) -> None:
        """Removes all of this run that is not committed. May be called often: after a failure, when a run resumes
        (first its pending commits, then this, then new attempts), and at the end against stragglers. Never touches
        what is committed, and raises nothing for what is already gone."""


def in_order(committables: Sequence[Committable]) -> list[Committable]:
    """Sorted by `order`, each once: the same record twice is a replay. Raises WriteError when two attempts of one
    task are in one commit, which would write their elements twice."""
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
