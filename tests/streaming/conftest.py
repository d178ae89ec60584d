"""Fixtures of the streaming runner's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.streaming.exactly_once_pipeline import Run
from tests.support.streaming.killable_run import KillableRun
from tests.support.streaming.small_filesystem import SmallFilesystem, mount_small_filesystem


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[type[KillableRun]]:
    victims: list[KillableRun] = []

    def start(*flags: str, blocked_checkpoint: int | None = None, **parameters: object) -> KillableRun:
        if blocked_checkpoint is not None:  # a file where a checkpoint's folder would be
            (tmp_path / "checkpoints").mkdir()
            (tmp_path / "checkpoints" / f"chk-{blocked_checkpoint:06}").touch()
        victims.append(KillableRun(Run(str(tmp_path), **parameters), list(flags)))  # type: ignore[arg-type]
        return victims[-1]

    yield start  # type: ignore[misc]
    for victim in victims:
        victim.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallFilesystem]:
    """A file system of 8 MB."""
    with mount_small_filesystem(tmp_path / "disk", 8) as made:
        yield made
