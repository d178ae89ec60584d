"""Random pipelines on the direct runner give the results of a list-based model, with any blocks and checks."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.random_pipelines import Description, evaluate, expected, outcome, pipelines, run
from tidegate.runners.direct import DirectRunner
from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits
from tidegate.runners.planner.cut import cut
from tidegate.sdk.portable.model import Pipeline

block_sizes = st.sampled_from([1, 2, 3, 7, 4096])
checks = st.sampled_from(["sample", "all", "off"])


class Unfused(DirectRunner):
    """Makes each node a separate step, and drops none."""

    def plan(self, pipeline: Pipeline, options: Any) -> Plan:
        with mock.patch("tidegate.runners.planner.rules.element_wise", return_value=False):
            return cut(pipeline, Traits(parallel=False))


@settings(max_examples=100)
@given(pipelines(), block_sizes, checks)
def test_a_pipeline_gives_the_results_of_the_model(description: Description, block_size: int, mode: str) -> None:
    found = run(description, DirectRunner(block_size=block_size), {"checks": mode})
    assert outcome(description, found) == expected(description)


@settings(max_examples=60)
@given(pipelines(), block_sizes)
def test_an_unfused_pipeline_gives_the_results_of_the_model(description: Description, block_size: int) -> None:
    found = run(description, Unfused(block_size=block_size))
    assert outcome(description, found) == expected(description)


@settings(max_examples=25)
@given(pipelines(), block_sizes)
def test_the_same_input_gives_the_same_output_in_the_same_order(description: Description, block_size: int) -> None:
    first = run(description, DirectRunner(block_size=block_size), {"checks": "off"})
    second = run(description, DirectRunner(block_size=block_size), {"checks": "all"})
    assert first.seen == second.seen


@settings(max_examples=60)
@given(pipelines(), block_sizes)
def test_every_step_counts_the_elements_it_emits(description: Description, block_size: int) -> None:
    found = run(description, DirectRunner(block_size=block_size), {"checks": "sample"})
    collections = evaluate(description)
    counted = {}
    expected_counts = {}
    for number, step in enumerate(description.steps):
        if step.op in ("flatten", "reshuffle", "panes") or not _read(description, number):
            continue
        outputs = [collections[n] for n in description.numbers(number)]
        dead_letters = outputs.pop() if step.handling else []
        expected_counts[number] = (sum(map(len, outputs)), len(dead_letters))
        metrics = found.result.metrics()
        counted[number] = (
            metrics.counter("elements_out", step=str(number)),
            metrics.counter("dead_letters", step=str(number)),
        )
    assert counted == expected_counts


def _read(description: Description, step: int) -> bool:
    """Whether a step runs: element-wise steps always do, others only if their output is read."""
    if description.steps[step].op == "apply":
        return True
    outputs = set(description.numbers(step))
    if outputs & set(description.read):
        return True
    return any(outputs & set(reader.inputs) and _read(description, n) for n, reader in enumerate(description.steps))
