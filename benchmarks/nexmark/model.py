"""The rows of Nexmark, whose columns have the names of the benchmark's tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who sells or bids."""

    id: int
    name: str
    emailAddress: str
    creditCard: str
    city: str
    state: str
    dateTime: datetime
    extra: str


@dataclass(frozen=True, slots=True)
class Auction:
    """Something to sell until `expires`, and the person who sells it."""

    id: int
    itemName: str
    description: str
    initialBid: int
    reserve: int
    dateTime: datetime
    expires: datetime
    seller: int
    category: int
    extra: str


@dataclass(frozen=True, slots=True)
class Bid:
    """A person's offer of a price in an auction."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    dateTime: datetime
    extra: str
