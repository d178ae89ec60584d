"""Errors about an operand of `|` that is not a step say what to write instead."""

from __future__ import annotations

import functools
import json
import operator
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg


def refusal(applied: Any) -> str:
    pcoll = tg.Pipeline() | tg.Create(["a"])
    with pytest.raises(tg.BuildError) as caught:
        pcoll | applied
    assert f"applied at {__file__}:" in str(caught.value)
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("applied", "advice"),
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
def test_builtin_functions_are_treated_as_functions_of_elements(
    applied: Any, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(applied).endswith(f"to call it with each element, write {advice}".replace("to call", "To call"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("applied", [functools.partial(int, base=2), operator.itemgetter(0), [].append])
def test_partials_and_bound_methods_of_builtins_are_treated_as_functions_of_elements(applied: Any) -> None:
    assert "To call it with each element, write tg.Map(" in refusal(applied)


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
def test_the_error_of_a_component_of_a_step_names_the_step_to_write(applied: Any, message: str) -> None:
    assert refusal(applied) == message


def shout(word: str) -> str:
    return word.upper()


def pairs(word: str) -> Iterator[tuple[str, int]]:
    yield word, 1


@pytest.mark.parametrize(
    ("applied", "advice"),
    [
        (shout, "write tg.Map(shout)"),
        (lambda n: n + 1, "write tg.Map(lambda x: …)"),
        (lambda n: (n, 1), "write tg.Map(lambda x: …)"),
        (pairs, "write tg.FlatMap(pairs)"),
    ],
)
def test_functions_of_elements_are_distinguished_from_functions_of_collections(applied: Any, advice: str) -> None:
    assert refusal(applied).endswith(advice)


def test_a_function_that_applies_no_step_and_returns_none_causes_a_warning() -> None:
    def look(word: str) -> None:
        _ = f"{word}"

    with pytest.warns(tg.TidegateWarning, match=r"look applied no step and returned None.*write tg\.Map\(look\)"):
        tg.Pipeline() | tg.Create(["a"]) | look


def test_functions_of_collections_may_return_any_value() -> None:
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
def test_python_adds_no_suggestion_to_our_message(written: str, message: str) -> None:
    script = f"import tidegate as tg\n{written}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == f"AttributeError: {message}"


def test_a_misspelt_method_has_one_suggestion_in_its_message() -> None:
    message = "AttributeError: 'PCollection' object has no attribute 'colect'. Did you mean: 'collect'?"
    script = "import tidegate as tg\n(tg.Pipeline() | tg.Create([1])).colect"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == message
    with pytest.raises(AttributeError) as caught:  # a notebook shows the exception's own text
        getattr(tg.Pipeline() | tg.Create([1]), "colect")  # noqa: B009
    assert f"AttributeError: {caught.value}" == message


@pytest.mark.parametrize(
    "missing",
    [lambda: tg.Row(a=1).b, lambda: tg.Mapp, lambda: (tg.Pipeline() | tg.Create([1])).mapp],  # type: ignore[attr-defined]
)
def test_an_error_about_a_misspelt_name_can_be_sent_to_another_process(missing: Callable[[], Any]) -> None:
    with pytest.raises(AttributeError) as caught:
        missing()
    sent = pickle.loads(pickle.dumps(caught.value))
    assert type(sent) is AttributeError
    assert str(sent) == str(caught.value)
