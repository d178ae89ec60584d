"""State in checkpoints: an operator resumes from the state that a backend captured, in the same or another backend."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.test_rescale import SIDE, answer, at_second, by_key, keeps, stateful_with_side
from tests.support.operator_driver import Elements, Watermark, context, operator, operator_factory
from tests.support.streaming.small_filesystem import SmallFilesystem
from tests.support.streaming.threads import new_threads
from tidegate.runners.checkpoint.state_files import StateFile, UnpicklableState, read_states
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.state import tiered
from tidegate.runners.engine.state.tiered import by_keys
from tidegate.runners.streaming.model.fork_safety import allows_forks
from tidegate.runners.streaming.state import memory, writers
from tidegate.runners.streaming.state.backend import Capture, StateBackend
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.rocksdb import RocksBackend
from tidegate.runners.streaming.state.uploads import DirectFileStore, StateFileStore, UploadingFileStore
from tidegate.runners.streaming.state.writers import ForkedWriter
from tidegate.runners.streaming.storage.background import Background, Steps
from tidegate.sdk.errors import RunError
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

LENIENT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

Kind = Literal["forked", "sliced", "uploaded", "rocksdb", "rocksdb uploaded"]
KINDS: tuple[Kind, ...] = ("forked", "sliced", "uploaded", "rocksdb", "rocksdb uploaded")
NOTES = tg.BagStateSpec("notes")
LATER = tg.EventTimer("later")
LAST = tg.ValueStateSpec("last")


class Noting(tg.DoFn):
    """Collects values in state and emits those of a key when its timer fires; "forget" clears them."""

    def process(
        self,
        element: Any,
        t: Any = tg.DoFn.TimestampParam,
        notes: Any = tg.DoFn.StateParam(NOTES),
        last: Any = tg.DoFn.StateParam(LAST),
        later: Any = tg.DoFn.TimerParam(LATER),
    ) -> Iterator[Any]:
        key, value = element
        if value == "forget":
            notes.clear()
            last.clear()
        else:
            notes.add(value)
            yield key, "after", last.read()
            last.write(value)
            later.set(tg.Timestamp(micros=t.micros + 5))

    @tg.on_timer(LATER)
    def fire(self, key: Any = tg.DoFn.KeyParam, notes: Any = tg.DoFn.StateParam(NOTES)) -> Iterator[Any]:
        yield key, "noted", notes.read()


def noting(p: tg.Pipeline) -> Any:
    return p | tg.Create([("a", 1)]) | "step" >> tg.ParDo(Noting())


@pytest.fixture(autouse=True)
def ignore_foreign_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the backend fork despite threads of earlier tests in this process, such as those of a Spark session."""
    new = new_threads()
    monkeypatch.setattr(memory, "can_fork", lambda: not new())


