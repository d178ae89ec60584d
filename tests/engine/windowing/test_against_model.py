"""The window operator compared with a reference model: any strategy, stream, blocks and restores."""

from __future__ import annotations

from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.support.window_operators import (
    RESULTS,
    EventDriver,
    combine,
    context,
    group,
    strategies,
    streams,
    window_operator,
)
from tests.support.window_reference_model import WindowReferenceModel


@st.composite
def cases(draw: Any) -> tuple[Any, ...]:
    strategy = draw(strategies())
    events = draw(streams(strategy))
    name = draw(st.sampled_from(sorted(RESULTS)))
    combiner, result, identity = RESULTS[name]
    node = group() if combiner is None else combine(combiner)
    cuts = frozenset(draw(st.sets(st.integers(0, len(events)))))
    note(f"{strategy!r}\n{name}\n{events!r}\ncuts {sorted(cuts)}")
    return strategy, node, WindowReferenceModel(strategy, result, identity), events, cuts


@settings(max_examples=400)
@given(cases(), st.sampled_from([1, 2, 4096]))
def test_any_strategy_gives_the_panes_of_the_model_with_any_blocks(case: Any, size: int) -> None:
    strategy, node, model, events, cuts = case
    operator = window_operator(node, strategy, context(block_size=size))
    expected = model.run(events)
    assert EventDriver(operator, cuts).run(events) == expected
    counts = {key.name: n for key, n in operator.context.metrics.counters.items()}
    assert counts.get("dropped_late", 0) == len(model.late)
    assert counts.get("dropped_closed", 0) == model.closed


@settings(max_examples=200)
@given(cases())
def test_a_snapshot_restored_before_every_event_changes_nothing(case: Any) -> None:
    strategy, node, model, events, cuts = case
    drive = EventDriver(window_operator(node, strategy), cuts, restart=lambda: window_operator(node, strategy))
    assert drive.run(events) == model.run(events)


@settings(max_examples=200)
@given(cases())
def test_the_output_watermark_is_held_by_unfired_elements_that_arrived_in_time(case: Any) -> None:
    strategy, node, model, events, _ = case
    operator = window_operator(node, strategy)
    drive = EventDriver(operator, frozenset(range(len(events))))
    for event in events:
        drive.run([event])
        model.step(event)
        assert min(model.watermark, operator.hold()) == model.output_watermark()
