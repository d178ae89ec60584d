"""Classes of the author's that are pickled by value, loaded by a process that has not got their module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from decimal import Decimal


class Place(NamedTuple):
    name: str
    since: datetime


@dataclass(frozen=True)
class Visit:
    at: datetime
    place: Place | None
    before: Visit | None = None


@dataclass
class Vague:
    amount: Decimal
"""
LOAD = "import pickle, sys, typing; cls = pickle.load(sys.stdin.buffer); print(typing.get_type_hints(cls))"


def hints_elsewhere(folder: Path, name: str) -> subprocess.CompletedProcess[bytes]:
    """The type hints of a class of the module, printed by a process that can't import it."""
    (folder / "places.py").write_text(MODULE)
    dump = (
        "import places, sys; from tidegate.sdk.user_code.by_value import pickle_by_value as pickled; "
        f"sys.stdout.buffer.write(pickled(places.{name})[0])"
    )
    dumped = subprocess.run([sys.executable, "-c", dump], cwd=folder, capture_output=True, check=True, timeout=60)
    return subprocess.run(
        [sys.executable, "-c", LOAD], cwd=folder.parent, input=dumped.stdout, capture_output=True, timeout=60
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Place", "{'name': <class 'str'>, 'since': <class 'datetime.datetime'>}"),
        ("Visit", "{'at': <class 'datetime.datetime'>, 'place': places.Place | None, 'before': places.Visit | None}"),
    ],
)
def test_annotations_of_records_are_types_where_their_module_is_missing(
    tmp_path: Path, name: str, expected: str
) -> None:
    printed = hints_elsewhere(tmp_path, name)
    assert printed.stdout.decode().strip() == expected, printed.stderr.decode()


def test_annotations_for_type_checkers_alone_stay_text(tmp_path: Path) -> None:
    assert b"name 'Decimal' is not defined" in hints_elsewhere(tmp_path, "Vague").stderr
