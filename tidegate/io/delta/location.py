"""Where a table is, and the options of the client that reaches its store.

Options have the rules of `storage_options.py`: a secret is a reference (`${NAME}`) or a `SecretStr`, and is resolved in
each process that opens the table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.io.secret_paths import check_has_no_password
from tidegate.io.storage_options import options_of, revealed
from tidegate.sdk.errors import BuildError, RunError, shorten
from tidegate.sdk.secrets.redaction import redacted
from tidegate.sdk.secrets.references import resolved
from tidegate.sdk.secrets.registry import is_secret

PATIENCE: Final[Mapping[str, str]] = {"retry_timeout": "10s"}
"""Options of a running job. The client would try again for three minutes in which nobody knows why nothing happens; an
error restarts a stream, which says so, and goes on for as long as the store is away."""


@dataclass(frozen=True, slots=True)
class Location:
    """A table's path or URL, and the options of the client (names and values), which may be secrets."""

    url: str
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    @staticmethod
    def of(table: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, of: str) -> Location:
        """The table that an author named. Raises BuildError, naming the transform `of`, if this is not a table's
        location, or if the pipeline would contain a secret."""
        if not isinstance(table, str | os.PathLike) or not os.fspath(table):
            raise BuildError(f"{of} takes the path or URL of a table, not {shorten(table)}")
        url = os.fspath(table)
        if url.startswith("file://"):
            url = url.removeprefix("file://")
        if url.startswith("memory:"):
            raise BuildError(f"{of}: {url} exists only in one process, so workers can't reach it: use a folder")
        check_has_no_password(url)
        options = tuple((options_of(storage_options, [url], of) or {}).items())
        for name, value in options:
            if not (isinstance(value, str) or is_secret(value)):
                raise BuildError(
                    f"{of}: storage_options[{name!r}] is {type(value).__name__}: deltalake takes texts, such as 'true'"
                )
        return Location(url.rstrip("/") or "/", options)

    @property
    def is_local(self) -> bool:
        """Whether the table is a folder of this machine's file system."""
        return "://" not in self.url

    @property
    def shown(self) -> str:
        """The table for messages, without passwords."""
        return redacted(self.url)

    @property
    def client_url(self) -> str:
        """The table as the client takes it: a local path is absolute."""
        return os.path.abspath(os.path.expanduser(self.url)) if self.is_local else resolved(self.url)

    def client_options(self, defaults: Mapping[str, str] = PATIENCE) -> dict[str, str]:
        """The client's options, with the values of secrets; `defaults` are those for stores that are reached by URL, if
        the author gives no others. RunError for a secret that this process can't resolve."""
        given = revealed(dict(self.options))
        if self.is_local:
            return given
        named = {name.lower() for name in given}
        return {**{name: value for name, value in defaults.items() if name not in named}, **given}

    def resolves_here(self) -> bool:
        """Whether this process knows all secrets. Workers may know some that the author's machine doesn't. Raises
        BuildError if a reference is malformed."""
        try:
            self.client_options()
        except RunError:
            return False
        return True
