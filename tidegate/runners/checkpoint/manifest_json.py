"""Manifests as JSON, with a format version and a checksum of the body. Reading a manifest unpickles nothing."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, Final, TypeVar
from zlib import crc32

from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, PendingCommit, TaskPart
from tidegate.runners.checkpoint.metrics_codec import metrics_in, metrics_out
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress, StateHandle
from tidegate.runners.checkpoint.step_state import StepFacts
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.sinks.staged_files import InStorage, stored_files
from tidegate.runners.engine.sources.enumerator_state import PackedState
from tidegate.sdk.connectors.sinks import Committable, StagedFile
from tidegate.sdk.errors import shorten
from tidegate.sdk.metrics import MetricCells

FORMAT: Final = 3
"""Format 1 had no staged files, and one commit for all tasks of a sink; format 2 no packed states of enumerators."""
_READABLE: Final = (1, 2, FORMAT)

T = TypeVar("T")


def dumps(manifest: Manifest) -> bytes:
    """Convert a manifest to JSON. Raises ManifestError if JSON can't represent a read position or a committable."""
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
            "enumerators": {label: _enumerator_out(state) for label, state in m.enumerators.items()},
            "finished": dict(m.finished),
            "commits": [_commit_out(commit) for commit in m.commits],
            "counted": metrics_out(m.counted),
        }
        body = json.loads(json.dumps(body))  # the checksum must be that of the body as read back
    except (TypeError, ValueError) as error:
        raise ManifestError(
            f"checkpoint {m.checkpoint} can't be written: {error}; positions of readers, states of enumerators and "
            "payloads of committables are numbers, strings, lists and dicts of them"
        ) from None
    return json.dumps({"tidegate": FORMAT, "crc32": _crc32_of(body), "body": body}, indent=1).encode()


