"""Random functions from end to end: called and inlined, they do the same."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.loops.random_bodies import BODIES, PRELUDE, WITH_CELLS, body_function
from tests.engine.loops.random_functions import ADDRESS, EXPRESSIONS, NOTED, VALUES, function
from tests.support.run_and_collect import collect
from tidegate.runners.engine.loops.inlining import INLINED
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.metrics import MetricKey

AT_A_TIME = 50
"""The number of functions in a pipeline, each in a branch of its own."""
SHARES = {"direct": 1, "streaming": 6}
"""For each runner, one function is run of so many."""

STEPS: dict[str, Any] = {
    "map": tg.Map,
    "filter": tg.Filter,
    "flat map": tg.FlatMap,
    "map tuple": tg.MapTuple,
    "generator": tg.FlatMap,
    "map values": tg.MapValues,
    "with state": tg.Map,
    "flat with state": tg.FlatMap,
    "generator with state": tg.FlatMap,
}
PARAMETERS = {"with state": "x, d=(1, 2), cell=CELL, bag=BAG", "map tuple": "y, x, d=(1, 2)"}


def described(number: int, value: Any) -> str:
    return ADDRESS.sub("", f"{number}: {type(value).__name__} {value!r}")


PRELUDES = st.sampled_from(["", PRELUDE, PRELUDE])
TEXTS = {
    name: EXPRESSIONS
    if name == "map values"
    else st.builds("{}{}".format, PRELUDES, WITH_CELLS if "state" in name else BODIES)
    for name in STEPS
}


def made(name: str, text: str) -> Any:
    """The function of a step; None if the text is no Python."""
    if name == "map values":
        return function(text)
    if name.startswith("generator"):
        text = text.replace("YIELD", "yield", 1)
    parameters = next((given for kind, given in PARAMETERS.items() if name.endswith(kind)), "x, d=(1, 2)")
    # The texts and dicts that a FlatMap refuses would be the end of a run.
    return body_function(text.replace("YIELD", "note"), parameters, "several" if name.startswith("flat") else "")


def random_functions(count: int) -> list[tuple[str, Any]]:
    """Steps and their functions, drawn one by one, since very large examples are beyond Hypothesis."""
    drawn: list[tuple[str, Any]] = []
    steps = st.sampled_from(sorted(STEPS)).flatmap(lambda name: st.tuples(st.just(name), TEXTS[name]))

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=[*HealthCheck], deadline=None)
    @given(steps)
    def draw(step: tuple[str, str]) -> None:
        fn = made(*step)
        if fn is not None:
            drawn.append((step[0], fn))

    draw()
    return drawn


def branch(elements: Any, number: int, name: str, fn: Any) -> Any:
    """A step with a random function. Those with state, and those of pairs, get each value twice."""
    if "state" in name or name in ("map values", "map tuple"):
        elements = elements | f"pairs {number}" >> tg.FlatMap(lambda x: [(type(x).__name__, x)] * 2)
    return elements | f"step {number}" >> STEPS[name](fn).with_exception_handling()


@dataclass(frozen=True)
class Ran:
    """The outputs and dead letters of all functions, what the functions have noted, the counts of elements, the
    failure, and how many elements were inlined."""

    outputs: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    counts: tuple[tuple[MetricKey, int], ...] = ()
    failure: str = ""
    inlined: int = 0


def run(functions: list[tuple[str, Any]], runner: str, options: dict[str, Any]) -> Ran:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        elements = p | "elements" >> tg.Create(list(VALUES)).with_output_types(Any)
        outputs = []
        for number, (name, fn) in enumerate(functions):
            outputs += [
                output | f"{kind} {number}" >> tg.Map(partial(described, number))
                for kind, output in zip(("good", "bad"), branch(elements, number, name, fn), strict=True)
            ]
        return {"all": tuple(outputs) | tg.Flatten()}

    NOTED.clear()
    try:
        found = collect(build, runner, options)
    except TidegateError as error:
        return Ran(failure=ADDRESS.sub("", str(error)))
    results = list(found.result.metrics().all())
    return Ran(
        tuple(sorted(found.values("all"))),
        tuple(NOTED),
        tuple((each.key, each.value) for each in results if each.key.name == "elements_out"),
        inlined=sum(each.value for each in results if each.key.name == INLINED),
    )


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("runner", SHARES)
def test_random_functions_do_the_same_called_and_inlined(runner: str, pytestconfig: pytest.Config) -> None:
    functions = random_functions(pytestconfig.getoption("inlined_functions") // SHARES[runner])
    for start in range(0, len(functions), AT_A_TIME):
        compare(functions[start : start + AT_A_TIME], runner, "sample" if start // AT_A_TIME % 2 else "off")


def compare(functions: list[tuple[str, Any]], runner: str, checks: str) -> None:
    """Compare runs until none fails: results that are refused, such as the text of a FlatMap, are no dead letters.

    If steps with state fail on both of two workers, which failure ends the run is left to chance.
    """
    options: dict[str, Any] = {"checks": checks} if runner == "direct" else {"workers": 2}
    while functions:
        called = run(functions, runner, options | {"inline": "off"})
        inlined = run(functions, runner, options | {"inline": "always"})
        failed = {failing_step(each) for each in (called, inlined) if each.failure}
        by_chance = runner == "streaming" and bool(called.failure and inlined.failure)
        if not (by_chance and (len(failed) > 1 or "state" in functions[min(failed)][0])):
            assert replace(inlined, inlined=0) == called
        if not failed:
            assert inlined.inlined > 0
            return
        for number in sorted(failed, reverse=True):
            if len(failed) > 1:
                compare([functions[number]], runner, checks)
            del functions[number]


def failing_step(ran: Ran) -> int:
    """The number of the function that has failed."""
    found = re.search(r"in step 'step (\d+)'", ran.failure)
    assert found is not None, ran.failure
    return int(found[1])


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
