"""Options: the settings of a run, as models that pydantic checks.

An author subclasses `PipelineOptions` for the flags of a pipeline; a runner subclasses `RunnerOptions` for its own.
`options_for` joins the two for one run, `from_args` reads a command line into the result. One parser serves scripts and
the `tidegate` command, so that a flag means the same and fails with the same words everywhere.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Never, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUndefinedAnnotation,
    ValidationError,
    create_model,
    field_validator,
)

from tidegate.sdk.errors import OptionsError, shorten
from tidegate.sdk.options.defaults import DEFAULTS
from tidegate.sdk.options.flags import (
    Flag,
    FlagSet,
    Given,
    Group,
    asks_help,
    explain,
    flag_of,
    help_lines,
    names_of,
    parse,
    spelling,
    unexpected,
)
from tidegate.sdk.options.option_types import Period, SizeOption
from tidegate.sdk.options.registry import make_runner, runner_names
from tidegate.sdk.options.script import note_read, on_misuse, print_to_reader
from tidegate.sdk.secrets.registry import is_secret, suggest
from tidegate.sdk.typehints.hints import annotations_of

M = TypeVar("M", bound="PipelineOptions")


@dataclass(frozen=True, slots=True)
class _OnlyOn:
    """Marks a common flag that just one runner obeys."""

    runner: str


# Names of flags that would hide what every model has.
_RESERVED: Final = frozenset({"help", "from_args", "from_known_args", "from_mapping", "view_as", "dump", "load"})


class PipelineOptions(BaseModel):
    """The flags every run has. Subclass it for a pipeline's own:

        class WordCount(tg.PipelineOptions):
            input: str
            limit: int = Field(default=10, description="how many words to print")

        options = WordCount.from_args()

    Frozen. Whatever doesn't fit (an unknown name, a value of another type, a missing one) raises OptionsError, from
    `from_args` and from the constructor alike.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, populate_by_name=True, loc_by_alias=False,
        ser_json_inf_nan="strings",
    )  # fmt: skip

    runner: str = Field(default=DEFAULTS.runner, description="which runner runs the pipeline")
    checks: Annotated[Literal["sample", "all", "off"], _OnlyOn("direct")] = Field(
        default=DEFAULTS.checks,
        description="direct runner: check that steps leave their elements alone: for the first of each step and a thin "
        "sample after them, for all (which also tries CombineFns in other groupings), or not at all",
    )
    memory_budget: SizeOption | None = Field(
        default=DEFAULTS.memory_budget,
        description="what grouping may hold in memory before it spills to disk; a quarter of the machine's if none",
    )
    temp_dir: Path | None = Field(
        default=DEFAULTS.temp_dir, description="where spilled data goes; the system's temporary directory if none"
    )
    type_check: Literal["build", "runtime", "off"] = Field(
        default=DEFAULTS.type_check,
        description="check element types where steps meet; runtime also checks the elements",
    )
    allow_unsafe_triggers: bool = Field(
        default=DEFAULTS.allow_unsafe_triggers, description="accept triggers that may finish early and drop data"
    )
    mode: Literal["batch", "streaming"] = Field(
        default=DEFAULTS.mode,
        description="streaming treats bounded input as a stream: watermarks as the source gives them, early panes",
    )
    run_for: Period | None = Field(default=DEFAULTS.run_for, description="stop an unbounded pipeline after this long")
    max_end_timers: int = Field(
        default=DEFAULTS.max_end_timers,
        ge=0,
        description="how many event timers that other timers set after the end of input fire for a key in the global "
        "window; the rest are dropped and counted",
    )
    progress: Literal["auto", "on", "off"] = Field(
        default=DEFAULTS.progress, description="show progress on stderr; auto does so on a terminal only"
    )
    inline: Literal["on", "off", "always"] = Field(
        default=DEFAULTS.inline,
        description="write the text of functions into the loops that would call them, for speed; always: into "
        "the loops of the elements that --checks checks, too, which are the first 1,000 of each step",
    )

    # The author's and the runner's model this class was joined from, by which a pickled instance finds it again.
    _joined: ClassVar[tuple[type[PipelineOptions], str, type[PipelineOptions]] | None] = None

    @field_validator("memory_budget")
    @classmethod
    def _more_than_nothing(cls, value: int | None) -> int | None:
        if value == 0:
            raise ValueError("must be more than 0")
        return value

    def __init__(self, /, *flags: Never, **values: Any) -> None:
        if flags:
            raise OptionsError(
                f"{type(self).__name__} takes its options by name; a command line is read by "
                f"{type(self).__name__}.from_args(sys.argv[1:])"
            )
        _complete(type(self))
        try:
            super().__init__(**values)
        except ValidationError as error:
            runner = str(values.get("runner", _runner_default(type(self))))
            raise OptionsError("\n".join(explain(error, _flag_set(type(self), runner)).values())) from None
        _name_secrets(self)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        common = PipelineOptions.model_fields
        for name, field in cls.model_fields.items():
            if name in _RESERVED:
                raise OptionsError(f"{cls.__name__}.{name}: the name is taken by PipelineOptions; choose another")
            if name in common and field.annotation != common[name].annotation:
                raise OptionsError(
                    f"{cls.__name__}.{name}: {spelling(name)} is a common flag and keeps its type; "
                    "give it another default, or choose another name"
                )

    @classmethod
    def from_args(cls, argv: Sequence[str] | None = None, **defaults: Any) -> Self:
        """The options that a command line gives (`sys.argv[1:]` if None), with `defaults` for what it leaves out.

        Flags of the chosen `--runner` are accepted beside those of `cls`; the result is then an instance of a subclass
        of `cls`. Of a flag given twice the last counts, lists gather. `--help` prints the flags and exits.
        Raises OptionsError, which lists every flag that is refused.
        """
        tokens, model, known, given = read_flags(cls, argv, defaults)
        if asks_help(given):
            print_to_reader(help_text(model))
            raise SystemExit(0)
        note_read(tokens, names_of(known))
        strange = [line for chunk in given.rest for line in unexpected(chunk, given, known)]
        return build_options(tokens, model, known, given, defaults, strange)

    @classmethod
    def from_known_args(cls, argv: Sequence[str] | None = None, **defaults: Any) -> tuple[Self, list[str]]:
        """Like `from_args`, but returns what isn't a flag of this run, in order, for the script's own parser."""
        tokens, model, known, given = read_flags(cls, argv, defaults)
        note_read(tokens, None)
        return build_options(tokens, model, known, given, defaults, ()), [
            token for chunk in given.rest for token in chunk
        ]

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Options from flags by name, those of the runner they name among them; OptionsError if they don't fit."""
        known = values.keys() <= cls.model_fields.keys()
        model = cls if known else options_for(str(values.get("runner", _runner_default(cls))), cls)
        return model(**values)

    def view_as(self, model: type[M]) -> M:
        """The same options as another model sees them: shared fields carried over, others at their defaults.

        A runner uses it to read its own flags from options that lack them. OptionsError if `model` requires
        a flag that these options don't have.
        """
        if isinstance(self, model):
            return self
        return model(**{name: getattr(self, name) for name in type(self).model_fields if name in model.model_fields})

    def dump(self) -> str:
        """JSON text that `load` reads back to equal options. OptionsError if a value doesn't survive the way."""
        try:
            text = self.model_dump_json()
            again = type(self).load(text)
        except (ValueError, OptionsError) as error:
            raise OptionsError(f"{type(self).__name__} can't be written as JSON: {error}") from None
        for name in type(self).model_fields:
            if getattr(again, name) != getattr(self, name):
                raise OptionsError(
                    f"{spelling(name)}: {shorten(getattr(self, name))} doesn't survive being written as JSON"
                )
        return text

    @classmethod
    def load(cls, text: str) -> Self:
        """Options from what `dump` wrote, the flags of its runner among them; OptionsError if they don't fit."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OptionsError(f"these options are no JSON: {error}") from None
        if not isinstance(values, dict):
            raise OptionsError(f"options are a JSON object of flags, not {shorten(values)}")
        return cls.from_mapping(values)

    def __reduce__(self) -> tuple[object, ...]:
        return _blank, self._joined or (type(self), None, None), self.__getstate__()


class RunnerOptions(PipelineOptions):
    """The base of a runner's own flags. A runner's model redeclares `runner` with its name as the default:

    class SparkOptions(RunnerOptions):
        runner: str = "spark"
        spark_master: str = Field(default="local[*]", description="where Spark runs")
    """


def options_for(runner: str, author: type[M]) -> type[M]:
    """A subclass of `author` (or itself) with the flags of `runner` too, and `runner` as default of `--runner`.

    OptionsError if there is no such runner, or if both declare the same flag.
    """
    _complete(author)
    joined: Any = _join(_author(author), runner, _runner_model(runner))
    return joined  # type: ignore[no-any-return]


def flags(model: type[PipelineOptions]) -> list[Flag]:
    """All flags of a model, in the order it declares them: the author's, the common ones, the runner's."""
    try:
        own = _own_fields(_runner_model(_runner_default(model)))
    except OptionsError:  # options of a runner that isn't installed can be listed all the same
        own = set()
    common = PipelineOptions.model_fields
    author = [flag_of(model, name, "author") for name in model.model_fields if name not in common and name not in own]
    runner = [flag_of(model, name, "runner") for name in model.model_fields if name in own]
    shared = (flag_of(model, name, "common") for name in common)
    # If a runner's or an author's model redeclares a common flag only to change the default, it has no description.
    return [
        *author,
        *(flag if flag.help else replace(flag, help=common[flag.name].description or "") for flag in shared),
        *runner,
    ]


def help_text(model: type[PipelineOptions], width: int = 100) -> str:
    """The text of `--help`: the flags of a run on the model's runner in groups, each with its type, meaning and
    default, and how to list the flags of other runners."""
    author, runner = _author(model), _runner_default(model)
    is_author = author is not PipelineOptions and not issubclass(author, RunnerOptions)
    about = textwrap.dedent(author.__doc__).strip() if is_author and author.__doc__ else ""
    titles: dict[Group, str] = {
        "author": f"Flags of {author.__name__}",
        "common": "Common flags",
        "runner": f"Flags of the {runner} runner",
    }
    supported = [flag for flag in flags(model) if flag.name not in _withheld(runner)]
    others = [f"--runner {name} --help" for name in runner_names() if name != runner]
    return "\n".join(
        [
            *([about, ""] if about else []),
            *help_lines(supported, titles, width),
            *textwrap.wrap(f"Other runners have other flags: {', '.join(others)}.", width),
        ]
    )


def _withheld(runner: str) -> set[str]:
    """The common flags that only another runner supports."""
    return {name for name, only in _ONLY_ON.items() if only != runner}


@cache
def _join(author: type[PipelineOptions], runner: str, model: type[PipelineOptions]) -> type[PipelineOptions]:
    for whole in (author, model):
        if issubclass(whole, author) and issubclass(whole, model) and _runner_default(whole) == runner:
            return whole
    bases = (author,) if issubclass(author, model) else (model,) if issubclass(model, author) else (author, model)
    if len(bases) == 2:
        same = {
            name
            for base in author.__mro__
            if issubclass(base, PipelineOptions) and issubclass(model, base)
            for name in base.model_fields
        }
        for name in author.model_fields:
            if name in model.model_fields and name not in same:
                raise OptionsError(
                    f"{author.__name__}.{name}: {spelling(name)} is a flag of the {runner} runner; choose another name"
                )
    about = PipelineOptions.model_fields["runner"].description
    joined: Any = create_model(
        author.__name__,
        __base__=bases,
        __module__=author.__module__,
        __doc__=author.__doc__,
        runner=(str, Field(runner, description=about)),
    )
    joined._joined = (author, runner, model)
    return joined  # type: ignore[no-any-return]


def _complete(model: type[PipelineOptions]) -> None:
    """Resolve annotations that named something not yet defined; OptionsError if it still is not."""
    if model.__pydantic_complete__:
        return
    try:
        model.model_rebuild(_types_namespace={})
    except PydanticUndefinedAnnotation as error:
        word = re.compile(rf"\b{re.escape(str(error.name))}\b")
        hints = annotations_of(model)
        name = next((f".{name}" for name, hint in hints.items() if word.search(str(hint))), "")
        raise OptionsError(
            f"{model.__name__}{name}: an annotation names {error.name!r}, which is not defined in {model.__module__}: "
            "define or import it at the top of the module, and not only for type checkers"
        ) from None


def _author(model: type[PipelineOptions]) -> type[PipelineOptions]:
    """The model an author wrote, also of one that is already joined with a runner's."""
    joined = vars(model).get("_joined")
    return joined[0] if joined else model


