"""`storage_options`: arguments for the file systems of fsspec, such as an endpoint or credentials.

A secret among them is a `pydantic.SecretStr`, or a reference such as `${NAME}`, never plain text: the options are part
of the pipeline. Each process that opens a file resolves them, and again each time.

>>> import os
>>> os.environ["TIDE_KEY"] = "open sesame"
>>> revealed({"anon": False, "client_kwargs": {"token": "${TIDE_KEY}"}})
{'anon': False, 'client_kwargs': {'token': 'open sesame'}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.secrets.redaction import conceal
from tidegate.sdk.secrets.references import resolved
from tidegate.sdk.secrets.registry import is_secret

StorageOptions: TypeAlias = Mapping[str, Any]
"""The keyword arguments of a file system of fsspec."""

_SECRET_NAMES: Final = re.compile(
    r"secret|passw|passphrase|sas_token|sas_key|session_token|account_key|access_key(?!_id)|connection_string|private_key"
    r"|authorization|api_?key|credential$",
    re.IGNORECASE,
)


def options_of(given: StorageOptions | None, paths: Iterable[str], of: str) -> StorageOptions | None:
    """A copy of the options that an author gave for some paths; None if there are none.

    Raises BuildError, naming the transform `of`, for anything but a mapping, for a local path, whose file system has
    no options, and for a password in plain text, which would become part of the pipeline.
    """
    if not given and (given is None or isinstance(given, Mapping)):
        return None
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise BuildError(f"{of}: storage_options is a dict of arguments for fsspec, not {shorten(given)}")
    local = next((path for path in paths if not is_url(path)), None)
    if local is not None:
        raise BuildError(f"{of}: storage_options are arguments for the file systems of URLs, and {local!r} is a path")
    for name, value in _texts("", given):
        if _SECRET_NAMES.search(name) and value and "${" not in value:
            raise BuildError(
                f"{of}: storage_options has {name!r} as plain text, which would become part of the pipeline: pass a "
                "pydantic.SecretStr, or a reference such as '${NAME}' to an environment variable"
            )
    return _copied(given)  # type: ignore[no-any-return]


def has_secrets(options: StorageOptions | None) -> bool:
    """Whether a value among the options is a `SecretStr` or `SecretBytes`."""
    return any(is_secret(value) for _, value in _leaves("", options))


def is_url(path: str) -> bool:
    """Whether a path belongs to a file system of fsspec."""
    return not path.startswith("file://") and ("://" in path or "::" in path)


def revealed(options: StorageOptions | None) -> dict[str, Any]:
    """The options with the values of their secrets, which are redacted in messages from then on.

    Raises BuildError or RunError for a reference that can't be resolved.
    """
    return {name: _revealed(value) for name, value in (options or {}).items()}


def _revealed(value: Any) -> Any:
    match value:
        case str():
            return resolved(value)
        case Mapping():
            return {name: _revealed(each) for name, each in value.items()}
        case list() | tuple():
            return [_revealed(each) for each in value]
        case _ if is_secret(value):
            revealed = value.get_secret_value()
            conceal(revealed)
            return revealed
    return value


def _copied(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _copied(each) for name, each in value.items()}
        case list() | tuple():
            return [_copied(each) for each in value]
    return value


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    return ((name, each) for name, each in _leaves(name, value) if isinstance(each, str))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values in nested options, each with the name of the option that it belongs to."""
    match value:
        case Mapping():
            for inner, each in value.items():
                yield from _leaves(str(inner), each)
        case str() | bytes():
            yield name, value
        case Sequence():
            for each in value:
                yield from _leaves(name, each)
        case _:
            yield name, value
