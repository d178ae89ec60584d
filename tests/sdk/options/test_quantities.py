"""Durations and sizes: parsing and formatting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.options.quantities import format_duration, format_size, parse_duration, parse_size
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, Duration


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("7", 7), ("7B", 7), ("512k", 512_000), ("512K", 512_000), ("1KB", 1000), ("1Ki", 1024), ("1KiB", 1024),
        ("256MB", 256_000_000), ("4GiB", 4 * 2**30), ("0.1GB", 100_000_000), ("1.5 MiB", 3 * 2**19), ("1PB", 10**15),
    ],
)  # fmt: skip
def test_sizes_distinguish_powers_of_1000_and_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1iB", "1i", "1XB", "1.MB", "1e3", "1 2", "nan", "٣MB"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as 512k, 256MB or 4GiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("500ms", 500_000), ("10s", 10**7), ("5m", 3 * 10**8), ("2h", 72 * 10**8), ("1d", 864 * 10**8), ("10", 10**7),
        ("1.5", 1_500_000), ("1h30m", 54 * 10**8), ("7us", 7), ("-1.5s", -1_500_000), ("0", 0), ("1D", 864 * 10**8),
    ],
)  # fmt: skip
def test_durations_have_units_and_numbers_without_one_are_seconds(text: str, micros: int) -> None:
    assert parse_duration(text).micros == micros


@pytest.mark.parametrize("text", ["", "s", "10x", "1 s", "--1s", "nan", "inf", "1h30", "1e3"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 500ms, 10s, 5m, 2h or 1d"):
        parse_duration(text)


@given(st.integers(MIN_MICROS, MAX_MICROS))
def test_a_formatted_duration_is_parsed_exactly(micros: int) -> None:
    duration = Duration(micros=micros)
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(0, 10**18) | st.builds(lambda n, p: n * 1024**p, st.integers(0, 999), st.integers(0, 5)))
def test_a_formatted_size_is_parsed_exactly(size: int) -> None:
    assert parse_size(format_size(size)) == size
