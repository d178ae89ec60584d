"""The checks of sources that discover their splits while the job runs."""

from __future__ import annotations

import json
from typing import Any, Final

from tidegate.sdk.connectors.sources import Source, Split
from tidegate.sdk.errors import shorten
from tidegate.testing.conformance.reading import (
    SourceCase,
    as_stored,
    discover,
    drain,
    enumerator_of,
    look,
    read_all,
)
from tidegate.testing.conformance.rules import NotApplicable, broken, copied
from tidegate.testing.matchers import difference

_MANY: Final = 500
_IDLE_LOOKS: Final = 20


def discovers_each_split_once(case: SourceCase) -> None:
    """Whatever the limit of a look is, an enumerator returns each split once, and the splits cover each element."""
    for limit in (1, 2, _MANY):
        source = case.source()
        splits = _discovered(case, source, limit)
        ids = [split.id for split in splits]
        if len(set(ids)) < len(ids):
            twice = next(id for id in ids if ids.count(id) > 1)
            raise broken(
                f"with discover({limit}), the split {twice!r} was returned {ids.count(twice)} times",
                "remember which splits have been returned",
            )
        case.compare(read_all(case, source, splits, case.limits[0]), f"the splits of discover({limit})")


def enumerator_restarts_between_any_two_looks(case: SourceCase) -> None:
    """An enumerator that is made of another one's state, after its journey through JSON, returns the remaining splits
    and no other."""
    source = case.source()
    ids = sorted(split.id for split in _discovered(case, source, _MANY))
    for looks in case.positions(range(len(ids) + 2)):
        source = case.source()
        first = enumerator_of(case, source)
        found: list[Split] = []
        for _ in range(looks):
            found += look(case, first, 1).splits
        state = as_stored("an enumerator's state", case.calls("state()", first.state))
        case.calls("close() of the enumerator", first.close)
        second = enumerator_of(case, copied(case.calls, "the source", source), state)
        returned = {split.id for split in found}
        found += discover(case, second, _MANY, [id for id in ids if id not in returned])
        case.calls("close() of the enumerator", second.close)
        if sorted(split.id for split in found) != ids:
            problem = difference(ids, [split.id for split in found])
            raise broken(
                f"restarted after {looks} looks, from the state {shorten(state)}: {problem}",
                "let `state` say exactly which splits have been returned, and start from it",
            )


def enumerator_state_is_bounded(case: SourceCase) -> None:
    """An enumerator's state is small, and looks that find nothing do not make it grow."""
    source = case.source()
    enumerator = enumerator_of(case, source)
    discover(case, enumerator, _MANY)
    before = _size(case.calls("state()", enumerator.state))
    for _ in range(_IDLE_LOOKS):
        look(case, enumerator, _MANY)
    after = _size(case.calls("state()", enumerator.state))
    case.calls("close() of the enumerator", enumerator.close)
    if after > before + _IDLE_LOOKS // 2:
        raise broken(
            f"{_IDLE_LOOKS} looks that found nothing made the state grow from {before:,} to {after:,} bytes",
            "forget what no later look needs: each checkpoint stores the state",
        )
    if after > case.max_state_bytes:
        raise broken(
            f"the state has {after:,} bytes",
            f"store a position instead of all that was found, or pass max_state_bytes= (now {case.max_state_bytes:,})",
        )


def enumerator_says_when_to_look_again(case: SourceCase) -> None:
    """A look that finds nothing returns at once, and says how long to wait, unless the enumerator has ended."""
    enumerator = enumerator_of(case, case.source())
    discover(case, enumerator, _MANY)
    for _ in range(3):
        found = look(case, enumerator, _MANY)
        if not found.splits and not found.end and found.wait <= 0:
            raise broken(
                f"a look that found nothing has wait={found.wait!r}",
                "say in `wait` in how many seconds to look again; otherwise the runner spins",
            )
    case.calls("close() of the enumerator", enumerator.close)


def bounded_enumerator_ends(case: SourceCase) -> None:
    """The enumerator of a bounded source says when no split will follow, also after a restart."""
    source = case.source()
    enumerator = enumerator_of(case, source)
    if not source.bounded:
        raise NotApplicable("the source is unbounded")
    discover(case, enumerator, _MANY)
    for _ in range(2):
        if not look(case, enumerator, _MANY).end:
            raise broken("the enumerator has returned all splits without `end`", "return Discovery(end=True)")
        state = as_stored("an enumerator's state", case.calls("state()", enumerator.state))
        case.calls("close() of the enumerator", enumerator.close)
        enumerator = enumerator_of(case, source, state)
    case.calls("close() of the enumerator", enumerator.close)


def discovers_what_is_added(case: SourceCase) -> None:
    """A split that appears while the job runs is discovered, and the earlier ones are not returned again."""
    source = case.source()
    enumerator = enumerator_of(case, source)
    if case.add is None:
        raise NotApplicable("pass add=, a function that adds data and returns its elements")
    known = {split.id for split in discover(case, enumerator, _MANY)}
    added = list(case.calls("add()", case.add))
    found = discover(case, enumerator, _MANY)
    case.calls("close() of the enumerator", enumerator.close)
    again = [split.id for split in found if split.id in known]
    if again:
        raise broken(f"{shorten(again)} were returned again", "remember which splits have been returned")
    readings = drain(case, source, found, limit=2, wanted=len(added))
    problem = difference(added, [value for reading in readings.values() for value in reading.values])
    if problem is not None:
        raise broken(
            f"after {len(added)} elements were added, {len(found)} splits were discovered: {problem}",
            "let each look compare what there is with what has been returned",
        )


def _discovered(case: SourceCase, source: Source[Any], limit: int) -> list[Split]:
    enumerator = enumerator_of(case, source)
    splits = discover(case, enumerator, limit)
    case.calls("close() of the enumerator", enumerator.close)
    return splits


def _size(state: Any) -> int:
    return len(json.dumps(as_stored("an enumerator's state", state)))
