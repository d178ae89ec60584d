"""The target of a command: a Pipeline in a file or module, a function that builds one, or a compiled pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from tidegate.cli.secrecy import secret_fields
from tidegate.sdk.errors import LoadError, OptionsError, shorten
from tidegate.sdk.options.flags import spelling
from tidegate.sdk.options.model import PipelineOptions, options_for
from tidegate.sdk.options.script import Unwound, loading
from tidegate.sdk.options.script_flags import ScriptFlags
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.portable import model as portable
from tidegate.sdk.runner import PipelineResult, Runner, find_runner


class Target:
    """A pipeline that is there, or can be built once the options are known. `about` is what its author says of it."""

    def __init__(self, name: str, model: type[PipelineOptions], about: str = "") -> None:
        self.name = name
        self.about = about
        self._model = model

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        """The options that the flags give; raises OptionsError, prints help and exits for `--help`."""
        return self._model.from_args(flags, **self.defaults(flags))

    def defaults(self, flags: Sequence[str]) -> dict[str, Any]:
        """The values of flags that are not given."""
        return {}

    def runner(self, options: PipelineOptions) -> Runner:
        """The runner that the options name."""
        return find_runner(options.runner)

    def live(self, options: PipelineOptions) -> portable.Pipeline:
        """The portable pipeline, its code as it is."""
        raise NotImplementedError

    def sealed(self, options: PipelineOptions, *, values: bool = False) -> portable.Pipeline:
        """The portable pipeline as runners take it; raises BuildError."""
        raise NotImplementedError

    def given(self, options: PipelineOptions) -> tuple[tuple[str, str], ...]:
        """The flags to be kept in a compiled pipeline, each with its value as JSON.

        Those that were set, and all of the author's own: what they are by default is fixed too. Secrets are left out.
        """
        own = self._model.model_fields.keys() - options_for(options.runner, PipelineOptions).model_fields.keys()
        known = options.model_dump(
            mode="json", include=(options.model_fields_set | own) - secret_fields(options), fallback=str
        )
        return tuple((name, json.dumps(value)) for name, value in sorted(known.items()))

    def arrive(self) -> list[str]:
        """Prepare this process to run it; return warnings."""
        return []

    def ran(self, result: PipelineResult) -> None:
        """Take note of its run."""
        return


class Built(Target):
    """A Pipeline object of a script, or a function that returns one.

    `advice` is for a function that takes its options without saying which: what to write, should it want others.
    """

    def __init__(
        self,
        name: str,
        model: type[PipelineOptions],
        about: str,
        build: Callable[[Any], Pipeline],
        *,
        advice: str = "",
        module: str = "",
    ) -> None:
        super().__init__(name, model, about)
        self._build = build
        self._advice = advice
        self._module = module
        self._pipeline: Pipeline | None = None

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        try:
            return super().options(flags)
        except OptionsError as error:
            if not self._advice or "did you mean" in str(error):
                raise
            raise OptionsError(f"{error}. {self._advice}") from None

    def pipeline(self, options: PipelineOptions) -> Pipeline:
        """The pipeline, built once."""
        if self._pipeline is None:
            self._pipeline = self._built(options)
            if not isinstance(self._pipeline, Pipeline):
                raise click.UsageError(f"{self.name} returned {type(self._pipeline).__name__}, not a Pipeline")
        return self._pipeline

    def _built(self, options: PipelineOptions) -> Pipeline:
        """The pipeline that the function returns, or the first one that it would run, where the function is stopped."""
        taken: list[Pipeline] = []

        def take(pipeline: Pipeline) -> NoReturn:
            taken.append(pipeline)
            raise Unwound

        try:
            with loading(self._module, take):
                return self._build(options)
        except Unwound:
            return taken[0]
        except AttributeError as error:
            if self._advice and error.obj is options:
                error.args = (f"{error}. {self._advice}",)
            raise

    def live(self, options: PipelineOptions) -> portable.Pipeline:
        return self.pipeline(options).portable()

    def sealed(self, options: PipelineOptions, *, values: bool = False) -> portable.Pipeline:
        return self.pipeline(options).sealed(values=values)


class Object(Built):
    """A Pipeline object: its own runner and options hold where no flag says otherwise."""

    def __init__(self, name: str, pipeline: Pipeline) -> None:
        self._known = pipeline
        own = pipeline.options if isinstance(pipeline.options, PipelineOptions) else None
        super().__init__(name, type(own) if own else PipelineOptions, "", lambda options: pipeline)
        self._names_runner = False

    def defaults(self, flags: Sequence[str]) -> dict[str, Any]:
        own = self._known.options if isinstance(self._known.options, PipelineOptions) else None
        given = {name: getattr(own, name) for name in own.model_fields_set} if own else {}
        return given | ({"runner": self._known.runner} if isinstance(self._known.runner, str) else {})

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        given = ScriptFlags.read(flags, self._model, self.defaults(flags))
        given.check()
        self._names_runner = given.names_runner
        return given.options

    def ran(self, result: PipelineResult) -> None:
        self._known.has_been_run(result)

    def runner(self, options: PipelineOptions) -> Runner:
        own = self._known.runner
        return own if isinstance(own, Runner) and not self._names_runner else super().runner(options)


class Compiled(Target):
    """A compiled pipeline. The flags it was compiled with are its own; those every run has can be given again."""

    def __init__(self, name: str, pipeline: portable.Pipeline) -> None:
        super().__init__(name, PipelineOptions)
        self._pipeline = pipeline
        self._kept = {flag: self._read(flag, text) for flag, text in pipeline.options}

    def _read(self, flag: str, text: str) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LoadError(f"{self.name}: the value of the option {flag!r} is not JSON: {shorten(text)}") from error
        if flag == "runner" and not isinstance(value, str):
            raise LoadError(f"{self.name}: the option 'runner' is a name, not {shorten(value)}")
        return value

    def defaults(self, flags: Sequence[str]) -> dict[str, Any]:
        fields = options_for(self._kept.get("runner", "direct"), PipelineOptions).model_fields
        return {name: value for name, value in self._kept.items() if name in fields}

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        common = PipelineOptions.model_fields
        given = {"--" + flag[2:].partition("=")[0].replace("-", "_") for flag in flags if flag.startswith("--")}
        for name, value in self._pipeline.options:
            spelled = spelling(name)
            if name not in common and not given.isdisjoint((spelled, f"--no_{spelled[2:]}")):
                raise OptionsError(
                    f"{spelled} was fixed to {value} when {self.name} was compiled: compile it again for another value"
                )
        return super().options(flags)

    def live(self, options: PipelineOptions) -> portable.Pipeline:
        return self._pipeline

    def sealed(self, options: PipelineOptions, *, values: bool = False) -> portable.Pipeline:
        return self._pipeline

    def given(self, options: PipelineOptions) -> tuple[tuple[str, str], ...]:
        return tuple(sorted({**dict(self._pipeline.options), **dict(super().given(options))}.items()))

    def arrive(self) -> list[str]:
        from tidegate.sdk.portable.loading import install_code

        return install_code(self._pipeline, self.name)


def target_of(full: str, found: Pipeline | Callable[..., Any]) -> Target:
    """The target that a Pipeline is, or a function that returns one; click.UsageError for any other function."""
    if isinstance(found, Pipeline):
        return Object(full, found)
    model, about, build, advice = _of_function(full, found)
    return Built(full, model, about, build, advice=advice, module=getattr(found, "__module__", ""))


def _of_function(full: str, build: Any) -> tuple[type[PipelineOptions], str, Callable[[Any], Pipeline], str]:
    """The options model a function asks for, what its docstring says, how it is called, and what to write if it asks
    for none."""
    import inspect
    from typing import get_type_hints

    about = inspect.getdoc(build) or ""
    taken = inspect.signature(build).parameters.values()
    try:
        hints = get_type_hints(build)
    except NameError as error:
        raise click.UsageError(
            f"an annotation of {full} names {error.name!r}, which is not defined in {build.__module__}: define or "
            "import it at the top of the module, and not for type checkers alone"
        ) from None
    asked = [p for p in taken if isinstance(hint := hints.get(p.name), type) and issubclass(hint, PipelineOptions)]
    needed = [p for p in taken if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if not asked and not needed:
        return PipelineOptions, about, lambda options: build(), ""
    if len({p.name for p in asked + needed}) > 1:
        raise click.UsageError(f"{full} takes {', '.join(p.name for p in taken)}: a target takes its options alone")
    parameter = (asked or needed)[0]
    model = hints.get(parameter.name, PipelineOptions)
    if not asked and parameter.name in hints:
        raise click.UsageError(f"{full} takes {parameter}: its options must be a subclass of tg.PipelineOptions")
    advice = "" if asked else _annotation_wanted(full, build, parameter.name)
    if parameter.kind is parameter.KEYWORD_ONLY:
        return model, about, lambda options: build(**{parameter.name: options}), advice
    return model, about, build, advice


def _annotation_wanted(full: str, build: Any, parameter: str) -> str:
    """For a function whose options have no annotation: which one would give it those of its own."""
    own = [
        name
        for name, value in getattr(build, "__globals__", {}).items()
        if isinstance(value, type) and issubclass(value, PipelineOptions) and value.__module__ == build.__module__
    ]
    model = own[0] if len(own) == 1 else "MyOptions"
    return (
        f"{full} does not say which options it takes, so it has those of every pipeline alone: write "
        f"`{parameter}: {model}`, with your subclass of tg.PipelineOptions"
    )