def _blank(author: type[PipelineOptions], runner: str | None, model: type[PipelineOptions] | None) -> PipelineOptions:
    """An instance for unpickling to fill. A joined class has no name to import it by, so it is joined again."""
    cls = author if runner is None or model is None else _join(author, runner, model)
    return cls.__new__(cls)


def _runner_default(model: type[PipelineOptions]) -> str:
    return str(model.model_fields["runner"].default)


def _runner_model(runner: str) -> type[PipelineOptions]:
    names = runner_names()
    if runner not in names:
        near = difflib.get_close_matches(runner, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise OptionsError(f"unknown runner {shorten(runner)}: {hint}--runner takes one of {', '.join(names)}")
    try:
        return make_runner(runner).options_model() or PipelineOptions
    except Exception as error:  # whatever the import of a plugin may raise
        raise OptionsError(f"the {runner} runner can't be loaded: {error}") from error


def _foreign_flags(runner: str) -> dict[str, list[str]]:
    """The flags that other runners obey: field name -> their names."""
    foreign: dict[str, list[str]] = {}
    for name, only in _ONLY_ON.items():
        if only != runner:
            foreign[name] = [only]
    for other in sorted(runner_names()):
        try:
            names = _own_fields(_runner_model(other))
        except OptionsError:  # a broken plugin must not hide what is wrong with the flags
            continue
        if other != runner:
            for name in names:
                foreign.setdefault(name, []).append(other)
    return foreign


def _own_fields(model: type[PipelineOptions]) -> set[str]:
    return model.model_fields.keys() - PipelineOptions.model_fields.keys()


_ONLY_ON: Final = {
    name: mark.runner
    for name, field in PipelineOptions.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, _OnlyOn)
}


