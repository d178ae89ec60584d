"""The example of enrichment on each runner, with a server that sometimes fails."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.example_scripts import EXAMPLES, lines_of, tidegate_command

PRICES = {"tea": 3.5, "milk": 1.25, "sugar": 2.0}


class Service(ThreadingHTTPServer):
    """Knows some products, and fails at the first request for each."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/products"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        product = self.path.rpartition("/")[2]
        with self.server.lock:
            self.server.requests[product] += 1
            first = self.server.requests[product] == 1
        if first:
            self.send_error(503)
        elif product not in PRICES:
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"name": product, "price": PRICES[product]}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    "runner", ["direct", "streaming", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))]
)
def test_orders_are_enriched_and_those_without_an_answer_are_written_separately(
    runner: str, service: Service, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if runner == "spark":
        request.getfixturevalue("spark_session")
    command = ["run", EXAMPLES / "enrichment.py", "--runner", runner, "--service", service.url, "--orders", "70"]
    if runner == "streaming":
        command += ["--workers", "2"]
    tidegate_command(*command, "--output", tmp_path / "out" / "enriched")
    orders = range(70)
    products = ("tea", "milk", "sugar", "tea", "ink", "milk", "tea")
    refused = [n for n in orders if products[n % 7] == "ink"]
    assert sorted(lines_of(tmp_path / "out" / "enriched-0")) == sorted(
        f"order {n}: {n % 3 + 1} x {products[n % 7]}, {(n % 3 + 1) * PRICES[products[n % 7]]:.2f}"
        for n in orders
        if n not in refused
    )
    assert sorted(lines_of(tmp_path / "out" / "enriched-refused")) == sorted(
        f"order {n}: Unknown('ink')" for n in refused
    )
    assert set(service.requests) == {*PRICES, "ink"}
    if runner != "spark":  # with Spark, a task processes only one partition
        assert max(service.requests[product] for product in PRICES) <= 4  # twice by each of two workers
