"""Opens a job's checkpoint directory: claims an epoch, fences earlier processes, finds the last checkpoint.

A process claims an epoch before it reads the checkpoint that it resumes from. The claim fences off an earlier process
of the job that is still alive: that process can complete no further checkpoint, and so commits no further output.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from tidegate.runners.checkpoint.catalog import (
    base_checkpoints,
    checkpoint_numbers,
    is_superseded,
    latest,
)
from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, folder_of
from tidegate.runners.checkpoint.manifest_json import dumps, loads
from tidegate.runners.checkpoint.matching import ResumeError, check_names
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.engine.sinks.staged_files import stored_as, stored_files
from tidegate.runners.streaming.checkpoint.job_record import (
    RECORD,
    JobRecord,
    differences,
    read_record,
    record,
    same_pipeline,
)
from tidegate.runners.streaming.checkpoint.recovery import Resume, resumed
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.state.staging import attempt_of
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.connectors.slow_answers import told_if_slow
from tidegate.sdk.errors import RunError, TidegateError, access_failure
from tidegate.sdk.metrics import MetricCells

_EPOCHS: Final = "epochs"


@dataclass(frozen=True, slots=True)
class Opened:
    """A job with its opened checkpoint directory. `storage` None: the job takes no checkpoints.

    `notes`: messages for the author. `fenced()` returns the reason why this process no longer owns the job, "" if it
    owns it, and raises if ownership can't be determined. It is called after a manifest is stored, before anything is
    committed, and before workers are restarted.

    `over`: the metrics of the job if it has already finished and does not run again; `job` is that finished job.

    `first`: the number of the first checkpoint, unless the job resumes from one. `leftovers`: files of earlier
    processes that are no longer needed; they are removed once this process has completed a checkpoint.
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
    """Open the checkpoint directory of a job's settings, by default one in `directory`, the run's working directory.

    `who` describes this process in the claim of its epoch. Raises ResumeError or ManifestError if the job can't resume
    from the contents of the directory, RunError if the storage can't be accessed.
    """
    url, savepoint = job.settings.checkpoints.directory, job.settings.from_savepoint
    if job.settings.batch:
        flags = (("--checkpoint_dir", url), ("--from_savepoint", savepoint), ("--begin_anew", job.settings.begin_anew))
        ignored = [flag for flag, value in flags if value]
        notes = [f"{flag} is not used: bounded input is read again after a failure" for flag in ignored]
        return Opened(job, notes=tuple(notes))
    if url is None:
        storage: Storage = LocalStorage(directory / "checkpoints")
        if savepoint is None:
            return Opened(job, storage=storage)
        manifest = _import_savepoint(storage, job, savepoint, 1, 1)
        resume = resumed(job, manifest, f"savepoint {savepoint}", retained=[manifest.retained])
        return Opened(job, resume, storage=storage)
    check_names(job.plan)
    with _storage_errors_as(f"checkpoints can't be kept in {url}"), told_if_slow(url):
        return _open_directory(job, open_storage(url), url, who)


def claim_epoch(storage: Storage, who: str) -> int:
    """Claim the next epoch. This fences off the processes of earlier epochs."""
    epoch = max(_claimed_epochs(storage), default=0) + 1
    while not storage.create(f"{_EPOCHS}/{epoch:06}", json.dumps({"by": who}).encode()):
        epoch += 1
    return epoch


def superseded(storage: Storage, epoch: int, url: str) -> str:
    """Return the reason why an epoch is fenced off: a later one has been claimed; "" if none has.

    Raises an error if that can't be determined: the storage fails, or the epoch's own claim is missing.
    """
    claimed = _claimed_epochs(storage)
    last = max(claimed, default=epoch)
    if last > epoch:
        return f"another run has taken over the checkpoints in {url} (its epoch is {last}, this one's {epoch})"
    if epoch not in claimed:
        raise RunError(f"{_EPOCHS}/{epoch:06}, by which this run owns the checkpoints in {url}, is missing")
    return ""


