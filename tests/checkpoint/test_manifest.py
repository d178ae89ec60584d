"""Manifests are read as they were written; torn, damaged and unknown ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.runners.checkpoint.catalog import latest
from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, PendingCommit, TaskPart
from tidegate.runners.checkpoint.manifest_json import dumps, loads
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress, StateHandle
from tidegate.runners.checkpoint.step_state import StepFacts
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.sources.enumerator_state import packed, unpacked
from tidegate.runners.streaming.checkpoint.job_record import JobRecord, read_record
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import DistributionResult, MetricCells, MetricKey

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def manifest(number: int = 7, *, epoch: int = 1, files: tuple[tuple[str, int, int], ...] = ()) -> Manifest:
    return Manifest(
        job="job",
        run="run",
        epoch=epoch,
        checkpoint=number,
        kind="checkpoint",
        taken=1_700_000_000_000_000,
        max_parallelism=128,
        backend="memory",
        final=False,
        steps=(StepFacts("count", "count", "par_do", "stateful", "cells (n: value)", 1),),
        tasks=(
            TaskPart(TaskId(0, 0), 1, True, None, (SplitProgress("read", ("a",), (("b", {"offset": 3}),)),)),
            TaskPart(TaskId(1, 0), 1, False, StateHandle(files)),
        ),
        lists={"read": (AssignedSplit("a", b"\x80payload"), AssignedSplit("b", b"", 12))},
        commits=(PendingCommit("write", "run", number, (Committable((0, 1), ["part", 1]),)),),
        counted=MetricCells(
            {MetricKey("read", "tidegate", "elements_out"): 3},
            {MetricKey("read", "mine", "sizes"): DistributionResult(2, 3.5, 1.0, 2.5)},
            {MetricKey("read", "mine", "last"): "c"},
            {MetricKey("read", "mine", "seen"): {"a", "b"}},
        ),
    )


def store_checkpoint(storage: LocalStorage, number: int, content: bytes = b"state", epoch: int = 1) -> Manifest:
    """Store a complete checkpoint in a directory."""
    name = f"chk-{number:06}/1.0.1.state"
    made = manifest(number, epoch=epoch, files=((name, len(content), crc32(content)),))
    storage.write(name, content)
    storage.write(made.name, dumps(made))
    return made


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert loads(dumps(manifest(files=(("a.state", 5, 1),)))) == manifest(files=(("a.state", 5, 1),))


@given(JSON, JSON)
def test_positions_and_payloads_of_json_values_are_read_as_they_were_written(position: Any, payload: Any) -> None:
    made = replace(
        manifest(),
        tasks=(TaskPart(TaskId(0, 0), 1, False, None, (SplitProgress("read", (), (("b", position),)),)),),
        commits=(PendingCommit("write", "run", 1, (Committable((0, 0), payload),)),),
    )
    assert loads(dumps(made)) == made


def test_a_position_that_is_no_json_value_is_refused() -> None:
    made = replace(
        manifest(), tasks=(TaskPart(TaskId(0, 0), 1, False, None, (SplitProgress("read", (), (("b", {1, 2}),)),)),)
    )
    with pytest.raises(
        ManifestError, match="positions of readers, states of enumerators and payloads of committables are numbers"
    ):
        dumps(made)


def test_the_state_of_an_enumerator_is_read_as_it_was_written_and_a_large_one_takes_few_bytes() -> None:
    names = [f"/data/incoming/2024-05-{n % 28:02}/part-{n:08}.json" for n in range(5000)]
    files = {name: ["/data/*/*", f"{crc32(name.encode())},mtime={n * 10**9}", True] for n, name in enumerate(names)}
    small, large = {"files": dict(list(files.items())[:3])}, {"files": files}
    for state in (small, large):
        made = replace(manifest(), enumerators={"read": EnumeratorState(packed(state), backlog=False)})
        read = loads(dumps(made))
        assert read == made
        assert unpacked(read.enumerators["read"].state) == state
    assert len(dumps(made)) - len(dumps(manifest())) < 40 * len(files)
    assert names[0] in dumps(replace(made, enumerators={"read": EnumeratorState(packed(small))})).decode()


def test_a_manifest_can_be_read_by_people() -> None:
    body = json.loads(dumps(manifest()))["body"]
    assert body["steps"][0]["label"] == "count"
    assert body["tasks"][0]["progress"][0]["current"] == [["b", {"offset": 3}]]


def test_a_manifest_that_is_torn_anywhere_is_reported_as_torn() -> None:
    whole = dumps(manifest())
    for length in range(0, len(whole) - 1, 7):
        with pytest.raises(ManifestError, match="torn or damaged"):
            loads(whole[:length])


@given(st.data())
def test_a_damaged_manifest_is_refused_or_reads_as_the_original(data: st.DataObject) -> None:
    whole = bytearray(dumps(manifest()))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert loads(bytes(whole)) == manifest()  # the damage replaced one blank by another
    except ManifestError:
        return


def test_an_unknown_format_is_refused_by_its_number() -> None:
    document = json.loads(dumps(manifest()))
    document["tidegate"] = 4
    with pytest.raises(ManifestError, match="has format 4, and this version of Tidegate reads 1 to 3"):
        loads(json.dumps(document).encode())


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"tidegate": 1}', '"text"'])
def test_json_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        loads(text.encode())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["checkpoint"], "7"),
        (["kind"], "other"),
        (["steps", 0, "role"], "cook"),
        (["tasks", 1, "files"], [["name", "5", 1]]),
        (["tasks", 0, "progress", 0, "current"], [["b"]]),
        (["commits", 0, "committables", 0, "order"], [1]),
        (["splits"], []),
        (["counted", "counters"], [["step", "namespace", 1]]),
        (["counted"], {}),
        (["tasks", 0], 3),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, list) and value else "value",
)
def test_a_field_of_the_wrong_type_is_refused_though_the_checksum_is_right(path: list[Any], value: Any) -> None:
    document = json.loads(dumps(manifest(files=(("a", 1, 1),))))
    part = document["body"]
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    document["crc32"] = crc32(json.dumps(document["body"], sort_keys=True, separators=(",", ":")).encode())
    with pytest.raises(ManifestError, match="inconsistent"):
        loads(json.dumps(document).encode())


def _places(part: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(part) if isinstance(part, dict) else range(len(part)):
        yield part, key
        if isinstance(part[key], (dict, list)):
            yield from _places(part[key])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.integers(0, 10_000), anything)
def test_a_changed_manifest_is_read_or_refused_with_a_manifest_error(place: int, value: Any) -> None:
    document = json.loads(dumps(manifest(files=(("a", 1, 1),))))
    places = list(_places(document["body"]))
    part, key = places[place % len(places)]
    part[key] = value
    document["crc32"] = crc32(json.dumps(document["body"], sort_keys=True, separators=(",", ":")).encode())
    _assert_read_or_refused(json.dumps(document).encode(), loads)


@settings(deadline=None)
@given(
    st.binary(max_size=60)
    | st.sampled_from([b"[" * 100_000, b"1" * 5_000, b"\xef\xbb\xbf{}", '{"tidegate": 1}'.encode("utf-16"), b"17"])
    | anything.map(
        lambda value: json.dumps({"tidegate": 1, "state": "finished", "steps": value, "job": value}).encode()
    )
)
def test_arbitrary_bytes_are_read_or_refused_with_a_manifest_error(data: bytes) -> None:
    _assert_read_or_refused(data, loads)
    _assert_read_or_refused(data, read_record)


def _assert_read_or_refused(data: bytes, read: Callable[[bytes], Any]) -> None:
    try:
        found = read(data)
    except ManifestError:
        return
    assert isinstance(found, (Manifest, JobRecord))


# -- in a directory


def test_the_newest_checkpoint_is_chosen(storage: LocalStorage) -> None:
    made = [store_checkpoint(storage, number) for number in (9, 10, 100)]
    assert latest(storage, thorough=True) == (made[-1], [])


def test_an_empty_directory_has_no_checkpoint(storage: LocalStorage) -> None:
    assert latest(storage) == (None, [])


def test_a_checkpoint_without_a_manifest_is_ignored(storage: LocalStorage) -> None:
    made = store_checkpoint(storage, 8)
    storage.write("chk-000009/1.0.1.state", b"half of it")
    assert latest(storage, thorough=True) == (made, [])


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("chk-000009/manifest.json", b'{"tidegate": 1, "crc', "torn"),
        ("chk-000009/manifest.json", b"", "torn"),
        ("chk-000009/1.0.1.state", None, "missing"),
        ("chk-000009/1.0.1.state", b"stat", "has 4 bytes, not 5"),
        ("chk-000009/1.0.1.state", b"stato", "checksum"),
    ],
    ids=["torn", "empty", "missing", "short", "changed"],
)
def test_a_damaged_newest_checkpoint_is_reported_and_the_previous_one_is_chosen(
    storage: LocalStorage, name: str, content: bytes | None, why: str
) -> None:
    before = store_checkpoint(storage, 8)
    store_checkpoint(storage, 9)
    if content is None:
        storage.delete(name)
    else:
        storage.write(name, content)
    chosen, reports = latest(storage, thorough=True)
    assert chosen == before
    (text,) = reports
    assert text.startswith("checkpoint 9 is damaged (")
    assert why in text
    assert text.endswith("resuming from 8")


def test_an_error_is_raised_where_all_checkpoints_are_damaged(storage: LocalStorage) -> None:
    store_checkpoint(storage, 1)
    storage.write("chk-000001/manifest.json", b"{")
    with pytest.raises(ManifestError, match=r"no checkpoint can be used: checkpoint 1 is damaged"):
        latest(storage)


def test_a_checkpoint_written_by_a_fenced_off_process_is_ignored(storage: LocalStorage) -> None:
    base = store_checkpoint(storage, 7, epoch=1)
    storage.write("epochs/000002.base", b"7")
    store_checkpoint(storage, 8, epoch=1)
    assert latest(storage) == (base, [])
    later = store_checkpoint(storage, 9, epoch=2)
    assert latest(storage) == (later, [])
