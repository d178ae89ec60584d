"""Names of output files that depend on what is written: `{destination}` and `{window}` in a prefix.

A prefix such as `out/{destination}/{window:%Y-%m-%d}` is a `NameTemplate`. A step in front of the sink fills it in:
it makes of each element the pair `(address, element)`, where an address holds the text of each placeholder, in the
order in which they stand. A sink that takes such pairs keeps the elements of each address apart and asks the template
for the prefix of their files. Any sink that writes files can share both. `{{` and `}}` are literal braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from tidegate.io import files
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.sdk.windowing.window import GlobalWindow

Address: TypeAlias = tuple[str, ...]
"""The text of each placeholder of a template, in order."""

_BRACES: Final = re.compile(r"(?P<escape>\{\{|\}\})|\{(?P<name>[^\W\d]\w*)(?P<rest>[^{}]*)\}")
_REST: Final = re.compile(r"(?:\.(?P<edge>\w+))?(?::(?P<format>[^{}]*))?")
_KINDS: Final = ("destination", "window")
_UNKNOWN_CODE: Final = re.compile(r"%(?:[^\W\d_]|$)")
_CODES: Final = frozenset(f"%{letter}" for letter in "aAbBcdfGHIjmMpSuUVwWxXyYzZ")
_DEFAULT_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One `{…}` of a prefix. A window without an `edge` or a format is written as both its edges."""

    kind: Literal["destination", "window"]
    edge: Literal["start", "end"] | None = None
    format: str | None = None

    def of_window(self, window: Any, zone: tzinfo | None) -> str:
        """The text of a window. ValueError for one that has no such edge."""
        if isinstance(window, GlobalWindow):
            return "global"
        start, end = getattr(window, "start", None), window.end
        if self.edge is None and self.format is None:
            if start is None:
                return checked_segments(str(window).replace("/", "-"), "window")
            return f"{_instant(start.micros, None, zone)}-{_instant(end.micros, None, zone)}"
        at = end if self.edge == "end" else start
        if at is None:
            raise ValueError(f"window {window} has no start to name a file by: write {{window.end:…}}")
        return _instant(at.micros, self.format, zone)


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """A prefix, and the placeholders in it."""

    prefix: str
    placeholders: tuple[Placeholder, ...]

    @staticmethod
    def of(prefix: str) -> NameTemplate:
        """The template that a prefix is; BuildError for a placeholder that can't be filled in."""
        found = _BRACES.finditer(prefix)
        return NameTemplate(prefix, tuple(_placeholder(brace) for brace in found if not brace["escape"]))

    def names(self, kind: str) -> bool:
        """Whether it has a placeholder of this kind."""
        return any(placeholder.kind == kind for placeholder in self.placeholders)

    def filled(self, address: Address) -> str:
        """The prefix of an address's files."""
        return _filled(self.prefix, iter(address))

    @property
    def fixed_folder(self) -> str:
        """The folder that all files of the template are in or below."""
        first = next((found for found in _BRACES.finditer(self.prefix) if not found["escape"]), None)
        return files.folder_of(_filled(self.prefix[: first.start()] if first else self.prefix, iter(())))


def with_address(
    of: str, template: NameTemplate, destination: Callable[[Any], str | int] | None, zone: tzinfo | None = None
) -> PTransform[PCollection[Any], PCollection[tuple[Address, Any]]]:
    """The step that gives each element its address. `zone` is the time zone that windows are written in; None is UTC.

    Raises BuildError, naming the transform `of`, if the template and `destination` don't go together.
    """
    if destination is not None and not callable(destination):
        raise BuildError(f"{of}: destination is a function of an element, not {shorten(destination)}")
    if destination is not None and not template.names("destination"):
        raise BuildError(
            f"{of}: destination= names files where the path says {{destination}}, and {template.prefix!r} does "
            f"not: write '{template.prefix}-{{destination}}', or '{{destination}}/{template.prefix}' for folders"
        )
    if destination is None and template.names("destination"):
        raise BuildError(
            f"{of}: {template.prefix!r} has {{destination}}: say what it is for an element, as in "
            "destination=lambda row: row.country"
        )
    step = addressed_in_window if template.names("window") else addressed
    return Map(step, Addressing(template, destination, zone), name="Address")


