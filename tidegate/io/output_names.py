"""Names of output files that depend on what is written: `{destination}` and `{window}` in a prefix.

A prefix such as `out/{destination}/{window:%Y-%m-%d}` is a `NameTemplate`. A step in front of the sink fills it in:
it makes of each element the pair `(address, element)`, where an address holds the text of each placeholder, in the
order in which they stand. A sink that takes such pairs keeps the elements of each address apart and asks the template
for the prefix of their files. Any sink that writes files can share both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from tidegate.io import files
from tidegate.sdk.dofn import DoFn
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.functions import name_of
from tidegate.sdk.pipeline import PCollection, PTransform
from tidegate.sdk.primitives import Map
from tidegate.sdk.window_types import GlobalWindow

Address: TypeAlias = tuple[str, ...]
"""The text of each placeholder of a template, in order."""

_PLACEHOLDER: Final = re.compile(r"\{(destination|window)(?:\.(\w+))?(?::([^{}]*))?\}")
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
        return NameTemplate(prefix, tuple(_placeholder(found) for found in _PLACEHOLDER.finditer(prefix)))

    def names(self, kind: str) -> bool:
        """Whether a placeholder of this kind stands in it."""
        return any(placeholder.kind == kind for placeholder in self.placeholders)

    def filled(self, address: Address) -> str:
        """The prefix of an address's files."""
        texts = iter(address)
        return _PLACEHOLDER.sub(lambda _: next(texts), self.prefix)

    @property
    def fixed_folder(self) -> str:
        """The folder that all files of the template are in or below."""
        found = _PLACEHOLDER.search(self.prefix)
        return files.folder_of(self.prefix[: found.start()] if found else self.prefix)


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


def _placeholder(found: re.Match[str]) -> Placeholder:
    kind, edge, format = found.groups()
    match kind, edge:
        case "destination", None if format is None:
            return Placeholder("destination")
        case "window", (None | "start" | "end"):
            return Placeholder("window", edge, format or None)
        case _:
            raise BuildError(
                f"{found.group()} can't stand in a path: there are {{destination}}, {{window}}, {{window:%Y-%m-%d}}, "
                "{window.start:%H%M} and {window.end:%H%M}"
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
