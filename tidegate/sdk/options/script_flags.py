"""The flags of a script's command line that its pipeline obeys."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.sdk.errors import OptionsError
from tidegate.sdk.options.flags import FlagSet, Given, asks_help, is_flag, unexpected
from tidegate.sdk.options.model import PipelineOptions, build_options, help_text, read_flags
from tidegate.sdk.options.script import on_misuse, print_to_reader, was_read


@dataclass(frozen=True, slots=True)
class ScriptFlags:
    """The flags of a script's command line that its pipeline obeys.

    The command line may hold more: arguments that are no flags, and flags that the script reads by itself.
    """

    options: PipelineOptions
    _known: FlagSet
    _given: Given

    @staticmethod
    def read(tokens: Sequence[str], model: type[PipelineOptions], defaults: Mapping[str, object]) -> ScriptFlags:
        """The flags of `model` and of the chosen runner among them; OptionsError for a value that doesn't fit."""
        _, joined, known, given = read_flags(model, tokens, defaults)
        # `--help` runs nothing, so required flags may be missing.
        options = PipelineOptions() if asks_help(given) else build_options(tokens, joined, known, given, defaults, ())
        return ScriptFlags(options, known, given)

    @property
    def wants_help(self) -> bool:
        """Whether `--help` is among them."""
        return asks_help(self._given)

    @property
    def names_runner(self) -> bool:
        """Whether `--runner` is among them."""
        return "runner" in self._given.values

    def check(self, advice: str = "") -> None:
        """Raise OptionsError for a flag that neither the pipeline obeys nor the script has read. With `--help`, which
        the script has not handled, print the help and exit."""
        if self.wants_help:
            print_to_reader(help_text(self._known.model))  # type: ignore[arg-type]
            raise SystemExit(0)
        strange = [
            line
            for chunk in self._given.rest
            if is_flag(chunk) and not was_read(chunk[0].lstrip("-").partition("=")[0].replace("-", "_"))
            for line in unexpected(chunk, self._given, self._known)
        ]
        if strange:
            error = OptionsError("\n".join([*strange, *([advice] if advice else [])]))
            on_misuse(error, sys.argv[1:], advised=bool(advice))
            raise error
