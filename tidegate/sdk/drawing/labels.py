"""Text in a picture: its width, and the placement of the labels of links so that they cover nothing.

Widths are those of DejaVu Sans, the widest of the fonts that a viewer is likely to use: with a narrower font, labels
have wider margins.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

Point: TypeAlias = tuple[float, float]

LONGEST: Final = 44
"""The number of characters after which a text is cut."""
TEXT: Final = 13.0
"""Font sizes, in pixels: of titles, and of notes and the labels of links."""
SMALL: Final = 11.0
BOLD: Final = 1.12
"""The factor by which a heading's letters are wider."""

_EMS: Final = {
    **dict.fromkeys("ijl'|", 0.3),
    **dict.fromkeys("ft()[]I .,:;!/\\-`", 0.41),
    **dict.fromkeys('csrkxyvzJ_"*^', 0.6),
    **dict.fromkeys("mMWw@%", 1.0),
    **dict.fromkeys("+<>=~#", 0.84),
}
_LOWER_OR_DIGIT: Final = 0.645
_UPPER: Final = 0.79
_OTHER: Final = 1.0
_WIDE: Final = 1.1
"""The width of Chinese, Japanese and Korean letters, and of emoji."""

TAG_HEIGHT: Final = 19.0
_AIR: Final = 2.0
_STEPS: Final = 24
"""Positions tried on each segment of a link."""


def fitted(text: str) -> str:
    """The text, cut if it is too long."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def text_width(text: str, size: float = TEXT) -> float:
    """The width of the text, cut by `fitted`."""
    return sum(map(_em, fitted(text))) * size


@lru_cache(maxsize=4096)
def _em(letter: str) -> float:
    if letter in _EMS:
        return _EMS[letter]
    if unicodedata.combining(letter):
        return 0.0
    if letter.isascii() and (letter.islower() or letter.isdigit()):
        return _LOWER_OR_DIGIT
    if letter.isascii() and letter.isupper():
        return _UPPER
    return _WIDE if unicodedata.east_asian_width(letter) in "WF" else _OTHER


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle, by its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Area, air: float = 0.0) -> bool:
        """Whether the areas overlap, or are closer to each other than `air`."""
        return (
            self.x < other.x + other.width + air
            and other.x < self.x + self.width + air
            and self.y < other.y + other.height + air
            and other.y < self.y + self.height + air
        )


def tag_width(label: str) -> float:
    """The width of a link's label with its frame."""
    return text_width(label, SMALL) + 14


def curve(points: Sequence[Point]) -> str:
    """An SVG path that leaves every point downwards and reaches the next from above."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (nx, ny) in pairwise(points):
        bend = _bend(y, ny)
        path += f"C{x:.1f} {y + bend:.1f} {nx:.1f} {ny - bend:.1f} {nx:.1f} {ny:.1f}"
    return path


def _bend(y: float, ny: float) -> float:
    return max(abs(ny - y) / 2, 12)


def _along(points: Sequence[Point]) -> list[Point]:
    """Points of the curve, from its start to its end."""
    found = []
    for (x, y), (nx, ny) in pairwise(points):
        bend = _bend(y, ny)
        for step in range(_STEPS):
            t = (step + 0.5) / _STEPS
            a, b, c, d = (1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t * t, t**3
            found.append(((a + b) * x + (c + d) * nx, a * y + b * (y + bend) + c * (ny - bend) + d * ny))
    return found


class Tags:
    """Places the labels of links, so that they overlap neither `occupied` areas nor each other, nor leave the page."""

    def __init__(self, occupied: Iterable[Area], width: float) -> None:
        self.occupied = list(occupied)
        self._width = width

    def on_link(self, label: str, points: Sequence[Point], wanted: Point) -> Area | None:
        """The free place on the link's curve that is nearest to `wanted`; None if there is none."""
        return self._first(label, sorted(_along(points), key=lambda point: _distance(point, wanted)))

    def anywhere(self, label: str, wanted: Point) -> Area:
        """A free place near `wanted`, if necessary below everything else."""
        bottom = max((area.y + area.height for area in self.occupied), default=0.0) + TAG_HEIGHT
        below = ((x, y) for y in _from(wanted[1], bottom + TAG_HEIGHT) for x in _from(wanted[0], self._width))
        place = self._first(label, below)
        assert place is not None
        return place

    def _first(self, label: str, points: Iterable[Point]) -> Area | None:
        width = tag_width(label)
        slide = width / 2 - 8
        for x, y in points:
            for aside in (0.0, -slide / 2, slide / 2, -slide, slide):
                area = Area(x + aside - width / 2, y - TAG_HEIGHT / 2, width, TAG_HEIGHT)
                if area.x < _AIR or area.x + width > self._width - _AIR:
                    continue
                if not any(area.overlaps(other, _AIR) for other in self.occupied):
                    self.occupied.append(area)
                    return area
        return None


def _from(start: float, stop: float) -> Iterator[float]:
    while start <= stop:
        yield start
        start += TAG_HEIGHT / 2


def _distance(a: Point, b: Point) -> float:
    return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2