class Disk:
    """A checkpoint directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def put(self, name: str, data: bytes) -> None:
        self.write(name, data)

    def put_file(self, name: str, path: Path) -> None:
        self.write(name, path.read_bytes())

    def sync(self, names: Iterable[str]) -> None:
        raise AssertionError("files are synced when the manifest is written")

    def create(self, name: str, data: bytes) -> bool:
        raise AssertionError("a state file has one writer and needs no exclusive creation")

    def list(self, folder: str) -> list[str]:
        return [str(path.relative_to(self.root)) for path in (self.root / folder).rglob("*") if path.is_file()]

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)


class BackedStep:
    """A step with a backend that captures its state."""

    def __init__(
        self, kind: Kind, root: Path, pipeline: Callable[[tg.Pipeline], Any] = noting, *, full_every: int = 3
    ) -> None:
        self.disk = Disk(root / "checkpoints")
        self.folder = root / f"local-{os.urandom(4).hex()}"
        self.folder.mkdir(parents=True)
        files: StateFileStore = DirectFileStore(self.disk, self.disk.root, lambda: self.folder)
        if "uploaded" in kind:
            files = UploadingFileStore(self.disk, Background(lambda: None), lambda: self.folder, room=300)
        steps: dict[str, Operator] = {}
        step_context = context()
        if "rocksdb" in kind:
            rocks = RocksBackend(lambda: steps, files, lambda: self.folder, budget=2_000, full_every=full_every)
            step_context.wrap_keyed = rocks.page
            self.backend: StateBackend = rocks
        else:
            forks = kind == "forked"
            self.backend = MemoryBackend(lambda: steps, files, forks=forks, full_every=full_every)
        self.step = steps["step"] = operator(pipeline, "step", world=step_context)
        self.steps = steps

    def capture(self, checkpoint: int, *, whole: bool = False) -> tuple[StateFile, ...]:
        """Capture the state, and wait until it is stored."""
        list(self.step.finish_bundle())
        return awaited(self.backend.capture(checkpoint, f"chk-{checkpoint}/0.0.1.state", whole=whole))

    def restore(self, *parts: Sequence[StateFile], keeps: Any = None) -> None:
        self.backend.restore(parts, self.disk.read, keeps)


def awaited(capture: Capture) -> tuple[StateFile, ...]:
    deadline = time.monotonic() + 60
    while (files := capture.poll()) is None:
        assert time.monotonic() < deadline, "the capture does not end"
    return files


@pytest.fixture(autouse=True)
def fork_for_any_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_FEW", 0)


def test_state_is_written_by_a_child_unless_a_commit_runs_or_a_connector_forbids_it(tmp_path: Path) -> None:
    committing, release, woken = threading.Event(), threading.Event(), threading.Event()
    background = Background(woken.set)

    def commit() -> Steps[bool]:
        committing.set()
        release.wait(60)
        return True
        yield

    for checkpoint, (kind, busy, forks) in enumerate(
        [("forked", False, True), ("forked", True, False), ("forked", False, True), ("sliced", False, False)]
    ):
        backed = BackedStep(kind, tmp_path / f"{checkpoint}")  # type: ignore[arg-type]
        answer(backed.step, as_elements([("a", 1, 1)]))
        list(backed.step.finish_bundle())
        if busy:
            background.begin(commit())
            assert committing.wait(60)
        capture = backed.backend.capture(1, "chk-1/0.0.1.state", whole=True)
        assert isinstance(capture, ForkedWriter) == forks
        assert awaited(capture)
        backed.backend.close()
        if busy:
            release.set()
            background.join(60)


@pytest.mark.parametrize(("source", "sink"), [(True, False), (False, True)])
def test_one_connector_whose_client_has_threads_forbids_forks(source: bool, sink: bool) -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Read(Threaded(source)) | tg.Write(ThreadedSink(sink))
    assert not allows_forks(pipeline.sealed())
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Read(Threaded(True)) | tg.Write(ThreadedSink(True))
    assert allows_forks(pipeline.sealed())


@dataclass(frozen=True)
class Threaded(tg.io.SimpleSource[int]):
    forks_safely: bool

    def generate(self, split: Any, position: Any) -> Iterator[tuple[int, int]]:
        yield 0, 0


@dataclass(frozen=True)
class ThreadedSink(tg.io.Sink[int]):
    forks_safely: bool

    def attempt(self, run: str, task: int) -> Any:
        raise NotImplementedError


any_element = st.tuples(
    st.sampled_from("abcdefgh"), st.one_of(st.integers(0, 9), st.just("forget")), st.integers(0, 25)
)


def as_elements(drawn: list[Any]) -> Elements:
    return Elements(tuple(((key, value), t, (GLOBAL_WINDOW,)) for key, value, t in drawn))


any_event = st.one_of(
    st.lists(any_element, min_size=1, max_size=5).map(as_elements),
    st.sampled_from([2, 5, 8, 12, 20]).map(Watermark),
)
any_action = st.sampled_from(["nothing", "nothing", "checkpoint", "aborted", "savepoint"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
@settings(max_examples=5, deadline=None, suppress_health_check=LENIENT)
@given(script=st.lists(st.tuples(any_event, any_action), max_size=14), after=st.lists(any_event, max_size=5))
def test_an_operator_resumes_from_captured_state_in_any_backend(
    kind: Kind, other: Kind, script: Any, after: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("state")
    backed, reference = BackedStep(kind, root), operator_factory(noting, "step")()
    checkpoint = 0
    for event, action in script:
        assert by_key(answer(backed.step, event)) == by_key(answer(reference, event))
        if action != "nothing":
            checkpoint += 1
            files = backed.capture(checkpoint, whole=action == "savepoint")
            if action == "checkpoint":
                backed.backend.completed(checkpoint)
            same_backend = ("rocksdb" in kind) == ("rocksdb" in other)
            if action == "savepoint" or same_backend:
                restored = BackedStep(other, root)
                restored.restore(files)
                original = operator_factory(noting, "step")()
                original.restore(reference.snapshot())
                for later in (*after, None):
                    assert by_key(answer(restored.step, later)) == by_key(answer(original, later))
                restored.backend.close()
    backed.backend.close()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, deadline=None)
@given(blocks=st.lists(st.lists(any_element, min_size=1, max_size=6).map(as_elements), min_size=1, max_size=6))
def test_state_captured_by_several_tasks_is_restored_in_another_number_of_tasks(
    kind: Kind, blocks: list[Elements], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("state")
    reference = operator_factory(noting, "step")()
    before, after = (
        [BackedStep(kind, root) for _ in range(2)],
        [BackedStep("rocksdb", root), *(BackedStep(kind, root) for _ in range(2))],
    )
    for block in blocks:
        answer(reference, block)
        for index, backed in enumerate(before):
            owned = tuple(item for item in block.items if keeps(index, 2)(item[0][0]))
            if owned:
                answer(backed.step, Elements(owned))
    parts = [backed.capture(n, whole=True) for n, backed in enumerate(before)]
    found: dict[Any, list[Any]] = {}
    for index, backed in enumerate(after):
        backed.restore(*parts, keeps=keeps(index, 3))
        found |= by_key(answer(backed.step, None))
    assert found == by_key(answer(reference, None))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=LENIENT)
@given(
    before=st.lists(st.tuples(st.lists(any_event, max_size=4), st.booleans()), max_size=3),
    meanwhile=st.lists(any_event, max_size=5),
    whole=st.booleans(),
    after=st.lists(any_event, max_size=4),
    long=st.sampled_from([1, 300, 1 << 20]),
)
def test_changes_during_the_writing_of_a_capture_are_not_in_it(
    kind: Kind,
    before: Any,
    meanwhile: Any,
    whole: bool,
    after: Any,
    long: int,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "AT_ONCE", 0)
    monkeypatch.setattr(writers, "PIECE", 1)
    monkeypatch.setattr("tidegate.runners.checkpoint.state_files.PIECE", 1)
    monkeypatch.setattr(writers, "_LONG_FILE", long)
    monkeypatch.setattr(tiered, "_COPY_BATCH", 1)
    root = tmp_path_factory.mktemp("state")
    backed, reference = BackedStep(kind, root), operator_factory(noting, "step")()
    for checkpoint, (events, aborted) in enumerate([*before, ([], False)], start=1):
        for event in events:
            assert by_key(answer(backed.step, event)) == by_key(answer(reference, event))
        list(backed.step.finish_bundle())
        last = checkpoint > len(before)
        capture = backed.backend.capture(checkpoint, f"chk-{checkpoint}/0.0.1.state", whole=whole and last)
        if last:
            break
        if aborted:
            capture.poll()
            capture.abandon()
        else:
            awaited(capture)
            backed.backend.completed(checkpoint)
    original = operator_factory(noting, "step")()
    original.restore(reference.snapshot())
    files = None
    for event in meanwhile:
        files = capture.poll() if files is None else files
        assert by_key(answer(backed.step, event)) == by_key(answer(reference, event))
    restored = BackedStep(kind, root)
    restored.restore(files if files is not None else awaited(capture))
    for later in (*after, None):
        assert by_key(answer(restored.step, later)) == by_key(answer(original, later))
    restored.backend.close()
    backed.backend.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_has_only_the_changes_since_the_last_completed_one(kind: Kind, tmp_path: Path) -> None:
    backed = BackedStep(kind, tmp_path, full_every=100)
    answer(backed.step, as_elements([(f"key {n}", 1, 0) for n in range(500)]))
    sizes = []
    for checkpoint in range(1, 5):
        files = backed.capture(checkpoint)
        sizes.append(files[0][1])
        if checkpoint != 2:
            backed.backend.completed(checkpoint)
        answer(backed.step, as_elements([(f"key {checkpoint}", 2, 0)]))
    full, aborted, after_abort, last = sizes
    if "rocksdb" not in kind:
        assert aborted < full / 10
    assert aborted < after_abort
    assert last < after_abort + 200
    # No checkpoint builds on the aborted one.
    chain = [name for name, _, _ in files if ".rocksdb-" not in name]
    assert chain == [f"chk-{n}/0.0.1.state" for n in (4, 3, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_files_that_a_checkpoint_refers_to_is_bounded(kind: Kind, tmp_path: Path) -> None:
    backed = BackedStep(kind, tmp_path, full_every=4)
    max_files = 0
    for checkpoint in range(1, 30):
        answer(backed.step, as_elements([(f"key {checkpoint % 7}", checkpoint, 0)]))
        files = backed.capture(checkpoint)
        backed.backend.completed(checkpoint)
        max_files = max(max_files, len([name for name, _, _ in files if ".rocksdb-" not in name]))
    assert max_files <= 6
    restored = BackedStep(kind, tmp_path)
    restored.restore(files)
    assert by_key(answer(restored.step, None)) == by_key(answer(backed.step, None))


@pytest.mark.parametrize("kind", ["rocksdb", "rocksdb uploaded"])
def test_later_checkpoints_reuse_files_of_the_store(kind: Kind, tmp_path: Path) -> None:
    backed = BackedStep(kind, tmp_path)
    store_files: list[set[str]] = []
    for checkpoint in range(1, 4):
        answer(backed.step, as_elements([(f"key {checkpoint} {n}", n, 0) for n in range(200)]))
        files = backed.capture(checkpoint)
        backed.backend.completed(checkpoint)
        store_files.append({name for name, _, _ in files if name.endswith(".sst")})
    assert store_files[0] < store_files[1] < store_files[2]


def test_a_store_that_failed_on_a_full_disk_is_not_used_again(tmp_path: Path, disk: SmallFilesystem) -> None:
    backed = BackedStep("rocksdb", disk.path)
    answer(backed.step, as_elements([(f"key {n}", n, 0) for n in range(200)]))
    captured = backed.capture(1)
    backed.backend.completed(1)
    answer(backed.step, as_elements([(f"other {n}", n, 0) for n in range(200)]))
    disk.fill()
    with pytest.raises(RunError, match=rf"the store in {backed.folder} has failed: .*No space left.*; see --temp_dir"):
        backed.capture(2)
    assert {path.name for path in backed.folder.iterdir()} == {"db"}
    disk.make_room()
    with pytest.raises(RunError, match="has failed: "):  # it stays unusable even though there is room again
        backed.capture(3)
    backed.backend.close()
    assert not backed.folder.exists()
    restored, intact = (BackedStep("rocksdb", disk.path) for _ in range(2))
    restored.restore(captured)
    answer(intact.step, as_elements([(f"key {n}", n, 0) for n in range(200)]))
    assert by_key(answer(restored.step, None)) == by_key(answer(intact.step, None))


def test_side_inputs_and_elements_that_wait_for_them_are_captured(tmp_path: Path) -> None:
    for kind in KINDS:
        backed, reference = (BackedStep(kind, tmp_path, stateful_with_side) for _ in range(2))
        events = [at_second(("a", 1), 3), at_second(7, 3, SIDE), at_second(("b", 1), 12), Watermark(10_000_000, SIDE)]
        for checkpoint, event in enumerate(events, 1):
            answer(backed.step, event)
            answer(reference.step, event)
            files = backed.capture(checkpoint)
            backed.backend.completed(checkpoint)
        restored = BackedStep(kind, tmp_path, stateful_with_side)
        restored.restore(files)
        for later in (at_second(("a", 1), 4), None):
            assert by_key(answer(restored.step, later)) == by_key(answer(reference.step, later))


class Unreadable(Operator):
    """An operator whose snapshot fails for now, as if part of its state were on a failing disk."""

    def __init__(self) -> None:
        self.fails = True

    def snapshot(self, keys: Any = None) -> Any:
        if self.fails:
            raise OSError(5, "Input/output error")
        return "read"


@pytest.mark.parametrize("whole", [False, True], ids=["checkpoint", "savepoint"])
def test_the_capture_after_a_failed_one_is_complete(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiered, "MAX_SYNCHRONOUS", 0)
    backed = BackedStep("rocksdb", tmp_path, stateful_with_side)
    waiting, paged = backed.step, backed.step.inner  # type: ignore[attr-defined]
    for event in (at_second(("a", 1), 3), at_second(7, 3, SIDE), at_second(("b", 1), 12), Watermark(10_000_000, SIDE)):
        answer(backed.step, event)
    backed.steps["unreadable"] = unreadable = Unreadable()
    with pytest.raises(OSError, match="Input/output"):
        backed.capture(1, whole=whole)
    assert paged.capture is None, "the failed capture is still open"
    with monkeypatch.context() as patch:
        patch.setattr(type(waiting._waiting), "snapshot", Unreadable().snapshot)
        with pytest.raises(OSError, match="Input/output"):
            backed.capture(2, whole=whole)
    assert by_keys(paged.snapshot()), "keys are missing in a later snapshot"
    unreadable.fails = False
    files = backed.capture(3, whole=whole)
    restored = BackedStep("rocksdb", tmp_path, stateful_with_side)
    restored.restore(files)
    for later in (at_second(("a", 1), 4), None):
        assert by_key(answer(restored.step, later)) == by_key(answer(backed.step, later))


def test_a_truncated_or_damaged_file_is_refused(tmp_path: Path) -> None:
    backed = BackedStep("sliced", tmp_path)
    answer(backed.step, as_elements([("a", 1, 0)]))
    ((name, size, checksum),) = backed.capture(1)
    data = backed.disk.read(name)
    for damaged in (data[:-1], data[:40] + b"?" + data[41:], b""):
        backed.disk.write(name, damaged)
        with pytest.raises(RunError, match="damaged"):
            read_states([(name, size, checksum)], backed.disk.read)
    backed.disk.delete(name)
    with pytest.raises(RunError, match="can't be read"):
        read_states([(name, size, checksum)], backed.disk.read)


def test_a_failing_child_is_an_error_and_leaves_no_files(tmp_path: Path) -> None:
    backed = BackedStep("forked", tmp_path)
    answer(backed.step, Elements(((("a", lambda: None), 0, (GLOBAL_WINDOW,)),)))  # can't be pickled
    capture = backed.backend.capture(1, "chk-1/0.0.1.state", whole=False)
    with pytest.raises(UnpicklableState, match=r"Can't (pickle|get) local object"):
        awaited(capture)
    assert list(backed.folder.iterdir()) == []


def test_an_abandoned_capture_leaves_neither_files_nor_a_child(tmp_path: Path) -> None:
    backed = BackedStep("forked", tmp_path)
    answer(backed.step, as_elements([("a", 1, 0)]))
    capture: Any = backed.backend.capture(1, "chk-1/0.0.1.state", whole=False)
    child = capture.inner._child
    capture.abandon()
    assert list(backed.folder.iterdir()) == []
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


@pytest.mark.parametrize("size", [1, 1_000])
@pytest.mark.parametrize("kind", ["forked", "sliced", "rocksdb"])
def test_files_of_any_size_are_private_to_the_user(
    kind: Kind, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "PIECE", 100)
    monkeypatch.setattr(writers, "_LONG_FILE", 1_000)
    before = os.umask(0)
    try:
        backed = BackedStep(kind, tmp_path)
        files: Any = backed.backend
        files._files._storage = LocalStorage(backed.disk.root)  # as in a job
        answer(backed.step, as_elements([(str(n), n, 0) for n in range(size)]))
        backed.capture(1)
        answer(backed.step, as_elements([("a", 1, 0)]))
        backed.capture(2, whole=True)
    finally:
        os.umask(before)
    state_files = [path for path in backed.disk.root.rglob("*") if path.is_file()]
    assert state_files
    assert {path.stat().st_mode & 0o777 for path in state_files} == {0o600}


def test_no_child_is_forked_while_other_threads_run(tmp_path: Path) -> None:
    backed = BackedStep("forked", tmp_path)
    answer(backed.step, as_elements([("a", 1, 0)]))
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        capture: Any = backed.backend.capture(1, "chk-1/0.0.1.state", whole=False)
        assert not isinstance(capture.inner, ForkedWriter)
        awaited(capture)
    finally:
        release.set()
        thread.join()
    forked: Any = backed.backend.capture(2, "chk-2/0.0.1.state", whole=True)
    assert isinstance(forked, ForkedWriter)
    awaited(forked)


def test_the_child_inherits_no_descriptor(tmp_path: Path) -> None:
    """An inherited descriptor would keep the peer from noticing that this process has died."""
    backed = BackedStep("forked", tmp_path)
    reader, writer = os.pipe()
    answer(backed.step, Elements(((("a", DescriptorState(writer)), 0, (GLOBAL_WINDOW,)),)))
    files = backed.capture(1)
    (seen_by_child,) = read_states(files, backed.disk.read)["step"].tables["cell/last"][GLOBAL_WINDOW].values()
    assert seen_by_child == "closed"
    os.close(reader)
    os.close(writer)


class DescriptorState:
    """Unpickles as "open" or "closed": the state of a descriptor in the process that pickled it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> Any:
        try:
            os.fstat(self.descriptor)
        except OSError:
            return str, ("closed",)
        return str, ("open",)
