"""The runner and options of a pipeline's runs, from its author or from the script's command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegate.sdk.errors import OptionsError
from tidegate.sdk.options.defaults import DEFAULTS, DefaultOptions, replaced
from tidegate.sdk.options.registry import only_chosen, runner_names
from tidegate.sdk.options.script import script_flags
from tidegate.sdk.runner import Runner, RunOptions, find_runner

if TYPE_CHECKING:
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.options.script_flags import ScriptFlags
    from tidegate.sdk.time import Duration


class RunSettings:
    """The arguments of `tg.Pipeline(runner, options)`; without options, the flags of the script that creates it."""

    def __init__(
        self,
        runner: str | Runner | None,
        options: PipelineOptions | DefaultOptions | Mapping[str, Any] | Sequence[str] | RunOptions | None,
    ) -> None:
        self.runner = runner
        # A list is copied, because its author may change it before the run.
        self._options = list(options) if isinstance(options, list) else options
        self._script: ScriptFlags | None = None
        if options is None and (tokens := script_flags()):
            self._use_flags(tokens)

    def _use_flags(self, tokens: list[str]) -> None:
        """Take runner and options from the flags of the script, which override the runner."""
        if chosen := only_chosen(tokens):
            self.runner, self._options = chosen, tokens
            return
        self._script = _read_flags(tokens, self.runner)
        self._options = self._script.options
        if self._script.names_runner:
            self.runner = self._script.options.runner

    @property
    def of_run(self) -> RunOptions:
        """The options, as plain defaults if they only choose a runner: importing the model takes longer than a small
        run."""
        chosen = only_chosen(self._options)
        if chosen is not None and self.runner in (None, chosen):
            return DefaultOptions(chosen)
        return self.options

    @property
    def options(self) -> RunOptions:
        """The options as a model; if there are none, plain defaults, which avoid importing the model."""
        if self._options is None:
            return DEFAULTS
        from tidegate.sdk.options.model import PipelineOptions

        # A runner named beside the options makes its own flags valid among them.
        named = {"runner": self.runner} if isinstance(self.runner, str) else {}
        match self._options:
            case PipelineOptions() | DefaultOptions():
                return self._options
            case Mapping():
                self._options = PipelineOptions.from_mapping({**named, **self._options})
            case str() | Sequence():
                self._options = PipelineOptions.from_args(self._options, **named)
            case other:
                raise OptionsError(f"options are PipelineOptions, a dict, or a list of flags, not {other!r}")
        return self._options

    @property
    def wants_help(self) -> bool:
        """Whether the script's flags ask for help, which `check_flags` prints."""
        return self._script is not None and self._script.wants_help

    def chosen_runner(self) -> Runner:
        """The runner to use. OptionsError if no runner has that name."""
        return self.runner if isinstance(self.runner, Runner) else _named(self.runner or self.of_run.runner)

    def check_flags(self) -> None:
        """Raise OptionsError for flags of the script that are unknown; print help if the flags ask for it."""
        if self._script is not None:
            self._script.check(_SCRIPT_FLAGS_ADVICE)

    def for_preview(self, runner: str | Runner | None, run_for: Duration | None) -> RunSettings:
        """The settings of a run that only shows data, and leaves the state of the pipeline's own runs alone."""
        preview = RunSettings(runner or self.runner, self.options)
        preview._script = self._script
        options = preview.chosen_runner().apart(self.options)
        preview._options = options if run_for is None else replaced(options, run_for=run_for)
        return preview


_SCRIPT_FLAGS_ADVICE: Final = (
    "This pipeline takes its flags from the command line of its script. If the script parses its command line itself, "
    "pass options to the pipeline, such as tg.Pipeline(options=[])"
)


def _read_flags(tokens: list[str], runner: object) -> ScriptFlags:
    """The flags of the script that creates the pipeline; they may override `runner`."""
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.options.script_flags import ScriptFlags

    name = runner.name if isinstance(runner, Runner) else runner
    known = isinstance(name, str) and (isinstance(runner, str) or name in runner_names())
    try:
        return ScriptFlags.read(tokens, PipelineOptions, {"runner": name} if known else {})
    except OptionsError as error:
        raise error.with_traceback(None) from None


def _named(runner: object) -> Runner:
    match runner:
        case str():
            return find_runner(runner)
        case type() if issubclass(runner, Runner):
            raise OptionsError(f"{runner.__name__} is a class: write {runner.__name__}()")
        case _:
            raise OptionsError(f"runner is a name or a Runner, not {runner!r}; there are: {', '.join(runner_names())}")
