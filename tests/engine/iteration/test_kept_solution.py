"""A part of a solution holds the same, in memory and on disk; a round's updates come into force in the next one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.runners.engine.iteration.kept_solution import KeptSolution
from tidegate.runners.engine.iteration.solution import in_window
from tidegate.sdk.data.block import Block, Pairs
from tidegate.sdk.windowing.window import IntervalWindow

WINDOWS = (IntervalWindow(0, 10), IntervalWindow(10, 20))


def pairs_of(blocks: Iterator[Block]) -> dict[tuple[int, int], int]:
    """The values by the end of the window and the key, each of which occurs once."""
    found: dict[tuple[int, int], int] = {}
    for block in blocks:
        for (key, value), (window,) in zip(block.values, block.window_list(), strict=True):
            assert found.setdefault((window.end.micros, key), value) is value
    return found


def updated(part: KeptSolution, blocks: list[Block]) -> dict[tuple[int, int], int]:
    """What a round's updates change."""
    if not part.spilled:
        return pairs_of(each for block in blocks for each in part.update(block))
    waiting = part.waiting()
    for block in blocks:
        assert isinstance(block.values, Pairs)
        waiting.add(block.values, block)
    return pairs_of(part.update_all(waiting))


@pytest.mark.parametrize("budget", [1 << 20, 3_000, 1], ids=["in memory", "on disk later", "on disk"])
def test_rounds_of_updates_are_merged(tmp_path: Path, budget: int) -> None:
    chance = random.Random(1)
    noted: list[Block | None] = []
    part = KeptSolution(min, budget=budget, directory=lambda: tmp_path, noted=noted.append)
    expected = {(window.end.micros, key): 50 for window in WINDOWS for key in range(0, 30, 2)}
    part.fill(in_window(Pairs(list(range(0, 30, 2)), [50] * 15), window) for window in WINDOWS)
    for _ in range(20):
        updates = {window: {chance.randrange(60): chance.randrange(60) for _ in range(8)} for window in WINDOWS}
        blocks = [in_window(Pairs(list(table), list(table.values())), window) for window, table in updates.items()]
        before, after = dict(expected), dict(expected)
        for window, table in updates.items():
            for key, value in table.items():
                after[window.end.micros, key] = min(after.get((window.end.micros, key), value), value)
        noted.clear()
        changed = {at: value for at, value in after.items() if expected.get(at) != value}
        assert updated(part, blocks) == changed
        assert pairs_of(block for block in noted if block is not None) == changed
        assert pairs_of(iter(part)) == before
        part.next_round()
        expected = after
        assert pairs_of(iter(part)) == expected
        assert part.elements == len(expected)
    assert part.spilled is (budget < 1 << 20)
    part.clear()
    assert pairs_of(iter(part)) == {}
    part.fill([in_window(Pairs([1], [5]), WINDOWS[0]), in_window(Pairs([1, 2], [6, 7]), WINDOWS[0])])
    assert [value for block in part for value in block.values] == [(1, 6), (2, 7)]
    part.clear()
    assert list(tmp_path.iterdir()) == []
