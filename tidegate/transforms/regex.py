"""Regex: steps that match, find, replace and split text. Expressions are Python's `re`, as text or compiled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.primitives import FlatMap, Map
from tidegate.transforms.elementwise import titled

Pattern: TypeAlias = str | re.Pattern[str]
Group: TypeAlias = int | str


class Regex:
    """Steps over a collection of text, such as `pcoll | Regex.find(r"[0-9]+")`.

    A group is given by number or name; group 0 is the whole match. A group that took no part in the match is None.
    Raises BuildError if the expression can't be compiled or doesn't have the group.
    """

    ALL: Final = "__all__"
    """As the group of `find_all`: all groups."""

    @staticmethod
    def matches(regex: Pattern, group: Group = 0, *, name: str | None = None) -> FlatMap[str, str]:
        """The group, for each element that matches from its start; others are dropped."""
        pattern = _compiled(regex, group)
        return titled(FlatMap(_matches, pattern, group, name=name), "Regex.matches")

    @staticmethod
    def all_matches(regex: Pattern, *, name: str | None = None) -> FlatMap[str, list[str | None]]:
        """A list of all groups, group 0 first, for each element that matches from its start."""
        return titled(FlatMap(_all_matches, _compiled(regex), name=name), "Regex.all_matches")

    @staticmethod
    def matches_kv(
        regex: Pattern, keyGroup: Group, valueGroup: Group = 0, *, name: str | None = None
    ) -> FlatMap[str, tuple[str, str]]:
        """The pair of two groups, for each element that matches from its start."""
        pattern = _compiled(regex, keyGroup, valueGroup)
        return titled(FlatMap(_matches_kv, pattern, keyGroup, valueGroup, name=name), "Regex.matches_kv")

    @staticmethod
    def find(regex: Pattern, group: Group = 0, *, name: str | None = None) -> FlatMap[str, str]:
        """The group of the first match anywhere in the element; elements without one are dropped."""
        return titled(FlatMap(_find, _compiled(regex, group), group, name=name), "Regex.find")

    @staticmethod
    def find_all(
        regex: Pattern, group: Group = 0, outputEmpty: bool = True, *, name: str | None = None
    ) -> Map[str, list[Any]]:
        """A list of the group in each match within the element; with `Regex.ALL`, of tuples of all groups.

        Without `outputEmpty`, matches whose group (for `Regex.ALL`, whose first group) is empty are left out.
        """
        pattern = _compiled(regex) if group == Regex.ALL else _compiled(regex, group)
        if group == Regex.ALL:
            return titled(Map(_find_all_groups, pattern, outputEmpty, name=name), "Regex.find_all")
        return titled(Map(_find_all, pattern, group, outputEmpty, name=name), "Regex.find_all")

    @staticmethod
    def find_kv(
        regex: Pattern, keyGroup: Group, valueGroup: Group = 0, *, name: str | None = None
    ) -> FlatMap[str, tuple[str, str]]:
        """The pair of two groups, for each match within the element."""
        pattern = _compiled(regex, keyGroup, valueGroup)
        return titled(FlatMap(_find_kv, pattern, keyGroup, valueGroup, name=name), "Regex.find_kv")

    @staticmethod
    def replace_all(regex: Pattern, replacement: str, *, name: str | None = None) -> Map[str, str]:
        """The element with every match replaced; the replacement may name groups, as in `re.sub`."""
        return titled(Map(_replace, _compiled(regex), replacement, 0, name=name), "Regex.replace_all")

    @staticmethod
    def replace_first(regex: Pattern, replacement: str, *, name: str | None = None) -> Map[str, str]:
        """The element with its first match replaced."""
        return titled(Map(_replace, _compiled(regex), replacement, 1, name=name), "Regex.replace_first")

    @staticmethod
    def split(regex: Pattern, outputEmpty: bool = False, *, name: str | None = None) -> Map[str, list[str]]:
        """A list of the text between matches; empty parts are included only with `outputEmpty`."""
        return titled(Map(_split, _compiled(regex), outputEmpty, name=name), "Regex.split")


def _compiled(regex: Pattern, *groups: Group) -> re.Pattern[str]:
    try:
        pattern = re.compile(regex)
    except (re.error, TypeError) as error:
        raise BuildError(f"{shorten(regex)} is not a regular expression: {error}") from None
    for group in groups:
        known = group in pattern.groupindex if isinstance(group, str) else group in range(pattern.groups + 1)
        if not known:
            known_names = "".join(f", {name!r}" for name in pattern.groupindex)
            raise BuildError(
                f"the expression {shorten(pattern.pattern)} has no group {group!r}: "
                f"its groups are 0 to {pattern.groups}{known_names}"
            )
    return pattern


def _matches(text: str, pattern: re.Pattern[str], group: Group) -> Iterable[str] | None:
    match = pattern.match(text)
    return (match.group(group),) if match else None


def _all_matches(text: str, pattern: re.Pattern[str]) -> Iterable[list[str | None]] | None:
    match = pattern.match(text)
    return ([match.group(), *match.groups()],) if match else None


def _matches_kv(
    text: str, pattern: re.Pattern[str], key_group: Group, value_group: Group
) -> Iterable[tuple[str, str]] | None:
    match = pattern.match(text)
    return ((match.group(key_group), match.group(value_group)),) if match else None


def _find(text: str, pattern: re.Pattern[str], group: Group) -> Iterable[str] | None:
    match = pattern.search(text)
    return (match.group(group),) if match else None


def _find_all(text: str, pattern: re.Pattern[str], group: Group, empty: bool) -> list[str]:
    return [match.group(group) for match in pattern.finditer(text) if empty or match.group(group)]


def _find_all_groups(text: str, pattern: re.Pattern[str], empty: bool) -> list[tuple[str | Any, ...]]:
    first = min(1, pattern.groups)
    return [(match.group(), *match.groups()) for match in pattern.finditer(text) if empty or match.group(first)]


def _find_kv(text: str, pattern: re.Pattern[str], key_group: Group, value_group: Group) -> Iterator[tuple[str, str]]:
    return ((match.group(key_group), match.group(value_group)) for match in pattern.finditer(text))


def _replace(text: str, pattern: re.Pattern[str], replacement: str, count: int) -> str:
    return pattern.sub(replacement, text, count=count)


def _split(text: str, pattern: re.Pattern[str], empty: bool) -> list[str]:
    return [part for part in pattern.split(text) if empty or part]
