"""A portable pipeline as JSON: `load(dump(p)) == p`, and the same script yields the same bytes except for payloads.

`nodes` and `collections` are human-readable; fields with default values are omitted. The author's code is in separate
tables: `functions` has each function once, by name, and `values` the elements of each `Create`. Neither `dump` nor
`load` ever unpickles or imports any of it.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from tidegate.sdk.errors import BuildError, LoadError, shorten
from tidegate.sdk.portable.code_parts import code_of
from tidegate.sdk.portable.integrity import check_references
from tidegate.sdk.portable.model import (
    FORMAT_VERSION,
    OLDEST_VERSION,
    Collection,
    Environment,
    Node,
    Pipeline,
)
from tidegate.sdk.portable.values import Values
from tidegate.sdk.user_code.body import Body
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.user_fn import ImportRef, Payload, UserFn

T = TypeVar("T")


def dump(pipeline: Pipeline) -> str:
    """The pipeline as JSON text, indented by two; BuildError unless it is sealed with the values of Create."""
    parts = {name: getattr(pipeline, name) for name in _PARTS}
    for part in code_of(tuple(parts.values())):
        if (part.code if isinstance(part, UserFn) else part.data) is None:
            what = part.name if isinstance(part, UserFn) else "the values of a Create"
            raise BuildError(f"{what} can't be written before it is sealed: pass the result of sealed(values=True)")
    tables = _Tables({}, {})
    plain = {
        name: _without_defaults(_adapter(_PARTS[name]).dump_python(part, mode="json", context=tables), part)
        for name, part in parts.items()
    }
    entries: dict[str, dict[str, Any]] = {
        "functions": {
            id: _Function(fn.name, fn.code, fn.where, fn.body) for id, fn in tables.functions.items() if fn.code
        },
        "values": {
            id: _Elements(v.count, v.data, _sha256(v.data)) for id, v in tables.values.items() if v.data is not None
        },
    }
    for name, table in entries.items():
        dumped = _adapter(_TABLES[name]).dump_python(table, mode="json")
        plain[name] = {id: _without_defaults(dumped[id], entry) for id, entry in table.items()}
    text = json.dumps({"version": pipeline.version, **plain}, indent=2, ensure_ascii=False) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BuildError(
            f"this pipeline contains text that is not Unicode, {shorten(text[error.start : error.end])}"
        ) from None
    return text


def load(text: str | bytes, source_name: str = "the pipeline") -> Pipeline:
    """The pipeline written by `dump`. `source_name` is the file's name for messages.

    Raises LoadError, naming file and place, for text that is truncated, of another version, corrupt, or
    inconsistent. Runs none of the author's code.
    """
    text = _decoded(text, source_name)
    raw = _parse(text, source_name)
    version = raw.get("version")
    if type(version) is not int or not OLDEST_VERSION <= version <= FORMAT_VERSION:
        found = f"has format version {shorten(version)}" if "version" in raw else "has no format version"
        raise LoadError(
            f"{source_name} {found}, but this Tidegate reads versions {OLDEST_VERSION} to {FORMAT_VERSION}: "
            "compile the pipeline again with the Tidegate that runs it"
        )
    try:
        document: _Document = _adapter(_Document).validate_json(text, context=_Tables({}, {}))
    except ValidationError as error:
        raise LoadError(f"{source_name}: {_explain(error, raw)}") from None
    except BuildError as error:
        raise LoadError(f"{source_name}: {_place_of_refusal(raw)}{error}") from None
    except RecursionError:
        raise LoadError(f"{source_name} is nested too deeply") from None
    pipeline = Pipeline(**{name: getattr(document, name) for name in _PARTS})
    try:
        check_references(pipeline)
    except BuildError as error:
        raise LoadError(f"{source_name}: {error}") from None
    return pipeline


# --- the document --------------------------------------------------------------------------------------------------


def _kind_of_code(code: object) -> str:
    """Which kind of code a function has, in JSON judged by its fields, so that errors are reported for that kind
    only."""
    by_value = isinstance(code, Payload) or (isinstance(code, dict) and not code.keys().isdisjoint(("data", "sha256")))
    return "payload" if by_value else "reference"


@dataclass(frozen=True, slots=True)
class _Function:
    """An entry of the table of functions: a UserFn in JSON."""

    name: str
    code: Annotated[
        Annotated[ImportRef, Tag("reference")] | Annotated[Payload, Tag("payload")], Discriminator(_kind_of_code)
    ]
    where: Where | None = None
    body: Body | None = None


@dataclass(frozen=True, slots=True)
class _Elements:
    """An entry of the table of values: the elements of a `Create`."""

    count: int
    data: bytes
    sha256: str


class _Tables:
    """The tables to which nodes refer by id; when JSON is written, ids are assigned in the order of first use."""

    def __init__(self, functions: dict[str, UserFn], values: dict[str, Values]) -> None:
        self.functions = functions
        self.values = values
        self._ids: dict[Any, str] = {}

    def by_id(self, id: object) -> UserFn:
        return _lookup(self.functions, id, "function")

    def values_by_id(self, id: object) -> Values:
        return _lookup(self.values, id, "entry")

    def id_of(self, fn: UserFn) -> str:
        return self._id((fn.name, fn.where, fn.code, fn.body), fn.name, fn, self.functions)

    def id_of_values(self, values: Values) -> str:
        return self._id((values.count, values.data), "values", values, self.values)

    def _id(self, key: Any, name: str, part: T, table: dict[str, T]) -> str:
        id = self._ids.get(key)
        if id is None:
            id = self._ids[key] = next(free for free in _numbered(name) if free not in table)
            table[id] = part
        return id


def _lookup(table: dict[str, T], id: object, what: str) -> T:
    found = table.get(id) if isinstance(id, str) else None
    if found is None:
        raise ValueError(
            f"there is no {what} {shorten(id)} in the table of {'functions' if what == 'function' else 'values'}"
        )
    return found


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}#{number}"
        number += 1


def _load_functions(table: dict[str, _Function], info: ValidationInfo[Any]) -> dict[str, _Function]:
    tables: _Tables = info.context
    for id, entry in table.items():
        if isinstance(entry.code, Payload) and _sha256(entry.code.data) != entry.code.sha256:
            raise ValueError(f"the payload of function {id!r} is corrupt: its SHA-256 is not the recorded one")
        tables.functions[id] = UserFn(entry.name, entry.where, entry.code, body=entry.body)
    return table


def _load_values(table: dict[str, _Elements], info: ValidationInfo[Any]) -> dict[str, _Elements]:
    tables: _Tables = info.context
    for id, entry in table.items():
        if _sha256(entry.data) != entry.sha256:
            raise ValueError(f"the values {id!r} are corrupt: their SHA-256 is not the recorded one")
        if entry.count < 0:
            raise ValueError(f"the values {id!r} can't be {entry.count}")
        tables.values[id] = Values(None, entry.count, entry.data)
    return table


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_CONFIG: Final = ConfigDict(
    extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"
)

_Nodes: TypeAlias = tuple[Annotated[Node, Field(discriminator="kind")], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """The file. The tables come first, because pydantic validates in this order and nodes refer to them."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    version: int
    functions: Annotated[dict[str, _Function], AfterValidator(_load_functions)]
    values: Annotated[dict[str, _Elements], AfterValidator(_load_values)]
    name: str
    environment: Environment
    options: tuple[tuple[str, str], ...] = ()
    nodes: _Nodes
    collections: tuple[Collection, ...]
    classes: tuple[UserFn, ...] = ()
    coders: tuple[tuple[UserFn, UserFn], ...] = ()


