"""Paths in a store whose URL refers to secrets.

A store may repeat a part of its URL in the paths that it returns: over HTTP they are whole URLs, with the token of a
query. Paths stand in checkpoints, names of splits, elements and messages, so they hold a mark in place of each secret's
value; only the store itself replaces it, with the value that the secret has by then.

>>> paths = SecretPaths.of({"${SIG}": "open sesame"})
>>> hidden = paths.hidden("https://host/a.csv?sig=open sesame")
>>> "open sesame" in hidden, paths.revealed(hidden), paths.written(hidden)
(False, 'https://host/a.csv?sig=open sesame', 'https://host/a.csv?sig=${SIG}')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.sdk.secrets.redaction import SHORTEST

_MARK: Final = re.compile("\0(\\d+)\0")


@dataclass(frozen=True, slots=True)
class SecretPaths:
    """The references in a URL and their values, in the order in which the URL has them."""

    references: tuple[str, ...] = ()
    values: tuple[str, ...] = field(default=(), repr=False)

    @staticmethod
    def of(values: Mapping[str, str]) -> SecretPaths:
        """The paths below a URL whose references have these values. Values that are too short to be redacted
        anywhere are part of paths as they are."""
        long = {reference: value for reference, value in values.items() if len(value) >= SHORTEST}
        return SecretPaths(tuple(long), tuple(long.values()))

    def hidden(self, path: str) -> str:
        """A path of the store, with marks in place of values."""
        return self._replaced(path, [f"\0{at}\0" for at in range(len(self.values))])

    def revealed(self, path: str) -> str:
        """The path as the store knows it."""
        return _MARK.sub(lambda found: self.values[int(found[1])], path) if self.values else path

    def written(self, path: str) -> str:
        """The path with references in place of values and marks, as authors write it."""
        return self._replaced(self.revealed(path), self.references)

    def _replaced(self, text: str, names: list[str] | tuple[str, ...]) -> str:
        if not self.values:
            return text
        by_value = dict(zip(self.values, names))
        longest_first = sorted(by_value, key=len, reverse=True)  # a value may contain another
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: by_value[found[0]], text)


NO_SECRETS: Final = SecretPaths()
"""The paths of a store whose URL refers to no secret."""
