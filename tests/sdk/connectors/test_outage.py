"""Errors of connectors that say that a system outside can't be reached are told from all others."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from tidegate.sdk.connectors.outage import is_outage, is_refused
from tidegate.sdk.errors import ReadError, UserCodeError


class ClientError(Exception):
    """An error of botocore."""

    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class ClientResponseError(Exception):
    """An error of aiohttp."""

    def __init__(self, status: int) -> None:
        self.status = status


def failed_request(*words: str) -> OSError:
    """An error of object_store, the client in deltalake, as it decorates its lines."""
    first = ("Error performing PUT http://localhost:1/bucket/x in 10.1s, after 9 retries, max_retries", "10")
    lines = (*first, f"retry_timeout 10s - {words[0]}", *words[1:])
    return OSError("Kernel error -> Generic S3 error\n" + "\n".join(f"    \x1b[31m↳\x1b[0m {line}" for line in lines))


NO_ANSWER = ("HTTP error", "error sending request")
BAD_ANSWER = "Server returned non-2xx status code"
REFUSED = failed_request(*NO_ANSWER, "client error (Connect)", "tcp connect error", "Connection refused (os error 111)")


def caused_by(error: BaseException) -> ReadError:
    caused = ReadError("a.parquet: can't be read")
    caused.__cause__ = error
    return caused


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        TimeoutError(),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        ClientError(503),
        ClientResponseError(429),
        REFUSED,
        failed_request(*NO_ANSWER, "operation timed out"),
        failed_request(BAD_ANSWER, "503 Service Unavailable"),
        type("EndpointConnectionError", (Exception,), {})(),
        type("ReadTimeoutError", (type("HTTPClientError", (Exception,), {}),), {})(),
    ],
    ids=repr,
)
def test_a_system_that_is_away_is_recognised_in_an_error_and_in_its_causes(error: Exception) -> None:
    assert is_outage(error)
    assert is_outage(caused_by(error))
    assert is_outage(caused_by(caused_by(error)))


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file"),
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("not a number"),
        ClientError(403),
        ClientResponseError(404),
        failed_request(BAD_ANSWER, "403 Forbidden"),
        failed_request("HTTP error", "builder error", "URL scheme is not allowed"),
    ],
    ids=repr,
)
def test_other_errors_are_no_outages(error: Exception) -> None:
    assert not is_outage(error)
    assert not is_outage(caused_by(error))


def test_an_error_that_the_author_s_code_raised_on_an_element_is_no_outage() -> None:
    def raised(element: Any) -> UserCodeError:
        error = UserCodeError("refused", step="call", where="a.py:1", element=element)
        error.__cause__ = ConnectionRefusedError()
        return error

    assert not is_outage(raised("7"))
    assert is_outage(raised(None))


def test_an_address_where_nothing_answers_is_told_from_a_system_that_is_slow() -> None:
    refusals = [
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        type("ClientConnectorDNSError", (Exception,), {})(),
        REFUSED,
    ]
    assert all(is_refused(error) and is_refused(caused_by(error)) for error in refusals)
    slow = [
        TimeoutError(),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        ClientError(503),
        ClientError(403),
        failed_request(*NO_ANSWER, "operation timed out"),
        failed_request(*NO_ANSWER, "client error (Connect)", "operation timed out"),
        failed_request(BAD_ANSWER, "503 Service Unavailable"),
    ]
    assert not any(is_refused(caused_by(error)) for error in slow)