def read_flags(
    cls: type[M], argv: Sequence[str] | None, defaults: Mapping[str, object]
) -> tuple[list[str], type[M], FlagSet, Given]:
    """A command line, as the model of `cls` and of the runner it chooses reads it."""
    if isinstance(argv, str):
        raise OptionsError(f"flags are a list of strings, not one string: shlex.split({shorten(argv)})")
    tokens = list(sys.argv[1:] if argv is None else argv)
    runner = _chosen_runner(cls, tokens, defaults)
    try:
        model = options_for(runner, cls)
    except OptionsError as error:
        if runner != _default_runner(cls, defaults) and runner not in runner_names():  # a flag names it
            on_misuse(error, tokens)
        raise
    known = _flag_set(model, runner)
    return tokens, model, known, parse(tokens, known)


def _chosen_runner(model: type[PipelineOptions], tokens: Sequence[str], defaults: Mapping[str, object]) -> str:
    """`--runner` decides which flags there are, so it is looked for first; a value never starts with two dashes."""
    runner = _default_runner(model, defaults)
    for token, following in zip(tokens, [*tokens[1:], "--"]):
        if token == "--":
            break
        if token == "--runner" and not following.startswith("--"):
            runner = following
        elif token.startswith("--runner="):
            runner = token.removeprefix("--runner=")
    return runner


