"""Access to a session: sockets belong to one user, ports need a token, and data of others is never unpickled."""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidegate.runners.streaming.session import endpoint
from tidegate.runners.streaming.session.endpoint import (
    LONGEST_PATH,
    EndpointError,
    Handshake,
    check_peer,
    checked,
    connect,
    listen,
    listen_on_port,
    private_directory,
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose name leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="tg") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield Path(directory)


@contextmanager
def kept_by(listener: socket.socket, token: bytes) -> Iterator[None]:
    """Somebody who lets one client in, as a session does."""

    def keep() -> None:
        sock, _ = listener.accept()
        with sock:
            door = Handshake(token)
            sock.sendall(door.greeting())
            while door.verdict is None and (data := sock.recv(door.missing())):
                sock.sendall(door.handle(data))
            if door.verdict == "welcome":
                sock.sendall(b"come in")

    thread = threading.Thread(target=keep)
    thread.start()
    with listener:
        try:
            yield
        finally:
            thread.join()


def test_the_private_directory_is_the_users_alone(short: Path) -> None:
    directory = private_directory()
    assert directory == short / "tidegate"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert private_directory() == directory


def test_without_a_runtime_directory_it_is_in_the_temporary_one(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(short))
    assert private_directory() == short / f"tidegate-{os.getuid()}"


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
def test_a_directory_that_others_may_enter_is_refused(short: Path, mode: int) -> None:
    directory = private_directory()
    directory.chmod(mode)
    with pytest.raises(EndpointError, match="nobody else may enter"):
        private_directory()


def test_a_link_in_its_place_is_refused(short: Path) -> None:
    (short / "elsewhere").mkdir(mode=0o700)
    (short / "tidegate").symlink_to(short / "elsewhere")
    with pytest.raises(EndpointError, match="of your own"):
        private_directory()


def test_a_path_as_long_as_the_system_allows_works_and_a_longer_one_says_what_to_do(short: Path) -> None:
    room = LONGEST_PATH - len(os.fsencode(short)) - 1
    longest = short / ("s" * room)
    listen(longest).close()
    with pytest.raises(EndpointError, match=rf"{LONGEST_PATH + 1} bytes.*{LONGEST_PATH}.*XDG_RUNTIME_DIR"):
        checked(short / ("s" * (room + 1)))


def test_a_path_is_measured_in_bytes(short: Path) -> None:
    room = LONGEST_PATH - len(os.fsencode(short)) - 1
    with pytest.raises(EndpointError, match="shorter"):
        listen(short / ("ü" * (room // 2 + 1)))


def test_the_socket_of_a_killed_session_is_replaced_and_that_of_a_running_one_is_not(short: Path) -> None:
    listen(short / "s").close()
    assert (short / "s").exists()
    with listen(short / "s"), pytest.raises(EndpointError, match="another session"):
        listen(short / "s")


def test_a_client_that_knows_the_token_is_accepted_on_socket_and_port(short: Path) -> None:
    listener = listen_on_port(0)
    for place, door in [(short / "s", listen(short / "s")), (listener.getsockname()[1], listener)]:
        with kept_by(door, b"token"), connect(place, b"token") as sock:
            assert sock.recv(100) == b"come in"


def test_a_port_is_open_to_this_machine_alone() -> None:
    with listen_on_port(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("token", [b"", b"other", b"token "])
def test_a_client_that_does_not_know_the_token_is_refused(token: bytes) -> None:
    listener = listen_on_port(0)
    with kept_by(listener, b"token"), pytest.raises(EndpointError, match="does not accept"):
        connect(listener.getsockname()[1], token)


def test_a_session_of_another_version_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listen_on_port(0)
    door = Handshake(b"token")
    port = listener.getsockname()[1]

    def keep() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(door.greeting())
            while door.verdict is None:
                data = sock.recv(door.missing())
                with monkeypatch.context() as patch:
                    patch.setattr(endpoint, "_version", lambda: bytes(32))
                    sock.sendall(door.handle(data))

    thread = threading.Thread(target=keep)
    thread.start()
    with listener, pytest.raises(EndpointError, match="another version"):
        connect(port, b"token")
    thread.join()


def test_an_impostor_at_the_port_learns_nothing_and_is_found_out() -> None:
    listener = listen_on_port(0)
    heard: list[bytes] = []

    def pretend() -> None:
        sock, _ = listener.accept()
        with sock:
            door = Handshake(b"whatever")
            sock.sendall(door.greeting())
            heard.append(sock.recv(1000))
            sock.sendall(bytes(33))

    thread = threading.Thread(target=pretend)
    thread.start()
    with listener, pytest.raises(EndpointError, match="does not know the session's token"):
        connect(listener.getsockname()[1], b"the secret")
    thread.join()
    assert b"the secret" not in heard[0]


def test_an_answer_to_another_challenge_is_refused() -> None:
    one, other = Handshake(b"token"), Handshake(b"token")
    nonce = bytes(32)
    challenge = one.greeting()[-32:]
    reply = nonce + endpoint._answer(b"token", b"client", challenge, nonce) + endpoint._version()
    assert one.handle(reply)[:1] == b"\0"
    assert other.handle(reply)[:1] == b"\1"
    assert (one.verdict, other.verdict) == ("welcome", "refused")


def test_nothing_is_decided_before_all_has_come() -> None:
    door = Handshake(b"token")
    left = door.missing()
    for _ in range(left - 1):
        assert door.handle(b"x") == b""
        assert door.verdict is None
    door.handle(b"x")
    assert door.verdict == "refused"


def test_the_peers_user_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        check_peer(one)
        monkeypatch.setattr(endpoint.os, "getuid", lambda: 12345)
        with pytest.raises(EndpointError, match="not to user 12345"):
            check_peer(one)


def test_connecting_to_something_other_than_a_session_is_an_error_that_names_the_place() -> None:
    listener = listen_on_port(0)

    def answer() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))

    thread = threading.Thread(target=answer)
    thread.start()
    with listener, pytest.raises(EndpointError, match="is not a session of Tidegate"):
        connect(listener.getsockname()[1], b"")
    thread.join()


def test_connecting_where_no_session_listens_is_an_error_that_names_the_place(short: Path) -> None:
    with pytest.raises(EndpointError, match=f"no session answers at {short}/s"):
        connect(short / "s", b"")


class Bomb:
    def __reduce__(self) -> object:
        return os.mkdir, (f"{os.environ['XDG_RUNTIME_DIR']}/exploded",)


def test_a_pickle_in_place_of_an_introduction_is_never_loaded(short: Path) -> None:
    listener = listen_on_port(0)
    with kept_by(listener, b"token"), socket.create_connection(listener.getsockname()) as sock:
        sock.sendall(pickle.dumps(Bomb()).ljust(Handshake(b"").missing()))
        told = b""
        while data := sock.recv(1000):
            told += data
    assert told[-33:] == b"\1" + bytes(32)
    assert not (short / "exploded").exists()
