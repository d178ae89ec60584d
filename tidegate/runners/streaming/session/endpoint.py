"""Where a session listens: a named socket in a private directory and, on request, a port of this machine.

Both ends authenticate before either unpickles anything: on a named socket by the user id of the peer that the system
reports, and on both kinds by a challenge that only a holder of the session's token can answer. All messages of the
handshake have a fixed length.

    session: MAGIC · challenge      client: challenge · answer · version      session: verdict · answer
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import socket
import stat
import struct
import sys
import tempfile
from pathlib import Path
from typing import Final, Literal

from tidegate._version import __version__
from tidegate.sdk.errors import RunError

LONGEST_PATH: Final = 107
"""The system's limit for the length of a socket's name, in bytes."""
LOOPBACK: Final = "127.0.0.1"
HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds that either side waits for the other to authenticate."""

_MAGIC: Final = b"tidegate session 1\n"
_CHALLENGE: Final = 32
_ANSWER: Final = 32
_GREETING: Final = len(_MAGIC) + _CHALLENGE
_REPLY: Final = _CHALLENGE + 2 * _ANSWER
_VERDICT: Final = 1 + _ANSWER

_WELCOME, _REFUSED, _OTHER_VERSION = b"\0", b"\1", b"\2"


class EndpointError(RunError):
    """A session can't be reached, or can't listen, at some place."""


# -- places


def private_directory() -> Path:
    """The user's directory for sessions, created if it doesn't exist. EndpointError as of `private`."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return private(Path(base) / "tidegate" if base else Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}")


def private(directory: Path) -> Path:
    """A directory, created if it doesn't exist. EndpointError if another user owns it, or may enter it."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise EndpointError(f"can't create {directory}, which sessions need: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise EndpointError(
            f"{directory}, which sessions need, must be a directory of your own that nobody else may enter: "
            "remove it, or set XDG_RUNTIME_DIR and TMPDIR to others"
        )
    return directory


def checked(path: Path) -> Path:
    """The path of a socket. EndpointError if it is too long."""
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise EndpointError(
            f"the socket's path {path} has {length} bytes, and the system allows {LONGEST_PATH}: "
            "set XDG_RUNTIME_DIR (or TMPDIR) to a shorter directory, or give the session a shorter name"
        )
    return path


def listen(path: Path) -> socket.socket:
    """A listening socket that only this user may connect to. EndpointError if another session listens there."""
    checked(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            listener.bind(str(path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or _answers(path):
                raise
            path.unlink()  # a killed session left it
            listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
    except OSError as error:
        listener.close()
        reason = "another session listens there" if error.errno == errno.EADDRINUSE else error.strerror
        raise EndpointError(f"can't listen at {path}: {reason}") from error
    return listener


def listen_on_port(port: int) -> socket.socket:
    """A listening socket on a port (0: any free port) that only this machine can reach."""
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise EndpointError(f"can't listen on port {port} of {LOOPBACK}: {error.strerror}") from error


def connect(place: Path | int, token: bytes) -> socket.socket:
    """Connect to the session at a path or on a port. EndpointError says why that fails."""
    address = (LOOPBACK, place) if isinstance(place, int) else str(checked(place))
    sock = socket.socket(socket.AF_INET if isinstance(place, int) else socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(HANDSHAKE_TIMEOUT)
    try:
        try:
            sock.connect(address)
        except OSError as error:
            raise EndpointError(f"no session answers at {_named(place)}: {error.strerror or error}") from error
        if isinstance(place, Path):
            check_peer(sock)
        _authenticate(sock, token, place)
    except BaseException:
        sock.close()
        raise
    return sock


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _named(place: Path | int) -> str:
    return f"{LOOPBACK}:{place}" if isinstance(place, int) else str(place)


# -- authentication


def check_peer(sock: socket.socket) -> None:
    """EndpointError if the process at the other end of a named socket belongs to another user."""
    uid = _peer_uid(sock)
    if uid != os.getuid():
        raise EndpointError(f"the process at the other end belongs to user {uid}, not to user {os.getuid()}")


def _peer_uid(sock: socket.socket) -> int:
    if sys.platform == "linux":
        _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:  # LOCAL_PEERCRED of the BSDs and macOS, which getpeereid uses
        _, uid = struct.unpack("=II", sock.getsockopt(0, 1, 8))
    return int(uid)


def _answer(token: bytes, who: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(token, who + first + second, "sha256")


def _version() -> bytes:
    """A digest of the versions that must be equal on both sides, because they exchange pickles."""
    return hashlib.sha256(f"{__version__} {sys.version_info.major}.{sys.version_info.minor}".encode()).digest()


class Handshake:
    """The session's side of one handshake: bytes in, bytes out, no I/O.

    Pass received bytes to `handle`, which returns the bytes to send; `verdict` is None until the handshake is finished.
    """

    def __init__(self, token: bytes) -> None:
        self.verdict: Literal["welcome", "refused"] | None = None
        self._token = token
        self._challenge = os.urandom(_CHALLENGE)
        self._received = b""

    def greeting(self) -> bytes:
        """The bytes to send first."""
        return _MAGIC + self._challenge

    def missing(self) -> int:
        """How many more bytes to read; later bytes belong to the protocol after the handshake."""
        return _REPLY - len(self._received)

    def handle(self, data: bytes) -> bytes:
        """Handle bytes from the client; returns the bytes to send."""
        self._received += data
        if len(self._received) < _REPLY:
            return b""
        theirs, rest = self._received[:_CHALLENGE], self._received[_CHALLENGE:]
        answer, version = rest[:_ANSWER], rest[_ANSWER:]
        if not hmac.compare_digest(answer, _answer(self._token, b"client", self._challenge, theirs)):
            self.verdict = "refused"
            return _REFUSED + bytes(_ANSWER)
        mine = _answer(self._token, b"session", theirs, self._challenge)
        if not hmac.compare_digest(version, _version()):
            self.verdict = "refused"
            return _OTHER_VERSION + mine
        self.verdict = "welcome"
        return _WELCOME + mine


def _authenticate(sock: socket.socket, token: bytes, place: Path | int) -> None:
    """The client's side of a handshake. Blocks for at most `HANDSHAKE_TIMEOUT` seconds in each step."""
    sock.settimeout(HANDSHAKE_TIMEOUT)
    try:
        greeting = _exactly(sock, _GREETING)
        if not greeting.startswith(_MAGIC):
            raise EndpointError(f"the process at {_named(place)} is not a session of Tidegate")
        theirs = greeting[len(_MAGIC) :]
        mine = os.urandom(_CHALLENGE)
        sock.sendall(mine + _answer(token, b"client", theirs, mine) + _version())
        verdict = _exactly(sock, _VERDICT)
    except OSError as error:
        raise EndpointError(f"the session at {_named(place)} does not answer: {error}") from error
    if verdict[:1] == _REFUSED:
        raise EndpointError(f"the session at {_named(place)} does not accept this token")
    if not hmac.compare_digest(verdict[1:], _answer(token, b"session", mine, theirs)):
        raise EndpointError(f"the process at {_named(place)} does not know the session's token")
    if verdict[:1] != _WELCOME:
        raise EndpointError(
            f"the session at {_named(place)} runs another version of Tidegate or Python than this "
            f"({__version__}, {sys.version_info.major}.{sys.version_info.minor}): start a session of your own"
        )


def _exactly(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = sock.recv(count - len(found))
        if not part:
            raise ConnectionResetError("it closed the connection")
        found += part
    return found
