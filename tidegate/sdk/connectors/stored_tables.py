"""Stored tables: files that an engine such as Spark can read itself, with the same rows as a source's own readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.sdk.data.columns import Schema


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Local files of one format and the same columns. `schema` has the columns that the source's elements have.

    `elements` is the kind of element that the source's readers make of a row; None for classes of the author's.
    """

    format: Literal["parquet"]
    paths: tuple[str, ...]
    schema: Schema
    elements: Literal["row", "dict"] | None
