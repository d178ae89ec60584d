"""The target of a command: a Pipeline in a file or module, a function that builds one, or a compiled pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from tidegate.cli.secrecy import ask_for_secrets, secret_fields
from tidegate.sdk.errors import LoadError, OptionsError, shorten
from tidegate.sdk.options.flags import spelling
from tidegate.sdk.options.model import PipelineOptions, options_for
from tidegate.sdk.options.script import Unwound, loading
from tidegate.sdk.options.script_flags import ScriptFlags
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.portable import model as portable
from tidegate.sdk.runner import PipelineResult, Runner, find_runner


class Target:
    """A pipeline, or a way to build one from its options. `about` is the author's description of it."""

    loads_code = True
    """Whether commands that don't run the pipeline may load its functions."""

    def __init__(self, name: str, model: type[PipelineOptions], about: str = "") -> None:
        self.name = name
        self.about = about
        self._model = model

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        """Parse the flags. Raises OptionsError; prints help and exits for `--help`."""
        return self._model.from_args(flags, **self.defaults(flags))

    def defaults(self, flags: Sequence[str]) -> dict[str, Any]:
        """The values of options for which there is no flag."""
        return {}

    def runner(self, options: PipelineOptions) -> Runner:
        """The runner that the options name."""
        return find_runner(options.runner)

    def live(self, options: PipelineOptions) -> portable.Pipeline:
        """The portable pipeline with the author's live functions."""
        raise NotImplementedError

    def sealed(self, options: PipelineOptions, *, values: bool = False) -> portable.Pipeline:
        """The portable pipeline as runners need it, with sealed functions. Raises BuildError."""
        raise NotImplementedError

    def stored_flags(self, options: PipelineOptions) -> tuple[tuple[str, str], ...]:
        """The flags that a compiled pipeline stores, each with its value as JSON.

        They are the flags that were set, and all options that the author declared, whose defaults are fixed by this.
        Secrets are left out.
        """
        declared = self._model.model_fields.keys() - options_for(options.runner, PipelineOptions).model_fields.keys()
        values = options.model_dump(
            mode="json", include=(options.model_fields_set | declared) - secret_fields(options), fallback=str
        )
        return tuple((name, json.dumps(value)) for name, value in sorted(values.items()))

    def prepare(self) -> list[str]:
        """Prepare this process to run the pipeline, and return warnings."""
        return []

    def record_run(self, result: PipelineResult) -> None:
        """Make the result of a run available to the author's script."""
        return


