"""The first contact with a remote file system: a small request, before a pipeline runs, that must be answered soon.

Clients of object stores try again for minutes where a store is slow. A wrong address or a wrong password looks the same
to them, so the first request gets a time limit of its own, and its errors say what to correct.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from tidegate.io import files
from tidegate.io.storage_options import StorageOptions, is_url
from tidegate.sdk.errors import BuildError, TidegateError
from tidegate.sdk.secrets.redaction import redacted

T = TypeVar("T")

SECONDS: Final = 8.0
"""The time limit of a first request."""

_NO_CREDENTIALS: Final = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "DefaultCredentialsError"}
)
_UNREACHABLE: Final = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "ClientConnectorError",
        "ClientConnectorDNSError",
        "ServerDisconnectedError",
        "ServiceRequestError",
        "SSHException",
    }
)
"""Names of the exceptions of clients, which may not be installed."""


_WITH_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci"})
"""The file systems whose paths begin with the name of a bucket or container."""


def check_readable(patterns: Iterable[str], options: StorageOptions | None = None) -> None:
    """Raise BuildError if the store of a path or pattern refuses a first request, or doesn't answer."""
    for pattern in filter(is_url, patterns):
        first_contact(redacted(pattern), partial(_find, pattern, options))


def _find(pattern: str, options: StorageOptions | None) -> None:
    store, path = files.store_of(pattern, options)
    assert isinstance(store, files.Remote)
    if not _sees_bucket(store, path):
        store.find(path)


def check_writable(store: files.Store, folder: str) -> None:
    """Raise BuildError if it is certain that no file can be created in a folder: of a remote store, if its bucket is
    missing, or it refuses a first request or doesn't answer. Only a write shows whether one may write. Writes
    nothing."""
    store.check_writable(folder)
    if not isinstance(store, files.Remote):
        return
    url = f"can't write to {redacted(store.url(folder))}"
    if _protocols(store) & {"http", "https"}:
        raise BuildError(f"{url}: files can only be read over HTTP")
    first_contact(url, partial(_list, store, folder))


def _list(store: files.Remote, folder: str) -> None:
    if not _sees_bucket(store, folder):
        store.names(files.join(folder, f"{files.WORK_PREFIX}none"))


def _sees_bucket(store: files.Remote, path: str) -> bool:
    """Whether the path's bucket exists; False if that can't be seen: one may use some buckets and not look at them, and
    most file systems have none. Raises BuildError if it doesn't exist."""
    if not _protocols(store) & _WITH_BUCKETS:
        return False
    bucket = path.partition("/")[0]
    store.fs.invalidate_cache(bucket)
    try:
        store.fs.info(bucket)
    except PermissionError:
        return False
    except FileNotFoundError:
        raise BuildError(f"there is no bucket {bucket!r}: create it, or correct its name") from None
    return True


def _protocols(store: files.Remote) -> set[str]:
    names = store.fs.protocol
    return {names} if isinstance(names, str) else set(names)


def first_contact(url: str, request: Callable[[], T]) -> T:
    """The result of the first request for `url`. Raises BuildError with what to correct if it fails, or has no answer
    within 8 s."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(request())
        except BaseException as error:
            failed.append(error)

    # A daemon, so that a request that is never answered does not keep the process from ending.
    thread = threading.Thread(target=run, name="first contact", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if done:
        return done[0]
    if not failed:
        raise BuildError(f"{url}: no answer within {SECONDS:g} s: {_ADDRESS}")
    error = failed[0]
    raise BuildError(f"{url}: {_words(error)}{_advice(error)}") from error


def _advice(error: BaseException) -> str:
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, PermissionError):
        return ": check the credentials, and what they may do there"
    if names & _NO_CREDENTIALS:
        return ": give credentials, by the environment or the client's own configuration"
    if isinstance(error, ConnectionError | TimeoutError) or names & _UNREACHABLE:
        return f": {_ADDRESS}"
    return ""


def _words(error: BaseException) -> str:
    if isinstance(error, TidegateError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip().rstrip(".").partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_ADDRESS: Final = "check the address of the store (its host and port, its endpoint) and the network"
