"""The operator of a loop: however its input is cut, paused between any two rounds and restored, on any budget."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.elementwise import chain
from tidegate.runners.engine.iteration.block_store import BlockStore
from tidegate.runners.engine.iteration.decision import decide
from tidegate.runners.engine.iteration.operator import LoopOperator
from tidegate.runners.engine.iteration.snapshot import LoopSnapshot
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph, resume
from tidegate.runners.engine.rescale import overlaid, rescaled
from tidegate.runners.engine.side_inputs.operator import WaitingElements
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.panes import NO_PANE
from tidegate.sdk.portable.model import Iterate
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.window import GLOBAL_WINDOW
from tidegate.testing import TestPipeline, assert_that, equal_to


def growing() -> Any:
    """The plan of a loop of three rounds, in each of which a key's values are added up and a constant comes in."""
    p = tg.Pipeline()
    start = p | "start" >> tg.Create([("a", 1)])
    more = p | "more" >> tg.Create([("a", 1)])

    def step(before: Any) -> Any:
        new = (before, more) | tg.Flatten() | tg.CombinePerKey(sum)
        return tg.Round(new, out={"seen": before})

    _ = (start | "loop" >> tg.Iterate(step, rounds=3)).result | tg.Map(print)
    return plan(p.sealed(), Traits(parallel=False))


def operator(tmp_path: Path, budget: int = 1 << 20, pauses: Callable[[], bool] = lambda: False) -> LoopOperator:
    """The loop of `growing`."""
    context = Context(memory_budget=budget, temp_dir=lambda: tmp_path, should_pause=pauses)
    return LoopOperator(growing().loop("loop"), context, Graph)


def feed(loop: LoopOperator) -> None:
    for collection, pairs in (("start", [("a", 1), ("b", 2)]), ("more", [("a", 10), ("c", 3)])):
        for pair in pairs:
            assert list(loop.process(Block([pair]), collection)) == []


