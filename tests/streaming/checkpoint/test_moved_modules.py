"""Files that were written before modules were moved can still be read; `fixtures/make_flat_modules.py` wrote them.

They name Tidegate's classes by their former modules; `tidegate/sdk/moved.py` maps those to the present ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from pickletools import genops
from struct import unpack_from
from typing import Any

import pytest

from tests.support.streaming.child_processes import TIMEOUT
from tidegate.runners.checkpoint.state_files import END_SIZE
from tidegate.runners.spark.driver.commit_log import finish_interrupted
from tidegate.runners.streaming.protocol.coordinator_io import TakeSavepoint
from tidegate.runners.streaming.session.client import SessionFiles, open_session, start_session
from tidegate.runners.streaming.session.journal import Journal
from tidegate.sdk.errors import RunError
from tidegate.sdk.moved import MOVES

FIXTURES = Path(__file__).parents[1] / "fixtures"
LISTED_NAMES = FIXTURES / "flat-modules.txt"
"""A file with a line `module name` for each of Tidegate's names in the archive's pickles."""
LIBRARY = (1062, "5b04468c2c38184970f0be3cc2f8797c2eb2660724f9d5be0f993302701da922")
"""The number of lines that the original version wrote when it ran `library.json`, and their SHA-256, sorted."""

python_3_11 = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="compiled code is of one version of Python")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flat-modules")
    shutil.unpack_archive(FIXTURES / "flat-modules.tar.xz", folder, filter="data")
    return folder


@pytest.fixture
def unpacked(archive: Path, tmp_path: Path) -> Path:
    """A copy of the archive that the test may change."""
    return shutil.copytree(archive, tmp_path / "unpacked")


def run(folder: Path, target: Path, *flags: str) -> str:
    """Run a compiled pipeline to its end in a folder, and return what it printed."""
    root = Path(__file__).parents[3]
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    call = "import sys; from tidegate.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", call, "run", str(target), *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "TIDEGATE_GATE": "open"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def lines(folder: Path, pattern: str = "out/part*") -> list[str]:
    """The lines that have been written, sorted."""
    return sorted(plain(line) for path in folder.glob(pattern) for line in path.read_text().splitlines())


def plain(line: str) -> str:
    """A line without differences between versions.

    The text of timestamps and durations has changed, and with it the order of lists that are sorted as text.
    """
    line = re.sub(r"(?:Timestamp|Duration)\(([^()]*)\)", r"\1", line)
    return " ".join(sorted(re.sub(r"[\[\]',]", "", line).split())) if line.startswith("kinds ") else line


STREAMING = ["--runner=streaming", "--workers=2", "--temp_dir=."]


def deterministic(found: list[str]) -> list[str]:
    """Lines that don't depend on how often the watermark advances, on which accumulating landmark windows do."""
    return [line for line in found if not line.startswith("landmark: ")]


