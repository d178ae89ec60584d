"""The table of corner cases, each run with its elements one by one and with neighbours in one block."""

from __future__ import annotations

import pytest

import tidegate as tg
from semantics.corner_cases import CASES, Case
from semantics.kit import run


@pytest.mark.parametrize("together", [False, True], ids=["one_by_one", "in_blocks"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_corner(stream_runner: str, case: Case, together: bool) -> None:
    options = {**case.options, "runner": stream_runner}
    ran = run(stream_runner, case.script, tg.WindowInto(**case.into), case.group, together=together, options=options)
    assert ran.of_key == list(case.expected)
    assert (ran.counted("dropped_late"), ran.counted("dropped_closed")) == (case.dropped_late, case.dropped_closed)


def test_the_table_has_at_least_sixty_corners() -> None:
    assert len(CASES) >= 60
