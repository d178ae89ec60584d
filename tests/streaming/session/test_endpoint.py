"""Access to a session: sockets belong to one user, ports need a token, and strangers' data is never unpickled."""

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
def runtime_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory with a name runtime_dir enough for the path of a socket in it."""
    with tempfile.TemporaryDirectory(prefix="tg") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield Path(directory)


@contextmanager
def accepting_one_client(listener: socket.socket, token: bytes) -> Iterator[None]:
    """Accept one client, as a session does."""

    def accept() -> None:
        sock, _ = listener.accept()
        with sock:
            handshake = Handshake(token)
            sock.sendall(handshake.greeting())
            while handshake.verdict is None and (data := sock.recv(handshake.missing())):
                sock.sendall(handshake.handle(data))
            if handshake.verdict == "welcome":
                sock.sendall(b"come in")

    thread = threading.Thread(target=accept)
    thread.start()
    with listener:
        try:
            yield
        finally:
            thread.join()


def test_only_the_user_can_enter_the_private_directory(runtime_dir: Path) -> None:
    directory = private_directory()
    assert directory == runtime_dir / "tidegate"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert private_directory() == directory


def test_the_private_directory_is_in_the_temporary_one_without_a_runtime_directory(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(runtime_dir))
    assert private_directory() == runtime_dir / f"tidegate-{os.getuid()}"


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
def test_a_directory_that_others_may_enter_is_refused(runtime_dir: Path, mode: int) -> None:
    directory = private_directory()
    directory.chmod(mode)
    with pytest.raises(EndpointError, match="nobody else may enter"):
        private_directory()


def test_a_symbolic_link_in_place_of_the_directory_is_refused(runtime_dir: Path) -> None:
    (runtime_dir / "elsewhere").mkdir(mode=0o700)
    (runtime_dir / "tidegate").symlink_to(runtime_dir / "elsewhere")
    with pytest.raises(EndpointError, match="of your own"):
        private_directory()


def test_the_longest_path_that_the_system_allows_works_and_a_longer_one_is_refused_with_a_remedy(
    runtime_dir: Path,
) -> None:
    room = LONGEST_PATH - len(os.fsencode(runtime_dir)) - 1
    longest = runtime_dir / ("s" * room)
    listen(longest).close()
    with pytest.raises(EndpointError, match=rf"{LONGEST_PATH + 1} bytes.*{LONGEST_PATH}.*XDG_RUNTIME_DIR"):
        checked(runtime_dir / ("s" * (room + 1)))


def test_the_length_of_a_path_is_measured_in_bytes(runtime_dir: Path) -> None:
    room = LONGEST_PATH - len(os.fsencode(runtime_dir)) - 1
    with pytest.raises(EndpointError, match="shorter"):
        listen(runtime_dir / ("ü" * (room // 2 + 1)))


def test_the_socket_of_a_killed_session_is_replaced_and_that_of_a_running_one_is_not(runtime_dir: Path) -> None:
    listen(runtime_dir / "s").close()
    assert (runtime_dir / "s").exists()
    with listen(runtime_dir / "s"), pytest.raises(EndpointError, match="another session"):
        listen(runtime_dir / "s")


def test_a_client_with_the_token_is_accepted_on_socket_and_port(runtime_dir: Path) -> None:
    listener = listen_on_port(0)
    for address, socket_ in [(runtime_dir / "s", listen(runtime_dir / "s")), (listener.getsockname()[1], listener)]:
        with accepting_one_client(socket_, b"token"), connect(address, b"token") as sock:
            assert sock.recv(100) == b"come in"


def test_a_port_is_open_only_to_this_machine() -> None:
    with listen_on_port(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("token", [b"", b"other", b"token "])
def test_a_client_without_the_token_is_refused(token: bytes) -> None:
    listener = listen_on_port(0)
    with accepting_one_client(listener, b"token"), pytest.raises(EndpointError, match="does not accept"):
        connect(listener.getsockname()[1], token)


def test_a_session_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listen_on_port(0)
    handshake = Handshake(b"token")
    port = listener.getsockname()[1]

    def accept() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(handshake.greeting())
            while handshake.verdict is None:
                data = sock.recv(handshake.missing())
                with monkeypatch.context() as patch:
                    patch.setattr(endpoint, "_version", lambda: bytes(32))
                    sock.sendall(handshake.handle(data))

    thread = threading.Thread(target=accept)
    thread.start()
    with listener, pytest.raises(EndpointError, match="another version"):
        connect(port, b"token")
    thread.join()


def test_an_impostor_at_the_port_is_detected_and_does_not_learn_the_token() -> None:
    listener = listen_on_port(0)
    received: list[bytes] = []

    def pretend() -> None:
        sock, _ = listener.accept()
        with sock:
            handshake = Handshake(b"whatever")
            sock.sendall(handshake.greeting())
            received.append(sock.recv(1000))
            sock.sendall(bytes(33))

    thread = threading.Thread(target=pretend)
    thread.start()
    with listener, pytest.raises(EndpointError, match="does not know the session's token"):
        connect(listener.getsockname()[1], b"the secret")
    thread.join()
    assert b"the secret" not in received[0]


def test_an_answer_to_another_challenge_is_refused() -> None:
    one, other = Handshake(b"token"), Handshake(b"token")
    nonce = bytes(32)
    challenge = one.greeting()[-32:]
    reply = nonce + endpoint._answer(b"token", b"client", challenge, nonce) + endpoint._version()
    assert one.handle(reply)[:1] == b"\0"
    assert other.handle(reply)[:1] == b"\1"
    assert (one.verdict, other.verdict) == ("welcome", "refused")


def test_a_handshake_has_no_verdict_before_the_whole_reply_has_arrived() -> None:
    handshake = Handshake(b"token")
    size = handshake.missing()
    for _ in range(size - 1):
        assert handshake.handle(b"x") == b""
        assert handshake.verdict is None
    handshake.handle(b"x")
    assert handshake.verdict == "refused"


def test_the_user_of_the_peer_is_obtained_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        check_peer(one)
        monkeypatch.setattr(endpoint.os, "getuid", lambda: 12345)
        with pytest.raises(EndpointError, match="not to user 12345"):
            check_peer(one)


def test_connecting_to_something_other_than_a_session_is_an_error() -> None:
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


def test_the_error_of_connecting_without_a_session_names_the_socket(runtime_dir: Path) -> None:
    with pytest.raises(EndpointError, match=f"no session answers at {runtime_dir}/s"):
        connect(runtime_dir / "s", b"")


class Bomb:
    def __reduce__(self) -> object:
        return os.mkdir, (f"{os.environ['XDG_RUNTIME_DIR']}/exploded",)


def test_a_pickle_in_place_of_a_handshake_is_never_loaded(runtime_dir: Path) -> None:
    listener = listen_on_port(0)
    with accepting_one_client(listener, b"token"), socket.create_connection(listener.getsockname()) as sock:
        sock.sendall(pickle.dumps(Bomb()).ljust(Handshake(b"").missing()))
        answer = b""
        while data := sock.recv(1000):
            answer += data
    assert answer[-33:] == b"\1" + bytes(32)
    assert not (runtime_dir / "exploded").exists()
