"""A checkpoint is used by one process at a time; the file system is this machine's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark.local_folder import LocalFolder
from tidegate.runners.spark.streaming.driver.lease import Lease
from tidegate.sdk.errors import OptionsError, RunError


def owned_by(folder: LocalFolder, **changed: Any) -> None:
    """Let a process that this test invents own the checkpoint."""
    lease = Lease(folder)
    owner = json.loads(folder.read("owner.json"))
    lease.release()
    folder.write("owner.json", json.dumps({**owner, "lease": "other", **changed}).encode())


def never(_: float) -> None:
    raise AssertionError("nothing is to be waited for")


def test_a_second_run_of_a_process_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    first = Lease(folder)
    with pytest.raises(OptionsError, match="is in use by process"):
        Lease(folder, never)
    first.check()
    first.release()
    Lease(folder, never).release()
    assert folder.names("") == []


def test_a_process_of_this_machine_owns_the_checkpoint_as_long_as_it_lives(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        began = Path(f"/proc/{process.pid}/stat")
        if not began.exists():
            pytest.skip("this system does not say when a process began")
        owned_by(folder, process=process.pid, began=began.read_text().rpartition(")")[2].split()[19])
        with pytest.raises(OptionsError, match=f"is in use by process {process.pid} on "):
            Lease(folder, never)
        process.kill()
        process.wait()
    Lease(folder, never).release()


def test_a_number_that_another_process_has_by_now_is_not_the_owner(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    owned_by(folder, process=1, began="before the machine was started")
    Lease(folder, never).release()


@pytest.mark.parametrize("lives", [True, False])
def test_a_process_of_another_machine_owns_the_checkpoint_as_long_as_it_says_so(lives: bool, tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    owned_by(folder, machine="another", host="far away")
    folder.write("owner.beats", b"other 1")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if lives:
            folder.write("owner.beats", b"other 2")

    if lives:
        with pytest.raises(OptionsError, match="on far away: stop that run first"):
            Lease(folder, wait)
    else:
        Lease(folder, wait).release()
    assert waited == [15.0]


def test_a_process_whose_checkpoint_was_taken_over_is_told(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    lease = Lease(folder)
    entry = json.loads(folder.read("owner.json"))
    folder.write("owner.json", json.dumps({**entry, "lease": "other", "host": "far away"}).encode())
    with pytest.raises(RunError, match="on far away has taken over"):
        lease.check()
    lease.release()
    assert json.loads(folder.read("owner.json"))["host"] == "far away"
