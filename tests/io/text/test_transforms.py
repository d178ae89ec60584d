"""`ReadFromText` and `WriteToText` applied to a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.io import ReadFromText, ReadFromTextWithFilename, WriteToText
from tidegate.io.text.sink import TextSink
from tidegate.io.text.source import TextSource
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.portable import model as portable


def test_reading_and_writing_become_one_node_each(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    p = Pipeline()
    lines = p | ReadFromText(tmp_path / "in.txt")
    lines | WriteToText(tmp_path / "out", ".txt")
    read, write = p.sealed().nodes
    assert isinstance(read, portable.Read)
    assert (read.label, write.label) == ("ReadFromText/Read", "WriteToText/Write")
    assert read.bounded
    assert isinstance(write, portable.Write)
    assert write.delivery == "exactly_once"
    assert write.name == f"text {tmp_path}/out-SSSSS-of-NNNNN.txt"
    assert (lines.element_type, lines.is_bounded) == (str, True)


def test_options_reach_the_source(tmp_path: Path) -> None:
    transform = ReadFromText(
        [tmp_path / "a", f"{tmp_path}/b*"],
        compression="xz",
        skip_header_lines=2,
        strip_trailing_newlines=False,
        encoding="latin-1",
        errors="ignore",
        allow_empty=True,
        min_split_size=9,
    )
    assert transform.source == TextSource(
        (f"{tmp_path}/a", f"{tmp_path}/b*"), "xz", 2, False, "latin-1", "ignore", True, 9, False
    )


def test_options_reach_the_sink() -> None:
    transform = WriteToText(
        Path("x"),
        ".gz",
        num_shards=3,
        shard_name_template="-S",
        header="h",
        footer="f",
        compression="none",
        append_trailing_newlines=False,
        encoding="ascii",
    )
    assert transform.sink == TextSink("x", ".gz", 3, "-S", "h", "f", "none", False, "ascii")


def test_an_empty_template_means_one_file() -> None:
    assert WriteToText("x", shard_name_template="").sink.num_shards == 1


def test_elements_may_be_paired_with_their_file_name(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("head\na\n")
    lines = Pipeline() | ReadFromTextWithFilename(tmp_path / "*.txt", skip_header_lines=1)
    assert lines.element_type == tuple[str, str]


def test_a_missing_input_is_an_error_when_the_pipeline_is_built(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no file matches"):
        Pipeline() | ReadFromText(tmp_path / "none.txt")


def test_an_invalid_path_is_refused() -> None:
    with pytest.raises(BuildError) as caught:
        ReadFromText(3)  # type: ignore[arg-type]
    assert str(caught.value) == "ReadFromText takes a path, a pattern, or a list of them, not 3"
    with pytest.raises(BuildError) as caught:
        WriteToText(None)  # type: ignore[arg-type]
    assert str(caught.value) == "WriteToText takes a path, not None"
    with pytest.raises(BuildError, match="ReadFromText: the path is empty"):
        Pipeline() | ReadFromText([])
