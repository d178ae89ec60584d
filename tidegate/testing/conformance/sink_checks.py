"""The checks of sinks: what is written becomes visible, once, by a commit that may be repeated."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Hashable, Sequence
from typing import Any, Final

from tidegate.sdk.connectors.sinks import Attempt
from tidegate.sdk.errors import shorten
from tidegate.testing.conformance.rules import Calls, NotApplicable, broken, copied, pickled
from tidegate.testing.conformance.writing import Round, SinkCase, Stored
from tidegate.testing.matchers import pair_up

MODES: Final[tuple[int | None, ...]] = (None, 1)
"""The checkpoint of a commit: none in a bounded run."""

_ADDS: Final = "add to what is there; a stream never replaces it"
_UNIQUE: Final = (
    "tell commits apart by run, checkpoint and task: a new attempt of a task counts from the start again, so orders "
    "are not unique in a run"
)
_COMPLETE: Final = "make visible all that the committables stand for, and nothing else"
_IDEMPOTENT: Final = (
    "notice that the commit has succeeded before, for example by a record of it in the same transaction"
)


def writes_everything(case: SinkCase) -> None:
    """What several tasks have written and prepared is visible after the commit, each element once."""
    for mode in MODES:
        round = case.round(mode)
        round.commit(round.written_by_all())
        round.expect(case.elements, "after the commit", _COMPLETE)


def is_picklable(case: SinkCase) -> None:
    """A sink can be pickled, before it is used and after."""
    round = case.round()
    round.commit(round.written_by_all())
    copied(case.calls, "the sink after it was used", round.sink)


def names_what_it_writes(case: SinkCase) -> None:
    """`writes()` returns None or a hashable value, which a pickled copy returns, too."""
    sink = case.sink()
    writes = case.calls("writes()", sink.writes)
    if not isinstance(writes, Hashable) or case.calls.outcome("hash(writes())", hash, writes)[1] is not None:
        raise broken(f"writes() returned {shorten(writes)}", "return a text or a tuple of texts")
    again = case.calls("writes() of a copy", copied(case.calls, "the sink", sink).writes)
    if again != writes:
        raise broken(
            f"writes() returned {shorten(writes)}, and {shorten(again)} from a pickled copy",
            "compute it from the fields alone, so that two sinks of the same place are noticed",
        )


def committables_have_orders(case: SinkCase) -> None:
    """A committable's order is the number of its task and a sequence number that no other one of the attempt has."""
    round = case.round(1)
    for task, values in enumerate(case.slices()):
        attempt = round.attempt(task)
        orders: list[tuple[int, int]] = []
        for value in values:
            round.write(attempt, [value])
            orders += [each.order for each in round.prepare(attempt)]
        round.close(attempt)
        if len(set(orders)) < len(orders) or any(order[0] != task for order in orders):
            raise broken(
                f"an attempt of task {task} prepared the orders {shorten(orders)}",
                "let an order be (task, sequence), and count the sequence on in each prepare",
            )


def nothing_is_visible_before_the_commit(case: SinkCase) -> None:
    """Output that was written, prepared and closed is not visible until it is committed."""
    case.exactly_once()
    for mode in MODES:
        round = case.round(mode)
        attempt = round.attempt(0)
        for when, step in (
            ("after write", lambda: round.write(attempt, case.elements)),  # noqa: B023
            ("after prepare", lambda: round.prepare(attempt)),  # noqa: B023
            ("after close", lambda: round.close(attempt)),  # noqa: B023
        ):
            step()
            round.expect([], f"{when}, before the commit", "write to a place where no reader looks")


def commits_twice(case: SinkCase) -> None:
    """A commit that is made again has the effect of one."""
    case.exactly_once()
    for mode in MODES:
        round = case.round(mode)
        prepared = round.written_by_all()
        round.commit(prepared)
        round.commit(prepared)
        round.expect(case.elements, "after the same commit was made twice", _IDEMPOTENT)


def commits_in_another_process(case: SinkCase) -> None:
    """A process that has the pickled sink and the stored committables alone can commit, and repeat the commit of
    another process."""
    rounds = [(round, round.written_by_all()) for round in map(case.round, MODES)]
    _commit_elsewhere(case, rounds)
    for round, prepared in rounds:
        round.expect(case.elements, "after another process committed", "put what a commit needs into its committables")
        if round.sink.delivery == "exactly_once":
            round.commit(prepared)
            round.expect(case.elements, "after this process repeated another one's commit", _IDEMPOTENT)


