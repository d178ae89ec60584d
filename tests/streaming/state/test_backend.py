"""State in checkpoints: what a backend captures, whenever, is what an operator goes on from, in any other backend."""

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
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.state import tiered
from tidegate.runners.engine.state.tiered import by_keys
from tidegate.runners.streaming.model.fork_safety import allows_forks
from tidegate.runners.streaming.state import memory, writers
from tidegate.runners.streaming.state.backend import Capture, StateBackend
from tidegate.runners.streaming.state.files import StateFile, UnpicklableState, read_states
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.rocksdb import RocksBackend
from tidegate.runners.streaming.state.uploads import DirectFileStore, StateFileStore, UploadingFileStore
from tidegate.runners.streaming.state.writers import ForkedWriter
from tidegate.runners.streaming.storage.background import Background, Steps
from tidegate.runners.streaming.storage.local import LocalStorage
from tidegate.sdk.errors import RunError
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

LENIENT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

Kind = Literal["forked", "sliced", "uploaded", "rocksdb", "rocksdb uploaded"]
KINDS: tuple[Kind, ...] = ("forked", "sliced", "uploaded", "rocksdb", "rocksdb uploaded")
NOTES = tg.BagStateSpec("notes")
LATER = tg.EventTimer("later")
LAST = tg.ValueStateSpec("last")


