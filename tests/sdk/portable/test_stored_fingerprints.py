"""The fingerprints of joins and loops are those that earlier versions stored: a resubmitted job is the same job."""

from __future__ import annotations

from contextlib import nullcontext

import tidegate as tg
from tidegate.sdk.portable.fingerprint import fingerprint
from tidegate.sdk.steps.purity import pure_steps

PAIRS = tuple[int, int]

STORED = {
    "step 'cogroup/Group'": "30ccbaa5fe51777013a42790127141d0",
    "step 'inner/Group/Group'": "6bee3b1b7b05d73dd2b554bab0b82df7",
    "step 'outer/Group/Group'": "101f76fe443614f93295349e78b3898d",
    "step 'loop'": "3ef7f865f34fc671524d79aff8992a23",
}


def test_joins_and_loops_keep_the_fingerprints_that_were_stored() -> None:
    p = tg.Pipeline("joins")
    left = p | "left" >> tg.Create([(1, 2)]).with_output_types(PAIRS)
    right = p | "right" >> tg.Create([(1, 3)]).with_output_types(PAIRS)
    _ = {"l": left, "r": right} | "cogroup" >> tg.CoGroupByKey()
    _ = left | "inner" >> tg.Join.inner(right)
    _ = left | "outer" >> tg.Join.left(right)
    _ = left | "loop" >> tg.Iterate(lambda x: x | "same" >> tg.Filter(bool), rounds=2)
    parts = fingerprint(p.portable())
    assert {part: parts[part] for part in STORED} == STORED


def test_a_step_that_need_not_run_has_the_fingerprint_of_one_that_must() -> None:
    def parts(pure: bool) -> dict[str, str]:
        p = tg.Pipeline("steps")
        numbers = p | "numbers" >> tg.Create([1])
        with pure_steps() if pure else nullcontext():
            _ = numbers | "same" >> tg.Filter(bool)
            _ = numbers | "loop" >> tg.Iterate(lambda x: x | "in it" >> tg.Filter(bool), rounds=2)
        assert p.portable().nodes[1].pure is pure
        return fingerprint(p.portable())

    assert parts(True) == parts(False)