def _default_runner(model: type[PipelineOptions], defaults: Mapping[str, object]) -> str:
    return str(defaults.get("runner", _runner_default(model)))


def _flag_set(model: type[PipelineOptions], runner: str) -> FlagSet:
    return FlagSet(
        model, runner, {flag.name: flag for flag in flags(model)}, _withheld(runner), partial(_foreign_flags, runner)
    )


def build_options(
    tokens: Sequence[str],
    model: type[M],
    known: FlagSet,
    given: Given,
    defaults: Mapping[str, object],
    strange: Sequence[str],
) -> M:
    """The options. Raises one OptionsError that lists everything wrong."""
    foreign = known.foreign() if defaults.keys() - model.model_fields.keys() else {}
    # A script's default for a flag of another runner waits for the run that chooses that runner.
    fitting = {name: value for name, value in defaults.items() if name in model.model_fields or name not in foreign}
    options = model.__new__(model)
    problems = dict(given.problems)
    try:
        BaseModel.__init__(options, **(fitting | given.values | {"runner": known.runner}))
    except ValidationError as error:
        problems = explain(error, known) | problems
    if strange or problems:
        refused = OptionsError("\n".join([*strange, *problems.values()]))
        # A default that doesn't fit is a mistake in the script, whose author needs the traceback.
        if strange or problems.keys() - (defaults.keys() - given.values.keys()):
            on_misuse(refused, tokens)
        raise refused
    _name_secrets(options)
    return options


def _name_secrets(options: PipelineOptions) -> None:
    """Have secrets among the options known by the names of their options."""
    for name in type(options).model_fields:
        if is_secret(value := getattr(options, name)):
            suggest(value, name)