_PARTS: Final[dict[str, Any]] = {
    "name": str,
    "environment": Environment,
    "options": tuple[tuple[str, str], ...],
    "nodes": _Nodes,
    "collections": tuple[Collection, ...],
    "classes": tuple[UserFn, ...],
    "coders": tuple[tuple[UserFn, UserFn], ...],
}
"""The fields of a Pipeline that are written, in their order."""

_TABLES: Final[dict[str, Any]] = {"functions": dict[str, _Function], "values": dict[str, _Elements]}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=None if is_dataclass(kind) else _CONFIG)


def _without_defaults(dumped: Any, value: Any) -> Any:
    """Pydantic's dump of `value` with `kind` first, and without fields that have their default values."""
    match value:
        case tuple():
            return [_without_defaults(*pair) for pair in zip(dumped, value, strict=True)]
        case _ if isinstance(dumped, dict) and is_dataclass(value):
            reduced = {"kind": dumped["kind"]} if "kind" in dumped else {}
            for f in fields(value):
                part = getattr(value, f.name)
                if f.name != "kind" and (f.default is MISSING or part != f.default):
                    reduced[f.name] = _without_defaults(dumped[f.name], part)
            return reduced
    return dumped


# --- error messages ------------------------------------------------------------------------------------------------


def _decoded(text: str | bytes, source_name: str) -> str:
    """The file's text, which must be UTF-8: `json` would guess other encodings, and accept lone surrogates."""
    if isinstance(text, bytes):
        for mark, encoding in _BYTE_ORDER_MARKS.items():
            if text.startswith(mark):
                raise LoadError(
                    f"{source_name} begins with a byte order mark of {encoding}: save it as UTF-8 without one, or "
                    "compile the pipeline again"
                )
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise LoadError(f"{source_name} is not JSON: it is not UTF-8 at byte {error.start}") from None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LoadError(_not_unicode(source_name, text[error.start : error.end])) from None
    return text


