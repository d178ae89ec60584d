"""The kinds of elements that readers make of records: rows, dicts, or instances of the author's class (`as_=`).

>>> make = shape_of(dict, "ReadFromCsv").maker(("city", "people"))
>>> make([["Bonn", "Ulm"], [331, 129]])
[{'city': 'Bonn', 'people': 331}, {'city': 'Ulm', 'people': 129}]
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias, cast

from tidegate.io.records.problems import Problem
from tidegate.io.records.schema import class_fields, is_missing, is_named_tuple, is_pydantic, without_none
from tidegate.sdk.data.row import Row, row_maker
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import Timestamp

Columns: TypeAlias = Sequence[Sequence[Any]]
Maker: TypeAlias = Callable[[Columns], list[Any]]
Kind: TypeAlias = Literal["row", "dict", "dataclass", "named_tuple", "pydantic"]


class BadValue(Exception):
    """A record that the author's class refused."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems[0].reason)
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Shape:
    """The kind and the class of a reader's elements."""

    kind: Kind
    cls: Any

    @property
    def element_type(self) -> Any:
        """The type of the elements."""
        return dict[str, Any] if self.kind == "dict" else self.cls

    @property
    def schema(self) -> Any:
        """The class whose annotations are the schema; None for rows and dicts, which have any columns."""
        return None if self.kind in ("row", "dict") else self.cls

    @property
    def has_code(self) -> bool:
        """Whether code of the author's makes an element of a row, which may change or refuse it."""
        match self.kind:
            case "pydantic":
                return True
            case "dataclass":
                return hasattr(self.cls, "__post_init__") or not _has_made_init(self.cls)
            case "named_tuple":
                return not self.cls.__new__.__module__.startswith("namedtuple_")
            case _:
                return False

    def check_names(self, names: Sequence[str], where: str, error: type[Exception] = BuildError) -> None:
        """Raise an error, naming the column, for columns that elements of this shape can't have."""
        if len(set(names)) < len(names):
            doubled = next(name for at, name in enumerate(names) if name in names[:at])
            raise error(f"{where}: there are several columns {doubled!r}: read some of them, as in columns=[…]")
        if self.kind == "row":
            unfit = next((name for name in names if name.startswith("_") or not name.isidentifier()), None)
            if unfit is not None:
                raise error(
                    f"{where}: the column {unfit!r} can't be a field of a Row: read dicts, as in as_=dict, or other "
                    "columns, as in columns=[…]; in SQL, write a CREATE TABLE that names others"
                )

    def default(self, name: str) -> Callable[[], Any] | None:
        """What makes the value that a field of the author's class has unless it is given; None if it has none."""
        if self.kind == "named_tuple":
            values = self.cls._field_defaults
            return partial(values.__getitem__, name) if name in values else None
        if self.kind != "dataclass":
            return None
        field = next(field for field in dataclasses.fields(self.cls) if field.name == name)
        if not is_missing(field.default_factory):
            return cast(Callable[[], Any], field.default_factory)
        return None if is_missing(field.default) else partial(getattr, field, "default")

    def maker(self, names: tuple[str, ...]) -> Maker:
        """A function that makes the elements of columns of these names. It raises BadValue for records that the
        author's class refuses."""
        match self.kind:
            case "row":
                return partial(_rows, row_maker(names))
            case "dict":
                return _dict_maker(names)
            case "pydantic":
                return partial(_validated, self.cls, _dict_maker(names))
        made: Maker = partial(_constructed, _constructor(self.cls, names), names)
        converters = _converters(self.cls, names)
        return partial(_converted, converters, made) if converters else made


def shape_of(as_: Any, of: str) -> Shape:
    """The shape that `as_` names. Raises BuildError for a type that records can't become."""
    if as_ is Row:
        return Shape("row", Row)
    if as_ is dict:
        return Shape("dict", dict)
    if isinstance(as_, type):
        if is_pydantic(as_):
            return Shape("pydantic", as_)
        if dataclasses.is_dataclass(as_):
            return Shape("dataclass", as_)
        if is_named_tuple(as_):
            return Shape("named_tuple", as_)
    raise BuildError(f"{of}: as_ is tg.Row, dict, a dataclass, a NamedTuple or a pydantic model, not {shorten(as_)}")


def _has_made_init(cls: Any) -> bool:
    """Whether `__init__` is the one that `dataclass` has made."""
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    code = cls.__init__.__code__
    return code.co_filename == "<string>" and list(code.co_varnames[1 : 1 + len(names)]) == names


