"""Names of output files that depend on the elements: `{destination}` and `{window}` in a prefix.

A prefix such as `out/{destination}/{window:%Y-%m-%d}` is a `NameTemplate`. A step before the sink turns each element
into `(address, element)`; an address is the text of each placeholder, in the order of the prefix. The sink writes the
elements of each address to files of their own, whose prefix it gets from the template. All file sinks can use this.
`{{` and `}}` are literal braces. `${NAME}` in a URL is a reference to a secret, which the store resolves.

>>> template = NameTemplate.of("out/{destination}/part")
>>> addressing = Addressing(template, lambda order: order["country"], None)
>>> addressed({"country": "de", "amount": 3}, addressing)
(('de',), {'country': 'de', 'amount': 3})
>>> template.filled(("de",))
'out/de/part'
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from tidegate.io import files
from tidegate.io.storage_options import is_url
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sdk.windowing.strategy import WindowingStrategy
from tidegate.sdk.windowing.window import GlobalWindow

Address: TypeAlias = tuple[str, ...]
"""The text of each placeholder of a template, in the order of the prefix."""

_BRACES: Final = re.compile(
    r"(?P<reference>\$\{(?!destination|window)[^{}]*\})|(?P<escape>\{\{|\}\})|\{(?P<name>[^\W\d]\w*)(?P<rest>[^{}]*)\}"
)
_REST: Final = re.compile(r"(?:\.(?P<edge>\w+))?(?::(?P<format>[^{}]*))?")
_KINDS: Final = ("destination", "window")
_UNKNOWN_CODE: Final = re.compile(r"%(?:[^\W\d_]|$)")
_CODES: Final = frozenset(f"%{letter}" for letter in "aAbBcdfGHIjmMpSuUVwWxXyYzZ")
_DEFAULT_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One `{…}` of a prefix. `{window}`, without an `edge` or a format, stands for both edges of the window."""

    kind: Literal["destination", "window", "partition"]
    edge: Literal["start", "end"] | None = None
    format: str | None = None

    def __str__(self) -> str:
        """The placeholder as authors write it."""
        return f"{{{self.kind}{f'.{self.edge}' if self.edge else ''}{f':{self.format}' if self.format else ''}}}"

    @property
    def needs_times(self) -> bool:
        """Whether it stands for an instant, which the global window doesn't have."""
        return self.edge is not None or self.format is not None

    def of_window(self, window: Any, zone: tzinfo | None) -> str:
        """The text of a window. Raises ValueError if the window doesn't have the edge."""
        if isinstance(window, GlobalWindow):
            if self.needs_times:
                raise ValueError(f"the global window has no time for {self} in the name of a file")
            return "global"
        start, end = getattr(window, "start", None), window.end
        if not self.needs_times:
            if start is None:
                return checked_segments(str(window).replace("/", "-"), "window")
            return f"{_instant(start.micros, None, zone)}-{_instant(end.micros, None, zone)}"
        instant = end if self.edge == "end" else start
        if instant is None:
            raise ValueError(f"window {window} has no start for the name of a file: write {{window.end:…}}")
        return _instant(instant.micros, self.format, zone)


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """A prefix, and the placeholders in it."""

    prefix: str
    placeholders: tuple[Placeholder, ...]

    @staticmethod
    def of(prefix: str) -> NameTemplate:
        """Parse a prefix. Raises BuildError for an unknown placeholder."""
        found = list(_BRACES.finditer(prefix))
        for brace in found:
            if brace["reference"] and "://" not in prefix:
                raise BuildError(
                    f"{brace['reference']} in the path {prefix!r}: only URLs may refer to secrets; a literal brace is "
                    "written {{"
                )
        return NameTemplate(prefix, tuple(_placeholder(brace) for brace in found if brace["name"]))

    def has(self, kind: str) -> bool:
        """Whether the prefix has a placeholder of this kind."""
        return any(placeholder.kind == kind for placeholder in self.placeholders)

    def filled(self, address: Address) -> str:
        """The prefix of the files of an address."""
        return _filled(self.prefix, iter(address))

    @property
    def fixed_folder(self) -> str:
        """The deepest folder that contains the files of every address, directly or in subfolders."""
        first = next((found for found in _BRACES.finditer(self.prefix) if found["name"]), None)
        return files.folder_of(_filled(self.prefix[: first.start()] if first else self.prefix, iter(())))


