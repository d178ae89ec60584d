"""WriteToText(format=…): the function makes the line, and the destination is that of the element."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg

VISITS = [("de", "ada"), ("fr", "ben"), ("de", "cid")]


def as_line(visit: tuple[str, str]) -> str:
    return visit[1].upper()


def as_bytes(visit: tuple[str, str]) -> bytes:
    return visit[1].encode("utf-16-le")


def as_length(visit: tuple[str, str]) -> int:
    return len(visit)


def of_a_number(number: int) -> str:
    return str(number)


def forgetful(visit):  # type: ignore[no-untyped-def]
    visit[1].upper()


def files(folder: Path) -> dict[str, list[str]]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and ".tidegate" not in str(path))
    lines: dict[str, list[str]] = {}
    for path in found:
        lines.setdefault(str(path.relative_to(folder)).partition("-")[0], []).extend(path.read_text().splitlines())
    return {name: sorted(there) for name, there in lines.items()}


def test_the_destination_sees_the_element_and_the_file_its_line(runner: str, tmp_path: Path) -> None:
    with tg.Pipeline(runner=runner) as p:
        _ = (
            p
            | tg.Create(VISITS)
            | tg.io.WriteToText(f"{tmp_path}/{{destination}}/part", format=as_line, destination=lambda visit: visit[0])
        )
    assert files(tmp_path) == {"de/part": ["ADA", "CID"], "fr/part": ["BEN"]}


def test_lines_are_made_without_a_destination_too(runner: str, tmp_path: Path) -> None:
    with tg.Pipeline(runner=runner) as p:
        _ = p | tg.Create([{"n": 1}, {"n": 2}]) | tg.io.WriteToText(f"{tmp_path}/part", format=json.dumps)
    assert files(tmp_path) == {"part": ['{"n": 1}', '{"n": 2}']}


def test_bytes_are_written_unchanged(tmp_path: Path) -> None:
    with tg.Pipeline() as p:
        _ = p | tg.Create(VISITS[:1]) | tg.io.WriteToText(f"{tmp_path}/out", shard_name_template="", format=as_bytes)
    assert (tmp_path / "out").read_bytes() == b"a\0d\0a\0\n"


def test_a_line_that_is_none_names_the_element(runner: str, tmp_path: Path) -> None:
    p = tg.Pipeline(runner=runner)
    _ = p | tg.Create(VISITS[:1]) | "write" >> tg.io.WriteToText(f"{tmp_path}/out", format=forgetful)
    with pytest.raises(tg.UserCodeError) as caught:
        p.run()
    assert "TypeError: forgetful returned None as the line of an element, which must be a str or bytes" in str(
        caught.value
    )
    assert "in step 'write/Format'" in str(caught.value)
    assert "('de', 'ada')" in str(caught.value)
    assert files(tmp_path) == {}


@pytest.mark.parametrize("path", ["out", "{destination}"])
@pytest.mark.parametrize(
    ("format", "says"),
    [
        (of_a_number, r"format=of_a_number takes int, but its input holds tuple\[str, str\]"),
        (as_length, "format=as_length returns int, but a line is a str or bytes"),
        ("{}", "format is a function of an element, not '{}'"),
    ],
)
def test_a_format_that_does_not_fit_is_refused_when_built(tmp_path: Path, path: str, format: Any, says: str) -> None:
    more: dict[str, Any] = {"destination": lambda visit: visit[0]} if "{" in path else {}
    p = tg.Pipeline()
    with pytest.raises(tg.BuildError, match=says):
        _ = p | tg.Create(VISITS) | tg.io.WriteToText(f"{tmp_path}/{path}", format=format, **more)
