"""Recognises errors of connectors which mean that a remote system is unreachable; restarts then go on until it is back.

Clients of object stores raise exceptions of their own, which are recognised by name and status, so that none of them is
imported here.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any, Final


def is_outage(error: BaseException) -> bool:
    """Whether a system outside can't be reached at the moment, by what the error or one of its causes says.

    An error attributed to an element never is: the author's code raised it, and may raise it again.

    >>> is_outage(ConnectionRefusedError(111, "Connection refused"))
    True
    >>> is_outage(FileNotFoundError(2, "No such file"))
    False
    """
    if getattr(error, "element", None) is not None:
        return False
    return any(map(_says_unreachable, _causes(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, the outermost first."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ if at.__cause__ is not None or at.__suppress_context__ else at.__context__


def _says_unreachable(error: BaseException) -> bool:
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno in _NETWORK:
        return True
    if any(kind.__name__ in _CLIENTS for kind in type(error).__mro__):
        return True
    return _status(error) in _STATUSES


def _status(error: Any) -> int | None:
    """The HTTP status of a client's error."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")  # type: ignore[no-any-return]
    for name in ("status_code", "status", "code"):
        if type(found := getattr(error, name, None)) is int:
            return found
    return None


_NETWORK: Final = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ENETRESET, errno.ETIMEDOUT}
)
_CLIENTS: Final = frozenset(
    {
        "gaierror",  # socket: names can't be resolved
        "EndpointConnectionError",  # botocore
        "HTTPClientError",  # botocore: timeouts and closed connections
        "ClientConnectionError",  # aiohttp
        "ClientPayloadError",  # aiohttp: the connection broke in the middle of an answer
        "ServiceRequestError",  # azure
        "ServiceResponseError",  # azure
        "TransportError",  # google.auth
    }
)
"""Names of classes of errors in connections."""
_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