def with_address(
    of: str,
    template: NameTemplate,
    destination: Callable[[Any], str | int] | None,
    zone: tzinfo | None = None,
    partition: Callable[[Any], str] | None = None,
    *,
    ending: int,
) -> PTransform[PCollection[Any], PCollection[tuple[Address, Any]]]:
    """The step that adds its address to each element. `zone` is the time zone in which windows are formatted; None is
    UTC. `partition` returns the folders of an element's partition. `ending`: at most how many bytes the names of files
    have after the prefix. Raises BuildError, naming the transform `of`, if
    only one of `destination` and `{destination}`, or of `partition` and `{partition}`, is there."""
    if partition is None and template.has("partition"):
        raise BuildError(
            f"{of}: {template.prefix!r} has {{partition}}: name the columns, as in partition_by=['country']"
        )
    if destination is not None and not callable(destination):
        raise BuildError(f"{of}: destination is a function of an element, not {shorten(destination)}")
    if destination is not None and not template.has("destination"):
        raise BuildError(
            f"{of}: destination= needs a path with {{destination}}, which {template.prefix!r} does not have: write "
            f"'{template.prefix}-{{destination}}', or '{{destination}}/{template.prefix}' for folders"
        )
    if destination is None and template.has("destination"):
        raise BuildError(
            f"{of}: {template.prefix!r} has {{destination}}: add a function of an element, as in "
            "destination=lambda row: row.country"
        )
    step = addressed_in_window if template.has("window") else addressed
    if partition is None:
        return Map(step, Addressing(template, destination, zone, ending), name="Address")
    return Map(step, PartitionAddressing(template, destination, zone, partition, ending), name="Address")


def check_windows(of: str, template: NameTemplate, windowing: WindowingStrategy) -> None:
    """Raise BuildError, naming the transform `of`, if the prefix has a time of the window and the elements are in the
    global window, which has none."""
    if isinstance(windowing.assigner, GlobalWindows):
        for placeholder in template.placeholders:
            if placeholder.kind == "window" and placeholder.needs_times:
                raise BuildError(
                    f"{of}: {template.prefix!r} has {placeholder}, a time of the element's window, and the elements "
                    "are in the global window, which has none: apply tg.WindowInto(...) before"
                )


class Addressing:
    """Computes addresses. Equal addresses are the same object, so that a block pickles each of them only once."""

    def __init__(
        self,
        template: NameTemplate,
        destination: Callable[[Any], str | int] | None,
        zone: tzinfo | None,
        ending: int = 0,
    ) -> None:
        """`ending`: at most how many bytes the names of files have after the prefix."""
        self.template = template
        self._ending = ending
        self._destination = destination
        self._zone = zone
        self._cache: dict[tuple[str | None, Any], Address] = {}

    def address(self, element: Any, window: Any) -> Address:
        """The address of an element. Raises TypeError or ValueError for a destination that can't be part of a path."""
        text = None
        if self._destination is not None:
            destination = self._destination(element)
            text = destination if type(destination) is str else self._text(destination)
        address = self._cache.get((text, window))
        if address is None:
            if text is not None:
                checked_segments(text, "destination")
            if len(self._cache) >= _CACHED_ADDRESSES:
                self._cache.clear()
            address = tuple(
                placeholder.of_window(window, self._zone) if placeholder.kind == "window" else str(text)
                for placeholder in self.template.placeholders
            )
            check_lengths(self.template.filled(address), self._ending)
            self._cache[text, window] = address
        return address

    def _text(self, destination: Any) -> str:
        if isinstance(destination, bool) or not isinstance(destination, (str, int)):
            function = name_of(self._destination)
            raise TypeError(
                f"{function} returned {shorten(destination, 60)} as a destination: it must be a str, or an int"
            )
        return str(destination)

    def __reduce__(self) -> tuple[Any, ...]:
        return Addressing, (self.template, self._destination, self._zone, self._ending)


class PartitionAddressing(Addressing):
    """Computes addresses that include the folders of each element's partition."""

    def __init__(
        self,
        template: NameTemplate,
        destination: Callable[[Any], str | int] | None,
        zone: tzinfo | None,
        partition: Callable[[Any], str],
        ending: int = 0,
    ) -> None:
        super().__init__(template, destination, zone, ending)
        self._partition = partition
        self._complete: dict[tuple[str, Address], Address] = {}

    def address(self, element: Any, window: Any) -> Address:
        """The address of an element. Raises TypeError or ValueError for a value that can't be part of a path."""
        folders = self._partition(element)
        others = super().address(element, window)
        found = self._complete.get((folders, others))
        if found is None:
            if len(self._complete) >= _CACHED_ADDRESSES:
                self._complete.clear()
            kinds = [placeholder.kind for placeholder in self.template.placeholders]
            found = tuple(folders if kind == "partition" else text for kind, text in zip(kinds, others))
            check_lengths(self.template.filled(found), self._ending)
            self._complete[folders, others] = found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionAddressing, (self.template, self._destination, self._zone, self._partition, self._ending)