_BYTE_ORDER_MARKS: Final = {
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def _not_unicode(source_name: str, found: object) -> str:
    return f"{source_name} contains text that is not Unicode: {shorten(found)}"


def _parse(text: str, source_name: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise LoadError(f"{source_name}: {shorten(twice)} occurs twice in one object")
        return found

    try:
        raw = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        if not error.doc[error.pos :].strip() or error.msg.startswith("Unterminated string"):
            raise LoadError(
                f"{source_name} ends in the middle, at {place}: it is truncated. Compile the pipeline again"
            ) from None
        raise LoadError(f"{source_name} is not JSON: {error.msg} at {place}") from None
    except RecursionError:
        raise LoadError(f"{source_name} is nested too deeply") from None
    except ValueError as error:  # a number with more digits than Python reads
        raise LoadError(f"{source_name} can't be read: {error}") from None
    if (escape := _SURROGATE.search(text)) is not None:
        try:
            json.dumps(raw, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise LoadError(_not_unicode(source_name, escape[0])) from None
    if not isinstance(raw, dict):
        raise LoadError(f"{source_name} is not a compiled pipeline: it contains {shorten(raw)}")
    return raw


_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""A surrogate, escaped as in JSON: half of a character beyond the first 65,536, which is invalid without the other."""


def _explain(error: ValidationError, raw: Any) -> str:
    """The place and the description of the first error."""
    every = error.errors(include_url=False)
    faults = [fault for fault in every if fault["loc"][:2] == every[0]["loc"][:2]]
    # Pydantic reports errors of all members of a union; only those of the member with the file's `kind` are relevant.
    wrong = {fault["loc"][:-1] for fault in faults if fault["type"] == "literal_error" and fault["loc"][-1] == "kind"}
    relevant = [f for f in faults if not any(f["loc"][: len(branch)] == branch for branch in wrong)]
    relevant = relevant or [fault for fault in faults if fault["loc"][:-1] in wrong and fault["loc"][-1] == "kind"]
    places = [_place(fault["loc"], raw) for fault in relevant]
    deepest = max(len(path) for path, _ in places)
    messages = [(path, step, _message(f)) for f, (path, step) in zip(relevant, places) if len(path) == deepest]
    at, step, message = next((each for each in messages if each[2] == _UNKNOWN), messages[0])
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).removeprefix(".")
    return f"{where}{f' (step {step!r})' if step else ''}: {message}".removeprefix(": ")


_UNKNOWN: Final = "this field is not known to this version of Tidegate"


def _message(fault: Any) -> str:
    message: str = fault["msg"]
    match fault["type"]:
        case "missing":
            return "this field is missing"
        case "unexpected_keyword_argument" | "extra_forbidden":
            return _UNKNOWN
        case "value_error":
            return message.removeprefix("Value error, ")
        case "bytes_invalid_encoding":
            return f"this is not base64: {fault['ctx']['encoding_error'].rstrip('.')}"
        case "literal_error" if fault["loc"][-1] == "kind":
            return f"the kind {shorten(fault['input'])} is not allowed here"
        case "union_tag_invalid":
            return f"the kind {shorten(fault['ctx']['tag'])} is not one of {fault['ctx']['expected_tags']}"
    return f"{message[:1].lower()}{message[1:]}, not {shorten(fault['input'], 60)}"


def _place(loc: Iterable[int | str], raw: Any) -> tuple[tuple[int | str, ...], str | None]:
    """Pydantic's location as a path in the file, without the names of classes; and the label of the step."""
    path: list[int | str] = []
    step, at = None, raw
    parts = list(loc)
    last = parts[-1] if parts else None
    for part in parts:
        match at:
            case list() if isinstance(part, int) and part < len(at):
                at = at[part]
            case dict() if part in at:
                at = at[part]
            case dict() if part is last and str(part).isidentifier() and str(part)[0].islower():  # a missing field
                at = None
            case _:
                continue
        path.append(part)
        if step is None and isinstance(at, dict) and isinstance(at.get("label"), str):
            step = at["label"]
    return tuple(path), step


def _place_of_refusal(raw: dict[str, Any]) -> str:
    """The node or collection whose class raised a BuildError, to which pydantic adds no location."""
    for name in ("nodes", "collections"):
        parts = raw.get(name)
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            try:
                _adapter(_PARTS[name]).validate_json(json.dumps([part]), context=_AnyId())
            except BuildError:
                what, label = ("step", part.get("label")) if name == "nodes" else ("collection", part.get("id"))
                return f"{name}[{number}] ({what} {label!r}): "
            except ValidationError:
                continue
    return ""


class _AnyId:
    """Tables that have an entry for any id."""

    def by_id(self, id: object) -> UserFn:
        return UserFn("", None, None)

    def values_by_id(self, id: object) -> Values:
        return Values(None, 0)
