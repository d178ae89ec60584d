"""The pages on connectors describe every argument of every reader and writer, and what each sink guarantees."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import pytest

import tidegate as tg

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    "Arrow": ("arrow", "parquet", "records", "files"),
    "Avro": ("avro", "records", "files"),
    "Csv": ("csv", "records", "files"),
    "Delta": ("delta", "records", "files"),
    "Json": ("json", "records", "files"),
    "Parquet": ("parquet", "records", "files"),
    "Socket": ("streams", "text"),
    "Spark": ("spark",),
    "Text": ("text", "records", "files"),
    "TextWithFilename": ("text", "records", "files"),
}
"""The pages on which the readers and writers of a format are described."""
CONNECTORS = [name for name in tg.io.__all__ if re.match("ReadFrom|ReadAllFrom|WriteTo", name)]


def arguments(name: str) -> list[str]:
    """The names of a transform's arguments, except for its name and for what it reads or writes."""
    make = getattr(tg.io, name).__init__
    _, *parameters = inspect.signature(make).parameters.values()
    if parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        del parameters[0]
    found = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD and each.name != "name"]
    unpacked = getattr(get_type_hints(make).get("options"), "__args__", ())
    return [*found, *(key for options in unpacked for key in getattr(options, "__annotations__", ()))]


def text_of(pages: Sequence[str]) -> str:
    return "\n".join((DOCS / f"{page}.md").read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_argument_of_a_reader_or_writer_is_described(name: str) -> None:
    pages = PAGES[re.sub("^(ReadFrom|ReadAllFrom|WriteTo)", "", name)]
    code = re.findall(r"```.*?```|`[^`]+`", text_of(pages), re.DOTALL)
    words = {word for part in code for word in re.findall(r"\w+", part)}
    assert [argument for argument in arguments(name) if argument not in words] == []


@pytest.mark.parametrize("name", [name for name in CONNECTORS if name.startswith("WriteTo")])
def test_the_page_on_guarantees_says_what_every_sink_guarantees(name: str) -> None:
    rows = [line for line in text_of(["guarantees"]).splitlines() if line.startswith("|")]
    assert any(f"`{name}`" in row for row in rows)