class Addressing:
    """Makes addresses: the same object for the same one, so that a block holds (and pickles) each address once."""

    def __init__(
        self, template: NameTemplate, destination: Callable[[Any], str | int] | None, zone: tzinfo | None
    ) -> None:
        self.template = template
        self._destination = destination
        self._zone = zone
        self._known: dict[tuple[str | None, Any], Address] = {}

    def address(self, element: Any, window: Any) -> Address:
        """The address of an element. TypeError or ValueError for a destination that can't be (part of) a file name."""
        text = None
        if self._destination is not None:
            given = self._destination(element)
            text = given if type(given) is str else self._text(given)
        found = self._known.get((text, window))
        if found is None:
            if text is not None:
                checked_segments(text, "destination")
            if len(self._known) >= _KNOWN_AT_ONCE:
                self._known.clear()
            found = self._known[text, window] = tuple(
                placeholder.of_window(window, self._zone) if placeholder.kind == "window" else str(text)
                for placeholder in self.template.placeholders
            )
        return found

    def _text(self, destination: Any) -> str:
        if isinstance(destination, bool) or not isinstance(destination, (str, int)):
            what = name_of(self._destination)
            raise TypeError(f"{what} gave {shorten(destination, 60)} as a destination: it must be a str, or an int")
        return str(destination)

    def __reduce__(self) -> tuple[Any, ...]:
        return Addressing, (self.template, self._destination, self._zone)


_KNOWN_AT_ONCE: Final = 100_000


def addressed(element: Any, addressing: Addressing) -> tuple[Address, Any]:
    """An element with its address, where windows have no part in it."""
    return addressing.address(element, None), element


def addressed_in_window(element: Any, addressing: Addressing, window: Any = DoFn.WindowParam) -> tuple[Address, Any]:
    """An element of a window with its address."""
    return addressing.address(element, window), element


def checked_segments(text: str, what: str) -> str:
    """`text`, if it may be (part of) a file name; `/` makes folders. Data must not lead out of the output's folder."""
    segments = text.split("/")
    bad = (
        "is empty"
        if not text
        else "has an empty folder name"
        if "" in segments
        else "leads out of the output's folder"
        if "." in segments or ".." in segments
        else "has a character that can't be printed"
        if _UNPRINTABLE.search(text)
        else "is a name that Tidegate keeps for unfinished output"
        if any(segment.startswith(files.WORK_PREFIX) for segment in segments)
        else ""
    )
    if bad:
        raise ValueError(f"the {what} {shorten(text, 60)} {bad}, so no file can be named by it")
    return text


def zone_of(name: str, of: str) -> tzinfo | None:
    """The time zone of a name; None for UTC, which is written with a Z."""
    if name == "UTC":
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        raise BuildError(f"{of}: there is no time zone {name!r}: name one like 'Europe/Berlin'") from None


def _filled(prefix: str, texts: Iterator[str]) -> str:
    """A prefix with these texts for its placeholders, and its escaped braces as single ones."""
    return _BRACES.sub(lambda found: found["escape"][0] if found["escape"] else next(texts), prefix)


def _placeholder(found: re.Match[str]) -> Placeholder:
    name = found["name"]
    rest = _REST.fullmatch(found["rest"])
    match name, rest and rest["edge"], rest and rest["format"]:
        case "destination", None, None if rest:
            return Placeholder("destination")
        case "window", (None | "start" | "end") as edge, format if rest:
            _check_format(found.group(), format or "")
            return Placeholder("window", edge, format or None)
    import difflib

    near = [kind for kind in _KINDS if len(name) > 2 and kind.startswith(name.lower())]
    near = near or difflib.get_close_matches(name.lower(), _KINDS, 1)
    hint = f" Did you mean {{{near[0]}}}?" if near and name not in _KINDS else ""
    raise BuildError(
        f"{found.group()} can't stand in a path: there are {{destination}}, {{window}}, {{window:%Y-%m-%d}}, "
        f"{{window.start:%H%M}} and {{window.end:%H%M}}.{hint} A literal brace is written {{{{"
    )


def _check_format(placeholder: str, format: str) -> None:
    """BuildError for a code that not every platform's strftime knows: some would write it as it stands."""
    for code in _UNKNOWN_CODE.findall(format.replace("%%", "")):
        if code not in _CODES:
            what = f"{code} is no code" if code != "%" else "a single % at the end is no code"
            raise BuildError(
                f"{placeholder} can't stand in a path: {what} that strftime knows on each platform. Those are "
                f"{' '.join(sorted(_CODES, key=lambda known: (known.lower(), known)))}, and %% for a percent sign"
            )


def _instant(micros: int, format: str | None, zone: tzinfo | None) -> str:
    try:
        at = (_EPOCH + timedelta(microseconds=micros)).astimezone(zone or UTC)
    except OverflowError:
        return "min" if micros < 0 else "max"
    if format is not None:
        return at.strftime(format)
    seconds = at.strftime(_DEFAULT_FORMAT if zone is None else _DEFAULT_FORMAT.replace("Z", "%z"))
    return seconds if not at.microsecond else f"{seconds[:15]}.{at.microsecond:06d}{seconds[15:]}"
