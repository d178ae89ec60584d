"""Command-line flags for the fields of a model: parsing, error messages and help.

This module does not know what the flags mean. A FlagSet contains the flags of a run; `parse` parses a command line,
`explain` and `unexpected` describe its errors, and `help_lines` lists the flags.
"""

from __future__ import annotations

import difflib
import keyword
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pydantic import BaseModel, ValidationError

from tidegate.sdk.errors import shorten
from tidegate.sdk.options.flag_types import Kind, kind_of, text_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Group: TypeAlias = Literal["author", "common", "runner"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a model. `name` is the field; `spelling` (`--memory_budget`) and `aliases` are how it is written."""

    name: str
    spelling: str
    aliases: tuple[str, ...]
    kind: Kind
    default: str | None
    required: bool
    examples: tuple[str, ...]
    help: str
    group: Group

    @property
    def negation(self) -> str | None:
        """`--no_name`, for a flag that is on or off."""
        return next((alias for alias in self.aliases if alias == _negated(self.name)), None)


@dataclass(frozen=True, slots=True)
class FlagSet:
    """The flags of one run."""

    model: type[BaseModel]
    runner: str
    flags: Mapping[str, Flag]
    """All flags of the model, by field."""
    withheld: Set[str]
    """The flags that only another runner supports, which are refused and not ignored."""
    foreign: Callable[[], Mapping[str, Sequence[str]]]
    """Returns the other runners that have a flag, by field. Called only for error messages, because it loads those
    runners."""


@dataclass(frozen=True, slots=True)
class Given:
    """A parsed command line: values by field, errors by field, and the arguments that are not flags of the run."""

    values: dict[str, object]
    problems: dict[str, str]
    rest: list[list[str]]


def flag_of(model: type[BaseModel], name: str, group: Group) -> Flag:
    """The spelling of a model's field as a flag."""
    field: FieldInfo = model.model_fields[name]
    kind = kind_of(field)
    spellings = [spelling(name)]
    if kind.is_bool and _negated(name)[2:] not in model.model_fields:
        spellings.append(_negated(name))
    every = dict.fromkeys(text for plain in spellings for text in (plain, "--" + plain[2:].replace("_", "-")))
    return Flag(
        name=name,
        spelling=spellings[0],
        aliases=tuple(every)[1:],
        kind=kind,
        default=None if field.is_required() or field.default_factory else text_of(field.default, kind),
        required=field.is_required(),
        examples=(*(text_of(example, kind) for example in field.examples or ()), kind.example),
        help=field.description or "",
        group=group,
    )


def spelling(name: str) -> str:
    """`--name`; a field called after a keyword, `from_`, is `--from`."""
    return "--" + (name[:-1] if name.endswith("_") and keyword.iskeyword(name[:-1]) else name)


def parse(tokens: Sequence[str], known: FlagSet) -> Given:
    """Read a command line. Of a flag given twice the last counts, lists gather; nothing is raised."""
    names, flags = _names(known), known.flags
    texts: dict[str, list[str]] = {}
    problems: dict[str, str] = {}
    rest: list[list[str]] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token == "--":
            rest.append(list(tokens[at - 1 :]))
            break
        spelled, equals, text = token[2:].partition("=")
        following = tokens[at] if not equals and at < len(tokens) and not tokens[at].startswith("--") else None
        if not token.startswith("--"):
            swallow = _SHORT.match(token) is not None and following is not None
            rest.append([token, *tokens[at : at + swallow]])
            at += swallow
            continue
        match names.get(spelled.replace("-", "_")):
            case None:
                rest.append([token] if following is None else [token, following])
                at += following is not None
            case name, True if equals:
                problems[name] = f"{_negated(name)} takes no value: write {flags[name].spelling}={text}"
            case name, negated if flags[name].kind.is_bool:
                if following is not None and following.lower() in _BOOL_WORDS:
                    problems[name] = (
                        f"{flags[name].spelling} takes no separate value: write {flags[name].spelling}={following}"
                    )
                    at += 1
                texts.setdefault(name, []).append(text if equals else "false" if negated else "true")
            case name, _:
                if equals or following is not None:
                    texts.setdefault(name, []).append(text if following is None else following)
                    at += following is not None
                else:
                    problems[name] = _needs_value(known, flags[name])
                    if at < len(tokens) and tokens[at][2:].partition("=")[0].replace("-", "_") not in names:
                        problems[name] += (
                            f"; a value that starts with two dashes is written {flags[name].spelling}={tokens[at]}"
                        )
    return Given({name: flags[name].kind.read(given) for name, given in texts.items()}, problems, rest)


def asks_help(given: Given) -> bool:
    """Whether `--help` is on the command line."""
    return any(chunk[0] in ("--help", "-h") for chunk in given.rest)


def is_flag(chunk: Sequence[str]) -> bool:
    """Whether a chunk of the command line is written as a flag; none is after `--`."""
    return chunk[0] != "--" and (chunk[0].startswith("--") or _SHORT.match(chunk[0]) is not None)


def names_of(known: FlagSet) -> Set[str]:
    """The spellings of a run's flags, with `_` and without leading dashes."""
    return _names(known).keys()


def help_lines(flags: Sequence[Flag], titles: Mapping[Group, str], width: int) -> list[str]:
    """Every flag, by group, with what it takes, what it is for, and its default."""
    lines: list[str] = []
    for group, title in titles.items():
        members = [flag for flag in flags if flag.group == group]
        if members:
            lines += [f"{title}:", *(line for flag in members for line in _help_of(flag, width)), ""]
    return [*lines, "Flags may be written with - or _, as --name VALUE or --name=VALUE."]


def explain(error: ValidationError, known: FlagSet) -> dict[str, str]:
    """One line for each field that pydantic refused."""
    problems: dict[str, str] = {}
    for fault in error.errors(include_url=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        if name not in problems:
            problems[name] = _fault(known, name, fault["type"], fault["msg"], fault["input"])
    return problems


def unexpected(chunk: Sequence[str], given: Given, known: FlagSet) -> list[str]:
    """The lines of an error for a chunk of the command line that is no flag of this run."""
    first = chunk[0]
    if first == "--":
        return [_positional(text, given, known) for text in chunk[1:]]
    if first.startswith("--"):
        return [_unknown(known, first[2:].partition("=")[0])]
    if _SHORT.match(first):
        meant = first[1:].partition("=")[0].replace("-", "_") in _names(known)
        hint = f", as in -{first}" if meant else "; --help lists them"
        return [f"unknown flag {first}: flags start with two dashes{hint}"]
    return [_positional(first, given, known)]


_SHORT: Final = re.compile("-[A-Za-z]")
_BOOL_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})


