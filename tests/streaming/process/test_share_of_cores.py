"""Libraries of arrays start no more threads in a worker than its share of the cores."""

from __future__ import annotations

import os

import pytest

import tidegate as tg
from tidegate.sdk.options.defaults import processors
from tidegate.testing import TestPipeline, assert_that, equal_to


def assert_threads(expected: str, workers: int) -> None:
    with TestPipeline("streaming", {"workers": workers}) as p:
        values = p | tg.Create([0]) | tg.Map(lambda _: os.environ.get("OMP_NUM_THREADS", ""))
        assert_that(values, equal_to([expected]))


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_share_the_cores(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert_threads(str(max(1, processors() // workers)), workers)
    assert "OMP_NUM_THREADS" not in os.environ


def test_the_users_number_of_threads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert_threads("5", 2)
