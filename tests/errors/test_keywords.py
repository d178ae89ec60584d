"""Misspelt keywords in constructor calls."""

from __future__ import annotations

import copy
import inspect
import pickle
from abc import ABC
from typing import Any, TypedDict, Unpack

import pytest

import tidegate as tg


class Labelled(tg.PTransform[Any, Any], ABC):
    """A user-defined transform."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix


class WithoutConstructor(tg.PTransform[Any, Any]):
    """A user-defined transform without a constructor."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.io.ReadFromText(pth="x"), "ReadFromText() has no argument 'pth'; did you mean 'path'?"),
        (
            lambda: tg.io.ReadFromText("x", skip_headers=1),
            "ReadFromText() has no argument 'skip_headers'; did you mean 'skip_header_lines'?",
        ),
        (
            lambda: tg.io.ReadFromTextWithFilename("x", folow=True),
            "ReadFromTextWithFilename() has no argument 'folow'; did you mean 'follow'?",
        ),
        (
            lambda: tg.io.ReadAllFromText(poll_interval=1),
            "ReadAllFromText() has no argument 'poll_interval'; it has 'with_filename', 'name', 'compression', "
            "'skip_header_lines', 'strip_trailing_newlines', 'encoding', 'errors', 'allow_empty', 'storage_options'",
        ),
        (lambda: tg.io.ReadFromCsv("x", delim=";"), "ReadFromCsv() has no argument 'delim'; did you mean 'delimiter'?"),
        (
            lambda: tg.io.ReadAllFromCsv(null_value=["-"]),
            "ReadAllFromCsv() has no argument 'null_value'; did you mean 'null_values'?",
        ),
        (
            lambda: tg.io.ReadFromJson("x", max_bytes=1),
            "ReadFromJson() has no argument 'max_bytes'; did you mean 'max_record_bytes'?",
        ),
        (
            lambda: tg.io.ReadFromDelta("x", colums=["a"]),
            "ReadFromDelta() has no argument 'colums'; did you mean 'columns'?",
        ),
        (
            lambda: tg.io.WriteToText(prefx="x"),
            "WriteToText() has no argument 'prefx'; did you mean 'file_path_prefix'?",
        ),
        (lambda: tg.FixedWindows(sise=60), "FixedWindows() has no argument 'sise'; did you mean 'size'?"),
        (lambda: tg.Sessions(60, gab=1), "Sessions() has no argument 'gab'; did you mean 'gap'?"),
        (lambda: tg.KeepLast(m=3), "KeepLast() has no argument 'm'; it has 'n', 'when'"),
        (lambda: tg.AfterProcessingTime(dely=3), "AfterProcessingTime() has no argument 'dely'; did you mean 'delay'?"),
        (
            lambda: tg.WindowInto(tg.FixedWindows(60), triger=None),
            "WindowInto() has no argument 'triger'; did you mean 'trigger'?",
        ),
        (lambda: Labelled(prefx=""), "Labelled() has no argument 'prefx'; did you mean 'prefix'?"),
        (lambda: WithoutConstructor(3), "WithoutConstructor() takes no arguments"),
        (lambda: tg.GroupByKey(key=3), "GroupByKey() takes no arguments"),
    ],
)
def test_the_error_of_a_misspelt_keyword_names_the_most_similar_one_and_the_line(make: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value).startswith(f"{message} (at {__file__}:")


class Shades(TypedDict):
    """The options of a user-defined transform."""

    hue: int


class MoreShades(Shades, total=False):
    """Further ones."""

    light: float


class Shaded(tg.PTransform[Any, Any]):
    """A user-defined transform with keywords in a TypedDict."""

    def __init__(self, name: str, **shades: Unpack[MoreShades]) -> None:
        self.label = name


def test_a_signature_names_the_keywords_of_a_typed_dict_with_their_defaults() -> None:
    shown = inspect.signature(tg.io.TailFile).parameters
    assert list(shown)[-5:] == ["timestamp", "out_of_orderness", "ingestion_time", "idle_after", "rate_limit"]
    assert (shown["out_of_orderness"].default, shown["out_of_orderness"].annotation) == (0, "DurationLike")
    assert inspect.signature(tg.ReadFromCsv).parameters["delimiter"].default == ","
    assert inspect.signature(tg.WriteToParquet).parameters["num_shards"].default == 0
    assert str(inspect.signature(Shaded)) == "(name: 'str', *, hue: 'int', light: 'float' = Ellipsis) -> 'None'"
    assert str(inspect.signature(Labelled)) == "(prefix: 'str' = '') -> 'None'"


def test_a_misspelt_keyword_of_a_combining_step_is_not_passed_to_its_combiner() -> None:
    def minimum(values: list[int], *, bound: int = 1) -> int:
        return min(bound, *values)

    with pytest.raises(tg.BuildError, match="CombinePerKey has no argument 'nam'; did you mean 'name'"):
        tg.CombinePerKey(sum, nam="x")  # type: ignore[call-overload]
    with pytest.raises(tg.BuildError, match="CombinePerKey has no argument 'buond'; did you mean 'bound'"):
        tg.CombinePerKey(minimum, buond=3)


def test_objects_with_checked_keywords_can_be_copied_and_pickled() -> None:
    windows = tg.FixedWindows(size=60, offset=5)
    assert pickle.loads(pickle.dumps(windows)) == copy.copy(windows) == copy.deepcopy(windows) == windows
    assert copy.copy(Labelled(prefix="x")).prefix == "x"
