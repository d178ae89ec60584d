"""Makes elements from JSON objects: the dicts themselves, or pydantic models, whose validators see the plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.io.records.predicate import matches
from tidegate.io.records.problems import Problem, WithProblems
from tidegate.io.records.projection import Selection
from tidegate.sdk.errors import shorten


class ObjectDecoder:
    """Makes elements from objects: the objects, a dict with some of their members (`columns`), or pydantic models.

    >>> from tidegate.io.records.projection import selection_of
    >>> selection = selection_of("ReadFromJson", as_=dict, columns=["a", "b"], where=[("a", ">", 1)])
    >>> ObjectDecoder(selection).decode([{"a": 1}, {"a": 2, "c": 3}])
    [{'a': 2, 'b': None}]
    """

    def __init__(self, selection: Selection) -> None:
        self._where = selection.where
        self._columns = selection.columns
        self._model = selection.shape.cls if selection.shape.kind == "pydantic" else None

    def decode(self, objects: Sequence[dict[str, Any]]) -> list[Any]:
        """The elements of objects, with a `Problem` in the place of each that the model refuses."""
        where = self._where
        chosen = [(at, each) for at, each in enumerate(objects) if matches(where, each)] if where else None
        found = [each for _, each in chosen] if chosen is not None else list(objects)
        if self._model is None:
            names = self._columns
            return found if names is None else [{name: each.get(name) for name in names} for each in found]
        if self._columns is not None:
            found = [{name: each[name] for name in self._columns if name in each} for each in found]
        numbers = range(len(objects)) if chosen is None else [at for at, _ in chosen]
        return self._models(found, numbers)

    def _models(self, found: list[dict[str, Any]], numbers: Sequence[int]) -> list[Any]:
        from pydantic import TypeAdapter, ValidationError

        assert self._model is not None
        try:
            made: list[Any] = TypeAdapter(list[self._model]).validate_python(found)  # type: ignore[name-defined]
            return made
        except ValidationError:
            return WithProblems(self._one(each, at) for each, at in zip(found, numbers))

    def _one(self, record: dict[str, Any], at: int) -> Any:
        from pydantic import ValidationError

        assert self._model is not None
        try:
            return self._model.model_validate(record)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            column = ".".join(map(str, first["loc"])) or None
            return Problem(at, column, first["msg"], shorten(first.get("input")))