def loads(data: bytes) -> Manifest:
    """Parse a manifest that `dumps` wrote. Raises ManifestError if it is torn, damaged or of another version."""
    try:
        return _manifest_in(_Reader(_body(data), "manifest"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ManifestError(f"the manifest is inconsistent: {error}") from None


def _manifest_in(read: _Reader) -> Manifest:
    return Manifest(
        job=read.get("job", str),
        run=read.get("run", str),
        epoch=read.get("epoch", int),
        checkpoint=read.get("checkpoint", int),
        kind=read.choice("kind", ("checkpoint", "savepoint")),
        taken=read.get("taken", int),
        max_parallelism=read.get("max_parallelism", int),
        backend=read.get("backend", str),
        final=read.get("final", bool),
        steps=tuple(map(_step_in, read.parts("steps"))),
        tasks=tuple(map(_task_in, read.parts("tasks"))),
        lists={
            label: tuple(_split_in(_Reader(split, f"splits of {label!r}")) for split in splits)
            for label, splits in read.get("splits", dict).items()
        },
        commits=tuple(map(_commit_in, read.parts("commits"))),
        counted=_metrics_in(read.get("counted", dict)),
        enumerators={
            label: _enumerator_in(_Reader(state, f"enumerators of {label!r}"))
            for label, state in read.get("enumerators", dict, {}).items()
        },
        finished=dict(read.get("finished", dict, {})),
    )


def _body(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"the manifest is torn or damaged: {error}") from None
    if not isinstance(document, dict) or "tidegate" not in document:
        raise ManifestError("this is not the manifest of a checkpoint")
    if document["tidegate"] not in _READABLE:
        raise ManifestError(
            f"the manifest has format {shorten(document['tidegate'])}, and this version of Tidegate reads "
            f"{_READABLE[0]} to {FORMAT}: "
            "run it with the version that wrote it"
        )
    body = document.get("body")
    if not isinstance(body, dict) or document.get("crc32") != _crc32_of(body):
        raise ManifestError("the manifest is damaged: checksum mismatch")
    return body


def _crc32_of(body: dict[str, Any]) -> int:
    return crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


class _Reader:
    """Reads the fields of a JSON object and checks their types. `what` names the object in error messages."""

    def __init__(self, value: Any, what: str) -> None:
        if not isinstance(value, dict):
            raise ManifestError(f"the manifest is inconsistent: {what} has {shorten(value, 60)}, not an object")
        self._value = value
        self._what = what

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """The field of that name and type; `default` is for a field that older manifests don't have."""
        value = self._value.get(name, default)
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


def _step_in(read: _Reader) -> StepFacts:
    return StepFacts(
        name=read.get("name", str),
        label=read.get("label", str),
        kind=read.get("kind", str),
        role=read.choice("role", ("source", "stateful", "sink", "plain")),
        state=read.get("state", str),
        stage=read.get("stage", int),
    )


def _task_in(read: _Reader) -> TaskPart:
    files = read.any("files")
    return TaskPart(
        task=TaskId(read.get("stage", int), read.get("index", int)),
        parallelism=read.get("parallelism", int),
        ended=read.get("ended", bool),
        handle=None if files is None else StateHandle(tuple(map(_file_in, read.get("files", list)))),
        splits=tuple(map(_progress_in, read.parts("progress"))),
    )


def _progress_in(read: _Reader) -> SplitProgress:
    return SplitProgress(
        step=read.get("step", str),
        finished=tuple(read.get("finished", list)),
        current=tuple(map(_position_in, read.get("current", list))),
    )


def _file_in(value: Any) -> tuple[str, int, int]:
    match value:
        case [str(name), int(size), int(crc)]:
            return name, size, crc
    raise ManifestError(f"the manifest is inconsistent: a file is {shorten(value, 60)}")


def _position_in(value: Any) -> tuple[str, Any]:
    match value:
        case [str(id), position]:
            return id, position
    raise ManifestError(f"the manifest is inconsistent: a split's position is {shorten(value, 60)}")


def _split_out(split: AssignedSplit) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": split.id, "size": split.size, "payload": b64encode(split.payload).decode()}
    if split.bounded is not None:
        fields["bounded"] = split.bounded
    if split.late:
        fields["late"] = True
    return fields


def _split_in(read: _Reader) -> AssignedSplit:
    size = read.any("size")
    return AssignedSplit(
        id=read.get("id", str),
        payload=b64decode(read.get("payload", str)),
        size=None if size is None else read.get("size", int),
        bounded=None if read.any("bounded") is None else read.get("bounded", bool),
        late=read.get("late", bool, False),
    )


def _enumerator_out(enumerator: EnumeratorState) -> dict[str, Any]:
    fields = {"backlog": enumerator.backlog, "ended": enumerator.ended}
    if isinstance(enumerator.state, PackedState):
        return {"packed": b64encode(enumerator.state.data).decode(), **fields}
    return {"state": enumerator.state, **fields}


def _enumerator_in(read: _Reader) -> EnumeratorState:
    state = read.any("state") if read.any("packed") is None else PackedState(b64decode(read.get("packed", str)))
    return EnumeratorState(state=state, backlog=read.get("backlog", bool), ended=read.get("ended", bool))


def _commit_out(commit: PendingCommit) -> dict[str, Any]:
    return {
        "step": commit.step,
        "run": commit.run,
        "checkpoint": commit.checkpoint,
        "task": commit.task,
        "sink": commit.sink,
        "committables": [_committable_out(committable) for committable in commit.committables],
    }


def _committable_out(committable: Committable) -> dict[str, Any]:
    staged = zip(committable.files, stored_files([committable]), strict=True)
    return {
        "order": list(committable.order),
        "payload": committable.payload,
        "files": [{"name": file.name, "stored": list(stored)} for file, stored in staged],
    }


def _commit_in(read: _Reader) -> PendingCommit:
    checkpoint, task = read.any("checkpoint"), read.any("task")
    return PendingCommit(
        step=read.get("step", str),
        run=read.get("run", str),
        checkpoint=None if checkpoint is None else read.get("checkpoint", int),
        committables=tuple(map(_committable_in, read.parts("committables"))),
        task=None if task is None else read.get("task", int),
        sink=read.get("sink", str, ""),
    )


def _metrics_in(fields: dict[str, Any]) -> MetricCells:
    try:
        return metrics_in(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"the manifest is inconsistent: its metrics can't be read ({error})") from None


def _committable_in(read: _Reader) -> Committable:
    match read.any("order"):
        case [int(task), int(sequence)]:
            files = () if read.any("files") is None else tuple(map(_staged_in, read.parts("files")))
            return Committable((task, sequence), read.any("payload"), files)
        case order:
            raise ManifestError(f"the manifest is inconsistent: the order of a committable is {shorten(order, 60)}")


def _staged_in(read: _Reader) -> StagedFile:
    stored = _file_in(read.any("stored"))
    return StagedFile(read.get("name", str), stored[1], InStorage(stored))
