"""Errors of connectors that say that a system outside can't be reached are told from all others."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from tidegate.sdk.connectors.outage import is_outage
from tidegate.sdk.errors import ReadError, UserCodeError


class ClientError(Exception):
    """An error of botocore."""

    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class ClientResponseError(Exception):
    """An error of aiohttp."""

    def __init__(self, status: int) -> None:
        self.status = status


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
