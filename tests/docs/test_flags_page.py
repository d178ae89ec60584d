"""docs/flags.md is what the models say."""

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


def test_the_page_is_what_make_flags_writes(tmp_path: Path) -> None:
    written = tmp_path / "flags.md"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "docs" / "generate_flags.py", written], env=environment, check=True)
    assert PAGE.read_text(encoding="utf-8") == written.read_text(encoding="utf-8"), "run `make flags`"


@pytest.mark.parametrize("runner", BUILT_IN)
def test_the_page_has_every_flag_of_every_runner(runner: str) -> None:
    told = set(re.findall(r"^\| `(--\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    missing = {flag.spelling for flag in flags(options_for(runner, PipelineOptions))} - told
    assert not missing
