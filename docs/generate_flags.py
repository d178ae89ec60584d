"""Writes docs/flags.md: every flag, from the models that read them. `make flags` runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tidegate.sdk.options.flags import Flag
from tidegate.sdk.options.model import PipelineOptions, flags, options_for
from tidegate.sdk.options.registry import BUILT_IN

HEAD = """\
# Flags

<!-- Written by `make flags`: change the models, not this page. -->

Every run has the common flags, those of its runner, and those that [its author has declared](deploying.md). They stand
behind `tidegate run TARGET` and behind `python script.py` alike, in `tg.Pipeline(options=[…])` and, without the dashes,
as a dict, `tg.Pipeline(options={"runner": "streaming", "workers": 2})`. `--help` lists those of one run.

Write them with `-` or `_`, as `--name VALUE` or `--name=VALUE`. DURATION is a number of seconds, `90`, or one
with a unit, `500ms`, `10s`, `5m`, `2h` or `1d`; SIZE is `512k`, `256MB` or `4GiB`. A flag that may be repeated gathers
its values; of any other that is given twice, the last counts.
"""


def page() -> str:
    """The whole page."""
    common = [flag for flag in flags(PipelineOptions) if flag.group == "common"]
    parts = [HEAD, _section("Common flags", common)]
    for runner in BUILT_IN:
        own = [flag for flag in flags(options_for(runner, PipelineOptions)) if flag.group == "runner"]
        if own:
            parts.append(_section(f"Flags of `--runner {runner}`", own))
    return "\n".join(parts)


def _section(title: str, members: Sequence[Flag]) -> str:
    rows = [f"| {_written(flag)} | {_default(flag)} | {_cell(flag.help)} |" for flag in members]
    return "\n".join([f"## {title}", "", "| flag | default | meaning |", "|---|---|---|", *rows, ""])


def _written(flag: Flag) -> str:
    takes = f"{flag.spelling} {flag.kind.metavar}".rstrip()
    also = f", `{flag.negation}`" if flag.negation else ""
    return f"`{_cell(takes)}`{also}" + (" (may be repeated)" if flag.kind.multiple else "")


def _default(flag: Flag) -> str:
    return "required" if flag.required else f"`{_cell(flag.default)}`" if flag.default else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