def commits_in_any_order(case: SinkCase) -> None:
    """The order in which a commit gets the committables of several tasks has no meaning, nor has the order of the
    tasks' prepares."""
    for mode in MODES:
        round = case.round(mode)
        prepared = round.written_by_all()
        round.commit([*prepared[1::2], *reversed(prepared[::2])])
        round.expect(case.elements, "after a commit of shuffled committables", "sort them: tg.io.in_order does")


def commits_nothing(case: SinkCase) -> None:
    """An attempt that has written nothing can be prepared and closed, and a commit may have no committables."""
    for mode in MODES:
        round = case.round(mode)
        attempt = round.attempt(0)
        prepared = round.prepare(attempt)
        round.close(attempt)
        round.commit(prepared)
        round.expect([], "after a commit of an attempt that has written nothing", "add nothing for an empty attempt")
        empty = case.round(mode)
        case.calls(f"commit of nothing with checkpoint={mode}", empty.sink.commit, empty.run, [], mode)
        empty.expect([], "after a commit without committables", "accept an empty commit")


def commits_each_checkpoint(case: SinkCase) -> None:
    """In a stream an attempt goes on after `prepare`, or a new one begins after a restart, and each commit adds what
    belongs to its checkpoint."""
    round = case.round(1)
    attempts: list[Attempt[Any]] = []
    visible: list[object] = []
    for checkpoint in (1, 2, 3):
        if checkpoint != 2:
            for attempt in attempts:
                round.close(attempt)
            attempts = [round.attempt(task) for task in range(2)]
        values = case.elements[checkpoint - 1 :: 3]
        prepared: list[Stored] = []
        for task, attempt in enumerate(attempts):
            round.write(attempt, values[task::2])
            prepared += round.prepare(attempt)
        round.commit(prepared, checkpoint)
        visible += values
        round.expect(visible, f"after the commit of checkpoint {checkpoint}", _ADDS if checkpoint < 3 else _UNIQUE)
    for attempt in attempts:
        round.close(attempt)


def commits_staged_files(case: SinkCase) -> None:
    """Files that a committable stages are read through it, not from where the attempt wrote them."""
    round = case.round(1)
    half = len(case.elements) // 2
    payloads, contents = round.written(case.elements[:half]), round.written(case.elements[half:])
    if not payloads or not all(each.files for each in payloads):
        raise NotApplicable("the committables stage no files, or not all of them do")
    exchanged = [Stored(each.order, each.payload, other.files) for each, other in zip(payloads, contents, strict=False)]
    sink = copied(case.calls, "the sink", round.sink)
    _, error = case.calls.outcome("commit", sink.commit, round.run, [each.restored() for each in exchanged], 1)
    seen = case.calls.outcome("read_back(sink)", round.visible)[0] if error is None else None
    if len(pair_up(case.elements[:half], seen or [])[0]) < half:
        raise broken(
            "elements became visible by a commit whose staged files did not contain them",
            "open the committable's files in commit: the attempt's own may be gone, or on another machine",
        )
    fresh = case.round(1)
    fresh.commit(fresh.written_by_all())
    fresh.expect(case.elements, "after the attempt's own files were gone", "open the committable's files in commit")


_PROGRAM: Final = "from tidegate.testing.conformance.another_process import main; main()"


def _commit_elsewhere(case: SinkCase, rounds: Sequence[tuple[Round, list[Stored]]]) -> None:
    """Commit in a new Python process."""
    calls = case.calls
    request = {"path": sys.path, "commits": [_commit(calls, round, stored) for round, stored in rounds]}

    def run() -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as file:
            json.dump(request, file)
            file.seek(0)
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            return subprocess.run(
                [sys.executable, "-c", _PROGRAM], stdin=file, capture_output=True, text=True, env=environment
            )

    done = calls("commit in another process", run)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise broken(
            f"commit in another process failed: {last[0]}",
            "let commit use nothing but the sink's fields and the committables",
        )


def _commit(calls: Calls, round: Round, stored: list[Stored]) -> dict[str, Any]:
    """A commit as a request describes it."""
    return {
        "sink": base64.b64encode(pickled(calls, "the sink", round.sink)).decode(),
        "run": round.run,
        "checkpoint": round.checkpoint,
        "groups": [
            [
                [each.order, each.payload, [[name, base64.b64encode(data).decode()] for name, data in each.files]]
                for each in group
            ]
            for group in round.groups(stored, round.checkpoint)
        ],
    }
