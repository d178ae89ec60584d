"""The records of the benchmarks of formats: visits of a web site."""

from __future__ import annotations

from typing import Any

BLOCK = 4096
"""The elements of a block."""
SCHEMA = {"id": int, "url": str, "amount": float, "user": str | None, "items": int}
AVRO = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "url", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "items", "type": "long"},
    ],
}


def records(rows: int, start: int = 0) -> list[dict[str, Any]]:
    """Visits, the first of which has the number `start`."""
    return [
        {
            "id": at,
            "url": f"https://example.com/page/{at % 1000}",
            "amount": at / 7,
            "user": None if at % 10 == 0 else f"user {at % 5000}",
            "items": at % 13,
        }
        for at in range(start, start + rows)
    ]
