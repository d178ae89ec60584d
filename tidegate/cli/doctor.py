"""`tidegate doctor`: reports what this machine has for running pipelines, and what to install for the rest."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from tidegate._version import __version__
from tidegate.sdk.options.defaults import default_memory_budget, processors
from tidegate.sdk.options.registry import BUILT_IN, runner_names
from tidegate.sdk.runner import find_runner

CORE: Final = ("click", "cloudpickle", "pydantic", "rich")
EXTRAS: Final = {
    "remote": (("fsspec",), "files on s3, gs and the like"),
    "http": (("aiohttp", "fsspec"), "files on web servers"),
    "zstd": (("zstandard",), "zstd-compressed files"),
    "rocksdb": (("rocksdict",), "state larger than memory on the streaming runner"),
    "spark": (("pyspark", "pyarrow", "pandas", "protobuf"), "the spark runner, which also needs Java 17 or later"),
}
ABOUT: Final = {
    "direct": "in this process, deterministic and strict: for development, tests and data of one machine",
    "streaming": "a native engine of several processes, exactly once, for streams and for bounded data",
    "spark": "on Apache Spark through PySpark, for what one machine can't hold, bounded or not",
}


def runner_lines() -> Iterator[str]:
    """One line per runner: its name, its purpose, and what it needs that is missing."""
    names = runner_names()
    width = max(map(len, names))
    for name in names:
        about = ABOUT.get(name) if name in BUILT_IN else None
        try:
            runner = find_runner(name)
            missing = runner.missing()
            about = about or ((type(runner).__doc__ or "").strip().splitlines() or [""])[0]
        except Exception as error:  # a plugin may raise anything when it is imported
            missing = [f"it can't be loaded: {error}"]
        state = "ready" if not missing else "not ready: " + "; ".join(missing)
        yield f"{name.ljust(width)}  {state}{f'  ({about})' if about else ''}"


def examine() -> Iterator[str]:
    """The whole report, section by section."""
    yield f"Tidegate {__version__} on Python {platform.python_version()} ({sys.executable})"
    yield platform.platform(terse=True)
    yield ""
    yield "Packages"
    for package in CORE:
        version = _version(package)
        yield f"  {package.ljust(12)} {version or 'MISSING: pip install tidegate brings it'}"
    listed: set[str] = set()
    for extra, (packages, about) in EXTRAS.items():
        for package in packages:
            if package not in listed:
                yield f"  {package.ljust(12)} {_version(package) or f'not installed; for {about}'}"
        listed |= set(packages)
        if any(_version(package) is None for package in packages):
            yield f"  {''.ljust(12)} pip install 'tidegate[{extra}]'"
    yield ""
    yield f"Java          {_java()}"
    budget = default_memory_budget()
    yield f"Memory        {_size(budget * 4)}; the default of --memory_budget is {_size(budget)}"
    yield f"Processors    {processors()}"
    yield f"Temporary     {_temporary()}"
    yield ""
    yield "Runners"
    for line in runner_lines():
        yield f"  {line}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if program is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        return f"not found {where}; the spark runner needs it: install a JDK, 17 or later"
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not answer: {error}"
    lines = (done.stderr or done.stdout).splitlines()
    return f"{lines[0] if lines else 'of unknown version'} ({program})"


def _temporary() -> str:
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return f"{folder} is not writable: {error.strerror}; set --temp_dir"
    return (
        f"{folder}, {_size(shutil.disk_usage(folder).free)} free; data that exceeds the memory budget is stored there"
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
