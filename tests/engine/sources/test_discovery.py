"""Discovery of splits: the results of enumerators are checked, and errors name the step and the author's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.sources.discovery import SplitDiscovery, all_splits
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.sdk.user_code.frames import Where


class AnsweringEnumerator(tg.io.SplitEnumerator):
    def __init__(self, answer: Callable[[int], Any], state: Any = None) -> None:
        self.answer = answer
        self.value = state
        self.closed = 0

    def discover(self, limit: int) -> tg.io.Discovery:
        return self.answer(limit)  # type: ignore[no-any-return]

    def state(self) -> tg.io.Position:
        return self.value

    def close(self) -> None:
        self.closed += 1


class EnumeratedSource(tg.io.Source[int]):
    def __init__(self, enumerator: tg.io.SplitEnumerator) -> None:
        self.made = enumerator

    def splits(self, desired: int) -> list[tg.io.Split]:
        raise AssertionError

    def enumerator(self, state: tg.io.Position = None) -> tg.io.SplitEnumerator:
        return self.made

    def reader(self, split: tg.io.Split, position: tg.io.Position = None) -> tg.io.Reader[int]:
        raise AssertionError


def step_of(enumerator: tg.io.SplitEnumerator) -> SourceStep:
    return SourceStep("Reading", Where("page.py", 1), EnumeratedSource(enumerator), discovers=True)


def splits(*names: str) -> list[tg.io.Split]:
    return [tg.io.Split(name) for name in names]


def test_a_discovery_at_the_limit_is_repeated_without_waiting() -> None:
    enumerator = AnsweringEnumerator(lambda limit: tg.io.Discovery(splits("a", "b"), wait=7.0), state=("a", 1))
    discovery = SplitDiscovery(step_of(enumerator), enumerator)
    first, second = discovery.look(limit=2), discovery.look(limit=3)
    assert (first.full, first.wait, second.full, second.wait) == (True, 0.0, False, 7.0)
    assert first.state == ["a", 1]


def refuse(limit: int) -> Any:
    raise OSError("no such bucket")


@pytest.mark.parametrize(
    ("answer", "state", "message"),
    [
        (lambda limit: splits("a"), None, "discover returned .*, not a tg.io.Discovery"),
        (lambda limit: tg.io.Discovery(["a"]), None, "discover returned 'a' among its splits, not a tg.io.Split"),
        (lambda limit: tg.io.Discovery(splits("a", "a")), None, "two splits with the id 'a'"),
        (lambda limit: tg.io.Discovery(splits("a", "b", "c")), None, "returned 3 splits, but its limit was 2"),
        (lambda limit: tg.io.Discovery(), {1, 2}, "state can't be stored: .*set"),
        (refuse, None, "OSError: no such bucket"),
    ],
    ids=["no discovery", "no split", "twice", "too many", "state", "raises"],
)
def test_an_error_of_an_enumerator_names_the_step(answer: Any, state: Any, message: str) -> None:
    enumerator = AnsweringEnumerator(answer, state)
    with pytest.raises(tg.RunError, match=rf"(?s){message}.*in step 'Reading', applied at page.py:1"):
        SplitDiscovery(step_of(enumerator), enumerator).look(limit=2)


def test_an_error_while_creating_an_enumerator_names_the_step() -> None:
    class Broken(EnumeratedSource):
        def enumerator(self, state: tg.io.Position = None) -> tg.io.SplitEnumerator:
            raise ValueError(f"{state} is no state")

    step = SourceStep("Reading", Where("page.py", 1), Broken(AnsweringEnumerator(refuse)), discovers=True)
    with pytest.raises(tg.UserCodeError, match=r"(?s)None is no state.*in step 'Reading'.*while calling enumerator"):
        all_splits(step, 1)


def test_all_splits_of_a_bounded_source_are_collected_from_several_discoveries() -> None:
    discoveries = [
        tg.io.Discovery(splits("a", "b"), wait=0.0),
        tg.io.Discovery(wait=0.0),
        tg.io.Discovery(splits("c"), end=True),
    ]
    enumerator = AnsweringEnumerator(lambda limit: discoveries.pop(0))
    assert [split.id for split in all_splits(step_of(enumerator), 1)] == ["a", "b", "c"]
    assert enumerator.closed == 1
