"""`result.metrics()` returns a snapshot of the metrics while the run continues to count."""

from __future__ import annotations

import sys
import threading

from tidegate.sdk.metrics import MetricCells, MetricKey, MetricResults


def test_metrics_do_not_change_after_they_were_returned() -> None:
    cells = MetricCells()
    read, tags = MetricKey("read", "app", "lines"), MetricKey("read", "app", "tags")
    cells.count(read, 3)
    cells.string_sets[tags] = {"a"}
    results = MetricResults(cells)
    cells.count(read)
    cells.string_sets[tags].add("b")
    assert results.counter("lines") == 3
    assert [result.value for result in results.query("tags")] == [{"a"}]
    assert MetricResults(cells).counter("lines") == 4


def test_metrics_can_be_read_while_another_thread_counts() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    cells, number, ended = MetricCells(), 5_000, threading.Event()

    def count() -> None:
        for n in range(number):
            cells.count(MetricKey("step", "app", f"counter {n}"))
        ended.set()

    thread = threading.Thread(target=count)
    thread.start()
    try:
        counts = [0]
        while not ended.is_set():
            counts.append(sum(result.value for result in MetricResults(cells).all()))
    finally:
        thread.join()
        sys.setswitchinterval(interval)
    assert counts == sorted(counts)
    assert len(list(MetricResults(cells).all())) == number
