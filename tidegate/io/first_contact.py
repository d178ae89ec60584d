"""The first contact with a remote file system: a small request, before a pipeline runs, whose refusal is an error.

Clients of object stores try again for minutes, whatever the reason is. With a wrong bucket, path, address or password
all attempts are in vain, so the first request is attempted once, and its errors say what to correct. A store that is
slow or busy refuses nothing: the pipeline is run all the same, and waits for the store as in any later outage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from tidegate.io import files
from tidegate.io.storage_options import StorageOptions, is_url
from tidegate.sdk.connectors.outage import is_outage, is_refused
from tidegate.sdk.connectors.slow_answers import ADDRESS, SECONDS
from tidegate.sdk.errors import BuildError, TidegateError
from tidegate.sdk.secrets.redaction import redacted

_NO_CREDENTIALS: Final = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "DefaultCredentialsError"}
)
_UNREACHABLE: Final = frozenset({"SSHException", "ServiceRequestError"})
"""Names of the exceptions of clients, which may not be installed."""

_S3: Final = frozenset({"s3", "s3a"})
_WITH_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci"})
"""The file systems whose paths begin with the name of a bucket or container."""


def check_readable(patterns: Iterable[str], options: StorageOptions | None = None) -> bool:
    """Whether the stores of these paths and patterns answer a first request, so that more can be asked of them before
    the pipeline runs. Raises BuildError if one refuses it."""
    answered = [first_contact(redacted(each), partial(_find, each, options)) for each in filter(is_url, patterns)]
    return all(answered)


def _find(pattern: str, options: StorageOptions | None) -> None:
    found, path = files.store_of(pattern, options)
    assert isinstance(found, files.Remote)
    store = _with_one_attempt(found)
    if not _sees_bucket(store, path):
        store.find(path)


def check_writable(store: files.Store, folder: str) -> None:
    """Raise BuildError if it is certain that no file can be created in a folder: of a remote store, if its bucket is
    missing, or it refuses a first request. Only a write shows whether one may write. Writes nothing."""
    store.check_writable(folder)
    if not isinstance(store, files.Remote):
        return
    url = f"can't write to {redacted(store.url(folder))}"
    if _protocols(store) & {"http", "https"}:
        raise BuildError(f"{url}: files can only be read over HTTP")
    first_contact(url, partial(_list, store, folder))


def _list(found: files.Remote, folder: str) -> None:
    store = _with_one_attempt(found)
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


def _with_one_attempt(store: files.Remote) -> files.Remote:
    """The store through a client that reports what it meets at once, as far as clients can be told so."""
    if not _protocols(store) & _S3:
        return store
    options: dict[str, Any] = dict(store.fs.storage_options)
    options["config_kwargs"] = {**(options.get("config_kwargs") or {}), "retries": {"max_attempts": 0}}
    return store.through(type(store.fs)(*store.fs.storage_args, **options))


def first_contact(url: str, request: Callable[[], object]) -> bool:
    """Make the first request for `url`. Returns whether it is answered within 6 s; a warning is logged if it isn't.

    Raises BuildError with what to correct if it is refused, or if nothing is there to answer it.
    """
    answers: list[BaseException | None] = []

    def run() -> None:
        try:
            request()
            answers.append(None)
        except BaseException as error:
            answers.append(error)

    # A daemon, so that a request that is never answered does not keep the process from ending.
    thread = threading.Thread(target=run, name="first contact", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if not answers:
        report_slow(f"{url}: no answer within {SECONDS:g} s")
        return False
    error = answers[0]
    if error is None:
        return True
    if is_outage(error) and not _is_misdirected(error):
        report_slow(f"{url}: {_words(error)}")
        return False
    raise BuildError(redacted(f"{url}: {_words(error)}{_advice(error)}")) from error


def report_slow(problem: str) -> None:
    """Log how the first contact with a store that is slow or busy ended, which is no reason to refuse the pipeline."""
    import logging

    logging.getLogger("tidegate").warning(
        "%s. The pipeline is run all the same, and waits for the store if it can. If this goes on, %s",
        redacted(problem),
        ADDRESS,
    )


def _is_misdirected(error: BaseException) -> bool:
    """Whether an error says that nothing is there to answer, rather than that the store is slow or busy."""
    return is_refused(error) or any(cls.__name__ in _UNREACHABLE for cls in type(error).__mro__)


def _advice(error: BaseException) -> str:
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, PermissionError):
        return ": check the credentials, and what they may do there"
    if names & _NO_CREDENTIALS:
        return ": give credentials, by the environment or the client's own configuration"
    if _is_misdirected(error):
        return f": {ADDRESS}"
    return ""


def _words(error: BaseException) -> str:
    if isinstance(error, TidegateError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip().rstrip(".").partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
