"""The memory gauge: when it takes samples, and when it reports that a table is too large."""

from __future__ import annotations

from tidegate.runners.engine.memory.gauge import MemoryGauge, mean_size, oldest_and_newest


def sampled_after(blocks: int) -> list[int]:
    """The numbers of the blocks, out of `blocks`, after which a gauge takes a sample."""
    sampled: list[int] = []
    current = 0
    gauge = MemoryGauge(1, estimate=lambda: 0, sample=lambda: sampled.append(current))
    for block in range(1, blocks + 1):
        current = block
        gauge.block_added()
    return sampled


def test_samples_are_taken_at_powers_of_two_and_then_at_even_intervals() -> None:
    assert sampled_after(300) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert sampled_after(800)[-3:] == [512, 640, 768]


def test_a_growing_table_is_reported_as_too_large_within_eight_blocks() -> None:
    size = 0
    gauge = MemoryGauge(1_000, estimate=lambda: size, sample=lambda: None)
    for block in range(1, 201):
        size = block * 10
        if gauge.block_added():
            break
    assert 1_000 < size <= 1_080


def test_large_blocks_are_checked_immediately() -> None:
    gauge = MemoryGauge(10, estimate=lambda: 11, sample=lambda: None)
    assert [gauge.block_added() for _ in range(7)] == [True, True, False, True, False, False, False]
    gauge = MemoryGauge(10, estimate=lambda: 11, sample=lambda: None)
    assert all(gauge.block_added(large=True) for _ in range(7))


def test_an_estimate_over_the_budget_is_reported_only_if_a_recount_confirms_it() -> None:
    size = 2_000

    def recount() -> None:
        nonlocal size
        size = 500

    gauge = MemoryGauge(1_000, estimate=lambda: size, sample=lambda: None, recount=recount)
    assert not gauge.block_added()
    assert size == 500


def test_a_sample_of_a_table_consists_of_its_oldest_and_newest_entries() -> None:
    entries = oldest_and_newest(dict.fromkeys(range(100)))
    assert {key for key, _ in entries} == {*range(16), *range(84, 100)}
    assert mean_size([]) == 0
    assert mean_size(["x" * 1_000, "x" * 3_000]) > 2_000
