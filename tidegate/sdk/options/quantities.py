"""Quantities: durations and sizes as people write them, `90s` or `256MB`, read and written."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from tidegate.sdk.errors import shorten
from tidegate.sdk.time import SECOND, Duration

_DURATION_UNITS: Final = {
    "d": 86_400 * SECOND, "h": 3_600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": 1_000, "us": 1,
}  # fmt: skip
_DURATION: Final = re.compile(r"([+-]?)((?:[0-9]+(?:\.[0-9]+)?(?:ms|us|[smhd]))+|[0-9]+(?:\.[0-9]+)?)", re.IGNORECASE)
_DURATION_PART: Final = re.compile(r"([0-9.]+)([a-z]*)", re.IGNORECASE)
_SIZE_UNITS: Final = {
    letter + suffix: base**power
    for power, letter in enumerate(("", "k", "m", "g", "t", "p"))
    for suffix, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
    if letter or suffix in ("", "b")
}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)", re.IGNORECASE)


def parse_duration(text: str) -> Duration:
    """`500ms`, `10s`, `5m`, `2h`, `1d`, `1h30m`; a plain number is seconds. ValueError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{shorten(text)} is not a duration such as 500ms, 10s, 5m, 2h or 1d")
    parts = _DURATION_PART.findall(match[2].lower())
    micros = round(sum(Decimal(number) * _DURATION_UNITS[unit or "s"] for number, unit in parts))
    return Duration(micros=-micros if match[1] == "-" else micros)


def format_duration(duration: Duration) -> str:
    """The shortest exact text that `parse_duration` reads back: `90s`, `5m`, `1500ms`."""
    micros = duration.micros
    for unit, size in _DURATION_UNITS.items():
        if micros and micros % size == 0:
            return f"{micros // size}{unit}"
    return "0s"


def parse_size(text: str) -> int:
    """Bytes: `256MB`, `4GiB`, `512k`, `1.5G`; a plain number is bytes. ValueError for anything else.

    As in the SI and IEC 80000-13, k, M, G, T, P and KB, MB… are powers of 1000; Ki, Mi… and KiB, MiB… powers of 1024.
    Upper and lower case mean the same.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _SIZE_UNITS.get(match[2].lower())
    if match is None or unit is None:
        raise ValueError(f"{shorten(text)} is not a size such as 512k, 256MB or 4GiB")
    size: int = round(Decimal(match[1]) * unit)
    return size


def format_size(size: int) -> str:
    """The text, in the largest unit that is exact, that `parse_size` reads back: `256MB`, `4GiB`, `1001`."""
    for unit in ("PiB", "PB", "TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "KB"):
        if size and size % _SIZE_UNITS[unit.lower()] == 0:
            return f"{size // _SIZE_UNITS[unit.lower()]}{unit}"
    return str(size)
