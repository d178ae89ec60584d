"""What is the same in all rounds is grouped once, and each round's groups are those of grouping it all again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.iteration.block_store import BlockStore
from tidegate.runners.engine.iteration.operator import LoopOperator
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.planner import Traits, plan
from tidegate.runners.planner.explain import explain
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MAX_MICROS

START = [(1, 10), (4, 40)]
LINKS = [(1, 2), (1, 3), (2, 3), (7, 7), *((n, n) for n in range(8, 20))]


def joined(kind: str) -> Any:
    """The plan of a loop of three rounds that joins what changes with links, and appends to the lists that it gets."""
    p = tg.Pipeline()
    links = p | "links" >> tg.Create(LINKS)
    start = p | "start" >> tg.Create(START)

    def step(before: Any) -> Any:
        if kind == "groups":
            return (links, before) | tg.CoGroupByKey() | tg.FlatMap(appended).with_output_types(tuple[int, int])
        pairs = before | getattr(tg.Join, kind)(links) | tg.MapValues(added)
        return pairs.with_output_types(tuple[int, int]) if hasattr(pairs, "with_output_types") else pairs

    _ = start | "loop" >> tg.Iterate(step, rounds=3) | tg.Map(print)
    return plan(p.sealed(), Traits(parallel=False))


def appended(group: Any) -> Iterator[tuple[int, int]]:
    key, (targets, values) = group
    targets.append(key)
    values.append(1)
    yield key, sum(targets) + sum(values)


def added(pair: tuple[int | None, int | None]) -> int:
    return (pair[0] or 0) + (pair[1] or 0)


def by_hand(kind: str) -> list[tuple[int, int]]:
    """What the loop emits, from loops over pairs."""
    pairs = START
    for _ in range(3):
        keys = dict.fromkeys([key for key, _ in (*pairs, *LINKS)])
        groups = {key: ([v for k, v in LINKS if k == key], [v for k, v in pairs if k == key]) for key in keys}
        if kind == "groups":
            pairs = [(key, sum(targets) + key + sum(values) + 1) for key, (targets, values) in groups.items()]
            continue
        pairs = [
            (key, added((value, target)))
            for key, (targets, values) in groups.items()
            for value in (values or ([None] if kind in ("right", "full") else []))
            for target in (targets or ([None] if kind in ("left", "full") else []))
        ]
    return sorted(pairs)


@pytest.mark.parametrize("kind", ["groups", "inner", "left", "right", "full"])
@pytest.mark.parametrize("budget", [1, 1 << 20], ids=["too large to keep", "kept"])
def test_a_loop_joins_what_changes_with_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, budget: int
) -> None:
    read: Counter[str] = Counter()
    iterate = BlockStore.__iter__

    def counting(self: BlockStore) -> Iterator[Block]:
        read.update(collection for collection, store in loop._inputs.items() if store is self)
        return iterate(self)

    monkeypatch.setattr(BlockStore, "__iter__", counting)
    loop = LoopOperator(joined(kind).loop("loop"), Context(memory_budget=budget, temp_dir=lambda: tmp_path), Graph)
    (constant,) = loop.node.inputs[1:]
    for pair in START:
        assert list(loop.process(Block([pair]), "start")) == []
    for key, target in LINKS:
        assert list(loop.process(Block([(key, (int(kind != "groups"), target))]), constant)) == []
    found = [pair for _, block in loop.on_watermark(MAX_MICROS) for pair in block.values]
    assert sorted(found) == by_hand(kind)
    assert read[constant] == (1 if budget > 1 else 4)  # if it is too large: once to find that, and once in each round
    assert list(tmp_path.iterdir()) == []


def test_explain_names_the_table_that_is_kept() -> None:
    text = explain(joined("inner"))
    assert "· keeps a table of loop/Join.inner/Group/Tag(1): it is the same in all rounds" in text
