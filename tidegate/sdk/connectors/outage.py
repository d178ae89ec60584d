"""Recognises errors which mean that a remote system is unreachable; restarts then go on until it is back.

Clients of object stores raise exceptions of their own, which are recognised by name, status or text, so that none of
them is imported here.
"""

from __future__ import annotations

import errno
import re
import socket
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


def is_refused(error: BaseException) -> bool:
    """Whether nothing answers at an address, by what the error or one of its causes says: connections are refused, the
    host is unknown or can't be reached, or it doesn't speak TLS. A system that is slow or busy is not meant.

    >>> is_refused(ConnectionRefusedError(111, "Connection refused"))
    True
    >>> is_refused(TimeoutError())
    False
    """
    return any(map(_says_refused, _causes(error)))


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


def _says_refused(error: BaseException) -> bool:
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return True
    if any(kind.__name__ in _REFUSALS for kind in type(error).__mro__):
        return True
    return _NOT_CONNECTED.search(_failed_request(error)) is not None


def _status(error: Any) -> int | None:
    """The HTTP status of a client's error."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")  # type: ignore[no-any-return]
    for name in ("status_code", "status", "code"):
        if type(found := getattr(error, name, None)) is int:
            return found
    if not (text := _failed_request(error)):
        return None
    answer = _ANSWER.search(text)
    return 503 if answer is None else int(answer["status"])


def _failed_request(error: BaseException) -> str:
    """What object_store, the client in deltalake, says of a request that had no answer, or a bad one, in one line."""
    text = str(error)
    if "Error performing " not in text:
        return ""
    found = _REQUEST.search(" ".join(_DECORATION.sub("", text).split()))
    return "" if found is None else found[0]


_NETWORK: Final = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ENETRESET, errno.ETIMEDOUT}
)
_CLIENTS: Final = frozenset(
    {
        "gaierror",  # socket: names can't be resolved
        "ConnectTimeoutError",  # botocore
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
_REFUSALS: Final = frozenset({"ClientConnectorDNSError", "ClientSSLError", "NoValidConnectionsError"})
"""Names of classes of errors of aiohttp and paramiko."""
_DECORATION: Final = re.compile("\x1b\\[[0-9]*m|↳")
_REQUEST: Final = re.compile(
    r"Error performing [A-Z]+ \S+ in .* - (?:HTTP error:? (?!builder)|Server returned non-2xx).*"
)
_ANSWER: Final = re.compile(r"Server returned non-2xx status code:? (?P<status>\d+)")
_NOT_CONNECTED: Final = re.compile(r"client error \(Connect\)(?!.*(?:timed out|elapsed))")
_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
