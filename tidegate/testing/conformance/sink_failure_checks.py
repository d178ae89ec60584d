"""The checks of sinks when something fails: abandoned attempts, aborted runs, elements that don't fit."""

from __future__ import annotations

from dataclasses import replace

from tidegate.sdk.errors import WriteError, error_text, shorten
from tidegate.testing.conformance.rules import NotApplicable, broken, copied
from tidegate.testing.conformance.sink_checks import MODES
from tidegate.testing.conformance.writing import SinkCase

_GONE = "remove all output of the run that is not committed, and make none of it visible"


def aborts_before_prepare(case: SinkCase) -> None:
    """`abort` removes what was written and never prepared, also while an attempt is open; it may be repeated."""
    case.exactly_once()
    for mode in MODES:
        round = case.round(mode)
        attempt = round.attempt(0)
        round.write(attempt, case.elements)
        round.abort()
        round.abort()
        round.expect([], "after abort of output that was written", _GONE)
        round.close(attempt)
        round.expect([], "after abort and close", _GONE)


def aborts_after_prepare(case: SinkCase) -> None:
    """`abort` removes what was prepared and not committed: a later commit of it fails instead of losing it in
    silence."""
    case.exactly_once()
    for mode in MODES:
        round = case.round(mode)
        prepared = round.written_by_all()
        round.abort()
        round.expect([], "after abort of output that was prepared", _GONE)
        if any(each.files for each in prepared):
            continue  # the runner stores the output, and removes it
        sink = copied(case.calls, "the sink", round.sink)
        committables = [each.restored() for each in prepared]
        _, error = case.calls.outcome("commit", sink.commit, round.run, committables, mode)
        if not isinstance(error, WriteError):
            raise broken(
                "a commit of output that abort had removed "
                + ("succeeded" if error is None else f"raised {type(error).__name__}: {error_text(error)}"),
                "let abort remove prepared output, and commit raise WriteError if it is neither prepared nor committed",
            ) from error


def abort_keeps_committed_output(case: SinkCase) -> None:
    """`abort` of a run does not touch what the run has committed."""
    case.exactly_once()
    for mode in MODES:
        round = case.round(mode)
        round.commit(round.written_by_all())
        round.abort()
        round.expect(case.elements, "after commit and abort", "remove only what is not committed")


def abort_keeps_other_runs(case: SinkCase) -> None:
    """`abort` does not touch what another run has prepared, even if its name begins with the same letters."""
    case.exactly_once()
    round = case.round(1)
    other = replace(round, run=f"{round.run}0")
    prepared = other.written_by_all()
    round.abort()
    other.commit(prepared)
    other.expect(case.elements, "after the abort of a run with a shorter name", "compare names of runs for equality")


def abandoned_attempts_leave_nothing(case: SinkCase) -> None:
    """An attempt that is neither committed nor closed, such as that of a process that died, leaves nothing visible."""
    case.exactly_once()
    for mode in MODES:
        round = case.round(mode)
        abandoned = [round.attempt(task) for task in range(2)]
        for task, dead in enumerate(abandoned):
            round.write(dead, case.elements[:2])
            if task:
                round.prepare(dead)
        round.commit(round.written_by_all())
        round.abort()
        round.expect(
            case.elements, "after two attempts were abandoned", "commit what the committables stand for, and only that"
        )
        for dead in abandoned:  # not part of the rule: files that are left open are warned about
            case.calls.outcome("close()", dead.close)


def attempts_of_a_task_do_not_interfere(case: SinkCase) -> None:
    """Of two attempts of a task that write at the same time, only the one whose committables are committed counts, even
    if the other goes on after the commit."""
    case.exactly_once()
    for mode in MODES:
        round = case.round(mode)
        zombie, successor = round.attempt(0), round.attempt(0)
        half = len(case.elements) // 2
        round.write(zombie, case.elements[:half])
        round.write(successor, case.elements[:half])
        round.write(successor, case.elements[half:])
        prepared = round.prepare(successor)
        round.prepare(zombie)
        round.close(successor)
        round.commit(prepared)
        advice = "give each attempt a place of its own, for example with a random name"
        round.expect(case.elements, "after one of two attempts of a task was committed", advice)
        case.calls.outcome("write(…)", zombie.write, case.elements[:2])
        case.calls.outcome("prepare()", zombie.prepare)
        case.calls("close() of the other attempt", zombie.close)
        round.abort()
        round.expect(case.elements, "after the other attempt went on", advice)


def close_discards_unprepared_output(case: SinkCase) -> None:
    """`close` discards what was written since the last `prepare`, and keeps what was prepared."""
    case.exactly_once()
    for mode in MODES:
        round = case.round(mode)
        half = len(case.elements) // 2
        attempt = round.attempt(0)
        round.write(attempt, case.elements[:half])
        prepared = round.prepare(attempt)
        round.write(attempt, case.elements[half:])
        round.close(attempt)
        round.commit(prepared)
        round.expect(
            case.elements[:half],
            "after prepare, more writes, close and commit",
            "let prepare finish what was written, so that close discards only the rest",
        )


def bad_element_is_a_write_error(case: SinkCase) -> None:
    """An element that can't be written raises WriteError from `write` or `prepare`; then the attempt can be closed."""
    if not case.bad_element:
        raise NotApplicable("pass bad_element=, an element that can't be written")
    round = case.round()
    attempt = round.attempt(0)
    _, error = case.calls.outcome("write(…)", attempt.write, [case.elements[0], case.bad_element[0]])
    if error is None:
        _, error = case.calls.outcome("prepare()", attempt.prepare)
    case.calls("close() after an error", attempt.close)
    round.abort()
    if not isinstance(error, WriteError):
        raise broken(
            f"{shorten(case.bad_element[0])} "
            + (
                "was written without an error"
                if error is None
                else f"raised {type(error).__name__}: {error_text(error)}"
            ),
            "raise tg.WriteError, from the original exception, with the element and the place",
        ) from error
    if case.bad_place not in str(error):
        raise broken(
            f"the error does not mention {case.bad_place!r}: {error_text(error)}", "name the place in the message"
        ) from error
