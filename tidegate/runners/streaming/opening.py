"""How a job's process comes to its checkpoints: whose directory it is, what is in it, and that no other works on it.

A process claims an epoch before it reads what it goes on from. From then on an earlier process of the job, if one
should still live, finds itself fenced off: it stores nothing more, and so commits nothing more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tidegate.runners.streaming.checkpoints import Kept
from tidegate.runners.streaming.job import Job
from tidegate.runners.streaming.manifest import Manifest, ManifestError, dumps, folder_of, latest, loads, numbers
from tidegate.runners.streaming.record import RECORD, Record, read_record, record, same_pipeline
from tidegate.runners.streaming.resume import Resume, ResumeError, check_names, resumed
from tidegate.runners.streaming.storage import LocalStorage, open_storage
from tidegate.runners.streaming.world import Storage
from tidegate.sdk.errors import RunError, TidegateError

_EPOCHS: Final = "epochs"


@dataclass(frozen=True, slots=True)
class Opened:
    """A job with the checkpoints it has; `notes` for people. `storage` None: it keeps none.

    `fenced()` says why the job is this process's no more, "" as long as it is: to be asked after a manifest is stored,
    before anything is committed, and before workers are started again.
    """

    job: Job
    resume: Resume | None = None
    epoch: int = 1
    notes: tuple[str, ...] = ()
    storage: Storage | None = None
    fenced: Callable[[], str] = lambda: ""


def open_job(job: Job, directory: Path, who: str) -> Opened:
    """Open what a job's settings name. `directory`: the run's own, for a job that keeps its checkpoints nowhere else.

    ResumeError or ManifestError if what is there can't be gone on from, RunError if a store can't be used.
    """
    own, savepoint = job.settings.checkpoints.directory, job.settings.from_savepoint
    if job.settings.batch:
        useless = [flag for flag, given in (("--checkpoint_dir", own), ("--from_savepoint", savepoint)) if given]
        notes = [f"{flag} is not used: bounded input is read again after a failure" for flag in useless]
        return Opened(job, notes=tuple(notes))
    if own is None:
        storage: Storage = LocalStorage(directory / "checkpoints")
        if savepoint is None:
            return Opened(job, storage=storage)
        manifest = _import(storage, job, savepoint, 1, 1)
        resume = resumed(job, manifest, f"savepoint {savepoint}", kept=[manifest.kept])
        return Opened(job, resume, storage=storage)
    check_names(job.plan)
    with _using(f"checkpoints can't be kept in {own}"):
        return _open_directory(job, open_storage(own), own, who)


def claim_epoch(storage: Storage, who: str) -> int:
    """Take the next number; nobody else gets it, and whoever had one before finds out."""
    epoch = max(_claimed(storage), default=0) + 1
    while not storage.create(f"{_EPOCHS}/{epoch:06}", json.dumps({"by": who}).encode()):
        epoch += 1
    return epoch


def superseded(storage: Storage, epoch: int, url: str) -> str:
    """Why an epoch is over: a later one has been claimed. "" if none has."""
    last = max(_claimed(storage), default=epoch)
    if last <= epoch:
        return ""
    return f"another run has taken over the checkpoints in {url} (its epoch is {last}, this one's {epoch})"


@contextlib.contextmanager
def _using(otherwise: str) -> Iterator[None]:
    """RunError, which says it in these words and why, if a store raises."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:  # of a remote store, whatever its client raises
        why = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
        raise RunError(f"{otherwise}: {why}") from error


