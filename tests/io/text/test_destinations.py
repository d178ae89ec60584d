"""Text files by destination and window: their contents, their replacement by a second run, and commits that die."""

from __future__ import annotations

import gzip
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

import tidegate as tg
from tests.support.dying_commits import dying_commits
from tidegate.io import files
from tidegate.io.file_sink import attempt as file_attempt
from tidegate.io.file_sink.format import FileFormat
from tidegate.io.text.sink import TextSink
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import BuildError, WriteError


def written(folder: Path) -> dict[str, str]:
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_text() for name, path in found.items() if not name.startswith(".tidegate-files-")}


def write(sink: TextSink, run: str, *tasks: list[tuple[tuple[str, ...], Any]]) -> list[Committable]:
    """Write each list in its own task, in blocks of two; return the committables, with payloads passed through JSON."""
    prepared: list[Committable] = []
    for task, values in enumerate(tasks):
        attempt = pickle.loads(pickle.dumps(sink)).attempt(run, task)
        for start in range(0, len(values), 2):
            attempt.write(values[start : start + 2])
        prepared += attempt.prepare()
        attempt.close()
    return [Committable(c.order, json.loads(json.dumps(c.payload))) for c in prepared]


def addressed(*pairs: str) -> list[tuple[tuple[str, ...], str]]:
    """Address lines to destinations: `de:a` is the line "a" for the destination "de"."""
    return [((destination,), line) for destination, line in (pair.split(":") for pair in pairs)]


def test_each_destination_has_its_own_files(tmp_path: Path) -> None:
    sink = TextSink(f"{tmp_path}/{{destination}}/part", ".txt", header="h", addressed=True)
    sink.commit("run", write(sink, "run", addressed("de:a", "fr:b", "de:c"), addressed("de:d")))
    assert written(tmp_path) == {
        "de/part-00000-of-00002.txt": "h\na\nc\n",
        "de/part-00001-of-00002.txt": "h\nd\n",
        "fr/part-00000-of-00001.txt": "h\nb\n",
    }


def test_each_destination_has_its_own_shards(tmp_path: Path) -> None:
    sink = TextSink(f"{tmp_path}/{{destination}}", num_shards=2, addressed=True)
    sink.commit("run", write(sink, "run", addressed("de:a", "fr:b", "de:c", "de:d")))
    assert written(tmp_path) == {
        "de-00000-of-00002": "a\nd\n",
        "de-00001-of-00002": "c\n",
        "fr-00000-of-00002": "b\n",
        "fr-00001-of-00002": "",
    }


def test_two_addresses_with_the_same_name_share_its_files(tmp_path: Path) -> None:
    values = [(("a", "bc"), "first"), (("ab", "c"), "second"), (("ab", "d"), "third")]
    for shards, template, expected in (
        (0, "-SSSSS-of-NNNNN", {"-00000-of-00002": "first\n", "-00001-of-00002": "second\n"}),
        (1, "", {"": "first\nsecond\n"}),
    ):
        folder = tmp_path / str(shards)
        sink = TextSink(f"{folder}/{{destination}}{{destination}}", "", shards, template, addressed=True)
        sink.commit("run", write(sink, "run", values))
        found = written(folder)
        assert {name.removeprefix("abc"): text for name, text in found.items() if "abd" not in name} == expected


def test_a_name_that_is_of_a_file_and_of_a_folder_is_an_error_that_shows_it(tmp_path: Path) -> None:
    sink = TextSink(f"{tmp_path}/{{destination}}", "", 1, "", addressed=True)
    with pytest.raises(WriteError, match=rf"{tmp_path}/de/x: the output can't get this name: .* two destinations"):
        sink.commit("run", write(sink, "run", addressed("de:a", "de/x:b")))


def test_a_second_run_replaces_the_output_of_the_first_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine-00000-of-00001").write_text("not the sink's\n")
    sink = TextSink(f"{tmp_path}/{{destination}}", addressed=True)
    sink.commit("run1", write(sink, "run1", addressed("de:a", "fr:b")))
    sink.commit("run2", write(sink, "run2", addressed("de:c", "it:d")))
    assert written(tmp_path) == {
        "de-00000-of-00001": "c\n",
        "it-00000-of-00001": "d\n",
        "mine-00000-of-00001": "not the sink's\n",
    }
    sink.commit("run3", [])
    assert written(tmp_path) == {"mine-00000-of-00001": "not the sink's\n"}


def test_an_invalid_list_of_files_is_refused(tmp_path: Path) -> None:
    sink = TextSink(f"{tmp_path}/{{destination}}", addressed=True)
    sink.commit("run1", write(sink, "run1", addressed("de:a")))
    (listing,) = tmp_path.glob(".tidegate-files-*")
    listing.write_text("what?")
    with pytest.raises(WriteError, match="is not the list of files that a run wrote"):
        sink.commit("run2", write(sink, "run2", addressed("de:b")))


