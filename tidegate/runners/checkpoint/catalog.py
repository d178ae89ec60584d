"""Scans a checkpoint directory: lists its checkpoints, verifies their files, and finds the one to restore."""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, folder_of
from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.sdk.errors import access_failure


def latest(storage: Storage, *, thorough: bool = False) -> tuple[Manifest | None, list[str]]:
    """Find the newest complete checkpoint, and a warning for each newer one that is damaged.

    A checkpoint is complete if its manifest can be read and all files it names exist (`thorough`: with the size and
    checksum that the manifest records). Superseded checkpoints are ignored. The checkpoint is None if there is none.
    Raises ManifestError if there are checkpoints but none is complete, since a fresh start would lose their state; and
    if a manifest or file can't be read for a reason other than damage, since that checkpoint may be complete.
    """
    names = set(storage.list(""))
    bases = base_checkpoints(storage, names)
    damaged: list[str] = []
    found: Manifest | None = None
    for number in sorted(checkpoint_numbers(names), reverse=True):
        try:
            manifest = loads(storage.read(f"{folder_of(number)}/manifest.json"))
            if is_superseded(manifest, bases):
                continue
            check_files(storage, manifest, names, thorough=thorough)
        except (ManifestError, FileNotFoundError) as error:
            damaged.append(f"checkpoint {number} is damaged ({error})")
            continue
        except OSError as error:
            raise ManifestError(
                f"checkpoint {number} can't be read ({access_failure(error)}), which does not mean that it is "
                f"damaged: resuming from an earlier one could write output again that has been written since. Make "
                f"it readable, or remove {folder_of(number)}"
            ) from error
        found = manifest
        break
    if found is None and damaged:
        raise ManifestError(
            f"no checkpoint can be used: {'; '.join(damaged)}. Give another --checkpoint_dir to begin anew, or "
            "--begin_anew --discard_state to do so there"
        )
    return found, [f"{text}: resuming from {found.checkpoint}" for text in damaged if found is not None]


def checkpoint_numbers(names: set[str]) -> list[int]:
    """The numbers of the checkpoints that have a manifest, ascending. `names`: all files of the directory.

    >>> checkpoint_numbers({"chk-000007/manifest.json", "chk-000008/0.0.1.state", "job.json"})
    [7]
    """
    found = []
    for name in names:
        folder, _, file = name.partition("/")
        if file == "manifest.json" and folder.startswith("chk-") and folder[4:].isdigit():
            found.append(int(folder[4:]))
    return sorted(found)


def check_files(storage: Storage, manifest: Manifest, names: set[str], *, thorough: bool) -> None:
    """Raise ManifestError if a file of a manifest is missing or, with `thorough`, if its size or checksum differs."""
    for name, size, crc in manifest.files():
        if name not in names:
            raise ManifestError(f"its file {name} is missing")
        if thorough:
            data = storage.read(name)
            if len(data) != size:
                raise ManifestError(f"its file {name} has {len(data)} bytes, not {size}")
            if crc32(data) != crc:
                raise ManifestError(f"its file {name} is damaged: checksum mismatch")


def is_superseded(manifest: Manifest, bases: Mapping[int, int]) -> bool:
    """Return whether a later epoch began from an earlier checkpoint, which makes this one invalid.

    `bases`: the number of the checkpoint that each epoch began from, as `base_checkpoints` returns it.
    """
    return any(epoch > manifest.epoch and manifest.checkpoint > base for epoch, base in bases.items())


def base_checkpoints(storage: Storage, names: set[str]) -> dict[int, int]:
    """The checkpoint that each epoch began from (0: none), where recorded. Raises OSError if a record is unreadable."""
    bases: dict[int, int] = {}
    for name in names:
        folder, _, file = name.partition("/")
        if folder == "epochs" and file.endswith(".base") and file[:-5].isdigit():
            try:
                bases[int(file[:-5])] = int(storage.read(name))
            except (FileNotFoundError, ValueError):
                continue  # removed or torn: that epoch took no checkpoint
    return bases
