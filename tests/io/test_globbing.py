"""Patterns of local files match the same files as `glob`, but a folder that can't be listed is an error."""

from __future__ import annotations

import glob
import os
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.io.globbing import paths_like

NAMES = st.sampled_from(["a", "b", "ab", ".a", "a.txt", "b.txt", ".hidden.txt"])
SEGMENTS = st.sampled_from(["*", "?", "a*", "[ab]", "*.txt", ".*", "**", "a", "b", "ab"])


@given(
    st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=8),
    st.lists(SEGMENTS, min_size=1, max_size=4),
    st.booleans(),
)
def test_a_pattern_matches_the_same_files_as_glob(trees: list[list[str]], segments: list[str], absolute: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for *parents, name in trees:
            parent = Path(folder, *parents)
            if not any(path.is_file() for path in (parent, *parent.parents)) and not (parent / name).exists():
                parent.mkdir(parents=True, exist_ok=True)
                (parent / name).touch()
        os.symlink(folder, Path(folder, "ab-cycle"))
        pattern = "/".join([folder if absolute else os.path.relpath(folder), *segments])
        expected = {path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}
        assert {path for path in paths_like(pattern) if os.path.isfile(path)} == expected


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in" / "part").mkdir(parents=True)
    (tmp_path / "in" / "part" / "a.txt").touch()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(map(int, os.listdir("/proc/self/fd"))), limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files") as raised:
            paths_like(f"{tmp_path}/**/*.txt")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert str(raised.value.filename).startswith(str(tmp_path))
    assert paths_like(f"{tmp_path}/**/*.txt") == [str(tmp_path / "in" / "part" / "a.txt")]
