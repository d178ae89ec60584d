"""The client library, deltalake: opening a table at a version, and its errors in the words of this package.

The library runs threads of its own from its first call on, and refuses to work in a process that was forked after that
call. It is therefore imported and used only in the process that needs it; processes that have used it have several
threads, and are not forked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tidegate.io.delta.location import PATIENCE, Location
from tidegate.sdk.connectors.outage import is_outage, is_refused
from tidegate.sdk.errors import BuildError, ReadError, TidegateError
from tidegate.sdk.secrets.redaction import redacted

READABLE_FEATURES: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"})
"""Reader features of tables that are read."""

WRITABLE_FEATURES: Final = frozenset({"appendOnly", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Writer features of tables that are written to; others put demands on writers that this package doesn't meet."""

_OLD_READERS: Final = {2: ("columnMapping",)}
_OLD_WRITERS: Final = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
_DECORATION: Final = re.compile("\x1b\\[[0-9]*m|↳")
QUICK: Final = {"timeout": "3s", "connect_timeout": "3s", "max_retries": "1", "retry_timeout": "5s"}
"""Options for the first contact, while the pipeline is built: a wrong place is an error within seconds."""


def need_deltalake(of: str) -> None:
    """BuildError, naming the extra to install, if the library is missing; `of` needs it."""
    from importlib.util import find_spec

    for package in ("deltalake", "pyarrow"):
        if find_spec(package) is None:
            raise BuildError(f"{of} needs the package {package}: pip install 'tidegate[delta]'")


class NoTable(ReadError):
    """There is no Delta table at a place."""


@contextmanager
def client_errors(location: Location, doing: str, error: type[TidegateError] = ReadError) -> Iterator[None]:
    """Turn the library's errors into ours, as in `<table>: can't be read: …`."""
    try:
        yield
    except TidegateError:
        raise
    except BaseException as problem:
        kind = type(problem).__name__
        if kind == "TableNotFoundError":
            raise NoTable(f"{location.shown}: there is no Delta table here: {_absence(location, problem)}") from problem
        if isinstance(problem, Exception):
            raise error(f"{location.shown}: {doing}: {words_of(problem)}") from problem
        if kind == "PanicException":  # not an Exception, so that nothing but this catches it
            raise error(f"{location.shown}: {doing}: {_panic(str(problem))}") from problem
        raise


def _absence(location: Location, problem: BaseException) -> str:
    if location.is_local:
        there = os.path.isdir(location.client_url)
        return "the folder has no _delta_log" if there else "there is no such folder"
    return words_of(problem)


def words_of(error: BaseException) -> str:
    """What an error of the library says, in one line."""
    lines = [line.strip() for line in _DECORATION.sub("", str(error)).splitlines()]
    text = redacted(": ".join(line for line in lines if line and "<unknown>" not in line)) or type(error).__name__
    if "URL scheme is not allowed" in text:
        text = "the endpoint is not HTTPS, which storage_options={'allow_http': 'true'} allows"
    return text if len(text) <= 500 else f"{text[:500]}…"


def _panic(text: str) -> str:
    if "Forked process" in text:
        return (
            "the package deltalake was used in this process's parent before the fork, and can't be used in this one: "
            "start the process anew, as in multiprocessing.get_context('spawn')"
        )
    return text


def is_slow(error: ReadError) -> bool:
    """Whether an error of the first contact says that the store is slow or busy, rather than that nothing is there."""
    return is_outage(error) and not is_refused(error)


def open_table(location: Location, version: int | None = None, defaults: Mapping[str, str] = PATIENCE) -> Any:
    """The `DeltaTable` at a version, or as it is now; `defaults` as in `Location.client_options`. Raises ReadError,
    NoTable if there is none."""
    import deltalake

    with client_errors(location, "can't be read"):
        given = location.client_options(defaults)
        try:
            return deltalake.DeltaTable(location.client_url, version=version, storage_options=given)
        except (deltalake.exceptions.DeltaError, deltalake.exceptions.TableNotFoundError) as error:
            if version is not None and (latest := _latest(location, given)) is not None:
                raise no_version(location, version, latest) from error
            raise


def no_version(location: Location, version: int, latest: int) -> ReadError:
    """The error for a version that doesn't exist, or not any more."""
    if version > latest:
        return ReadError(f"{location.shown} has no version {version}: the latest is {latest}")
    return ReadError(
        f"{location.shown}: version {version} can't be read any more, because the table's log was cleaned up since; "
        f"the latest is {latest}"
    )


def _latest(location: Location, options: Mapping[str, str]) -> int | None:
    import deltalake

    try:
        latest: int = deltalake.DeltaTable(location.client_url, storage_options=dict(options)).version()
        return latest
    except (deltalake.exceptions.DeltaError, deltalake.exceptions.TableNotFoundError):
        return None


def check_readable(location: Location, table: Any) -> None:
    """Raise ReadError, naming them, for features of a table that this package can't read."""
    protocol = table.protocol()
    check_protocol(
        location, protocol.min_reader_version, protocol.reader_features, dict(table.metadata().configuration)
    )


def check_protocol(
    location: Location, version: int, features: list[str] | None, configuration: Mapping[str, str]
) -> None:
    """Raise ReadError, naming them, for the reader features of a protocol that this package can't read."""
    named = set(features or ()) if version >= 3 else set(_OLD_READERS.get(version, ()))
    if version > 3:
        raise ReadError(f"{location.shown}: the table needs a reader of version {version}; this one has version 3")
    if configuration.get("delta.columnMapping.mode", "none") == "none":
        named.discard("columnMapping")
    if unknown := sorted(named - READABLE_FEATURES):
        raise ReadError(
            f"{location.shown}: the table has the reader feature{'s' * (len(unknown) > 1)} {', '.join(unknown)}, which "
            "ReadFromDelta can't read"
        )
