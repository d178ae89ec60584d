"""Lines written in two phases: readers see no partial output, commits may be repeated, aborts leave nothing."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.dying_commits import dying_commits
from tidegate.io import files
from tidegate.io.text.sink import TextSink
from tidegate.io.text.source import TextSource
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import BuildError, WriteError

MEMORY = "/text_sink"


@dataclass(frozen=True)
class OutputFolder:
    """An output folder, local or remote, and its files."""

    url: str
    fs: Any
    path: str

    def files(self) -> dict[str, str]:
        self.fs.invalidate_cache()
        found = self.fs.find(self.path) if self.fs.exists(self.path) else []
        return {path.removeprefix(self.path + "/"): self.fs.cat_file(path).decode() for path in sorted(found)}

    def work_folders(self) -> list[str]:
        return [name for name in self.fs.ls(self.path, detail=False) if "/.tidegate-" in name]


@pytest.fixture(params=["local", "memory"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OutputFolder]:
    if request.param == "local":
        yield OutputFolder(str(tmp_path), fsspec.filesystem("file"), str(tmp_path))
        return
    fs = fsspec.filesystem("memory")
    fs.makedirs(MEMORY, exist_ok=True)
    yield OutputFolder(f"memory:/{MEMORY}", fs, MEMORY)
    fs.rm(MEMORY, recursive=True)


def write(sink: TextSink, run: str, *tasks: list[Any], block: int = 2) -> list[Committable]:
    """Write each list in its own task; return the committables, with sinks pickled and payloads passed through JSON."""
    prepared: list[Committable] = []
    for task, values in enumerate(tasks):
        attempt = pickle.loads(pickle.dumps(sink)).attempt(run, task)
        try:
            for start in range(0, len(values), block):
                attempt.write(values[start : start + block])
            prepared += attempt.prepare()
        finally:
            attempt.close()
    return [Committable(c.order, json.loads(json.dumps(c.payload))) for c in prepared]


def test_a_bounded_run_gives_one_file_per_writing_task_in_task_order(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out", ".txt")
    prepared = write(sink, "run1", ["a", "b", "c"], [], ["d"])
    assert not [name for name in output.files() if not name.startswith(".tidegate-run1/")]
    random.Random(1).shuffle(prepared)
    sink.commit("run1", prepared)
    assert output.files() == {"out-00000-of-00002.txt": "a\nb\nc\n", "out-00001-of-00002.txt": "d\n"}
    assert output.work_folders() == []


def test_committing_twice_is_committing_once(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out", num_shards=2, header="h")
    prepared = write(sink, "run1", ["a", "b", "c"], ["d"])
    sink.commit("run1", prepared)
    before = output.files()
    sink.commit("run1", prepared)
    sink.abort("run1")
    assert output.files() == before == {"out-00000-of-00002": "h\na\nc\n", "out-00001-of-00002": "h\nb\nd\n"}


def test_a_late_replay_does_not_touch_the_output_of_a_later_run(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out")
    first = write(sink, "run1", ["a"], ["b"])
    sink.commit("run1", first)
    sink.commit("run2", write(sink, "run2", ["other", "lines"], ["c"], ["d"]))
    after_second_run = output.files()
    with pytest.raises(WriteError, match=r"output is lost: the parts of .*out-00000-of-00002 are gone"):
        sink.commit("run1", first)
    assert output.files() == after_second_run


# A commit that dies leaves files open.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("checkpoint", [None, 7])
@pytest.mark.parametrize("shards", [0, 3])
def test_a_commit_that_dies_at_any_step_is_completed_by_the_next(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch, shards: int, checkpoint: int | None
) -> None:
    sink = TextSink(f"{output.url}/out", ".txt", num_shards=shards, header="h")

    def round_of(run: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        sink.commit("old", write(sink, "old", ["older"], ["o"], ["o"], ["o"]))
        prepared = write(sink, run, ["a", "b", "c", "d"], ["e"], ["f", "g"])
        return lambda: sink.commit(run, prepared, checkpoint), lambda: sink.abort(run)

    expected: dict[str, str] | None = None
    runs = 0
    for run in dying_commits(type(files.store_of(output.url)[0]), monkeypatch, round_of):
        result = {name.replace(run, "RUN"): text for name, text in output.files().items()}
        expected = expected or result
        assert result == expected
        for name in [name for name in output.files() if run in name]:
            output.fs.rm_file(f"{output.path}/{name}")
        runs += 1
    assert runs > 7
    assert expected is not None
    new = {name: text for name, text in expected.items() if checkpoint is None or "RUN" in name}
    assert len(new) == 3
    assert sorted("".join(new.values()).split()) == sorted("hhhabcdefg")
    assert ("older" in "".join(expected.values())) == (checkpoint is not None)


def test_a_failed_run_leaves_the_previous_output_and_nothing_else(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out")
    sink.commit("run1", write(sink, "run1", ["good"]))
    before = output.files()
    write(sink, "run2", ["prepared, never committed"])
    attempt = sink.attempt("run2", 1)
    attempt.write(["written, never prepared"])
    attempt.close()
    sink.abort("run2")
    sink.abort("run2")
    assert output.files() == before == {"out-00000-of-00001": "good\n"}
    assert output.work_folders() == []


def test_closing_an_attempt_drops_elements_that_were_not_prepared_and_keeps_prepared_ones(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out")
    attempt = sink.attempt("run1", 0)
    attempt.write(["kept"])
    prepared = attempt.prepare()
    attempt.write(["dropped"])
    attempt.close()
    sink.commit("run1", prepared)
    assert output.files() == {"out-00000-of-00001": "kept\n"}


def test_a_commit_of_two_attempts_of_a_task_is_refused_and_of_one_accepted(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out")
    speculative, chosen = write(sink, "run1", ["same"]), write(sink, "run1", ["same"])
    with pytest.raises(WriteError, match="from two attempts"):
        sink.commit("run1", speculative + chosen)
    sink.commit("run1", chosen)
    assert output.files() == {"out-00000-of-00001": "same\n"}
    assert output.work_folders() == []


def test_fewer_shards_than_before_leave_no_stale_ones_and_foreign_files_stay(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out", ".txt")
    foreign = {"out-notes.txt": "n", "out-00000-of-00004.csv": "c", "out2-00000-of-00004.txt": "o"}
    for name, text in foreign.items():
        output.fs.pipe_file(f"{output.path}/{name}", text.encode())
    sink.commit("run1", write(sink, "run1", ["a"], ["b"], ["c"], ["d"]))
    sink.commit("run2", write(sink, "run2", ["e"], ["f"]))
    assert output.files() == foreign | {"out-00000-of-00002.txt": "e\n", "out-00001-of-00002.txt": "f\n"}


def test_a_stream_adds_files_at_each_checkpoint(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out", ".txt")
    sink.commit("old", write(sink, "old", ["older run"]))
    first, second = sink.attempt("job", 0), sink.attempt("job", 1)
    first.write(["a"])
    second.write(["b"])
    checkpoint_1 = first.prepare() + second.prepare()
    first.write(["c"])
    checkpoint_2 = first.prepare() + second.prepare()
    sink.commit("job", checkpoint_1, 1)
    sink.commit("job", checkpoint_2, 2)
    sink.commit("job", checkpoint_1, 1)
    sink.commit("job", [], 3)
    first.close()
    second.close()
    sink.abort("job")
    assert output.files() == {
        "out-00000-of-00001.txt": "older run\n",
        "out-job-00001-00000-of-00002.txt": "a\n",
        "out-job-00001-00001-of-00002.txt": "b\n",
        "out-job-00002-00000-of-00001.txt": "c\n",
    }
    assert output.work_folders() == []


def test_two_sinks_of_a_run_can_write_to_one_folder(output: OutputFolder) -> None:
    left, right = TextSink(f"{output.url}/left"), TextSink(f"{output.url}/right")
    of_left, of_right = write(left, "run1", ["l"]), write(right, "run1", ["r"])
    left.commit("run1", of_left)
    right.commit("run1", of_right)
    assert output.files() == {"left-00000-of-00001": "l\n", "right-00000-of-00001": "r\n"}
    assert output.work_folders() == []


def test_no_elements_give_one_file_with_header_and_footer_alone(output: OutputFolder) -> None:
    TextSink(f"{output.url}/out").commit("run1", [])
    TextSink(f"{output.url}/framed", header="h", footer="f").commit("run1", [])
    assert output.files() == {"out-00000-of-00001": "", "framed-00000-of-00001": "h\nf\n"}


def test_lost_parts_are_reported_and_the_previous_output_stays(output: OutputFolder) -> None:
    sink = TextSink(f"{output.url}/out")
    sink.commit("run1", write(sink, "run1", ["precious"]))
    prepared = write(sink, "run2", ["a"], ["b"])
    output.fs.rm_file(output.fs.find(f"{output.path}/.tidegate-run2")[-1])
    with pytest.raises(WriteError, match=r"output is lost: .*/00000-00000 is gone\. Was it removed while"):
        sink.commit("run2", prepared)
    assert output.files()["out-00000-of-00001"] == "precious\n"


@given(
    tasks=st.lists(st.lists(st.text("ab\n", max_size=3), max_size=7), max_size=4),
    shards=st.integers(0, 3),
    suffix=st.sampled_from(["", ".gz", ".bz2", ".xz", ".zst"]),
    frame=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_written_lines_are_read_back_with_any_tasks_shards_and_compression(
    tmp_path_factory: pytest.TempPathFactory,
    tasks: list[list[str]],
    shards: int,
    suffix: str,
    frame: bool,
    encoding: str,
) -> None:
    folder = tmp_path_factory.mktemp("out")
    sink = TextSink(
        f"{folder}/out",
        suffix,
        num_shards=shards,
        header="head" if frame else None,
        footer="foot" if frame else None,
        encoding=encoding,
    )
    prepared = write(sink, "run1", *tasks)
    sink.commit("run1", prepared)
    sink.commit("run1", prepared)
    names = sorted(os.listdir(folder))
    count = shards or sum(1 for values in tasks if values) or 1
    assert names == [f"out-{i:05d}-of-{count:05d}{suffix}" for i in range(count)]
    found = []
    for name in names:
        source = TextSource((f"{folder}/{name}",), encoding=encoding)
        [split] = source.splits(1)
        reader = source.reader(split)
        lines = list(reader.read(10_000).block.values)
        reader.close()
        if frame:
            assert (lines.pop(0), lines.pop()) == ("head", "foot")
        found += lines
    expected = [line for values in tasks for value in values for line in value.split("\n")]
    assert found == expected if shards < 2 else sorted(found) == sorted(expected)


def test_compressed_output_is_the_same_bytes_on_every_run(tmp_path: Path) -> None:
    sink = TextSink(f"{tmp_path}/out", ".txt.gz", num_shards=1, template="")
    sink.commit("run1", write(sink, "run1", ["a"]))
    first = (tmp_path / "out.txt.gz").read_bytes()
    sink.commit("run2", write(sink, "run2", ["a"]))
    assert (tmp_path / "out.txt.gz").read_bytes() == first
    assert gzip.decompress(first) == b"a\n"


def test_file_names_follow_the_template(tmp_path: Path) -> None:
    def names_for(template: str, shards: int) -> list[str]:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        sink = TextSink(f"{folder}/x", ".log", num_shards=shards, template=template)
        sink.check()
        sink.commit("run1", write(sink, "run1", ["a", "b"]))
        return sorted(os.listdir(folder))

    assert names_for("", 1) == ["x.log"]
    assert names_for(".SS", 2) == ["x.00.log", "x.01.log"]
    assert names_for("_S_of_NNN", 2) == ["x_0_of_002.log", "x_1_of_002.log"]


def test_elements_of_any_type_are_written_as_text_and_bytes_unchanged(tmp_path: Path) -> None:
    sink = TextSink(f"{tmp_path}/x", num_shards=1, template="")
    sink.commit("run1", write(sink, "run1", [1, "é", None, b"\xff", ("a", 2.5)], block=9))
    assert (tmp_path / "x").read_bytes() == "1\né\nNone\n".encode() + b"\xff\n" + b"('a', 2.5)\n"
    sink = TextSink(f"{tmp_path}/y", num_shards=1, template="", append_trailing_newlines=False)
    sink.commit("run1", write(sink, "run1", ["a", "b\n", "c"]))
    assert (tmp_path / "y").read_text() == "ab\nc"


def test_an_element_that_cannot_be_encoded_is_named(tmp_path: Path) -> None:
    sink = TextSink(f"{tmp_path}/x", encoding="ascii")
    with pytest.raises(WriteError) as caught:
        write(sink, "run1", ["fine", "café"])
    assert str(caught.value) == (
        f"{tmp_path}/x: 'café' can't be written as ascii: ordinal not in range(128). "
        "encoding='utf-8' can write all but lone surrogates"
    )


def test_a_write_error_names_the_path() -> None:
    sink = TextSink("/dev/null/x")
    with pytest.raises(WriteError, match=re.escape("/dev/null/x: can't be written: Not a directory")):
        write(sink, "run1", ["a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": ""}, "WriteToText: there is no path to write to"),
        (
            {"num_shards": -1},
            "WriteToText: num_shards is a whole number, 0 to leave it to the runner, not -1",
        ),
        (
            {"num_shards": 2, "template": "-N"},
            "WriteToText: with shard_name_template='-N' all shards would have the same name: "
            "it needs an S, the shard's number, or num_shards=1",
        ),
        (
            {"suffix": "/part"},
            "WriteToText: file_name_suffix='/part' may not have a '/': folders go into the prefix",
        ),
        ({"suffix": ".zip"}, "WriteToText: zip files are only read; write gzip, bz2, xz or zstd"),
        (
            {"header": "é", "encoding": "ascii"},
            "WriteToText: the header can't be written as ascii: 'ascii' codec can't encode character '\\xe9' "
            "in position 0: ordinal not in range(128)",
        ),
        (
            {"prefix": "{0}/" + 240 * "x"},
            f"WriteToText: a file can't be called '{58 * 'x'}…: that has 240 bytes, and names have at most 255, of "
            "which 39 are for the numbers of run and shard and the suffix",
        ),
        (
            {"prefix": "{0}/\ud800"},
            "WriteToText: a file can't be called '\\ud800': '\\ud800' is no character",
        ),
        ({"prefix": "{0}/file/x"}, "can't write to {0}/file: {0}/file is not a folder"),
        (
            {"prefix": "{0}/folder", "num_shards": 1, "template": ""},
            "WriteToText: can't write the file {0}/folder: it is a folder",
        ),
    ],
)
def test_output_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    prefix = options.pop("prefix", "{0}/x").format(tmp_path)
    with pytest.raises(BuildError) as caught:
        TextSink(prefix, **options).check()
    assert str(caught.value) == message.format(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BuildError, match=f"can't write to {tmp_path}/new: no permission to write in {tmp_path}"):
        TextSink(f"{tmp_path}/new/x").check()


@pytest.mark.skipif(not os.path.ismount("/proc"), reason="the file system of Linux's kernel")
def test_a_folder_of_the_proc_file_system_is_refused_even_to_root() -> None:
    with pytest.raises(BuildError, match=r"^can't write to /proc/new: "):
        TextSink("/proc/new/x").check()


def test_a_run_name_that_would_leave_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a run's name has letters, digits"):
        TextSink(f"{tmp_path}/x").attempt("../up", 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("same.txt", "", {"shard_name_template": ""}), ("same.txt", "", {"shard_name_template": ""})),
        (("same.txt", "", {"shard_name_template": ""}), ("same", ".txt", {"shard_name_template": ""})),
        (("same", ".txt", {}), ("deeper/../same", ".txt", {"num_shards": 2})),
        (("{window}/same", "", {}), ("{window}/same", "", {})),
    ],
)
def test_two_steps_that_write_the_same_files_are_refused_when_the_pipeline_is_built(
    tmp_path: Path, one: Any, other: Any
) -> None:
    p = tg.Pipeline()
    numbers = p | tg.Create([1])
    (first, first_suffix, first_options), (second, second_suffix, second_options) = one, other
    _ = numbers | "one" >> tg.io.WriteToText(f"{tmp_path}/{first}", first_suffix, **first_options)
    with pytest.raises(tg.BuildError) as caught:
        _ = numbers | "other" >> tg.io.WriteToText(f"{tmp_path}/{second}", second_suffix, **second_options)
    here = rf"applied at \S*{Path(__file__).name}:\d+"
    assert re.search(rf"the step 'one/Write', {here}, already writes .*: one step would overwrite", str(caught.value))
    assert re.search(rf"in step 'other/Write', {here}", str(caught.value))
    assert list(tmp_path.iterdir()) == []


def test_steps_with_different_file_names_may_write_to_one_folder(tmp_path: Path) -> None:
    with tg.Pipeline() as p:
        numbers = p | tg.Create([1])
        for number, (prefix, template) in enumerate([("a", ""), ("b", ""), ("a", "-S"), ("a-S", "")]):
            _ = numbers | str(number) >> tg.io.WriteToText(
                f"{tmp_path}/{prefix}", num_shards=1, shard_name_template=template
            )
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys("a b a-0 a-S".split(), "1\n")
