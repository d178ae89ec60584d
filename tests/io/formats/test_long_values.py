"""Values of 100 MB in each format: refused by name without being held, or read in a small multiple of their size."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.record_files import avro, write

MB = 1_000_000
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}

READ = """
import json, sys
from pathlib import Path
import tidegate as tg
from tests.support.record_files import drain

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024

def read(transform, path):
    source = getattr(tg.io, transform)(path, as_=dict, schema={"a": int, "b": str}, bad_records="dead_letter").source
    return [each[1:4] if isinstance(each, tg.io.BadRecord) else len(each["b"])
            for split in source.splits(1) for each in drain(source, split, limit=1)]

files = json.loads(sys.argv[1])
for transform, small, _ in files:
    read(transform, small)
before = peak()
found = [read(transform, large) for transform, _, large in files]
print(json.dumps([peak() - before, found]))
"""


def read_apart(folder: Path, files: dict[str, tuple[bytes, bytes]]) -> tuple[int, list[list[Any]]]:
    """By how many bytes a process grows that reads the second file of each transform after the first ones, and what it
    finds in the second ones: the lengths of values, and the dead letters."""
    paths = [
        (transform, str(write(folder / transform / "small", small)), str(write(folder / transform / "large", large)))
        for transform, (small, large) in files.items()
    ]
    command = [sys.executable, "-c", READ, json.dumps(paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    grown, found = json.loads(done.stdout)
    return grown, found


def csv_of(*lengths: int) -> bytes:
    return b"a,b\n" + b"".join(b"%d,%b\n" % (at, b"x" * length) for at, length in enumerate(lengths))


def json_of(*lengths: int) -> bytes:
    return b"".join(b'{"a": %d, "b": "%b"}\n' % (at, b"x" * length) for at, length in enumerate(lengths))


def parquet_of(*lengths: int) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(rows(*lengths)), buffer, compression="zstd", use_dictionary=False, write_statistics=False
    )
    return buffer.getvalue()


def arrow_of(*lengths: int) -> bytes:
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(rows(*lengths))
    with pa.ipc.new_file(buffer, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def avro_of(*lengths: int) -> bytes:
    return avro(rows(*lengths), 16_000, SCHEMA, "deflate")


def rows(*lengths: int) -> list[dict[str, Any]]:
    return [{"a": at, "b": "x" * length} for at, length in enumerate(lengths)]


def test_a_line_of_100_mb_is_a_bad_record_that_memory_does_not_hold(tmp_path: Path) -> None:
    grown, (of_csv, of_json) = read_apart(
        tmp_path,
        {
            "ReadFromCsv": (csv_of(1, 2), csv_of(1, 100 * MB, 3)),
            "ReadFromJson": (json_of(1, 2), json_of(1, 100 * MB, 3)),
        },
    )
    reason = "it has more than 33,554,432 bytes (max_record_bytes)"
    assert of_csv == [1, [3, None, reason], 3]
    assert of_json == [1, [2, None, reason], 3]
    assert grown < 90 * MB


@pytest.mark.parametrize(
    ("reader", "file_of"), [("ReadFromParquet", parquet_of), ("ReadFromArrow", arrow_of), ("ReadFromAvro", avro_of)]
)
def test_a_value_of_100_mb_is_read_in_a_small_multiple_of_its_size(
    tmp_path: Path, reader: str, file_of: Callable[..., bytes]
) -> None:
    grown, (found,) = read_apart(tmp_path, {reader: (file_of(1, 2), file_of(1, 100 * MB, 3))})
    assert found == [1, 100 * MB, 3]
    print(grown)
    assert grown < 450 * MB