class Noting(tg.DoFn):
    """Notes values, and gives all of a key's when its timer fires; "forget" clears them."""

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
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that other tests of this process have left, such as those of a Spark session, do not count."""
    before = threading.active_count()
    monkeypatch.setattr(memory, "can_fork", lambda: threading.active_count() == before)


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
        raise AssertionError("that is for whoever writes the manifest")

    def create(self, name: str, data: bytes) -> bool:
        raise AssertionError("state files are written by one task alone")

    def list(self, folder: str) -> list[str]:
        return [str(path.relative_to(self.root)) for path in (self.root / folder).rglob("*") if path.is_file()]

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)


class Held:
    """A step whose state a backend keeps."""

    def __init__(
        self, kind: Kind, root: Path, pipeline: Callable[[tg.Pipeline], Any] = noting, *, full_every: int = 3
    ) -> None:
        self.disk = Disk(root / "checkpoints")
        self.folder = root / f"own-{os.urandom(4).hex()}"
        self.folder.mkdir(parents=True)
        files: StateFileStore = DirectFileStore(self.disk, self.disk.root, lambda: self.folder)
        if "uploaded" in kind:
            files = UploadingFileStore(self.disk, Background(lambda: None), lambda: self.folder, room=300)
        steps: dict[str, Operator] = {}
        world = context()
        if "rocksdb" in kind:
            rocks = RocksBackend(lambda: steps, files, lambda: self.folder, budget=2_000, full_every=full_every)
            world.wrap_keyed = rocks.page
            self.backend: StateBackend = rocks
        else:
            forks = kind == "forked"
            self.backend = MemoryBackend(lambda: steps, files, forks=forks, full_every=full_every)
        self.step = steps["step"] = operator(pipeline, "step", world=world)
        self.steps = steps

    def capture(self, checkpoint: int, *, whole: bool = False) -> tuple[StateFile, ...]:
        """Take the state and wait until it is kept."""
        list(self.step.finish_bundle())
        return awaited(self.backend.capture(checkpoint, f"chk-{checkpoint}/0.0.1.state", whole=whole))

    def restore(self, *parts: Sequence[StateFile], keeps: Any = None) -> None:
        self.backend.restore(parts, self.disk.read, keeps)


def awaited(capture: Capture) -> tuple[StateFile, ...]:
    deadline = time.monotonic() + 60
    while (files := capture.poll()) is None:
        assert time.monotonic() < deadline, "the capture never ends"
    return files


@pytest.fixture(autouse=True)
def everything_is_worth_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
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
        held = Held(kind, tmp_path / f"{checkpoint}")  # type: ignore[arg-type]
        answer(held.step, as_elements([("a", 1, 1)]))
        list(held.step.finish_bundle())
        if busy:
            background.begin(commit())
            assert committing.wait(60)
        capture = held.backend.capture(1, "chk-1/0.0.1.state", whole=True)
        assert isinstance(capture, ForkedWriter) == forks
        assert awaited(capture)
        held.backend.close()
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


element = st.tuples(st.sampled_from("abcdefgh"), st.one_of(st.integers(0, 9), st.just("forget")), st.integers(0, 25))


def as_elements(drawn: list[Any]) -> Elements:
    return Elements(tuple(((key, value), t, (GLOBAL_WINDOW,)) for key, value, t in drawn))


event = st.one_of(
    st.lists(element, min_size=1, max_size=5).map(as_elements),
    st.sampled_from([2, 5, 8, 12, 20]).map(Watermark),
)
what = st.sampled_from(["nothing", "nothing", "checkpoint", "given up", "savepoint"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
@settings(max_examples=5, deadline=None, suppress_health_check=LENIENT)
@given(script=st.lists(st.tuples(event, what), max_size=14), after=st.lists(event, max_size=5))
def test_an_operator_goes_on_from_what_was_captured(
    kind: Kind, other: Kind, script: Any, after: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("state")
    held, plain = Held(kind, root), operator_factory(noting, "step")()
    checkpoint = 0
    for happens, then in script:
        assert by_key(answer(held.step, happens)) == by_key(answer(plain, happens))
        if then != "nothing":
            checkpoint += 1
            files = held.capture(checkpoint, whole=then == "savepoint")
            if then == "checkpoint":
                held.backend.completed(checkpoint)
            same_backend = ("rocksdb" in kind) == ("rocksdb" in other)
            if then == "savepoint" or same_backend:
                again = Held(other, root)
                again.restore(files)
                original = operator_factory(noting, "step")()
                original.restore(plain.snapshot())
                for later in (*after, None):
                    assert by_key(answer(again.step, later)) == by_key(answer(original, later))
                again.backend.close()
    held.backend.close()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, deadline=None)
@given(blocks=st.lists(st.lists(element, min_size=1, max_size=6).map(as_elements), min_size=1, max_size=6))
def test_what_several_tasks_captured_goes_on_in_others(
    kind: Kind, blocks: list[Elements], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("state")
    plain = operator_factory(noting, "step")()
    before, after = [Held(kind, root) for _ in range(2)], [Held("rocksdb", root), *(Held(kind, root) for _ in range(2))]
    for block in blocks:
        answer(plain, block)
        for index, held in enumerate(before):
            mine = tuple(item for item in block.items if keeps(index, 2)(item[0][0]))
            if mine:
                answer(held.step, Elements(mine))
    parts = [held.capture(n, whole=True) for n, held in enumerate(before)]
    found: dict[Any, list[Any]] = {}
    for index, held in enumerate(after):
        held.restore(*parts, keeps=keeps(index, 3))
        found |= by_key(answer(held.step, None))
    assert found == by_key(answer(plain, None))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=LENIENT)
@given(
    before=st.lists(st.tuples(st.lists(event, max_size=4), st.booleans()), max_size=3),
    meanwhile=st.lists(event, max_size=5),
    whole=st.booleans(),
    after=st.lists(event, max_size=4),
    long=st.sampled_from([1, 300, 1 << 20]),
)
def test_what_happens_while_a_capture_is_written_is_not_in_it(
    kind: Kind,
    before: Any,
    meanwhile: Any,
    whole: bool,
    after: Any,
    long: int,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers, "PIECE", 1)
    monkeypatch.setattr(writers, "_LONG_FILE", long)
    monkeypatch.setattr(tiered, "_COPY_BATCH", 1)
    root = tmp_path_factory.mktemp("state")
    held, plain = Held(kind, root), operator_factory(noting, "step")()
    for checkpoint, (events, given_up) in enumerate([*before, ([], False)], start=1):
        for happens in events:
            assert by_key(answer(held.step, happens)) == by_key(answer(plain, happens))
        list(held.step.finish_bundle())
        last = checkpoint > len(before)
        capture = held.backend.capture(checkpoint, f"chk-{checkpoint}/0.0.1.state", whole=whole and last)
        if last:
            break
        if given_up:
            capture.poll()
            capture.abandon()
        else:
            awaited(capture)
            held.backend.completed(checkpoint)
    original = operator_factory(noting, "step")()
    original.restore(plain.snapshot())
    files = None
    for happens in meanwhile:
        files = capture.poll() if files is None else files
        assert by_key(answer(held.step, happens)) == by_key(answer(plain, happens))
    again = Held(kind, root)
    again.restore(files if files is not None else awaited(capture))
    for later in (*after, None):
        assert by_key(answer(again.step, later)) == by_key(answer(original, later))
    again.backend.close()
    held.backend.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_has_only_what_changed_since_the_last_that_was_completed(kind: Kind, tmp_path: Path) -> None:
    held = Held(kind, tmp_path, full_every=100)
    answer(held.step, as_elements([(f"key {n}", 1, 0) for n in range(500)]))
    sizes = []
    for checkpoint in range(1, 5):
        files = held.capture(checkpoint)
        sizes.append(files[0][1])
        if checkpoint != 2:
            held.backend.completed(checkpoint)
        answer(held.step, as_elements([(f"key {checkpoint}", 2, 0)]))
    whole, given_up, again, last = sizes
    if "rocksdb" not in kind:
        assert given_up < whole / 10
    assert given_up < again
    assert last < again + 200
    # What was given up is not built on.
    chain = [name for name, _, _ in files if ".rocksdb-" not in name]
    assert chain == [f"chk-{n}/0.0.1.state" for n in (4, 3, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_state_is_built_from_more_and_more_files(kind: Kind, tmp_path: Path) -> None:
    held = Held(kind, tmp_path, full_every=4)
    most = 0
    for checkpoint in range(1, 30):
        answer(held.step, as_elements([(f"key {checkpoint % 7}", checkpoint, 0)]))
        files = held.capture(checkpoint)
        held.backend.completed(checkpoint)
        most = max(most, len([name for name, _, _ in files if ".rocksdb-" not in name]))
    assert most <= 6
    again = Held(kind, tmp_path)
    again.restore(files)
    assert by_key(answer(again.step, None)) == by_key(answer(held.step, None))


@pytest.mark.parametrize("kind", ["rocksdb", "rocksdb uploaded"])
def test_only_new_files_of_the_store_are_taken(kind: Kind, tmp_path: Path) -> None:
    held = Held(kind, tmp_path)
    taken: list[set[str]] = []
    for checkpoint in range(1, 4):
        answer(held.step, as_elements([(f"key {checkpoint} {n}", n, 0) for n in range(200)]))
        files = held.capture(checkpoint)
        held.backend.completed(checkpoint)
        taken.append({name for name, _, _ in files if name.endswith(".sst")})
    assert taken[0] < taken[1] < taken[2]


def test_a_store_that_a_full_disk_has_broken_is_not_used_again(tmp_path: Path, disk: SmallFilesystem) -> None:
    held = Held("rocksdb", disk.path)
    answer(held.step, as_elements([(f"key {n}", n, 0) for n in range(200)]))
    kept = held.capture(1)
    held.backend.completed(1)
    answer(held.step, as_elements([(f"other {n}", n, 0) for n in range(200)]))
    disk.fill()
    with pytest.raises(RunError, match=rf"the store in {held.folder} has failed: .*No space left.*; see --temp_dir"):
        held.capture(2)
    assert {path.name for path in held.folder.iterdir()} == {"db"}
    disk.make_room()
    with pytest.raises(RunError, match="has failed: "):  # it takes nothing, also where there is room again
        held.capture(3)
    held.backend.close()
    assert not held.folder.exists()
    again, sound = (Held("rocksdb", disk.path) for _ in range(2))
    again.restore(kept)
    answer(sound.step, as_elements([(f"key {n}", n, 0) for n in range(200)]))
    assert by_key(answer(again.step, None)) == by_key(answer(sound.step, None))


def test_side_inputs_and_what_waits_for_them_are_captured(tmp_path: Path) -> None:
    for kind in KINDS:
        held, plain = (Held(kind, tmp_path, stateful_with_side) for _ in range(2))
        events = [at_second(("a", 1), 3), at_second(7, 3, SIDE), at_second(("b", 1), 12), Watermark(10_000_000, SIDE)]
        for checkpoint, happens in enumerate(events, 1):
            answer(held.step, happens)
            answer(plain.step, happens)
            files = held.capture(checkpoint)
            held.backend.completed(checkpoint)
        again = Held(kind, tmp_path, stateful_with_side)
        again.restore(files)
        for later in (at_second(("a", 1), 4), None):
            assert by_key(answer(again.step, later)) == by_key(answer(plain.step, later))


class Unreadable(Operator):
    """Has put some of its state on a disk that fails, for now."""

    def __init__(self) -> None:
        self.fails = True

    def snapshot(self, keys: Any = None) -> Any:
        if self.fails:
            raise OSError(5, "Input/output error")
        return "read"


@pytest.mark.parametrize("whole", [False, True], ids=["checkpoint", "savepoint"])
def test_a_capture_that_fails_takes_nothing_from_the_next_one(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiered, "MAX_SYNCHRONOUS", 0)
    held = Held("rocksdb", tmp_path, stateful_with_side)
    waits, paged = held.step, held.step.inner  # type: ignore[attr-defined]
    for event in (at_second(("a", 1), 3), at_second(7, 3, SIDE), at_second(("b", 1), 12), Watermark(10_000_000, SIDE)):
        answer(held.step, event)
    held.steps["unreadable"] = unreadable = Unreadable()
    with pytest.raises(OSError, match="Input/output"):
        held.capture(1, whole=whole)
    assert paged.capture is None, "what was begun goes on"
    with monkeypatch.context() as patch:
        patch.setattr(type(waits._waiting), "snapshot", Unreadable().snapshot)
        with pytest.raises(OSError, match="Input/output"):
            held.capture(2, whole=whole)
    assert by_keys(paged.snapshot()), "keys are left out of a snapshot by whoever asks"
    unreadable.fails = False
    files = held.capture(3, whole=whole)
    again = Held("rocksdb", tmp_path, stateful_with_side)
    again.restore(files)
    for later in (at_second(("a", 1), 4), None):
        assert by_key(answer(again.step, later)) == by_key(answer(held.step, later))


def test_a_file_that_breaks_off_or_is_damaged_is_refused(tmp_path: Path) -> None:
    held = Held("sliced", tmp_path)
    answer(held.step, as_elements([("a", 1, 0)]))
    ((name, size, check),) = held.capture(1)
    data = held.disk.read(name)
    for damaged in (data[:-1], data[:40] + b"?" + data[41:], b""):
        held.disk.write(name, damaged)
        with pytest.raises(RunError, match="damaged"):
            read_states([(name, size, check)], held.disk.read)
    held.disk.delete(name)
    with pytest.raises(RunError, match="can't be read"):
        read_states([(name, size, check)], held.disk.read)


def test_a_child_that_fails_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    held = Held("forked", tmp_path)
    answer(held.step, Elements(((("a", lambda: None), 0, (GLOBAL_WINDOW,)),)))  # can't be pickled
    capture = held.backend.capture(1, "chk-1/0.0.1.state", whole=False)
    with pytest.raises(UnpicklableState, match=r"Can't (pickle|get) local object"):
        awaited(capture)
    assert list(held.folder.iterdir()) == []


def test_a_capture_that_is_abandoned_leaves_nothing(tmp_path: Path) -> None:
    held = Held("forked", tmp_path)
    answer(held.step, as_elements([("a", 1, 0)]))
    capture: Any = held.backend.capture(1, "chk-1/0.0.1.state", whole=False)
    child = capture.inner._child
    capture.abandon()
    assert list(held.folder.iterdir()) == []
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


@pytest.mark.parametrize("size", [1, 40_000])
@pytest.mark.parametrize("kind", ["forked", "sliced", "rocksdb"])
def test_state_is_the_users_alone_whatever_its_size(kind: Kind, size: int, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        held = Held(kind, tmp_path)
        files: Any = held.backend
        files._files._storage = LocalStorage(held.disk.root)  # as a job has it
        answer(held.step, as_elements([(str(n), n, 0) for n in range(size)]))
        held.capture(1)
        answer(held.step, as_elements([("a", 1, 0)]))
        held.capture(2, whole=True)
    finally:
        os.umask(before)
    kept = [path for path in held.disk.root.rglob("*") if path.is_file()]
    assert kept
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


def test_nothing_is_forked_where_other_threads_run(tmp_path: Path) -> None:
    held = Held("forked", tmp_path)
    answer(held.step, as_elements([("a", 1, 0)]))
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        capture: Any = held.backend.capture(1, "chk-1/0.0.1.state", whole=False)
        assert not isinstance(capture.inner, ForkedWriter)
        awaited(capture)
    finally:
        over.set()
        thread.join()
    forked: Any = held.backend.capture(2, "chk-2/0.0.1.state", whole=True)
    assert isinstance(forked, ForkedWriter)
    awaited(forked)


def test_the_child_has_no_descriptor_but_its_file(tmp_path: Path) -> None:
    """An inherited descriptor would keep the peer from noticing that this process has died."""
    held = Held("forked", tmp_path)
    here, there = os.pipe()
    answer(held.step, Elements(((("a", Descriptors(there)), 0, (GLOBAL_WINDOW,)),)))
    files = held.capture(1)
    (opened,) = read_states(files, held.disk.read)["step"].tables["cell/last"][GLOBAL_WINDOW].values()
    assert opened == "closed"
    os.close(here)
    os.close(there)


class Descriptors:
    """Pickles as whether a descriptor is open where it is pickled."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> Any:
        try:
            os.fstat(self.descriptor)
        except OSError:
            return str, ("closed",)
        return str, ("open",)
