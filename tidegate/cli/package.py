"""`tidegate package`: this environment as an archive that workers unpack and run, made by pex.

The archive holds a virtual environment: `bin/python`, which links to the interpreter it was made with, and the
packages in `lib/pythonX.Y/site-packages`. Native wheels are those of this platform, so it is to be made where the
workers' is the same: on a machine of theirs, or in a container of their image.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from tidegate.sdk.errors import RunError, UnsupportedError

LEFT_OUT: Final = frozenset({"pyspark", "py4j"})
"""Workers have their own Spark: another copy would clash with it, and is larger than all the rest."""
TOOLS: Final = frozenset({"pip", "setuptools", "wheel", "pex", "uv"})


def package(output: Path, requirements: Sequence[str]) -> Iterator[str]:
    """Write the archive; yields lines that say what it does.

    Of `requirements` (names with or without versions) and all they need, as installed here; none: of all that is
    installed here. UnsupportedError without pex, or outside a virtual environment; RunError with what pex says.
    """
    if sys.prefix == sys.base_prefix:
        raise UnsupportedError(
            f"{sys.executable} is in no virtual environment: make one (python -m venv), install what the pipeline "
            "needs, and run `tidegate package` from it"
        )
    try:
        metadata.version("pex")
    except metadata.PackageNotFoundError:
        raise UnsupportedError("`tidegate package` needs pex: pip install 'tidegate[package]'") from None
    editable = sorted(_editable())
    wanted = list(requirements) or sorted(_installed() - LEFT_OUT - TOOLS - set(editable))
    for name in editable:
        yield f"{name} stays out: it is installed in editable mode" + (
            ", and travels by itself" if name == "tidegate" else "; install it as it is, to have it on the workers"
        )
    with tempfile.TemporaryDirectory(prefix="tidegate-package-") as home:
        folder = Path(home, "environment")
        _make(folder, wanted, home)
        packed = len(list(folder.glob("lib/python*/site-packages/*.dist-info")))
        yield f"{packed} packages, for workers that have {os.path.realpath(folder / 'bin' / 'python')}"
        part = output.with_name(output.name + ".part")
        with tarfile.open(part, "w:gz", compresslevel=4) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name, filter=_without_caches)
        part.replace(output)
    yield f"wrote {output} ({output.stat().st_size / 1e6:,.0f} MB)"
    yield f"use it with --spark_archive {output}"


def _make(folder: Path, wanted: Sequence[str], home: str) -> None:
    """A virtual environment of these packages, from the wheels installed here."""
    excluded = [part for name in sorted(LEFT_OUT) for part in ("--exclude", name)]
    command = [
        sys.executable, "-m", "pex.cli", "venv", "create", "--dest-dir", str(folder), "--site-packages-copies",
        "--venv-repository", sys.prefix, *excluded, *wanted,
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PEX_ROOT": os.path.join(home, "pex")}
    )
    if done.returncode:
        raise RunError(f"pex could not pack the environment:\n{done.stderr.strip() or done.stdout.strip()}")


def _installed() -> set[str]:
    return {_canonical(found.metadata["Name"]) for found in metadata.distributions() if found.metadata["Name"]}


def _editable() -> Iterator[str]:
    """The distributions installed as links to their sources (editable), of which there is no wheel to pack."""
    for found in metadata.distributions():
        origin = found.read_text("direct_url.json")
        if origin and json.loads(origin).get("dir_info", {}).get("editable"):
            yield _canonical(found.metadata["Name"])


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith((".pyc", "/__pycache__")) else member
