"""Random functions on the streaming runner: called and inlined, they do the same."""

from __future__ import annotations

import traceback
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.loops.random_functions import ADDRESS, EXPRESSIONS, VALUES, function
from tests.support.run_and_collect import collect
from tidegate.runners.engine.loops.inlining import INLINED
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.metrics import MetricKey

AT_A_TIME = 25
"""The number of functions in a pipeline, each in a branch of its own."""
STEPS = {"map": tg.Map, "filter": tg.Filter, "flat map": tg.FlatMap}


def described(number: int, value: Any) -> str:
    return ADDRESS.sub("", f"{number}: {type(value).__name__} {value!r}")


def run(functions: list[tuple[str, str]], inline: str) -> tuple[list[str], dict[MetricKey, int], int]:
    """The outputs and dead letters of each function for all values, the counts of elements, and how many were
    inlined."""

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        elements = p | "elements" >> tg.Create(list(VALUES))
        outputs = []
        for number, (step, expression) in enumerate(functions):
            made = elements | f"step {number}" >> STEPS[step](function(expression)).with_exception_handling()
            outputs += [
                output | f"{name} {number}" >> tg.Map(partial(described, number))
                for name, output in zip(("good", "bad"), made, strict=True)
            ]
        return {"all": tuple(outputs) | tg.Flatten()}

    found = collect(build, "streaming", {"inline": inline, "workers": 2})
    results = list(found.result.metrics().all())
    counts = {each.key: each.value for each in results if each.key.name == "elements_out"}
    return sorted(found.values("all")), counts, sum(each.value for each in results if each.key.name == INLINED)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_random_functions_of_a_stream_do_the_same_called_and_inlined(pytestconfig: pytest.Config) -> None:
    functions = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), EXPRESSIONS), min_size=AT_A_TIME, max_size=AT_A_TIME)
    pipelines = max(1, pytestconfig.getoption("inlined_functions") // 10 // AT_A_TIME)

    @settings(max_examples=pipelines, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
    @given(functions)
    def check(drawn: list[tuple[str, str]]) -> None:
        outputs, counts, none = run(drawn, "off")
        again, counts_again, inlined = run(drawn, "always")
        assert again == outputs
        assert counts_again == counts
        assert none == 0 < inlined

    check()


def half(x: int) -> float:
    return 10 / (x - 3)


def test_a_failure_of_a_stream_has_the_same_text_called_and_inlined() -> None:
    def failure(inline: str) -> str:
        pipeline = tg.Pipeline("streaming", {"inline": inline, "workers": 2})
        pipeline | tg.Create([1, 2, 3, 4]) | tg.Map(half) | tg.Map(lambda x: x + 1)
        with pytest.raises(TidegateError) as caught:
            pipeline.run()
        cause = caught.value.__cause__
        return f"{caught.value}\n{''.join(traceback.format_exception(cause))}"

    called = failure("off")
    assert "ZeroDivisionError" in called
    assert "in half" in called
    assert failure("always") == called