@contextlib.contextmanager
def _storage_errors_as(prefix: str) -> Iterator[None]:
    """Turn a storage error into a RunError whose message begins with `prefix`."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:  # the client of an object store may raise anything
        raise RunError(f"{prefix}: {access_failure(error)}") from error


def _open_directory(job: Job, storage: Storage, url: str, who: str) -> Opened:
    names = set(storage.list(""))
    known = _job_to_resume(job, storage, names, url)
    if known is not None and _has_finished_before(known, job):
        return _already_finished(
            replace(job, run=known.run, epoch=max(_claimed_epochs(storage), default=1)), known, url
        )
    # Report a mismatch before claiming an epoch; remove no file before the state is restored.
    if known is not None:
        _match_newest(job, storage, url, thorough=False)
    epoch = claim_epoch(storage, who)
    names = set(storage.list(""))
    # An earlier process that is still alive may write one more manifest before it notices the claim: skip its number.
    next_number = max(checkpoint_numbers(names), default=0) + 1 + _epochs_since_checkpoint(storage, names, epoch)
    notes: list[str] = []
    resume = None
    if known is not None:
        job = replace(job, run=known.run)
        resume, damaged = _match_newest(job, storage, url, thorough=True)
        notes += damaged
    # This record supersedes the earlier epochs' checkpoints that are newer than the one this epoch begins from.
    storage.write(f"{_EPOCHS}/{epoch:06}.base", str(0 if resume is None else resume.retained[-1].number).encode())
    storage.write(RECORD, record(job, "running"))
    needed = frozenset[str]().union(*(retained.files for retained in (() if resume is None else resume.retained)))
    leftovers = _leftovers(names - needed, set() if known is None else _valid_checkpoints(storage))
    savepoint = job.settings.from_savepoint
    if savepoint is not None and resume is None:
        manifest = _import_savepoint(storage, job, savepoint, epoch, next_number)
        resume = replace(resumed(job, manifest, f"savepoint {savepoint}", retained=[manifest.retained]), since=1)
        next_number = manifest.checkpoint + 1
    elif savepoint is not None:
        notes.append(f"--from_savepoint is not used: {url} has later state of this job")
    if resume is not None:
        resume = replace(resume, next=next_number)
    leftovers += storage.unfinished("")
    fenced = partial(superseded, storage, epoch, url)
    return Opened(
        replace(job, epoch=epoch),
        resume,
        epoch,
        tuple(notes),
        storage,
        fenced,
        first=next_number,
        leftovers=tuple(leftovers),
    )


def _job_to_resume(job: Job, storage: Storage, names: set[str], url: str) -> JobRecord | None:
    """The job to resume; None to begin a new one, because there is none or because its state is discarded.

    Raises ResumeError if the directory belongs to another job, ManifestError if its owner can't be determined.
    """
    settings = job.settings
    if settings.begin_anew and settings.discard_state:
        with contextlib.suppress(ManifestError):
            if (known := _load_record(storage)) is not None and known.job == job.id:
                return known  # an earlier process of this job began anew and died
        return None
    known = _load_record(storage)
    if known is None:
        traces = _traces(storage, names)
        if traces:
            raise ManifestError(
                f"{url} has {traces}, but no {RECORD}, which records whose they are: put it back, or give another "
                "--checkpoint_dir, or --begin_anew --discard_state to discard the state there. (To start from a "
                "savepoint, give --from_savepoint.)"
            )
        return None
    # A record with this job's id is from an earlier process of the job, which died: go on from it in any case.
    if settings.begin_anew and known.job != job.id:
        if known.state != "finished":
            raise ResumeError(
                f"the job in {url} has not finished: beginning anew would lose its state. Leave out --begin_anew to "
                "resume it; --begin_anew --discard_state discards its state"
            )
        return None
    if not _has_finished_before(known, job) and not same_pipeline(known, job.plan):
        raise ResumeError(
            f"{url} holds checkpoints of another pipeline, {known.pipeline!r}, no step of which is in this one: give "
            "another --checkpoint_dir"
        )
    return known


def _has_finished_before(known: JobRecord, job: Job) -> bool:
    """Return whether the recorded job had finished before this one was submitted."""
    return known.state == "finished" and known.job != job.id


def _already_finished(job: Job, known: JobRecord, url: str) -> Opened:
    """The result for a finished job, which does not run again. Raises ResumeError if this job differs from it."""
    if job.parts and not known.parts:
        raise ResumeError(
            f"the job in {url} has finished, and the version of Tidegate that ran it did not record its fingerprint. "
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


def _traces(storage: Storage, names: set[str]) -> str:
    """Describe the files that a job left in a directory, "" if there are none.

    Claimed epochs alone do not count: the process that claimed it may have died before it did anything else.
    """
    folders = sorted({name.partition("/")[0] for name in names if _CHECKPOINT_FILE.match(name)})
    if folders:
        return f"checkpoints ({folders[0]}{f' to {folders[-1]}' if len(folders) > 1 else ''})"
    resumed_epochs = [epoch for epoch, base in base_checkpoints(storage, names).items() if base]
    if not resumed_epochs:
        return ""
    return f"{_EPOCHS}/{max(resumed_epochs):06}.base, of a run that resumed from a checkpoint"


def _match_newest(job: Job, storage: Storage, url: str, *, thorough: bool) -> tuple[Resume | None, list[str]]:
    """Match the newest complete checkpoint to the job; also returns a warning for each newer one that is damaged."""
    manifest, damaged = latest(storage, thorough=thorough)
    if manifest is None:
        return None, damaged
    retained = [older.retained for older in _earlier_manifests(storage, manifest)]
    origin = f"checkpoint {manifest.checkpoint} in {url}"
    return resumed(job, manifest, origin, retained=[*retained, manifest.retained]), damaged


def _earlier_manifests(storage: Storage, manifest: Manifest) -> list[Manifest]:
    """The readable manifests of earlier checkpoints."""
    found = []
    for number in checkpoint_numbers(set(storage.list(""))):
        if number < manifest.checkpoint:
            with contextlib.suppress(ManifestError, FileNotFoundError):
                found.append(loads(storage.read(f"{folder_of(number)}/manifest.json")))
    return found


def _import_savepoint(storage: Storage, job: Job, savepoint: str, epoch: int, number: int) -> Manifest:
    """Copy a savepoint into the checkpoint directory, as a checkpoint that the job can recover from."""
    source = open_storage(savepoint)
    with _storage_errors_as(f"the savepoint in {savepoint} can't be read"), told_if_slow(savepoint):
        manifest, _ = latest(source, thorough=True)
    if manifest is None:
        raise ResumeError(f"there is no savepoint in {savepoint}")
    resumed(job, manifest, f"savepoint {savepoint}")  # raises for a mismatch, before anything is copied
    renamed = {name: f"{folder_of(number)}/{name.replace('/', '.')}" for name, _, _ in manifest.files()}
    for name, target in renamed.items():
        with _storage_errors_as(f"the savepoint in {savepoint} can't be read"):
            data = source.read(name)
        storage.write(target, data)
    commits = tuple(
        replace(commit, committables=tuple(_renamed(each, renamed) for each in commit.committables))
        for commit in manifest.commits
    )
    tasks = tuple(
        part
        if part.handle is None
        else replace(
            part, handle=replace(part.handle, files=tuple((renamed[f[0]], f[1], f[2]) for f in part.handle.files))
        )
        for part in manifest.tasks
    )
    imported = replace(manifest, job=job.id, run=job.run, epoch=epoch, checkpoint=number, tasks=tasks, commits=commits)
    storage.write(imported.name, dumps(imported))
    return imported


def _renamed(committable: Committable, names: Mapping[str, str]) -> Committable:
    """The committable with its staged files under other names."""
    files = ((names[name], size, crc) for name, size, crc in stored_files([committable]))
    return stored_as(committable, files)


def _load_record(storage: Storage) -> JobRecord | None:
    try:
        return read_record(storage.read(RECORD))
    except FileNotFoundError:
        return None


def _claimed_epochs(storage: Storage) -> list[int]:
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
    bases, valid = base_checkpoints(storage, names), set()
    for number in checkpoint_numbers(names):
        try:
            invalid = is_superseded(loads(storage.read(f"{folder_of(number)}/manifest.json")), bases)
        except (ManifestError, FileNotFoundError):
            invalid = False  # a damaged checkpoint stays, so that it can be inspected
        if not invalid:
            valid.add(number)
    return valid


def _leftovers(names: set[str], valid: set[int]) -> list[str]:
    """The files of invalid checkpoints, manifests first: no manifest may remain after its files are removed. And the
    staged files that no valid checkpoint needs."""
    folders = set(map(folder_of, valid))
    unneeded = [name for name in names if _CHECKPOINT_FILE.match(name) and name.partition("/")[0] not in folders]
    unneeded += [name for name in names if attempt_of(name) is not None]
    return sorted(unneeded, key=lambda name: (not name.endswith("/manifest.json"), name))


_CHECKPOINT_FILE: Final = re.compile(r"chk-\d+/")
