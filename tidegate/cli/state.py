"""`tidegate state`: shows the contents of a checkpoint or savepoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.sdk.errors import counted

if TYPE_CHECKING:
    from tidegate.runners.checkpoint.manifest import Manifest, TaskPart
    from tidegate.runners.streaming.checkpoint.inspect import Entry

_LONG = 1000
"""The characters of an enumerator's state from which on only their number is shown."""


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--checkpoint", type=int, help="Which one; by default the newest complete one.")
@click.option(
    "--values", is_flag=True, help="Every key and value. Unpickles them, which is safe only for trusted data."
)
@click.option(
    "--format", "form", type=click.Choice(["json", "parquet"]), help="json: one object, or with --values one per value."
)
@click.option("-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write to FILE, not to stdout.")
def state(directory: str, checkpoint: int | None, values: bool, form: str | None, output: Path | None) -> None:
    """Show the checkpoint or savepoint in DIR: steps, states and sizes; with --values, also the state of each key."""
    from tidegate.runners.checkpoint.storage.factory import open_storage
    from tidegate.runners.streaming.checkpoint.inspect import entries, opened
    from tidegate.sdk.errors import visible

    if form == "parquet" and not (values and output):
        raise click.UsageError("--format parquet writes a table of values: it needs --values and -o FILE")
    storage = open_storage(directory)
    manifest, damaged = opened(storage, directory, checkpoint)
    for text in damaged:
        click.echo(f"warning: {text}", err=True)
    if form == "parquet":
        assert output is not None
        _write_parquet(_unpickled(entries(storage, manifest)), output)
        return
    lines: Iterator[str]
    if values:
        lines = (json.dumps(_row(entry), ensure_ascii=False) for entry in _unpickled(entries(storage, manifest)))
    elif form == "json":
        lines = iter([json.dumps(_summary(manifest), ensure_ascii=False, indent=1)])
    else:
        lines = map(visible, _report(manifest))
    if output is None:
        for line in lines:
            click.echo(line)
        return
    with output.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _summary(manifest: Manifest) -> dict[str, Any]:
    """The contents of the manifest, as JSON."""
    return {
        "checkpoint": manifest.checkpoint,
        "kind": manifest.kind,
        "job": manifest.job,
        "run": manifest.run,
        "epoch": manifest.epoch,
        "taken": _time(manifest.taken),
        "final": manifest.final,
        "backend": manifest.backend,
        "max_parallelism": manifest.max_parallelism,
        "size": sum(size for _, size, _ in manifest.files()),
        "steps": [
            {
                "name": step.name,
                "kind": step.kind,
                "role": step.role,
                "state": step.state,
                "tasks": len(parts := _parts(manifest, step.stage)),
                "size_of_its_tasks": sum(_size(part) for part in parts),
            }
            for step in manifest.steps
            if step.role != "plain"
        ],
        "sources": {label: _reading(manifest, label) for label in manifest.lists},
        "commits": [
            {"step": commit.step, "checkpoint": commit.checkpoint, "pieces": len(commit.committables)}
            for commit in manifest.commits
        ],
    }


def _report(manifest: Manifest) -> Iterator[str]:
    """The contents of the manifest, as lines of text."""
    summary = _summary(manifest)
    yield f"{manifest.kind} {manifest.checkpoint} of job {manifest.job} (run {manifest.run}), {summary['taken']}"
    yield (
        f"  {_bytes(summary['size'])}, {counted(len(manifest.tasks), 'task')}, "
        f"{counted(manifest.max_parallelism, 'key group')}, "
        f"{manifest.backend} backend" + (", all input had ended" if manifest.final else "")
    )
    for step in summary["steps"]:
        state = f": {step['state']}" if step["state"] else ""
        tasks = counted(step["tasks"], "task")
        yield f"  {step['role']:<8}  {step['name']}{state}  ({tasks}, {_bytes(step['size_of_its_tasks'])})"
    for label, reading in summary["sources"].items():
        yield (
            f"  {label}: {reading['finished']} of {counted(reading['splits'], 'split is', 'splits are')} finished, "
            f"{len(reading['current'])} in progress"
        )
        for id, position in reading["current"].items():
            yield f"    {id} continues at {json.dumps(position, ensure_ascii=False)}"
        if (enumerator := reading.get("enumerator")) is not None:
            more = "finds no more splits" if enumerator["ended"] else "looks for more splits"
            text = json.dumps(enumerator["state"], ensure_ascii=False)
            shown = text if len(text) < _LONG else f"a state of {len(text):,} characters (--format json shows it)"
            yield f"    its enumerator {more}, from {shown}"
    for commit in summary["commits"]:
        pieces = counted(commit["pieces"], "piece")
        yield f"  {commit['step']}: {pieces} of output became final with {commit['checkpoint']}"


