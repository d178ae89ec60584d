"""Writes private names as Python does in a class: `self.__rate` of a class `Price` is `self._Price__rate`."""

from __future__ import annotations

import ast
from typing import TypeVar

from tidegate.runners.engine.loops.plain_syntax import Called
from tidegate.sdk.user_code.body import Function

F = TypeVar("F", bound=Function)


def mangled(node: F, owner: str) -> F:
    """A function of the class `owner` with the names by which Python knows its private names. The node is changed.

    Raises Called for private names of keywords, which not all versions of Python write in the same way.
    """
    prefix = owner.lstrip("_")
    if prefix:
        for part in ast.walk(node):
            match part:
                case ast.Name(id=name) if is_private(name):
                    part.id = f"_{prefix}{name}"
                case ast.Attribute(attr=name) if is_private(name):
                    part.attr = f"_{prefix}{name}"
                case ast.keyword(arg=str(name)) if is_private(name):
                    raise Called("it has a keyword with a private name")
    return node


def is_private(name: str) -> bool:
    """Whether Python would write a name in another way in a class."""
    return name.startswith("__") and not name.endswith("__")
