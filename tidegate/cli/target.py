"""What a command works on: a Pipeline in a file or module, a function that builds one, or a compiled pipeline."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from tidegate.cli.secrecy import secret_fields
from tidegate.sdk.errors import LoadError, OptionsError, shorten
from tidegate.sdk.flags import spelling
from tidegate.sdk.options import PipelineOptions, options_for
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.portable import pipeline as portable
from tidegate.sdk.runner import PipelineResult, Runner, find_runner

DEFAULT_NAME = "pipeline"


class Target:
    """A pipeline that is there, or can be built once the options are known. `about` is what its author says of it."""

    def __init__(self, name: str, model: type[PipelineOptions], about: str = "") -> None:
        self.name = name
        self.about = about
        self._model = model

    @property
    def result(self) -> PipelineResult | None:
        """The run of a pipeline that ran as its script was imported."""
        return None

    def unheeded(self, options: PipelineOptions) -> list[str]:
        """The flags that such a run was to have, by these options, and did not."""
        return []

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        """The options that the flags give; raises OptionsError, prints help and exits for `--help`."""
        return self._model.from_args(flags, **self.defaults(flags))

    def defaults(self, flags: Sequence[str]) -> dict[str, Any]:
        """What holds where the flags say nothing."""
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


class Built(Target):
    """A Pipeline object of a script, or a function that returns one."""

    def __init__(self, name: str, model: type[PipelineOptions], about: str, build: Callable[[Any], Pipeline]) -> None:
        super().__init__(name, model, about)
        self._build = build
        self._pipeline: Pipeline | None = None

    def pipeline(self, options: PipelineOptions) -> Pipeline:
        """The pipeline, built once."""
        if self._pipeline is None:
            self._pipeline = self._build(options)
            if not isinstance(self._pipeline, Pipeline):
                raise click.UsageError(f"{self.name} returned {type(self._pipeline).__name__}, not a Pipeline")
        return self._pipeline

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

    @property
    def result(self) -> PipelineResult | None:
        return self._known.result if self._known.has_run else None

    def defaults(self, flags: Sequence[str]) -> dict[str, Any]:
        own = self._known.options if isinstance(self._known.options, PipelineOptions) else None
        given = {name: getattr(own, name) for name in own.model_fields_set} if own else {}
        return given | ({"runner": self._known.runner} if isinstance(self._known.runner, str) else {})

    def unheeded(self, options: PipelineOptions) -> list[str]:
        own = self._known.options
        had = {name: getattr(own, name, None) for name in options.model_fields_set}
        match self._known.runner:
            case Runner() as runner:
                had["runner"] = runner.name if self._names_runner else options.runner
            case str(name):
                had["runner"] = name
        return [name for name in sorted(had) if had[name] != getattr(options, name)]

    def options(self, flags: Sequence[str]) -> PipelineOptions:
        self._names_runner = any(flag.partition("=")[0] == "--runner" for flag in flags)
        return super().options(flags)

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
            raise LoadError(f"{self.name}: the value of the option {flag!r} is no JSON: {shorten(text)}") from error
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
        from tidegate.sdk.portable.arrival import arrive

        return arrive(self._pipeline, self.name)


def find_target(text: str, flags: Sequence[str]) -> Target:
    """The target that `text` names. Imports its module, which sees the flags as its `sys.argv`.

    Raises click.UsageError for a target that isn't there, LoadError for a broken compiled pipeline, and whatever the
    module raises when it is imported.
    """
    place, name = _split(text)
    if place.endswith(".json"):
        if name is not None:
            raise click.UsageError(f"{place} is one pipeline, without names in it: leave out :{name}")
        return _load(place)
    if place.endswith(".py"):
        module = _import_file(_existing(place), flags)
    elif "/" in place or "\\" in place or place.startswith(".") or Path(place).is_file():
        _existing(place)
        raise click.UsageError(f"{place}: a target is a file.py, a package.module, or a compiled pipeline.json")
    else:
        module = _import_module(place, flags)
    return _pick(module, place, name)


def _split(text: str) -> tuple[str, str | None]:
    place, colon, name = text.rpartition(":")
    return (place, name) if colon and name.isidentifier() and len(place) > 1 else (text, None)


def _existing(place: str) -> Path:
    path = Path(place)
    if path.is_dir():
        raise click.UsageError(f"{place} is a folder: a target is a file.py, a package.module, or a pipeline.json")
    if not path.is_file():
        import difflib

        folder = path.parent if path.parent.is_dir() else Path()
        near = difflib.get_close_matches(path.name, [p.name for p in folder.iterdir()], n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise click.UsageError(f"there is no file {place}{hint}")
    return path


def _load(place: str) -> Target:
    from tidegate.sdk.portable.schema import load

    return Compiled(place, load(_existing(place).read_bytes(), place))


def _import_file(path: Path, flags: Sequence[str]) -> ModuleType:
    """Import a script by its path.

    Its module is `__main__.stem`: not `__main__`, so that what stands under `if __name__ == "__main__"` does not run,
    and below it, so that its code travels by value whatever else is called like the file.
    """
    name = f"__main__.{path.stem.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.argv = [str(path), *flags]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(name: str, flags: Sequence[str]) -> ModuleType:
    sys.argv = [name, *flags]
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise click.UsageError(f"there is no module {error.name} here, and no file of that name") from None
        raise
    except ValueError:  # an empty name
        raise click.UsageError(f"{name!r} is no target: give a file.py, a package.module, or a pipeline.json") from None


def _pick(module: ModuleType, place: str, name: str | None) -> Target:
    wanted = name or DEFAULT_NAME
    full = f"{place}:{wanted}"
    found = getattr(module, wanted, None)
    match found:
        case Pipeline():
            return Object(full, found)
        case _ if callable(found) and not isinstance(found, type):
            return Built(full, *_of_function(full, found))
        case None:
            there = [key for key, value in vars(module).items() if _could_be(module, value)]
            hint = f"; it has {', '.join(there)}: write {place}:{there[0]}" if there else ""
            raise click.UsageError(
                f"{place} has no {wanted!r}{hint}. A target is a Pipeline, or a function that returns one"
            )
    raise click.UsageError(f"{full} is {type(found).__name__}, not a Pipeline or a function that returns one")


def _could_be(module: ModuleType, value: Any) -> bool:
    if isinstance(value, Pipeline):
        return True
    hints = getattr(value, "__annotations__", None)
    returned = hints.get("return") if isinstance(hints, dict) and not isinstance(value, type) else None
    text = returned if isinstance(returned, str) else getattr(returned, "__name__", "")
    return getattr(value, "__module__", None) == module.__name__ and text.rpartition(".")[2] == "Pipeline"


def _of_function(full: str, build: Any) -> tuple[type[PipelineOptions], str, Callable[[Any], Pipeline]]:
    """The options model a function asks for, what its docstring says, and how it is called."""
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
        return PipelineOptions, about, lambda options: build()
    if len({p.name for p in asked + needed}) > 1:
        raise click.UsageError(f"{full} takes {', '.join(p.name for p in taken)}: a target takes its options alone")
    parameter = (asked or needed)[0]
    model = hints.get(parameter.name, PipelineOptions)
    if not asked and parameter.name in hints:
        raise click.UsageError(f"{full} takes {parameter}: its options must be a subclass of tg.PipelineOptions")
    if parameter.kind is parameter.KEYWORD_ONLY:
        return model, about, lambda options: build(**{parameter.name: options})
    return model, about, lambda options: build(options)