def _parts(manifest: Manifest, stage: int) -> list[TaskPart]:
    return [part for part in manifest.tasks if part.task.stage == stage]


def _size(part: TaskPart) -> int:
    return 0 if part.handle is None else part.handle.size


def _reading(manifest: Manifest, label: str) -> dict[str, Any]:
    from tidegate.runners.engine.sources.enumerator_state import unpacked

    progress = [p for part in manifest.tasks for p in part.splits if p.step == label]
    forgotten = manifest.finished.get(label, 0)
    reading: dict[str, Any] = {
        "splits": len(manifest.lists[label]) + forgotten,
        "finished": sum(len(p.finished) for p in progress) + forgotten,
        "current": {id: position for p in progress for id, position in p.current},
    }
    if (enumerator := manifest.enumerators.get(label)) is not None:
        reading["enumerator"] = {"state": unpacked(enumerator.state), "ended": enumerator.ended}
    return reading


def _unpickled(found: Iterator[Entry]) -> Iterator[Entry]:
    """The entries, with advice in the error if the author's classes can't be imported."""
    from tidegate.runners.checkpoint.manifest import ManifestError

    try:
        yield from found
    except (ImportError, AttributeError) as error:
        raise ManifestError(
            f"a value can't be unpickled: {error}. Its class must be importable here: run this in the folder of the "
            "pipeline, or with it on PYTHONPATH"
        ) from error


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "step": entry.step,
        "task": entry.task,
        "table": entry.table,
        "window": None if entry.window is None else str(entry.window),
        "key": _plain(entry.key),
        "value": _plain(entry.value),
    }


def _plain(value: Any) -> Any:
    """A value as JSON. Values that JSON doesn't have are replaced by their repr, also within containers."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if value == value and abs(value) != float("inf"):
            return value
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case dict():
            return {key if isinstance(key, str) else repr(key): _plain(item) for key, item in value.items()}
        case _:
            return repr(value)


def _write_parquet(found: Iterable[Entry], output: Path) -> None:
    """Write a table of strings. Keys and values are JSON, because each step has other types."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise click.ClickException("Parquet needs pyarrow: pip install pyarrow") from None
    names = ["step", "task", "table", "window", "key", "value"]
    schema = pa.schema([(name, pa.string()) for name in names])
    with pq.ParquetWriter(output, schema) as writer:
        for rows in _batches(map(_row, found), 50_000):
            for row in rows:
                row["key"], row["value"] = (json.dumps(row[name], ensure_ascii=False) for name in ("key", "value"))
            writer.write_table(pa.Table.from_pylist(rows, schema))
    click.echo(f"wrote {output}", err=True)


def _batches(rows: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    from itertools import islice

    while batch := list(islice(rows, size)):
        yield batch


def _time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="seconds")


def _bytes(size: int) -> str:
    for unit, limit in (("bytes", 1 << 10), ("KiB", 1 << 20), ("MiB", 1 << 30)):
        if size < limit:
            return f"{size / (limit >> 10):.{0 if unit == 'bytes' else 1}f} {unit}"
    return f"{size / (1 << 30):.1f} GiB"