def _rows(make: Callable[[Any], Any], columns: Columns) -> list[Any]:
    return list(map(make, zip(*columns)))


@lru_cache(maxsize=1024)
def _dict_maker(names: tuple[str, ...]) -> Maker:
    if not names:
        return lambda columns: []
    # A dict display with the names spelled out takes half as long as `dict(zip(names, values))`.
    variables = [f"v{at}" for at in range(len(names))]
    items = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables))
    made: Maker = eval(f"lambda columns: [{{{items}}} for {', '.join(variables)}, in zip(*columns)]")
    return made


def _constructor(cls: Any, names: tuple[str, ...]) -> Callable[..., Any]:
    """A function that makes an instance from the values of these fields, in this order."""
    fields = list(class_fields(cls) or ())
    if is_named_tuple(cls) and tuple(fields) == names and cls.__new__.__module__.startswith("namedtuple_"):
        return lambda *values: tuple.__new__(cls, values)
    keyword_only = dataclasses.is_dataclass(cls) and any(field.kw_only for field in dataclasses.fields(cls))
    if tuple(fields[: len(names)]) == names and not keyword_only:
        made: Callable[..., Any] = cls
        return made
    return lambda *values: cls(**dict(zip(names, values)))


def _constructed(make: Callable[..., Any], names: tuple[str, ...], columns: Columns) -> list[Any]:
    try:
        return list(map(make, *columns))
    except Exception:  # construct them one by one, to find those that the class refuses
        problems = []
        for at, values in enumerate(zip(*columns)):
            try:
                make(*values)
            except Exception as error:
                text = shorten(dict(zip(names, values)))
                problems.append(Problem(at, None, f"{type(error).__name__}: {error}", text))
        if not problems:
            raise
        raise BadValue(problems) from None


def _validated(cls: Any, dicts: Maker, columns: Columns) -> list[Any]:
    from pydantic import TypeAdapter, ValidationError

    records = dicts(columns)
    try:
        made: list[Any] = TypeAdapter(list[cls]).validate_python(records)
        return made
    except ValidationError as error:
        problems: dict[int, Problem] = {}
        for each in error.errors(include_url=False):
            at, *path = each["loc"]
            column = ".".join(map(str, path)) or None
            problems.setdefault(int(at), Problem(int(at), column, each["msg"], shorten(each.get("input"))))
        raise BadValue(list(problems.values())) from None


def _converted(converters: Mapping[int, Callable[[Any], Any]], make: Maker, columns: Columns) -> list[Any]:
    fitted = list(columns)
    for at, convert in converters.items():
        try:
            fitted[at] = [None if value is None else convert(value) for value in columns[at]]
        except Exception:
            problems = []
            for row, value in enumerate(columns[at]):
                try:
                    if value is not None:
                        convert(value)
                except Exception as error:
                    problems.append(Problem(row, None, f"{type(error).__name__}: {error}", shorten(value)))
            raise BadValue(problems) from None
    return make(fitted)


def _converters(cls: Any, names: tuple[str, ...]) -> dict[int, Callable[[Any], Any]]:
    fields = class_fields(cls) or {}
    found = {at: converter(fields[name][0]) for at, name in enumerate(names) if name in fields}
    return {at: convert for at, convert in found.items() if convert is not None}


def converter(hint: Any) -> Callable[[Any], Any] | None:
    """A function that converts a column's value to its annotated type: a dict to an instance of a nested class, a list
    to a set or tuple. None if no conversion is needed."""
    hint, _ = without_none(hint)
    if hint is Timestamp:
        return Timestamp.of
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (set, frozenset, tuple, list):
        item = converter(args[0]) if args else None
        if item is None:
            return None if origin is list else origin
        each = item
        return lambda values: origin(None if value is None else each(value) for value in values)
    if origin is dict and len(args) == 2:
        inner = converter(args[1])
        if inner is None:
            return None
        return lambda values: {key: None if each is None else inner(each) for key, each in values.items()}
    if isinstance(hint, type) and not typing.is_typeddict(hint) and (fields := class_fields(hint)):
        parts = {name: converter(annotation) for name, (annotation, _) in fields.items()}
        return partial(_nested, hint, parts)
    return None


def _nested(cls: Any, parts: Mapping[str, Callable[[Any], Any] | None], value: dict[str, Any]) -> Any:
    if is_pydantic(cls):
        return cls.model_validate(value)
    made = {}
    for name, each in value.items():
        if name in parts:
            part = parts[name]
            made[name] = each if part is None or each is None else part(each)
    return cls(**made)
