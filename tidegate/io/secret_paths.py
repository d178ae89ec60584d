"""URLs that refer to secrets, and the paths in their stores. A password as plain text in a URL is refused.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.sdk.errors import BuildError
from tidegate.sdk.secrets.redaction import SHORTEST, redacted

_PASSWORD: Final = re.compile(r"(?P<protocol>[A-Za-z][\w+.-]*)://[^/\s:@?#]*:(?P<password>[^/\s?#]+)@")
_WITHOUT_PASSWORDS: Final = frozenset({"git", "github"})
"""Protocols whose URLs have something else in these places."""
_HOST: Final = re.compile(r"[^:/]+://(?:\$\{[^{}]*\}|[^/])+")
_MARK: Final = re.compile("\0(\\d+)\0")
_NOTHING: Final[Mapping[str, str]] = {}


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
        """The path with references in place of values and marks, as authors write it: a `${` in the name of a file is
        `$${`, so that nobody who names a file can refer to a secret."""
        return self._replaced(self.revealed(path), self.references, {"${": "$${"})

    def _replaced(self, text: str, names: Iterable[str], others: Mapping[str, str] = _NOTHING) -> str:
        """The text with these names in place of values."""
        by_value = {**others, **dict(zip(self.values, names))}
        if not any(value in text for value in by_value):
            return text
        longest_first = sorted(by_value, key=len, reverse=True)  # a value may contain another
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: by_value[found[0]], text)


def check_has_no_password(url: str) -> None:
    """Raise BuildError for a URL with a password as plain text."""
    for found in _PASSWORD.finditer(url):
        protocol = found["protocol"]
        if protocol not in _WITHOUT_PASSWORDS and "${" not in found["password"]:
            raise BuildError(
                f"{redacted(url)}: the URL has a password as plain text, which would become part of the pipeline and "
                "of its checkpoints: refer to an environment variable in its place, as in ${PASSWORD}"
            )


def root_of(url: str, path: str) -> str | None:
    """What a URL has before a path of its store, if paths lack the host; None if the path and its protocol are enough.

    >>> root_of("sftp://${USER}:${PASSWORD}@host/in/*.csv", "/in/*.csv")
    'sftp://${USER}:${PASSWORD}@host'
    >>> root_of("s3://bucket/in/*.csv", "bucket/in/*.csv")
    """
    whole = url.rstrip("/")
    root = whole.removesuffix(path)
    return root if path.startswith("/") and whole.endswith(path) and _HOST.fullmatch(root) else None


NO_SECRETS: Final = SecretPaths()
"""The paths of a store whose URL refers to no secret."""
