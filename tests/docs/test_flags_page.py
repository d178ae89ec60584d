"""docs/flags.md is generated from the option models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.sdk.options.model import PipelineOptions, flags, options_for
from tidegate.sdk.options.registry import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "flags.md"


def test_the_page_equals_the_output_of_make_flags(tmp_path: Path) -> None:
    written = tmp_path / "flags.md"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "docs" / "generate_flags.py", written], env=environment, check=True)
    assert PAGE.read_text(encoding="utf-8") == written.read_text(encoding="utf-8"), "run `make flags`"


@pytest.mark.parametrize("runner", BUILT_IN)
def test_the_page_has_every_flag_of_every_runner(runner: str) -> None:
    listed = set(re.findall(r"^\| `(--\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    missing = {flag.spelling for flag in flags(options_for(runner, PipelineOptions))} - listed
    assert not missing