def _open_directory(job: Job, storage: Storage, url: str, who: str) -> Opened:
    known = _record(storage)
    if known is not None and not same_pipeline(known, job.plan):
        raise ResumeError(
            f"{url} holds checkpoints of another pipeline, {known.pipeline!r}, no step of which is in this one: give "
            "another --checkpoint_dir"
        )
    # A process that has recorded the end and died before its client heard of it is followed by one that ends again.
    anew = known is None or (known.state == "finished" and known.job != job.id)
    if not anew:  # what does not fit is said before anything is claimed
        _match(job, storage, url, thorough=False)
    epoch = claim_epoch(storage, who)
    notes: list[str] = []
    names = set(storage.list(""))
    # An earlier process that still lives may write one manifest more before it finds out: its number is left free.
    next = max(numbers(names), default=0) + 1 + _passed_by(storage, names, epoch)
    resume = None
    if known is not None and not anew:
        job = replace(job, run=known.run)
        resume, damaged = _match(job, storage, url, thorough=True)
        notes += damaged
    elif known is not None:
        notes.append(f"the job in {url} has finished: beginning anew")
        _delete(storage, (name for name in names if name.startswith("chk-")))
    savepoint = job.settings.from_savepoint
    if savepoint is not None and resume is None:
        manifest = _import(storage, job, savepoint, epoch, next)
        resume = replace(resumed(job, manifest, f"savepoint {savepoint}", kept=[manifest.kept]), since=1)
        next = manifest.checkpoint + 1
    elif savepoint is not None:
        notes.append(f"--from_savepoint is not used: {url} has later state of this job")
    base = 0 if resume is None else resume.kept[-1].number
    storage.write(f"{_EPOCHS}/{epoch:06}.base", str(base).encode())
    storage.write(RECORD, record(job, "running"))
    if resume is not None:
        resume = replace(resume, next=next)
        _delete(storage, _leftovers(names, resume.kept))
    job = replace(job, epoch=epoch)
    return Opened(job, resume, epoch, tuple(notes), storage, lambda: superseded(storage, epoch, url))


def _match(job: Job, storage: Storage, url: str, *, thorough: bool) -> tuple[Resume | None, list[str]]:
    """The newest whole checkpoint, matched to the job; and what is said of newer ones that are not whole."""
    manifest, damaged = latest(storage, thorough=thorough)
    if manifest is None:
        return None, damaged
    kept = [older.kept for older in _older(storage, manifest)]
    origin = f"checkpoint {manifest.checkpoint} in {url}"
    return resumed(job, manifest, origin, kept=[*kept, manifest.kept]), damaged


def _older(storage: Storage, manifest: Manifest) -> list[Manifest]:
    """The checkpoints before one, as far as they can be read."""
    found = []
    for number in numbers(set(storage.list(""))):
        if number < manifest.checkpoint:
            with contextlib.suppress(ManifestError, OSError):
                found.append(loads(storage.read(f"{folder_of(number)}/manifest.json")))
    return found


def _import(storage: Storage, job: Job, savepoint: str, epoch: int, number: int) -> Manifest:
    """Make a savepoint a checkpoint of this job: from there it goes on after a failure, too."""
    source = open_storage(savepoint)
    with _using(f"the savepoint in {savepoint} can't be read"):
        manifest, _ = latest(source, thorough=True)
    if manifest is None:
        raise ResumeError(f"there is no savepoint in {savepoint}")
    resumed(job, manifest, f"savepoint {savepoint}")  # said before anything is copied
    renamed = {name: f"{folder_of(number)}/{name.replace('/', '.')}" for name, _, _ in manifest.files()}
    for name, target in renamed.items():
        with _using(f"the savepoint in {savepoint} can't be read"):
            data = source.read(name)
        storage.write(target, data)
    tasks = tuple(
        part
        if part.handle is None
        else replace(
            part, handle=replace(part.handle, files=tuple((renamed[f[0]], f[1], f[2]) for f in part.handle.files))
        )
        for part in manifest.tasks
    )
    own = replace(manifest, job=job.id, run=job.run, epoch=epoch, checkpoint=number, tasks=tasks)
    storage.write(own.name, dumps(own))
    return own


def _record(storage: Storage) -> Record | None:
    try:
        return read_record(storage.read(RECORD))
    except FileNotFoundError:
        return None


def _claimed(storage: Storage) -> list[int]:
    names = (name.rpartition("/")[2] for name in storage.list(_EPOCHS))
    return [int(name) for name in names if name.isdigit()]


def _passed_by(storage: Storage, names: set[str], epoch: int) -> int:
    """How many epochs there have been since the newest checkpoint was written."""
    for number in sorted(numbers(names), reverse=True):
        with contextlib.suppress(ManifestError, OSError):
            return epoch - loads(storage.read(f"{folder_of(number)}/manifest.json")).epoch
    return epoch - 1


def _leftovers(names: set[str], kept: Iterable[Kept]) -> list[str]:
    """Files of checkpoints that were never completed. What has a manifest stays, also if it is damaged."""
    needed = frozenset[str]().union(*(one.files for one in kept))
    complete = {folder_of(number) for number in numbers(names)}
    return [
        name for name in sorted(names - needed) if name.startswith("chk-") and name.partition("/")[0] not in complete
    ]


def _delete(storage: Storage, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):  # what stays is in nobody's way
            storage.delete(name)
