"""Generates the events of Nexmark: the n-th one is a function of the seed and of n, so any part can be made alone.

Of each 50 events, the first is a person, three are auctions and 46 are bids. Half of the bids are for an auction that
is popular at that time, and three of four bidders and sellers are persons who are active then. All others are drawn
from those who came last. Bids and auctions refer only to persons and auctions that came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias, TypeVar

from benchmarks.nexmark.model import Auction, Bid, Person

Event: TypeAlias = Person | Auction | Bid

PERSONS: Final = 1
AUCTIONS: Final = 3
BIDS: Final = 46
CYCLE: Final = PERSONS + AUCTIONS + BIDS
PLACES: Final[dict[type, range]] = {
    Person: range(PERSONS),
    Auction: range(PERSONS, PERSONS + AUCTIONS),
    Bid: range(PERSONS + AUCTIONS, CYCLE),
}
"""Where in a cycle of 50 events those of each kind stand."""

FIRST_ID: Final = 1000
RECENT_PERSONS: Final = 1000
RECENT_AUCTIONS: Final = 100
POPULAR: Final = 100
"""Every so many auctions, one is popular until the next one is; and so with active persons."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_NAMES: Final = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()
_LAST_NAMES: Final = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()
_CITIES: Final = (
    *(("Phoenix", "AZ"), ("Los Angeles", "CA"), ("San Francisco", "CA"), ("Boise", "ID"), ("Portland", "OR")),
    *(("Bend", "OR"), ("Redmond", "WA"), ("Seattle", "WA"), ("Kent", "WA"), ("Cheyenne", "WY")),
)
_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_MASK: Final = 2**64 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Events:
    """All parameters of the events. Times are in microseconds: `start` since 1970, `gap` between two events.

    An event's time is up to `disorder` after that of its place, so that events are out of order by as much.
    """

    seed: int = 1
    start: int = 1_735_718_380_000_000  # twenty seconds before eight in the morning of the first of January 2025
    gap: int = 100
    disorder: int = 0

    def at(self, number: int) -> Event:
        """The n-th event."""
        place = number % CYCLE
        draw = _Draws(self.seed, number)
        micros = self.time(number)
        if place < PERSONS:
            return self._person(number, micros, draw)
        return self._auction(number, micros, draw) if place < PERSONS + AUCTIONS else self._bid(number, micros, draw)

    def least_time(self, number: int) -> int:
        """No event from the n-th one on is earlier."""
        return self.start + number * self.gap

    def time(self, number: int) -> int:
        """The time of the n-th event (µs since 1970)."""
        late = _mixed(_mixed(self.seed) ^ number) % (self.disorder + 1)
        return self.least_time(number) + late

    def _person(self, number: int, micros: int, draw: _Draws) -> Person:
        first, last = draw.pick(_FIRST_NAMES), draw.pick(_LAST_NAMES)
        city, state = draw.pick(_CITIES)
        return Person(
            FIRST_ID + number // CYCLE,
            f"{first} {last}",
            f"{draw.word(7)}@{draw.word(5)}.com",
            " ".join(f"{draw.below(10_000):04}" for _ in range(4)),
            city,
            state,
            _instant(micros),
            draw.word(20 + draw.below(20)),
        )

    def _auction(self, number: int, micros: int, draw: _Draws) -> Auction:
        cycle, place = divmod(number, CYCLE)
        price = draw.price()
        lasting = 1 + draw.below(2 * RECENT_AUCTIONS * CYCLE // AUCTIONS * self.gap)
        return Auction(
            FIRST_ID + cycle * AUCTIONS + place - PERSONS,
            f"{draw.word(5)} {draw.word(8)}",
            draw.word(30 + draw.below(30)),
            price,
            price + draw.price(),
            _instant(micros),
            _instant(micros + lasting),
            self._active(cycle, draw),
            10 + draw.below(5),
            draw.word(20 + draw.below(20)),
        )

    def _bid(self, number: int, micros: int, draw: _Draws) -> Bid:
        cycle = number // CYCLE
        auctions = (cycle + 1) * AUCTIONS
        if draw.below(2):
            auction = (auctions - 1) // POPULAR * POPULAR
        else:
            auction = auctions - 1 - draw.below(min(auctions, RECENT_AUCTIONS))
        bidder, price = self._active(cycle, draw), draw.price()
        base = f"https://www.nexmark.com/{draw.word(4)}/{draw.word(4)}/{draw.word(4)}/item.htm?query=1"
        if draw.below(2):
            channel, url = draw.pick(_CHANNELS), base
        else:
            channel = f"channel-{draw.below(10_000)}"
            url = f"{base}&channel_id={draw.below(2**31)}" if draw.below(10) else base
        return Bid(FIRST_ID + auction, bidder, price, channel, url, _instant(micros), draw.word(20 + draw.below(20)))

    def _active(self, cycle: int, draw: _Draws) -> int:
        """The id of a person who is active when the n-th cycle comes, or of one who came last."""
        if draw.below(4):
            return FIRST_ID + cycle // POPULAR * POPULAR
        return FIRST_ID + cycle - draw.below(min(cycle + 1, RECENT_PERSONS))


def count(kind: type, events: int) -> int:
    """How many of the first events are of a kind."""
    cycles, rest = divmod(events, CYCLE)
    places = PLACES[kind]
    return cycles * len(places) + max(0, min(rest, places.stop) - places.start)


def number(kind: type, index: int) -> int:
    """Which event is the n-th one of a kind."""
    places = PLACES[kind]
    cycle, place = divmod(index, len(places))
    return cycle * CYCLE + places[place]


class _Draws:
    """Random numbers that depend on the seed and the event alone."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, number: int) -> None:
        self._state = _mixed(_mixed(seed) + number)

    def below(self, limit: int) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        return _mixed(self._state) % limit

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def word(self, length: int) -> str:
        letters = []
        while length > 0:
            drawn = self.below(26**12)
            for _ in range(min(length, 12)):
                drawn, letter = divmod(drawn, 26)
                letters.append(_LETTERS[letter])
            length -= 12
        return "".join(letters)

    def price(self) -> int:
        """A price in cents: each magnitude from one to a million dollars is as likely."""
        return round(10 ** (self.below(6_000_000) / 1_000_000) * 100)


def _mixed(state: int) -> int:
    """The bits of a number, mixed: the finalizer of SplitMix64."""
    state &= _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def _instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
