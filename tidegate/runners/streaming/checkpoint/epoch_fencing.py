"""Opens a job's checkpoint directory: claims it by an epoch, finds the checkpoint to resume from, fences earlier runs.

A process claims an epoch before it reads the checkpoint that it resumes from. From then on an earlier process of the
job that is still alive is fenced off: it stores nothing more, and so commits nothing more.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from tidegate.runners.streaming.checkpoint.catalog import (
    base_checkpoints,
    checkpoint_numbers,
    is_superseded,
    latest,
)
from tidegate.runners.streaming.checkpoint.job_record import (
    RECORD,
    JobRecord,
    differences,
    read_record,
    record,
    same_pipeline,
)
from tidegate.runners.streaming.checkpoint.manifest import Manifest, ManifestError, folder_of
from tidegate.runners.streaming.checkpoint.manifest_json import dumps, loads
from tidegate.runners.streaming.checkpoint.recovery import Resume, ResumeError, check_names, resumed
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.storage.base import Storage
from tidegate.runners.streaming.storage.factory import open_storage
from tidegate.runners.streaming.storage.local import LocalStorage
from tidegate.sdk.errors import RunError, TidegateError, access_failure
from tidegate.sdk.metrics import MetricCells

_EPOCHS: Final = "epochs"


@dataclass(frozen=True, slots=True)
class Opened:
    """A job with its checkpoint directory. `storage` None: it takes no checkpoints. `notes` are for people.

    `fenced()` returns why this process no longer owns the job, "" if it does, and raises if that can't be known. It is
    called after a manifest is stored, before anything is committed, and before workers are started again.

    `over`: the metrics of a job that has already finished and does not run again; `job` is that job.

    `first`: the number of the first checkpoint, unless the job resumes from one. `leftovers`: files of earlier
    processes that nothing needs. They are removed once this process has a checkpoint.
    """

    job: Job
    resume: Resume | None = None
    epoch: int = 1
    notes: tuple[str, ...] = ()
    storage: Storage | None = None
    fenced: Callable[[], str] = lambda: ""
    over: MetricCells | None = None
    first: int = 1
    leftovers: tuple[str, ...] = ()


def open_job(job: Job, directory: Path, who: str) -> Opened:
    """Open the checkpoint directory that a job's settings name, or one in `directory`, the run's, if they name none.

    ResumeError or ManifestError if the job can't resume from its contents, RunError if a store can't be used.
    """
    own, savepoint = job.settings.checkpoints.directory, job.settings.from_savepoint
    if job.settings.batch:
        given = (("--checkpoint_dir", own), ("--from_savepoint", savepoint), ("--begin_anew", job.settings.begin_anew))
        useless = [flag for flag, value in given if value]
        notes = [f"{flag} is not used: bounded input is read again after a failure" for flag in useless]
        return Opened(job, notes=tuple(notes))
    if own is None:
        storage: Storage = LocalStorage(directory / "checkpoints")
        if savepoint is None:
            return Opened(job, storage=storage)
        manifest = _import(storage, job, savepoint, 1, 1)
        resume = resumed(job, manifest, f"savepoint {savepoint}", retained=[manifest.retained])
        return Opened(job, resume, storage=storage)
    check_names(job.plan)
    with _using(f"checkpoints can't be kept in {own}"):
        return _open_directory(job, open_storage(own), own, who)


def claim_epoch(storage: Storage, who: str) -> int:
    """Claim the next epoch, which fences off the processes with earlier ones."""
    epoch = max(_claimed(storage), default=0) + 1
    while not storage.create(f"{_EPOCHS}/{epoch:06}", json.dumps({"by": who}).encode()):
        epoch += 1
    return epoch


def superseded(storage: Storage, epoch: int, url: str) -> str:
    """Why an epoch is over: a later one has been claimed; "" if none has. Raises if that can't be known."""
    claimed = _claimed(storage)
    last = max(claimed, default=epoch)
    if last > epoch:
        return f"another run has taken over the checkpoints in {url} (its epoch is {last}, this one's {epoch})"
    if epoch not in claimed:
        raise RunError(f"{_EPOCHS}/{epoch:06}, by which the checkpoints in {url} are this run's, is gone")
    return ""