def _names(known: FlagSet) -> dict[str, tuple[str, bool]]:
    """From the spelling of a flag, with `_` and without leading dashes, to its field and whether it is negated."""
    flags = [flag for flag in known.flags.values() if flag.name not in known.withheld]
    negations = {flag.negation[2:]: (flag.name, True) for flag in flags if flag.negation}
    return negations | {flag.spelling[2:]: (flag.name, False) for flag in flags}


def _negated(name: str) -> str:
    return "--no_" + spelling(name)[2:]


def _help_of(flag: Flag, width: int) -> list[str]:
    head = f"  {flag.spelling} {flag.kind.metavar}".rstrip()
    if flag.negation:
        head += f" | {flag.negation}"
    note = "required" if flag.required else f"default: {flag.default}" if flag.default else ""
    if flag.kind.multiple:
        note = "may be repeated" + (f"; {note}" if note else "")
    text = " ".join(part for part in (flag.help.strip(), f"({note})" if note else "") if part)
    column = 30
    body = textwrap.wrap(text, width - column) or [""]
    if len(head) < column - 1:
        body[0] = head.ljust(column) + body[0]
        return [body[0], *(" " * column + line for line in body[1:])]
    return [head, *(" " * column + line for line in body if line)]


def _fault(known: FlagSet, name: str, kind: str, message: str, given: object) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ").removeprefix("Input ")
    flag = known.flags.get(name)
    if flag is None:
        return _unknown(known, name) if kind == "extra_forbidden" else message
    takes, spelled, example = flag.kind.takes, flag.spelling, _example(known, flag)
    if kind == "missing":
        return f"{spelled} is required: it takes {takes}{example}"
    if kind.endswith(("_type", "_parsing", "_from_float", "literal_error")) or kind == "enum":
        return f"{spelled} takes {takes}, not {shorten(given)}{example}"
    return f"{spelled} can't be {shorten(given)}: {message}{example}"


def _example(known: FlagSet, flag: Flag) -> str:
    """`, for example --limit 10`: the first example that the field itself accepts, or nothing."""
    for text in flag.examples:
        try:
            BaseModel.__init__(known.model.__new__(known.model), **{flag.name: flag.kind.read([text])})
        except ValidationError as error:
            if any(fault["loc"][:1] == (flag.name,) for fault in error.errors()):
                continue
        return f", for example {flag.spelling}{'=' if flag.kind.is_bool else ' '}{text}"
    return ""


def _needs_value(known: FlagSet, flag: Flag) -> str:
    return f"{flag.spelling} needs a value: it takes {flag.kind.takes}{_example(known, flag)}"


def _positional(text: str, given: Given, known: FlagSet) -> str:
    wanting = (flag for flag in known.flags.values() if flag.required and flag.name not in given.values)
    flag = next((flag for flag in wanting if flag.kind.metavar in ("TEXT", "PATH")), None)
    hint = f"did you mean {flag.spelling} {text}?" if flag else "write it as --name VALUE; --help lists the flags"
    return f"unexpected argument {shorten(text)}: every value belongs to a flag; {hint}"


def _unknown(known: FlagSet, spelled: str) -> str:
    foreign = {spelling(name)[2:]: runners for name, runners in known.foreign().items()}
    plain = spelled.replace("-", "_")
    if owners := foreign.get(plain) or foreign.get(plain.removeprefix("no_")):
        choices = " or ".join(f"--runner {owner}" for owner in owners)
        return (
            f"--{spelled} is a flag of the {' and '.join(owners)} runner{'s' if len(owners) > 1 else ''}, "
            f"but this run is on {known.runner}: add {choices}, or leave the flag out"
        )
    own = _names(known)
    near = difflib.get_close_matches(plain.lower(), [*own, "help", *foreign], n=1)
    if not near:
        return f"unknown flag --{spelled}; --help lists those there are"
    whose = f" (a flag of the {foreign[near[0]][0]} runner)" if near[0] not in {*own, "help"} else ""
    return f"unknown flag --{spelled}: did you mean --{near[0]}{whose}?"
