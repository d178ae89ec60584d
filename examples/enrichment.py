"""Enrich orders with what a web service knows of their products; each worker asks for a product once a minute at most.

    tidegate run examples/enrichment.py --service http://localhost:8000/products --output build/enriched

asks for `http://localhost:8000/products/<product>`, which answers with JSON such as
`{"name": "tea", "price": 3.5}`, and writes lines such as `order 17: 2 x tea, 7.00` to files whose names begin with
`build/enriched`. Orders of products that the service does not know, or that it fails to answer for, are written to
`build/enriched-refused` with the reason. Up to `--capacity` requests are on their way at a time, a failed one is
repeated twice, and an answer is used again for `--remember` seconds.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import Field

import tidegate as tg

PRODUCTS = ("tea", "milk", "sugar", "tea", "ink", "milk", "tea")


class EnrichmentOptions(tg.PipelineOptions):
    """Which service to ask, and where to write."""

    service: str = Field(description="the address of the service, to which the name of a product is added")
    output: str = Field(description="how the names of the files to write begin")
    orders: int = Field(default=1000, ge=1, description="how many orders there are")
    capacity: int = Field(default=16, ge=1, description="how many products to ask for at a time")
    remember: float = Field(default=60.0, gt=0, description="seconds for which an answer is used again")


@dataclass(frozen=True)
class Order:
    """An order of a number of pieces of a product."""

    number: int
    product: str
    pieces: int


def order(number: int) -> Order:
    """The order of that number."""
    return Order(number, PRODUCTS[number % len(PRODUCTS)], number % 3 + 1)


class Unknown(Exception):
    """The service does not know a product. It is no OSError, so the request is not repeated."""


@dataclass(frozen=True)
class Ask:
    """Asks the service for a product. The standard library's client blocks, so the calls run in threads; with an
    asynchronous client, `__call__` would be an `async def`."""

    service: str

    def __call__(self, product: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.service}/{quote(product)}", timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise Unknown(product) from None
            raise


def as_line(ordered: Order, found: dict[str, Any]) -> str:
    """What to write of an order."""
    return f"order {ordered.number}: {ordered.pieces} x {found['name']}, {ordered.pieces * found['price']:.2f}"


def why_refused(ordered: Order, error: tuple[str, str, list[str]]) -> str:
    """What to write of an order without an answer."""
    return f"order {ordered.number}: {error[1]}"


def pipeline(options: EnrichmentOptions) -> tg.Pipeline:
    """Orders, joined with the answers of the service."""
    p = tg.Pipeline(options=options, name="enrichment")
    ask = tg.LookupJoin(
        Ask(options.service),
        key=lambda ordered: ordered.product,
        join=as_line,
        capacity=options.capacity,
        timeout=15,
        retry=tg.Retry(attempts=3, backoff=0.2, on=OSError),
        cache=tg.Cache(ttl=options.remember),
        name="ask",
    )
    lines, refused = p | tg.Create(range(options.orders)) | tg.Map(order) | ask.with_exception_handling()
    lines | "write" >> tg.io.WriteToText(options.output)
    refused | tg.MapTuple(why_refused) | "write refused" >> tg.io.WriteToText(f"{options.output}-refused")
    return p


if __name__ == "__main__":
    pipeline(EnrichmentOptions.from_args()).run().wait_until_finish()
