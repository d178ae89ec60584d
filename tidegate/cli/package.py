"""`tidegate package`: packs this environment, with pex, into an archive for the workers of a cluster.

The archive contains a virtual environment: `bin/python`, a link to the interpreter that created it, and the packages in
`lib/pythonX.Y/site-packages`. Packages with native code are those of this platform, so the archive must be made on the
platform of the workers: on such a machine, or in a container of its image.
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

from tidegate.sdk.errors import RunError, UnsupportedError, counted

LEFT_OUT: Final = frozenset({"pyspark", "py4j"})
"""Workers have Spark already: another copy would conflict with it, and is larger than everything else."""
TOOLS: Final = frozenset({"pip", "setuptools", "wheel", "pex", "uv"})


def package(output: Path, requirements: Sequence[str]) -> Iterator[str]:
    """Write the archive, and yield lines that report its progress.

    It contains `requirements` (names with or without versions) and their dependencies as installed here; without
    requirements, everything that is installed here. Raises UnsupportedError without pex or outside a virtual
    environment, and RunError if pex fails.
    """
    if sys.prefix == sys.base_prefix:
        raise UnsupportedError(
            f"{sys.executable} is not in a virtual environment: create one (python -m venv), install what the "
            "pipeline needs, and run `tidegate package` from it"
        )
    try:
        metadata.version("pex")
    except metadata.PackageNotFoundError:
        raise UnsupportedError("`tidegate package` needs pex: pip install 'tidegate[package]'") from None
    editable = sorted(_editable())
    packages = list(requirements) or sorted(_installed() - LEFT_OUT - TOOLS - set(editable))
    for name in editable:
        yield f"{name} is left out, because it is installed in editable mode" + (
            "; jobs ship it to the workers" if name == "tidegate" else ": to include it, install it without --editable"
        )
    with tempfile.TemporaryDirectory(prefix="tidegate-package-") as home:
        folder = Path(home, "environment")
        _make(folder, packages, home)
        packed = len(list(folder.glob("lib/python*/site-packages/*.dist-info")))
        yield f"{counted(packed, 'package')}, for workers that have {os.path.realpath(folder / 'bin' / 'python')}"
        part = output.with_name(output.name + ".part")
        with tarfile.open(part, "w:gz", compresslevel=4) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name, filter=_without_caches)
        part.replace(output)
    yield f"wrote {output} ({output.stat().st_size / 1e6:,.0f} MB)"
    yield f"use it with --spark_archive {output}"


def _make(folder: Path, packages: Sequence[str], home: str) -> None:
    """Create a virtual environment with these packages as they are installed here."""
    excluded = [part for name in sorted(LEFT_OUT) for part in ("--exclude", name)]
    command = [
        sys.executable, "-m", "pex.cli", "venv", "create", "--dest-dir", str(folder), "--site-packages-copies",
        "--venv-repository", sys.prefix, *excluded, *packages,
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PEX_ROOT": os.path.join(home, "pex")}
    )
    if done.returncode:
        raise RunError(f"pex could not pack the environment:\n{done.stderr.strip() or done.stdout.strip()}")


def _installed() -> set[str]:
    return {_canonical(found.metadata["Name"]) for found in metadata.distributions() if found.metadata["Name"]}


def _editable() -> Iterator[str]:
    """The distributions installed in editable mode, as links to their sources, which can't be packed."""
    for found in metadata.distributions():
        origin = found.read_text("direct_url.json")
        if origin and json.loads(origin).get("dir_info", {}).get("editable"):
            yield _canonical(found.metadata["Name"])


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith((".pyc", "/__pycache__")) else member