class Built(Target):
    """A Pipeline object of a script, or a function that returns one.

    `advice`, for a function whose parameter has no annotation, says how to declare options; errors end with it.
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
        """The pipeline that the function returns, or the first one that it tries to run, which ends the function."""
        intercepted: list[Pipeline] = []

        def intercept(pipeline: Pipeline) -> NoReturn:
            intercepted.append(pipeline)
            raise Unwound

        try:
            with loading(self._module, intercept):
                return self._build(options)
        except Unwound:
            return intercepted[0]
        except AttributeError as error:
            if self._advice and error.obj is options:
                error.args = (f"{error}. {self._advice}",)
            raise

    def live(self, options: PipelineOptions) -> portable.Pipeline:
        return self.pipeline(options).portable()

    def sealed(self, options: PipelineOptions, *, values: bool = False) -> portable.Pipeline:
        return self.pipeline(options).sealed(values=values)


class Object(Built):
    """A Pipeline object. Flags override its runner and its options."""

    def __init__(self, name: str, pipeline: Pipeline) -> None:
        self._object = pipeline
        options = pipeline.options if isinstance(pipeline.options, PipelineOptions) else None
        super().__init__(name, type(options) if options else PipelineOptions, "", lambda _: pipeline)
        self._names_runner = False

    def defaults(self, flags: Sequence[str]) -> dict[str, Any]:
        options = self._object.options if isinstance(self._object.options, PipelineOptions) else None
        values = {name: getattr(options, name) for name in options.model_fields_set} if options else {}
        return values | ({"runner": self._object.runner} if isinstance(self._object.runner, str) else {})

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        parsed = ScriptFlags.read(flags, self._model, self.defaults(flags))
        parsed.check()
        self._names_runner = parsed.names_runner
        return parsed.options

    def record_run(self, result: PipelineResult) -> None:
        self._object.has_been_run(result)

    def runner(self, options: PipelineOptions) -> Runner:
        runner = self._object.runner
        return runner if isinstance(runner, Runner) and not self._names_runner else super().runner(options)


class Compiled(Target):
    """A compiled pipeline with its stored flags. Those that every pipeline has can be overridden."""

    loads_code = False

    def __init__(self, name: str, pipeline: portable.Pipeline) -> None:
        super().__init__(name, PipelineOptions)
        self._pipeline = pipeline
        self._stored = {flag: self._read(flag, text) for flag, text in pipeline.options}

    def _read(self, flag: str, text: str) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LoadError(f"{self.name}: the value of the option {flag!r} is not JSON: {shorten(text)}") from error
        if flag == "runner" and not isinstance(value, str):
            raise LoadError(f"{self.name}: the option 'runner' must be a name, not {shorten(value)}")
        return value

    def defaults(self, flags: Sequence[str]) -> dict[str, Any]:
        fields = options_for(self._stored.get("runner", "direct"), PipelineOptions).model_fields
        return {name: value for name, value in self._stored.items() if name in fields}

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        common = PipelineOptions.model_fields
        names = {"--" + flag[2:].partition("=")[0].replace("-", "_") for flag in flags if flag.startswith("--")}
        for name, value in self._pipeline.options:
            spelled = spelling(name)
            if name not in common and not names.isdisjoint((spelled, f"--no_{spelled[2:]}")):
                raise OptionsError(
                    f"{spelled} was fixed to {value} when {self.name} was compiled: compile it again for another value"
                )
        return super().options(flags)

    def live(self, options: PipelineOptions) -> portable.Pipeline:
        return self._pipeline

    def sealed(self, options: PipelineOptions, *, values: bool = False) -> portable.Pipeline:
        return self._pipeline

    def stored_flags(self, options: PipelineOptions) -> tuple[tuple[str, str], ...]:
        return tuple(sorted({**dict(self._pipeline.options), **dict(super().stored_flags(options))}.items()))

    def prepare(self) -> list[str]:
        from tidegate.sdk.portable.loading import install_code

        ask_for_secrets(self._pipeline)
        return install_code(self._pipeline, self.name)


def target_of(full: str, found: Pipeline | Callable[..., Any]) -> Target:
    """The target for a Pipeline, or for a function that returns one. Raises click.UsageError for any other function."""
    if isinstance(found, Pipeline):
        return Object(full, found)
    model, about, build, advice = _of_function(full, found)
    return Built(full, model, about, build, advice=advice, module=getattr(found, "__module__", ""))


def _of_function(full: str, build: Any) -> tuple[type[PipelineOptions], str, Callable[[Any], Pipeline], str]:
    """The function's options model, its docstring, how to call it, and advice if its parameter has no annotation."""
    import inspect
    from typing import get_type_hints

    about = inspect.getdoc(build) or ""
    parameters = inspect.signature(build).parameters.values()
    try:
        hints = get_type_hints(build)
    except NameError as error:
        raise click.UsageError(
            f"an annotation of {full} names {error.name!r}, which is not defined in {build.__module__}: define or "
            "import it at the top of the module, and not only for type checkers"
        ) from None
    typed = [p for p in parameters if isinstance(hint := hints.get(p.name), type) and issubclass(hint, PipelineOptions)]
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if not typed and not required:
        return PipelineOptions, about, lambda options: build(), ""
    if len({p.name for p in typed + required}) > 1:
        raise click.UsageError(
            f"{full} takes {', '.join(p.name for p in parameters)}: the only parameter of a target is its options"
        )
    parameter = (typed or required)[0]
    model = hints.get(parameter.name, PipelineOptions)
    if not typed and parameter.name in hints:
        raise click.UsageError(f"{full} takes {parameter}: its options must be a subclass of tg.PipelineOptions")
    advice = "" if typed else _annotation_advice(full, build, parameter.name)
    if parameter.kind is parameter.KEYWORD_ONLY:
        return model, about, lambda options: build(**{parameter.name: options}), advice
    return model, about, build, advice


def _annotation_advice(full: str, build: Any, parameter: str) -> str:
    """Which annotation to write, for a function whose parameter has none."""
    models = [
        name
        for name, value in getattr(build, "__globals__", {}).items()
        if isinstance(value, type) and issubclass(value, PipelineOptions) and value.__module__ == build.__module__
    ]
    model = models[0] if len(models) == 1 else "MyOptions"
    return (
        f"The parameter {parameter!r} of {full} has no annotation, so there are only the options that every pipeline "
        f"has: write `{parameter}: {model}`, with your subclass of tg.PipelineOptions"
    )