@pytest.fixture(scope="module")
def complete_output(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output of the uninterrupted job with every kind of state."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copytree(archive / "finished" / "in", folder / "in")
    run(folder, archive / "jobs" / "state.json", *STREAMING)
    found = deterministic(lines(folder))
    assert found == deterministic(lines(archive / "finished"))
    assert found == deterministic(lines(folder, "out/own/*"))
    return found


FROM = {"checkpoint": "--checkpoint_dir=checkpoints", "savepoint": "--from_savepoint=savepoint"}


@python_3_11
@pytest.mark.parametrize("kind", FROM)
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_state_of_every_kind_is_restored(unpacked: Path, complete_output: list[str], backend: str, kind: str) -> None:
    folder = unpacked / "state" / backend
    early = lines(folder)
    printed = run(folder, unpacked / "jobs" / "state.json", *STREAMING, f"--state_backend={backend}", FROM[kind])
    assert "resuming from" in printed
    assert 0 < len(early) < len(complete_output)
    assert deterministic(lines(folder)) == complete_output
    assert deterministic(lines(folder, "out/own/*")) == complete_output


@python_3_11
def test_a_finished_job_is_recognized_as_the_same_job(unpacked: Path) -> None:
    folder = unpacked / "finished"
    before = lines(folder)
    printed = run(folder, unpacked / "jobs" / "state.json", *STREAMING, "--checkpoint_dir=checkpoints")
    assert "changed" not in printed
    assert lines(folder) == before


@python_3_11
@pytest.mark.parametrize("flags", [["--runner=direct"], STREAMING], ids=["direct", "streaming"])
def test_a_compiled_pipeline_of_the_whole_library_writes_what_it_wrote_before(
    archive: Path, tmp_path: Path, flags: list[str]
) -> None:
    run(tmp_path, archive / "jobs" / "library.json", *flags)
    found = lines(tmp_path)
    assert (len(found), sha256("".join(f"{line}\n" for line in found).encode()).hexdigest()) == LIBRARY


@python_3_11
@pytest.mark.parametrize("flags", [["--runner=direct"], STREAMING], ids=["direct", "streaming"])
def test_a_compiled_pipeline_of_files_test_streams_and_coders_runs(
    archive: Path, tmp_path: Path, flags: list[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\ntwo\n")
    run(tmp_path, archive / "jobs" / "plain.json", *flags)
    found = ["('in/a.txt', 'one')", "('in/a.txt', 'two')", "money 1", "money 2", "one", "two", "x", "y"]
    assert lines(tmp_path) == sorted([*found, "head", "head"])
    assert lines(tmp_path, "out/by*") == sorted(found)


@python_3_11
def test_a_session_resumes_a_job_from_the_journal_of_an_earlier_one(
    unpacked: Path, complete_output: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unpacked / "session"
    journal = unpacked / "journal"
    journal.mkdir()
    for path in folder.glob("*.job"):
        path.rename(journal / path.name)
    ((_, request),) = Journal(journal).requests()
    assert not isinstance(request, str), request
    with tempfile.TemporaryDirectory(prefix="tg") as private:
        monkeypatch.setenv("XDG_RUNTIME_DIR", private)
        monkeypatch.setenv("TMPDIR", private)
        monkeypatch.setenv("TIDEGATE_GATE", "open")
        files = SessionFiles("flat")
        start_session(files)
        with open_session(files.name) as session:
            # The client ran on another machine.
            submitted = replace(request.submitted, directory=f"{private}/tidegate-job")
            id = session.submit(submitted, tuple(sys.path), str(folder)).id
            with suppress(RunError):  # the job may have finished
                for _ in session.send_and_follow(id, TakeSavepoint(f"{private}/savepoint")):
                    continue
        with open_session(files.name) as session:
            info = session.info(id)
            assert (info.state, info.error) == ("finished", "")
            assert any("resuming from checkpoint" in text for text in info.reports)
            session.end()
    # In that version, a child that wrote a checkpoint also read what its parent had spilled later: the archive's
    # checkpoint has waiting elements that the sources emit again. No later version can recognize them.
    found = [line for line in deterministic(lines(folder)) if not line.startswith("beside ")]
    assert found == [line for line in complete_output if not line.startswith("beside ")]
    assert set(deterministic(lines(folder))) == set(complete_output)


@python_3_11
def test_an_interrupted_commit_on_spark_is_finished(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = unpacked / "spark"
    monkeypatch.chdir(folder)
    assert lines(folder, "out/one*") != ["a", "b", "c"]
    assert finish_interrupted(folder) == 1
    for sink in ("one", "to-", "own/"):
        assert lines(folder, f"out/{sink}*") == ["a", "b", "c"]
    assert [path.name for path in folder.iterdir()] == ["out"]


# -- the contents of the archive


def test_every_name_in_the_archive_can_be_resolved(archive: Path) -> None:
    for module, name in sorted(tidegate_names(archive)):
        assert MOVES.find(module, name) is not None
        assert MOVES.original(*MOVES.current(module, name)) == (module, name)


def test_the_archive_names_every_class_that_is_listed_beside_it(archive: Path) -> None:
    assert "".join(f"{module} {name}\n" for module, name in sorted(tidegate_names(archive))) == LISTED_NAMES.read_text()


def tidegate_names(folder: Path) -> set[tuple[str, str]]:
    """All of Tidegate's names in the pickles of a folder."""
    found = {
        pair for path in folder.rglob("*") if path.is_file() for data in pickles_in(path) for pair in names_in(data)
    }
    return {(module, name) for module, name in found if module.partition(".")[0] == "tidegate"}


def pickles_in(path: Path) -> Iterator[bytes]:
    """The pickles in a file of any kind except those of a state store."""
    match path.suffix:
        case ".state" | ".job" | ".commit":
            yield path.read_bytes()
        case ".data":
            data, at = path.read_bytes()[:-END_SIZE], 0
            while at < len(data):
                (length,) = unpack_from("<Q", data, at)
                yield data[at + 8 : at + 8 + length]
                at += 8 + length
        case ".json":
            yield from encoded_pickles(json.loads(path.read_text()))


def encoded_pickles(value: Any) -> Iterator[bytes]:
    """The pickles in a value that was read from JSON."""
    match value:
        case dict():
            for each in value.values():
                yield from encoded_pickles(each)
        case list():
            for each in value:
                yield from encoded_pickles(each)
        case str() if value.startswith("gAW"):  # a pickle of protocol 5 begins so
            yield urlsafe_b64decode(value)


def names_in(data: bytes) -> Iterator[tuple[str, str]]:
    """The names in a pickle, and in pickles nested in it."""
    texts: list[Any] = []  # the values that the latest operations pushed onto the stack; None if no text
    memo: list[Any] = []
    for operation, argument, _ in genops(data):
        match operation.name:
            case "SHORT_BINUNICODE" | "BINUNICODE":
                texts.append(argument)
            case "MEMOIZE":
                memo.append(texts[-1])
            case "BINGET" | "LONG_BINGET":
                assert isinstance(argument, int)
                texts.append(memo[argument])
            case "STACK_GLOBAL":
                yield texts[-2], texts[-1]
                texts.append(None)
            case "SHORT_BINBYTES" | "BINBYTES" if isinstance(argument, bytes) and argument[:2] == b"\x80\x05":
                texts.append(None)
                yield from names_in(argument)
            case "PROTO" | "FRAME" | "MARK" | "STOP":
                pass
            case _:
                texts.append(None)
