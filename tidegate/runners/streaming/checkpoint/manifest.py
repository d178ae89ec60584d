"""What a checkpoint consists of, as text that is written last: whoever can read a manifest whole has all of it.

It is JSON, with a checksum over the body and a version of the format. It names every step whose state it holds, the
files of each task, every source's splits and how far they are read, and what the sinks prepared and may yet have to
commit. Nothing here unpickles anything.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar
from zlib import crc32

from tidegate.runners.streaming.checkpoint.metrics_codec import metrics_in, metrics_out
from tidegate.runners.streaming.checkpoint.tracker import Kept
from tidegate.runners.streaming.model.step_state import StepFacts
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.worker_messages import AssignedSplit, SplitProgress, StateHandle
from tidegate.runners.streaming.storage.base import Storage
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import RunError, shorten, unusable
from tidegate.sdk.metrics import MetricCells

FORMAT: Final = 1

T = TypeVar("T")


class ManifestError(RunError):
    """A manifest, or what it stands for, that can't be used: torn, damaged, or of another version."""


@dataclass(frozen=True, slots=True)
class TaskPart:
    """One task's part: one of `parallelism` of its stage. `ended`: it had come to the end of its input."""

    task: TaskId
    parallelism: int
    ended: bool
    handle: StateHandle | None
    splits: tuple[SplitProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """Output that became final with a checkpoint, and may not have been committed: by the sink's label."""

    step: str
    run: str
    checkpoint: int | None
    committables: tuple[Committable, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint as data. `taken` in µs since 1970. `final`: all input had ended, nothing follows. `counted`: the
    metrics of tasks that have no files here, for they were over before."""

    job: str
    run: str
    epoch: int
    checkpoint: int
    kind: Literal["checkpoint", "savepoint"]
    taken: int
    max_parallelism: int
    backend: str
    final: bool
    steps: tuple[StepFacts, ...]
    tasks: tuple[TaskPart, ...]
    lists: Mapping[str, tuple[AssignedSplit, ...]]
    commits: tuple[PendingCommit, ...] = ()
    counted: MetricCells = field(default_factory=MetricCells)

    @property
    def folder(self) -> str:
        """Where its files are, unless it builds on others."""
        return folder_of(self.checkpoint)

    @property
    def name(self) -> str:
        """Its own name, within the checkpoint directory."""
        return f"{self.folder}/manifest.json"

    def files(self) -> Iterator[tuple[str, int, int]]:
        """Name, size and CRC-32 of every file of tasks that it needs, each once."""
        seen: set[str] = set()
        for part in self.tasks:
            for file in part.handle.files if part.handle is not None else ():
                if file[0] not in seen:
                    seen.add(file[0])
                    yield file

    @property
    def kept(self) -> Kept:
        """Its number and all its files, itself among them."""
        return Kept(self.checkpoint, frozenset({self.name, *(name for name, _, _ in self.files())}))


def folder_of(checkpoint: int) -> str:
    """The folder of a checkpoint."""
    return f"chk-{checkpoint:06}"


# -- as text


def dumps(manifest: Manifest) -> bytes:
    """As JSON. ManifestError for a position or a committable that JSON can't hold."""
    m = manifest
    try:
        lists = {label: [_split_out(split) for split in splits] for label, splits in m.lists.items()}
        body = {
            "job": m.job,
            "run": m.run,
            "epoch": m.epoch,
            "checkpoint": m.checkpoint,
            "kind": m.kind,
            "taken": m.taken,
            "max_parallelism": m.max_parallelism,
            "backend": m.backend,
            "final": m.final,
            "steps": [
                {"name": s.name, "label": s.label, "kind": s.kind, "role": s.role, "state": s.state, "stage": s.stage}
                for s in m.steps
            ],
            "tasks": [_task_out(part) for part in m.tasks],
            "splits": lists,
            "commits": [_commit_out(commit) for commit in m.commits],
            "counted": metrics_out(m.counted),
        }
        body = json.loads(json.dumps(body))  # as it will be read, so that the checksum is of that
    except (TypeError, ValueError) as error:
        raise ManifestError(
            f"checkpoint {m.checkpoint} can't be written: {error}; positions of readers and payloads of committables "
            "are numbers, strings, lists and dicts of them"
        ) from None
    return json.dumps({"tidegate": FORMAT, "crc32": _check(body), "body": body}, indent=1).encode()


def loads(data: bytes) -> Manifest:
    """The manifest back. ManifestError says what is wrong with one that is torn, damaged or of another version."""
    try:
        return _read(_Reader(_body(data), "manifest"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ManifestError(f"the manifest is inconsistent: {error}") from None


def _read(read: _Reader) -> Manifest:
    steps = tuple(
        StepFacts(
            step.get("name", str),
            step.get("label", str),
            step.get("kind", str),
            step.choice("role", ("source", "stateful", "sink", "plain")),
            step.get("state", str),
            step.get("stage", int),
        )
        for step in read.parts("steps")
    )
    lists = read.get("splits", dict)
    return Manifest(
        read.get("job", str),
        read.get("run", str),
        read.get("epoch", int),
        read.get("checkpoint", int),
        read.choice("kind", ("checkpoint", "savepoint")),
        read.get("taken", int),
        read.get("max_parallelism", int),
        read.get("backend", str),
        read.get("final", bool),
        steps,
        tuple(_task_in(part) for part in read.parts("tasks")),
        {
            label: tuple(_split_in(_Reader(split, f"splits of {label!r}")) for split in splits)
            for label, splits in lists.items()
        },
        tuple(_commit_in(commit) for commit in read.parts("commits")),
        _counted_in(read.get("counted", dict)),
    )


def _body(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"the manifest is torn or damaged: {error}") from None
    if not isinstance(document, dict) or "tidegate" not in document:
        raise ManifestError("this is no manifest of a checkpoint")
    if document["tidegate"] != FORMAT:
        raise ManifestError(
            f"the manifest has format {shorten(document['tidegate'])}, and this version of Tidegate reads {FORMAT}: "
            "run it with the version that wrote it"
        )
    body = document.get("body")
    if not isinstance(body, dict) or document.get("crc32") != _check(body):
        raise ManifestError("the manifest is damaged: its checksum is another")
    return body


def _check(body: dict[str, Any]) -> int:
    return crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


class _Reader:
    """A JSON object whose fields are looked at as they are taken."""

    def __init__(self, value: Any, what: str) -> None:
        if not isinstance(value, dict):
            raise ManifestError(f"the manifest is inconsistent: {what} has {shorten(value, 60)}, not an object")
        self._value = value
        self._what = what

    def get(self, name: str, kind: type[T]) -> T:
        value = self._value.get(name)
        if type(value) is not kind:
            raise ManifestError(
                f"the manifest is inconsistent: {name!r} of {self._what} is {shorten(value, 60)}, not {kind.__name__}"
            )
        return value

    def any(self, name: str) -> Any:
        return self._value.get(name)

    def choice(self, name: str, choices: tuple[T, ...]) -> T:
        value = self._value.get(name)
        if value not in choices:
            raise ManifestError(f"the manifest is inconsistent: {name!r} of {self._what} is {shorten(value, 60)}")
        return value

    def parts(self, name: str) -> Iterator[_Reader]:
        for part in self.get(name, list):
            yield _Reader(part, name)


def _task_out(part: TaskPart) -> dict[str, Any]:
    return {
        "stage": part.task.stage,
        "index": part.task.index,
        "parallelism": part.parallelism,
        "ended": part.ended,
        "files": None if part.handle is None else [list(file) for file in part.handle.files],
        "progress": [
            {"step": p.step, "finished": list(p.finished), "current": [[id, position] for id, position in p.current]}
            for p in part.splits
        ],
    }


def _task_in(read: _Reader) -> TaskPart:
    files = read.any("files")
    return TaskPart(
        TaskId(read.get("stage", int), read.get("index", int)),
        read.get("parallelism", int),
        read.get("ended", bool),
        None if files is None else StateHandle(tuple(_file_in(file) for file in read.get("files", list))),
        tuple(
            SplitProgress(
                p.get("step", str), tuple(p.get("finished", list)), tuple(map(_pair_in, p.get("current", list)))
            )
            for p in read.parts("progress")
        ),
    )


def _file_in(value: Any) -> tuple[str, int, int]:
    match value:
        case [str(name), int(size), int(check)]:
            return name, size, check
    raise ManifestError(f"the manifest is inconsistent: a task's file is {shorten(value, 60)}")


def _pair_in(value: Any) -> tuple[str, Any]:
    match value:
        case [str(id), position]:
            return id, position
    raise ManifestError(f"the manifest is inconsistent: a split's position is {shorten(value, 60)}")


def _split_out(split: AssignedSplit) -> dict[str, Any]:
    return {"id": split.id, "size": split.size, "payload": b64encode(split.payload).decode()}


def _split_in(read: _Reader) -> AssignedSplit:
    size = read.any("size")
    return AssignedSplit(
        read.get("id", str), b64decode(read.get("payload", str)), None if size is None else read.get("size", int)
    )


def _commit_out(commit: PendingCommit) -> dict[str, Any]:
    return {
        "step": commit.step,
        "run": commit.run,
        "checkpoint": commit.checkpoint,
        "committables": [{"order": list(c.order), "payload": c.payload} for c in commit.committables],
    }


def _commit_in(read: _Reader) -> PendingCommit:
    checkpoint = read.any("checkpoint")
    return PendingCommit(
        read.get("step", str),
        read.get("run", str),
        None if checkpoint is None else read.get("checkpoint", int),
        tuple(_committable_in(part) for part in read.parts("committables")),
    )


def _counted_in(told: dict[str, Any]) -> MetricCells:
    try:
        return metrics_in(told)
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"the manifest is inconsistent: what was counted can't be read ({error})") from None


def _committable_in(read: _Reader) -> Committable:
    match read.any("order"):
        case [int(task), int(sequence)]:
            return Committable((task, sequence), read.any("payload"))
        case order:
            raise ManifestError(f"the manifest is inconsistent: the order of a committable is {shorten(order, 60)}")


# -- in a directory


def latest(storage: Storage, *, thorough: bool = False) -> tuple[Manifest | None, list[str]]:
    """The newest checkpoint that is whole, None if there is none; and for each newer one what is wrong with it.

    Whole: its manifest can be read, and all files it names are there (`thorough`: and have their size and checksum).
    A manifest of an epoch that a later one has passed by, because it began from an earlier checkpoint, does not count.
    ManifestError when there are checkpoints, and none is whole: to begin anew would lose what they hold. So when one
    can't be read for another reason than damage: it may well be whole.
    """
    names = set(storage.list(""))
    bases = bases_of(storage, names)
    damaged: list[str] = []
    found: Manifest | None = None
    for number in sorted(numbers(names), reverse=True):
        try:
            manifest = loads(storage.read(f"{folder_of(number)}/manifest.json"))
            if is_passed_by(manifest, bases):
                continue
            check_files(storage, manifest, names, thorough=thorough)
        except (ManifestError, FileNotFoundError) as error:
            damaged.append(f"checkpoint {number} is damaged ({error})")
            continue
        except OSError as error:
            raise ManifestError(
                f"checkpoint {number} can't be read ({unusable(error)}), which does not mean that it is damaged: to go "
                f"on from an earlier one could write again what has been written since. Make it readable, or remove "
                f"{folder_of(number)}"
            ) from error
        found = manifest
        break
    if found is None and damaged:
        raise ManifestError(
            f"no checkpoint can be used: {'; '.join(damaged)}. Give another --checkpoint_dir to begin anew, or "
            "--begin_anew --discard_state to do so there"
        )
    return found, [f"{text}: going on from {found.checkpoint}" for text in damaged if found is not None]


def numbers(names: set[str]) -> list[int]:
    """The checkpoints that have a manifest, of the files of a directory."""
    found = []
    for name in names:
        folder, _, file = name.partition("/")
        if file == "manifest.json" and folder.startswith("chk-") and folder[4:].isdigit():
            found.append(int(folder[4:]))
    return sorted(found)


def check_files(storage: Storage, manifest: Manifest, names: set[str], *, thorough: bool) -> None:
    """ManifestError if a file that a manifest names is missing, or (`thorough`) is not what was written."""
    for name, size, check in manifest.files():
        if name not in names:
            raise ManifestError(f"its file {name} is missing")
        if thorough:
            data = storage.read(name)
            if len(data) != size:
                raise ManifestError(f"its file {name} has {len(data)} bytes, not {size}")
            if crc32(data) != check:
                raise ManifestError(f"its file {name} is damaged: its checksum is another")


def is_passed_by(manifest: Manifest, bases: Mapping[int, int]) -> bool:
    """Whether a later epoch began from an earlier checkpoint, so that this one does not count."""
    return any(epoch > manifest.epoch and manifest.checkpoint > base for epoch, base in bases.items())


def bases_of(storage: Storage, names: set[str]) -> dict[int, int]:
    """By epoch the checkpoint it began from (0: none), as far as that is told. OSError if that can't be read."""
    bases: dict[int, int] = {}
    for name in names:
        folder, _, file = name.partition("/")
        if folder == "epochs" and file.endswith(".base") and file[:-5].isdigit():
            try:
                bases[int(file[:-5])] = int(storage.read(name))
            except (FileNotFoundError, ValueError):
                continue  # torn: whoever wrote it took no checkpoint
    return bases
