"""A small shop: orders and users, as collections for tests of queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import tidegate as tg


@dataclass(frozen=True)
class Order:
    id: int
    user: str
    price: float
    qty: int
    at: datetime


@dataclass(frozen=True)
class User:
    name: str
    city: str | None


def at(minute: int) -> datetime:
    """An instant of the morning on which all orders were made."""
    return datetime(2024, 1, 1, 10, minute, tzinfo=UTC)


ORDERS = [
    Order(1, "ada", 1.5, 2, at(1)),
    Order(2, "max", 2.5, 1, at(5)),
    Order(3, "ada", 1.0, 7, at(12)),
    Order(4, "eve", 9.0, 1, at(13)),
]
USERS = [User("ada", "Bern"), User("max", None), User("zoe", "Rom")]


def shop(runner: str = "direct") -> dict[str, Any]:
    """The tables of the shop, in a new pipeline."""
    pipeline = tg.Pipeline(runner)
    return {"orders": pipeline | "orders" >> tg.Create(ORDERS), "users": pipeline | "users" >> tg.Create(USERS)}


def answer(query: str, runner: str = "direct", **arguments: Any) -> list[tuple[Any, ...]]:
    """The rows of a query over the shop, as tuples."""
    return [tuple(row) for row in (shop(runner) | tg.Sql(query, **arguments)).collect()]
