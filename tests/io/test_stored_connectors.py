"""Sources and sinks of files that were pickled before they had all of today's fields."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import tidegate as tg
from tidegate.io.file_source.following import Follow
from tidegate.io.file_source.opened import FilePart
from tidegate.io.text import source as text
from tidegate.sdk.portable import model

CONNECTORS: list[tuple[Any, int]] = [
    (tg.io.ReadFromText("it.txt").source, 9),
    (tg.io.ReadFromCsv("it.csv", allow_empty=True).source, 7),
    (tg.io.WriteToText("it", num_shards=2).sink, 10),
    (tg.io.WriteToCsv("it", {"n": int}).sink, 8),
]
"""Connectors, and how many fields their pickles first had."""


@pytest.mark.parametrize(("connector", "stored"), CONNECTORS, ids=lambda each: type(each).__name__)
def test_an_older_pickle_is_restored_with_the_defaults_of_later_fields(connector: Any, stored: int) -> None:
    values = [getattr(connector, field.name) for field in dataclasses.fields(connector)]
    restored = object.__new__(type(connector))
    restored.__setstate__(values[:stored])
    assert restored == connector
    assert connector.__getstate__() == values[:stored]


def test_later_fields_are_pickled_if_they_are_used() -> None:
    followed = dataclasses.replace(tg.io.ReadFromText("*.txt").source, follow=Follow())
    restored = object.__new__(type(followed))
    restored.__setstate__(followed.__getstate__())
    assert restored == followed


@pytest.mark.parametrize("part", [FilePart("a/*", "a/b"), text.FilePart("a/*", "a/b")])
def test_parts_of_files_in_older_checkpoints_are_restored(part: Any) -> None:
    restored = object.__new__(type(part))
    restored.__setstate__(["a/*", "a/b"])
    assert restored == part


@pytest.mark.parametrize("transform", [tg.io.ReadFromText, tg.io.ReadFromCsv, tg.io.MatchFiles])
def test_readers_of_files_take_the_options_of_read(tmp_path: Any, transform: Any) -> None:
    (tmp_path / "it.csv").write_text("a\n1\n")
    p = tg.Pipeline(options=[])
    _ = p | transform(tmp_path / "it.csv", rate_limit=5, ingestion_time=True)
    (read,) = [node for node in p.portable().nodes if isinstance(node, model.Read)]
    assert read.rate_limit == 5.0
    assert read.stamping is not None
    assert read.stamping.ingestion