@contextlib.contextmanager
def _using(otherwise: str) -> Iterator[None]:
    """Turn an error of a store into a RunError that begins with `otherwise`."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:  # of a remote store, whatever its client raises
        raise RunError(f"{otherwise}: {access_failure(error)}") from error


def _open_directory(job: Job, storage: Storage, url: str, who: str) -> Opened:
    names = set(storage.list(""))
    known = _known(job, storage, names, url)
    if known is not None and _is_over(known, job):
        return _finished(replace(job, run=known.run, epoch=max(_claimed(storage), default=1)), known, url)
    # A mismatch is reported before anything is claimed, and no file is removed before the state is restored.
    if known is not None:
        _match(job, storage, url, thorough=False)
    epoch = claim_epoch(storage, who)
    names = set(storage.list(""))
    # An earlier process that is alive may write one more manifest before it notices: leave that number free.
    next = max(checkpoint_numbers(names), default=0) + 1 + _epochs_since_checkpoint(storage, names, epoch)
    notes: list[str] = []
    resume = None
    if known is not None:
        job = replace(job, run=known.run)
        resume, damaged = _match(job, storage, url, thorough=True)
        notes += damaged
    # From here on no checkpoint of an earlier epoch counts, except for the one that this epoch begins from.
    storage.write(f"{_EPOCHS}/{epoch:06}.base", str(0 if resume is None else resume.retained[-1].number).encode())
    storage.write(RECORD, record(job, "running"))
    needed = frozenset[str]().union(*(one.files for one in (() if resume is None else resume.retained)))
    leftovers = _leftovers(names - needed, set() if known is None else _valid_checkpoints(storage))
    savepoint = job.settings.from_savepoint
    if savepoint is not None and resume is None:
        manifest = _import(storage, job, savepoint, epoch, next)
        resume = replace(resumed(job, manifest, f"savepoint {savepoint}", retained=[manifest.retained]), since=1)
        next = manifest.checkpoint + 1
    elif savepoint is not None:
        notes.append(f"--from_savepoint is not used: {url} has later state of this job")
    if resume is not None:
        resume = replace(resume, next=next)
    left = (*leftovers, *storage.unfinished(""))
    fenced = partial(superseded, storage, epoch, url)
    return Opened(replace(job, epoch=epoch), resume, epoch, tuple(notes), storage, fenced, first=next, leftovers=left)


def _known(job: Job, storage: Storage, names: set[str], url: str) -> JobRecord | None:
    """The job to resume; None to begin a new one, because there is none or its state is discarded.

    ResumeError if the directory belongs to another job, ManifestError if it can't be known to which.
    """
    settings = job.settings
    if settings.begin_anew and settings.discard_state:
        with contextlib.suppress(ManifestError):
            if (known := _record(storage)) is not None and known.job == job.id:
                return known  # begun anew already, by a process that has died since
        return None
    known = _record(storage)
    if known is None:
        signs = _signs(storage, names)
        if signs:
            raise ManifestError(
                f"{url} has {signs}, but no {RECORD}, which says whose they are: put it back, or give another "
                "--checkpoint_dir, or --begin_anew --discard_state to give up what is there. (From a savepoint a job "
                "begins by --from_savepoint.)"
            )
        return None
    # A process that has recorded the end, and died before its client knew, is followed by one that ends again.
    if settings.begin_anew and known.job != job.id:
        if known.state != "finished":
            raise ResumeError(
                f"the job in {url} has not finished: to begin anew would lose its state. It goes on without "
                "--begin_anew; --begin_anew --discard_state gives it up"
            )
        return None
    if not _is_over(known, job) and not same_pipeline(known, job.plan):
        raise ResumeError(
            f"{url} holds checkpoints of another pipeline, {known.pipeline!r}, no step of which is in this one: give "
            "another --checkpoint_dir"
        )
    return known


def _is_over(known: JobRecord, job: Job) -> bool:
    """Whether a job has finished before this one was submitted."""
    return known.state == "finished" and known.job != job.id


def _finished(job: Job, known: JobRecord, url: str) -> Opened:
    """A job that has finished does not run again. ResumeError, with the differences, if it was another job."""
    if job.parts and not known.parts:
        raise ResumeError(
            f"the job in {url} has finished, and the version of Tidegate that ran it has not recorded what it was. "
            "Give another --checkpoint_dir, or --begin_anew to run this one there"
        )
    different = differences(known.parts, job.parts)
    if different:
        raise ResumeError(
            f"the job in {url} has finished, and this one is not the same: {different}. Give another --checkpoint_dir, "
            "or --begin_anew to run this one there"
        )
    note = f"the job in {url} has finished: nothing is left to do; --begin_anew runs it again"
    return Opened(job, notes=(note,), over=known.metrics)


def _signs(storage: Storage, names: set[str]) -> str:
    """Signs that a job has used a directory, "" if there are none. An epoch alone is no sign: the process that claimed
    it may have been killed before it did anything."""
    folders = sorted({name.partition("/")[0] for name in names if _OF_CHECKPOINT.match(name)})
    if folders:
        return f"checkpoints ({folders[0]}{f' to {folders[-1]}' if len(folders) > 1 else ''})"
    begun = [epoch for epoch, base in base_checkpoints(storage, names).items() if base]
    return f"{_EPOCHS}/{max(begun):06}.base, of a run that went on from a checkpoint" if begun else ""


def _match(job: Job, storage: Storage, url: str, *, thorough: bool) -> tuple[Resume | None, list[str]]:
    """The newest complete checkpoint, matched to the job; and for each newer one what is wrong with it."""
    manifest, damaged = latest(storage, thorough=thorough)
    if manifest is None:
        return None, damaged
    retained = [older.retained for older in _older(storage, manifest)]
    origin = f"checkpoint {manifest.checkpoint} in {url}"
    return resumed(job, manifest, origin, retained=[*retained, manifest.retained]), damaged


def _older(storage: Storage, manifest: Manifest) -> list[Manifest]:
    """The checkpoints before one, as far as they can be read."""
    found = []
    for number in checkpoint_numbers(set(storage.list(""))):
        if number < manifest.checkpoint:
            with contextlib.suppress(ManifestError, FileNotFoundError):
                found.append(loads(storage.read(f"{folder_of(number)}/manifest.json")))
    return found


def _import(storage: Storage, job: Job, savepoint: str, epoch: int, number: int) -> Manifest:
    """Copy a savepoint into a checkpoint of this job, which can then also recover from it after a failure."""
    source = open_storage(savepoint)
    with _using(f"the savepoint in {savepoint} can't be read"):
        manifest, _ = latest(source, thorough=True)
    if manifest is None:
        raise ResumeError(f"there is no savepoint in {savepoint}")
    resumed(job, manifest, f"savepoint {savepoint}")  # report a mismatch before anything is copied
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
    imported = replace(manifest, job=job.id, run=job.run, epoch=epoch, checkpoint=number, tasks=tasks)
    storage.write(imported.name, dumps(imported))
    return imported


def _record(storage: Storage) -> JobRecord | None:
    try:
        return read_record(storage.read(RECORD))
    except FileNotFoundError:
        return None


def _claimed(storage: Storage) -> list[int]:
    names = (name.rpartition("/")[2] for name in storage.list(_EPOCHS))
    return [int(name) for name in names if name.isdigit()]


def _epochs_since_checkpoint(storage: Storage, names: set[str], epoch: int) -> int:
    """The number of epochs since the newest checkpoint was written."""
    for number in sorted(checkpoint_numbers(names), reverse=True):
        with contextlib.suppress(ManifestError, FileNotFoundError):
            return epoch - loads(storage.read(f"{folder_of(number)}/manifest.json")).epoch
    return epoch - 1


def _valid_checkpoints(storage: Storage) -> set[int]:
    """The checkpoints that have a manifest and are not superseded by a later epoch."""
    names = set(storage.list(""))
    bases, counting = base_checkpoints(storage, names), set()
    for number in checkpoint_numbers(names):
        try:
            is_over = is_superseded(loads(storage.read(f"{folder_of(number)}/manifest.json")), bases)
        except (ManifestError, FileNotFoundError):
            is_over = False  # damaged: kept, so that people can inspect it
        if not is_over:
            counting.add(number)
    return counting


def _leftovers(names: set[str], complete: set[int]) -> list[str]:
    """The files of all other checkpoints. Manifests come first, so that none remains without the files it names."""
    folders = set(map(folder_of, complete))
    left = [name for name in names if _OF_CHECKPOINT.match(name) and name.partition("/")[0] not in folders]
    return sorted(left, key=lambda name: (not name.endswith("/manifest.json"), name))


_OF_CHECKPOINT: Final = re.compile(r"chk-\d+/")
