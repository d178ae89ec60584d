"""Two steps that write to the same Spark table or path."""

from __future__ import annotations

import pytest

import tidegate as tg


@pytest.mark.parametrize("mode", ["error", "overwrite", "ignore"])
def test_two_steps_that_replace_one_table_are_refused_when_built(mode: str) -> None:
    p = tg.Pipeline()
    rows = p | tg.Create([{"n": 1}])
    _ = rows | "one" >> tg.io.WriteToSpark("reports.daily", mode=mode)  # type: ignore[arg-type]
    with pytest.raises(
        tg.BuildError, match=r"the step 'one', applied at .*, already writes 'reports\.daily': one step would"
    ):
        _ = rows | "other" >> tg.io.WriteToSpark("reports.daily", mode=mode)  # type: ignore[arg-type]


def test_two_steps_may_add_to_one_table() -> None:
    p = tg.Pipeline()
    rows = p | tg.Create([{"n": 1}])
    for label in ("one", "other"):
        _ = rows | label >> tg.io.WriteToSpark("reports.daily", mode="append")
    assert len(p.portable().nodes) == 3
