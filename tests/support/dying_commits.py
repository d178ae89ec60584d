"""Commits of a sink in a process that dies before or after each operation that changes the store, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

OPERATIONS = ("create", "finish", "move", "remove", "remove_folder", "remove_empty_folder")
"""The methods of a store of files that change it."""
MOST_STEPS = 500


class Crash(BaseException):
    """The process dies here."""


def dying_commits(
    store: type, monkeypatch: pytest.MonkeyPatch, round_of: Callable[[str], tuple[Callable[[], Any], Callable[[], Any]]]
) -> Iterator[str]:
    """Yield the names of runs whose commits die, each one step later than the previous one, and are then repeated.

    `round_of(run)` prepares a run and returns two functions: the commit, and what follows a successful commit. Both
    have been called when the name of the run is yielded. The first commit doesn't die, nor does the last, which ends
    before its step to die.
    """
    steps = [0]

    def dying(original: Any) -> Any:
        def operation(*args: Any) -> Any:
            steps[0] -= 1
            if steps[0] == 0:
                raise Crash
            done = original(*args)
            steps[0] -= 1
            if steps[0] == 0:
                raise Crash
            return done

        return operation

    for die_at in range(MOST_STEPS):
        run = f"run{die_at}"
        commit, afterwards = round_of(run)
        steps[0] = die_at
        with monkeypatch.context() as patch:
            for name in OPERATIONS:
                patch.setattr(store, name, dying(getattr(store, name)))
            try:
                commit()
                died = False
            except Crash:
                died = True
        if died:
            commit()
        afterwards()
        yield run
        if die_at and not died:
            return
    raise AssertionError(f"a commit took more than {MOST_STEPS // 2} operations")
