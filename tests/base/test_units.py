"""Bytes, durations, rates and counts are written as people write them."""

from __future__ import annotations

import pytest

from dbfs.base.units import format_bytes, format_rate, format_seconds
from dbfs_workers.base.text import counted


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (500, "500 B"), (2000, "1.95 KiB"), (2**24, "16.00 MiB"), (2**30, "1.00 GiB"), (2**41, "2.00 TiB")],
)
def test_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 µs"),
        (-0.3, "0 µs"),
        (4.2e-6, "4.2 µs"),
        (0.000_999_9, "1 ms"),
        (1.234e-3, "1.23 ms"),
        (0.9, "900 ms"),
        (0.9999, "1 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min"),
        (125.2, "2 min 5 s"),
        (3599.7, "1 h"),
        (11_040, "3 h 4 min"),
        (90_061, "1 d 1 h"),
        (1e9, "11,574 d 1 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("mteps", "text"),
    [
        (0.0, "0 TEPS"),
        (0.0004, "400 TEPS"),
        (0.25, "250 kTEPS"),
        (642.3, "642 MTEPS"),
        (999.7, "1 GTEPS"),
        (3087.0, "3.09 GTEPS"),
        (6.1e6, "6.1 TTEPS"),
    ],
)
def test_rates(mteps: float, text: str) -> None:
    assert format_rate(mteps) == text


def test_counts() -> None:
    assert [counted(number, "rank") for number in (0, 1, 1200)] == ["0 ranks", "1 rank", "1,200 ranks"]
    assert [counted(number, "vertex", "vertices") for number in (1, 2)] == ["1 vertex", "2 vertices"]