def emitted(blocks: Iterator[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for collection, block in blocks:
        found.setdefault(collection, []).extend(block.values)
    return {collection: sorted(values) for collection, values in found.items()}


RESULT = [("a", 31), ("b", 2), ("c", 9)]
SEEN = sorted([("a", 1), ("b", 2), ("a", 11), ("b", 2), ("c", 3), ("a", 21), ("b", 2), ("c", 6)])


@pytest.mark.parametrize("budget", [1, 1 << 20], ids=["all on disk", "all in memory"])
def test_a_loop_runs_its_rounds_at_the_end_of_its_input(tmp_path: Path, budget: int) -> None:
    loop = operator(tmp_path, budget)
    feed(loop)
    assert list(loop.on_watermark(5)) == []
    assert loop.hold() < 5
    assert emitted(loop.on_watermark(MAX_MICROS)) == {"loop": RESULT, "loop:seen": SEEN}
    assert (loop.hold(), list(tmp_path.iterdir())) == (MAX_MICROS, [])
    assert emitted(loop.finish()) == {}
    loop.close()


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_loop_that_is_paused_between_rounds_goes_on_from_its_snapshot(tmp_path: Path, rounds: int) -> None:
    asked = iter([False] * rounds + [True])
    loop = operator(tmp_path, pauses=lambda: next(asked))
    feed(loop)
    before = emitted(loop.on_watermark(MAX_MICROS))
    assert loop.paused
    assert len(before.get("loop:seen", [])) == [0, 2, 5][rounds]
    snapshot = overlaid(None, rescaled([None, loop.snapshot()], lambda key: True))
    assert snapshot.done == rounds
    again = operator(tmp_path)
    again.restore(snapshot)
    after = emitted(again.on_watermark(MAX_MICROS))
    assert after["loop"] == RESULT
    assert sorted(before.get("loop:seen", []) + after.get("loop:seen", [])) == SEEN
    over = operator(tmp_path)
    over.restore(again.snapshot())
    assert emitted(over.on_watermark(MAX_MICROS)) == {}


def test_a_loop_that_is_restored_with_fewer_rounds_than_it_has_had_has_no_other(tmp_path: Path) -> None:
    asked = iter([False, False, True])
    loop = operator(tmp_path, pauses=lambda: next(asked))
    feed(loop)
    _ = emitted(loop.on_watermark(MAX_MICROS))
    found = growing().loop("loop")
    fewer = LoopOperator(replace(found, node=replace(found.node, rounds=1)), operator(tmp_path).context, Graph)
    fewer.restore(loop.snapshot())
    assert emitted(fewer.on_watermark(MAX_MICROS)) == {"loop": [("a", 21), ("b", 2), ("c", 6)]}


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_graph_that_paused_between_rounds_goes_on_where_it_is_restored(tmp_path: Path, rounds: int) -> None:
    found: dict[str, list[Any]] = {"loop": [], "loop:seen": []}
    asked = iter([False] * rounds + [True])
    made = growing()

    def graph(pauses: Callable[[], bool]) -> Graph:
        (step,) = (step for step in made.steps if step.label == "loop")
        context = Context(memory_budget=1 << 20, temp_dir=lambda: tmp_path, should_pause=pauses)
        outlets = {name: [lambda block, name=name: found[name].extend(block.values)] for name in found}
        return Graph(made, [step], [], context, outlets)

    before = graph(lambda: next(asked))
    before.open()
    loop = next(iter(before.operators().values()))
    assert isinstance(loop, LoopOperator)
    feed(loop)
    for collection in ("start", "more"):
        before.update(collection, CollectionStatus(ended=True))
    assert before.paused
    state, statuses = pickle.loads(pickle.dumps((before.snapshot(), before.step_statuses())))
    after = graph(lambda: False)
    after.open()
    after.restore(state)
    resume(after, statuses)
    for collection in ("start", "more"):
        after.update(collection, CollectionStatus(ended=True))
    assert not after.paused
    assert {name: sorted(values) for name, values in found.items()} == {"loop": RESULT, "loop:seen": SEEN}


@pytest.mark.parametrize(
    "other",
    [
        LoopSnapshot({"start": []}, None, 0, False),
        LoopSnapshot({"start": [], "more": [], "most": []}, None, 0, False),
        LoopSnapshot({"start": [], "more": []}, [[], []], 1, False),
    ],
    ids=["without a constant", "with another constant", "with two variables"],
)
def test_the_snapshot_of_a_loop_over_other_collections_is_refused(tmp_path: Path, other: LoopSnapshot) -> None:
    message = (
        "snapshot is that of a loop with the inputs .*the inputs more, start and 1 variable now(.|\\n)*'loop', app"
    )
    with pytest.raises(tg.RunError, match=message):
        operator(tmp_path).restore(other)


def test_loops_over_elements_are_generated_once_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    whole = chain.generate
    monkeypatch.setattr(chain, "generate", lambda *args: made.append(args) or whole(*args))

    def generated(rounds: int) -> int:
        made.clear()
        with TestPipeline("direct", {"checks": "off"}) as p:
            start = p | tg.Create([("a", 1)]).with_output_types(tuple[str, int])
            more = tg.Map(lambda pair, n=tg.DoFn.RoundParam: (pair[0], pair[1] + n)).with_output_types(tuple[str, int])
            found = start | tg.Iterate(lambda before: before | more | tg.CombinePerKey(sum), rounds=rounds)
            assert_that(found, equal_to([("a", 1 + sum(range(rounds + 1)))]))
        return len(made)

    assert generated(9) == generated(2) > 0


def test_blocks_come_back_in_their_order_from_memory_and_disk(tmp_path: Path) -> None:
    store = BlockStore(200, lambda: tmp_path)
    for number in range(20):
        store.add(Block([number, (number, "x" * 50)], [number, number + 1]))
    assert len(list(tmp_path.iterdir())) == 1
    for _ in range(2):
        assert [block.values[0] for block in store] == list(range(20))
    assert [block.timestamps for block in store][3] == [3, 4]
    assert store.elements == 40
    store.clear()
    assert (list(store), store.elements, list(tmp_path.iterdir())) == ([], 0, [])


def test_all_stores_of_a_loop_together_keep_to_the_budget(tmp_path: Path) -> None:
    loop = operator(tmp_path, budget=100_000)
    for collection in ("start", "more"):
        for number in range(16):
            list(loop.process(Block([(number, "x" * 1_000)]), collection))
    assert len(list(tmp_path.iterdir())) == 2


def redefined_point(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An object of a class that has been defined again since it was created."""
    module = ModuleType("module_of_point")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    definition = "class Point:\n    def __init__(self):\n        self.x = 1\n"
    exec(definition, vars(module))
    point = module.Point()
    exec(definition, vars(module))
    return point


def test_elements_of_a_redefined_class_come_back_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = redefined_point(monkeypatch)
    store = BlockStore(1, lambda: tmp_path)
    store.add(Block([point]))
    (block,) = store
    assert (type(block.values[0]), block.values[0].x) == (type(point), 1)


def test_elements_of_a_redefined_class_wait_for_a_side_input_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = redefined_point(monkeypatch)
    queues = WaitingElements(1, lambda: tmp_path)
    queues.add(GLOBAL_WINDOW, ([point], 0, NO_PANE), 0)
    ((_, _, [(values, *_)]),) = queues.snapshot()
    assert type(values[0]) is type(point)


def test_the_decision_counts_what_all_of_a_round_has_emitted() -> None:
    (loop,) = (node for node in growing().pipeline.nodes if isinstance(node, Iterate))
    again = replace(loop, again=("more",), until="done")
    assert decide(loop, 0, {}) == decide(loop, 2, {}) == "again"
    assert decide(loop, 3, {}) == "over"
    assert decide(again, 1, {"more": 1, "done": 0}) == "again"
    assert decide(again, 1, {"more": 0, "done": 0}) == "over"
    assert decide(again, 1, {"more": 1, "done": 1}) == "over"
    assert decide(again, 3, {"more": 1, "done": 0}) == "unmet"
    assert decide(replace(again, rounds=0), 0, {}) == "unmet"