_CACHED_ADDRESSES: Final = 100_000


def addressed(element: Any, addressing: Addressing) -> tuple[Address, Any]:
    """An element with its address, if the prefix has no `{window}`."""
    return addressing.address(element, None), element


def addressed_in_window(element: Any, addressing: Addressing, window: Any = DoFn.WindowParam) -> tuple[Address, Any]:
    """An element with its address, if the prefix has `{window}`."""
    return addressing.address(element, window), element


def checked_segments(text: str, what: str) -> str:
    """Return `text` if it may be part of a path, where `/` separates folders. Raises ValueError if it may not, above
    all for text that would lead out of the output folder."""
    segments = text.split("/")
    fault = (
        "is empty"
        if not text
        else "has an empty folder name"
        if "" in segments
        else "leads out of the output folder"
        if "." in segments or ".." in segments
        else "has a control character"
        if _UNPRINTABLE.search(text)
        else "is a name that Tidegate reserves for unfinished output"
        if any(segment.startswith(files.WORK_PREFIX) for segment in segments)
        else ""
    )
    if fault:
        raise ValueError(f"the {what} {shorten(text, 60)} {fault}, so it can't be part of a file's name")
    return text


def check_lengths(prefix: str, ending: int) -> None:
    """Raise ValueError for a prefix of files of the local file system that makes a name which is too long for one, or
    which no file can have. `ending`: at most how many bytes follow the prefix. Object stores limit only the whole
    path."""
    if is_url(prefix):
        return
    *folders, file = prefix.split("/")
    for what, name, after in (*(("folder", name, 0) for name in folders), ("file", file, ending)):
        try:
            size = len(os.fsencode(name))
        except UnicodeEncodeError as error:
            wrong = error.object[error.start : error.end]
            raise ValueError(f"a {what} can't be called {shorten(name, 60)}: {wrong!r} is no character") from None
        if size + after > _LONGEST:
            reserved = f", of which {after} are for the numbers of run and shard and the suffix" if after else ""
            raise ValueError(
                f"a {what} can't be called {shorten(name, 60)}: that has {size} bytes, and names have at most "
                f"{_LONGEST}{reserved}"
            )


_LONGEST: Final = 255
"""The length of names in the file systems of Linux, macOS and Windows, in bytes (or, in some, in characters)."""


def zone_of(name: str, of: str) -> tzinfo | None:
    """The time zone of this name; None for UTC, which is formatted as Z."""
    if name == "UTC":
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        raise BuildError(f"{of}: there is no time zone {name!r}: name one like 'Europe/Berlin'") from None


def _filled(prefix: str, texts: Iterator[str]) -> str:
    """The prefix with its placeholders replaced by these texts, and its doubled braces by single ones."""

    def text(found: re.Match[str]) -> str:
        if found["name"]:
            return next(texts)
        return found["escape"][0] if found["escape"] else found["reference"]

    return _BRACES.sub(text, prefix)


def _placeholder(found: re.Match[str]) -> Placeholder:
    name = found["name"]
    rest = _REST.fullmatch(found["rest"])
    match name, rest and rest["edge"], rest and rest["format"]:
        case ("destination" | "partition") as kind, None, None if rest:
            return Placeholder(kind)
        case "window", (None | "start" | "end") as edge, format if rest:
            _check_format(found.group(), format or "")
            return Placeholder("window", edge, format or None)
    import difflib

    similar = [kind for kind in _KINDS if len(name) > 2 and kind.startswith(name.lower())]
    similar = similar or difflib.get_close_matches(name.lower(), _KINDS, 1)
    hint = f" Did you mean {{{similar[0]}}}?" if similar and name not in _KINDS else ""
    raise BuildError(
        f"{found.group()} is not a placeholder; those are {{destination}}, {{window}}, {{window:%Y-%m-%d}}, "
        f"{{window.start:%H%M}} and {{window.end:%H%M}}.{hint} A literal brace is written {{{{"
    )


def _check_format(placeholder: str, format: str) -> None:
    """Raise BuildError for a code that strftime doesn't support on every platform; some would not replace it."""
    for code in _UNKNOWN_CODE.findall(format.replace("%%", "")):
        if code not in _CODES:
            what = code if code != "%" else "a single % at the end"
            raise BuildError(
                f"{placeholder}: strftime does not support {what} on every platform. The supported codes are "
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
