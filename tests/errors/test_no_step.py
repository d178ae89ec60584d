"""Errors for an operand of `|` that is not a step say what to write instead."""

from __future__ import annotations

import functools
import json
import operator
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg


def refused(applied: Any) -> str:
    made = tg.Pipeline() | tg.Create(["a"])
    with pytest.raises(tg.BuildError) as caught:
        made | applied
    assert f"applied at {__file__}:" in str(caught.value)
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("applied", "cure"),
    [
        (print, "tg.Map(print); to look at the first elements, tg.show(pcoll)"),
        (str, "tg.Map(str)"),
        (str.upper, "tg.Map(str.upper)"),
        (json.loads, "tg.Map(loads)"),
        (sum, "tg.Map(sum); for one result of all elements, tg.CombineGlobally(sum)"),
        (len, "tg.Map(len); to count the elements, tg.combiners.Count.Globally()"),
        (sorted, "tg.Map(sorted); for the elements in your own program, pcoll.collect()"),
    ],
)
def test_functions_of_python_itself_are_functions_of_elements(
    applied: Any, cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(applied).endswith(f"to call it with each element, write {cure}".replace("to call", "To call"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("applied", [functools.partial(int, base=2), operator.itemgetter(0), [].append])
def test_what_python_makes_of_its_own_functions_is_too(applied: Any) -> None:
    assert "To call it with each element, write tg.Map(" in refused(applied)


class Shout(tg.DoFn):
    def process(self, element: str) -> Iterator[str]:
        yield element.upper()


@pytest.mark.parametrize(
    ("applied", "message"),
    [
        (Shout(), "Shout is a DoFn, not a step: write tg.ParDo(Shout(...))"),
        (Shout, "Shout is a DoFn, not a step: write tg.ParDo(Shout(...))"),
        (
            tg.combiners.MeanFn(),
            "MeanFn is a combiner, not a step: write tg.CombineGlobally(MeanFn(...)) or tg.CombinePerKey(MeanFn(...))",
        ),
        (tg.FixedWindows(60), "FixedWindows is a window assigner, not a step: write tg.WindowInto(FixedWindows(...))"),
        (tg.CountWindows(3), "CountWindows is a window assigner, not a step: write tg.WindowInto(CountWindows(...))"),
        (tg.KeepLast(3), "KeepLast is an evictor, not a step: write tg.WindowInto(..., evictor=KeepLast(...))"),
        ([1, 2], "list is data, not a step: write p | tg.Create(...)"),
        (None, "None is not a transform: a step is a PTransform such as Map(f), or a function of a PCollection"),
    ],
)
def test_parts_of_steps_say_what_they_are_part_of(applied: Any, message: str) -> None:
    assert refused(applied) == message


def shout(word: str) -> str:
    return word.upper()


def pairs(word: str) -> Iterator[tuple[str, int]]:
    yield word, 1


@pytest.mark.parametrize(
    ("applied", "cure"),
    [
        (shout, "write tg.Map(shout)"),
        (lambda n: n + 1, "write tg.Map(lambda x: …)"),
        (lambda n: (n, 1), "write tg.Map(lambda x: …)"),
        (pairs, "write tg.FlatMap(pairs)"),
    ],
)
def test_an_authors_function_of_elements_is_told_from_one_of_a_collection(applied: Any, cure: str) -> None:
    assert refused(applied).endswith(cure)


def test_a_function_that_applies_nothing_and_gives_nothing_is_warned_of() -> None:
    def look(word: str) -> None:
        _ = f"{word}"

    with pytest.warns(tg.TidegateWarning, match=r"look applied no step and returned None.*write tg\.Map\(look\)"):
        tg.Pipeline() | tg.Create(["a"]) | look


def test_functions_of_collections_may_give_what_they_like() -> None:
    def both(words: tg.PCollection[str]) -> dict[str, Any]:
        return {"loud": words | tg.Map(shout), "number": 3}

    words = tg.Pipeline() | tg.Create(["a"])
    assert words | (lambda same: same) is words
    assert (words | both)["number"] == 3
    assert words | (lambda same: {"same": same}) == {"same": words}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("tg.Mapp", "tidegate has no Mapp; did you mean tg.Map?"),
        ("tg.io.ReadFromTxt", "tidegate.io has no ReadFromTxt; did you mean tg.io.ReadFromText?"),
        ("tg.combiners.Meen", "tidegate.combiners has no Meen; did you mean tg.combiners.Mean?"),
        (
            "tg.Pipeline().take",
            'a Pipeline has no take; write p["label"].head(3), for the output of the step of that label',
        ),
    ],
)
def test_python_adds_no_suggestion_to_ours(written: str, message: str) -> None:
    script = f"import tidegate as tg\n{written}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == f"AttributeError: {message}"


def test_python_suggests_where_we_have_nothing_to_say() -> None:
    script = "import tidegate as tg\n(tg.Pipeline() | tg.Create([1])).colect"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "AttributeError: 'PCollection' object has no attribute 'colect'. Did you mean: 'collect'?"
    )