# A commit that dies leaves files open.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("checkpoint", [None, 7])
def test_a_commit_that_dies_at_any_step_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: int | None
) -> None:
    sink = TextSink(f"{tmp_path}/{{destination}}/part", num_shards=2, header="h", addressed=True)

    def round_of(run: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        sink.commit("old", write(sink, "old", addressed("old:a", "de:b")))
        prepared = write(sink, run, addressed("de:a", "fr:b", "de:c"), addressed("it:d", "de:e"))
        return lambda: sink.commit(run, prepared, checkpoint), lambda: sink.abort(run)

    results = []
    for run in dying_commits(files.Local, monkeypatch, round_of):
        results.append({name.replace(run, "RUN"): text for name, text in written(tmp_path).items()})
        for path in tmp_path.rglob(f"*{run}*"):
            path.unlink()
    assert len(results) > 10
    assert all(result == results[0] for result in results)
    assert any(name.startswith("old/") for name in results[0]) == (checkpoint is not None)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("place", ["local", "memory"])
def test_there_may_be_many_more_destinations_than_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, suffix: str
) -> None:
    monkeypatch.setattr(file_attempt, "OPEN_AT_ONCE", 3)
    monkeypatch.setattr(FileFormat, "buffer_bytes", 8)
    monkeypatch.setattr(file_attempt, "BUFFER_BUDGET", 64)
    url = str(tmp_path) if place == "local" else "memory://destinations"
    fs = fsspec.filesystem("file" if place == "local" else "memory")
    sink = TextSink(f"{url}/{{destination}}", suffix, header="h", footer="f", addressed=True)
    lines = [(f"{n % 20}", f"line {n}") for n in range(400)]
    open_at_once = []
    original = file_attempt.FileAttempt._use

    def counting(attempt: Any, part: Any) -> None:
        original(attempt, part)
        open_at_once.append(len(attempt._open))

    monkeypatch.setattr(file_attempt.FileAttempt, "_use", counting)
    sink.commit("run", write(sink, "run", [((key,), line) for key, line in lines]))
    assert max(open_at_once) == 3
    root = str(tmp_path) if place == "local" else "/destinations"
    found = {path: fs.cat_file(path) for path in fs.find(root) if "/.tidegate-files-" not in path}
    texts = {
        path.rpartition("/")[2].partition("-")[0]: (gzip.decompress(data) if suffix else data).decode()
        for path, data in found.items()
    }
    assert len(found) == 20
    for destination, text in texts.items():
        expected = [line for key, line in lines if key == destination]
        assert text == "".join(f"{line}\n" for line in ["h", *expected, "f"])
    if place == "memory":
        fs.rm(root, recursive=True)


def test_an_attempt_that_is_closed_leaves_nothing(tmp_path: Path) -> None:
    sink = TextSink(f"{tmp_path}/{{destination}}", addressed=True)
    attempt = sink.attempt("run", 0)
    attempt.write(addressed(*(f"{n}:x" for n in range(100))))
    attempt.close()
    sink.abort("run")
    assert list(tmp_path.rglob("*")) == []


def country(line: str) -> str:
    return line.partition(" ")[0]


def test_destinations_and_windows_are_applied_from_a_pipeline(tmp_path: Path) -> None:
    with tg.Pipeline() as p:
        lines = p | tg.Create([tg.TimestampedValue(f"{'de' if n % 2 else 'fr'} {n}", n * 43_200) for n in range(4)])
        _ = (
            lines
            | tg.WindowInto(tg.FixedWindows(86_400))
            | tg.io.WriteToText(
                f"{tmp_path}/day={{window:%Y-%m-%d}}/{{destination}}", ".txt", destination=country, num_shards=1
            )
        )
    assert written(tmp_path) == {
        "day=1970-01-01/de-00000-of-00001.txt": "de 1\n",
        "day=1970-01-01/fr-00000-of-00001.txt": "fr 0\n",
        "day=1970-01-02/de-00000-of-00001.txt": "de 3\n",
        "day=1970-01-02/fr-00000-of-00001.txt": "fr 2\n",
    }


def test_an_element_in_two_windows_is_in_the_files_of_both(tmp_path: Path) -> None:
    with tg.Pipeline() as p:
        lines = p | tg.Create([tg.TimestampedValue("a", 5)]) | tg.WindowInto(tg.SlidingWindows(10, 5))
        _ = lines | tg.io.WriteToText(f"{tmp_path}/{{window.start:%S}}", shard_name_template="")
    assert written(tmp_path) == {"00": "a\n", "05": "a\n"}


def test_a_destination_outside_the_output_folder_is_an_error_that_names_the_element(tmp_path: Path) -> None:
    p = tg.Pipeline()
    _ = p | tg.Create(["../x y"]) | tg.io.WriteToText(f"{tmp_path}/{{destination}}", destination=country)
    with pytest.raises(tg.UserCodeError) as caught:
        p.run()
    message = str(caught.value)
    assert "leads out of the output folder" in message
    assert "element: '../x y'" in message
    assert re.search(r"step 'WriteToText/Address', applied at .*test_destinations\.py:\d+", message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("out", {"destination": str}, "destination= needs a path with {destination}"),
        ("out/{destination}", {}, "add a function of an element"),
        ("out/{destination}", {"destination": "de"}, "destination is a function of an element, not 'de'"),
        ("out/{window.middle}", {}, "is not a placeholder"),
        ("out/{window}", {"timezone": "Mars/Base"}, "there is no time zone 'Mars/Base'"),
    ],
)
def test_contradictory_options_are_refused_when_the_transform_is_created(path: str, options: Any, message: str) -> None:
    with pytest.raises(BuildError, match=re.escape(message)):
        tg.io.WriteToText(path, **options)
