"""`ReadFromSocket` with a real server."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.io.generators.socket_lines import SocketSource
from tidegate.sdk.connectors.sources import Reader
from tidegate.sdk.metrics import MetricCells, collecting, in_step

TIMEOUT = 60.0


@contextmanager
def server() -> Iterator[tuple[socket.socket, int]]:
    """Yield a listening socket and its port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        listening.settimeout(TIMEOUT)
        yield listening, listening.getsockname()[1]


def serving(listening: socket.socket, *answers: bytes) -> threading.Thread:
    """Accept one connection per answer, send the answer, and close the connection."""

    def serve() -> None:
        for answer in answers:
            connection, _ = listening.accept()
            with closing(connection):
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


OPENED: list[Reader[str]] = []


def reader_of(source: SocketSource) -> Reader[str]:
    OPENED.append(source.reader(source.splits(3)[0]))
    return OPENED[-1]


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def read_lines(reader: Reader[str], count: int | None = None) -> list[str]:
    """Read at least `count` lines, or all until the end."""
    found: list[str] = []
    pause = threading.Event()
    while count is None or len(found) < count:
        batch = reader.read(100)
        found += batch.block.values
        if batch.end:
            assert count is None
            return found
        if not len(batch.block):
            pause.wait(batch.wait)
    return found


def test_lines_come_until_the_server_closes_the_connection() -> None:
    with server() as (listening, port):
        thread = serving(listening, "one\r\nzwölf\n\nlast".encode())
        source = SocketSource("localhost", port)
        reader = reader_of(source)
        assert read_lines(reader) == ["one", "zwölf", "", "last"]
        thread.join()


def test_a_line_that_arrives_in_pieces_is_emitted_once_it_is_complete() -> None:
    with server() as (listening, port):
        source = SocketSource("127.0.0.1", port)
        reader = reader_of(source)
        reader.read(1)
        connection, _ = listening.accept()
        with closing(connection):
            connection.sendall(b"z" + "ö".encode()[:1])
            for _ in range(20):
                assert len(reader.read(1).block) == 0
            connection.sendall("ö".encode()[1:] + b"\nnext")
            assert read_lines(reader, 1) == ["zö"]
        assert read_lines(reader) == ["next"]


def test_a_block_has_at_most_as_many_lines_as_requested() -> None:
    with server() as (listening, port):
        thread = serving(listening, b"".join(b"%d\n" % n for n in range(50_000)))
        source = SocketSource("127.0.0.1", port)
        reader = reader_of(source)
        found: list[str] = []
        ended = False
        while not ended:
            batch = reader.read(7)
            assert len(batch.block) <= 7
            found += batch.block.values
            ended = batch.end
        assert found == [str(n) for n in range(50_000)]
        thread.join()


def test_a_reader_never_waits_for_a_silent_server() -> None:
    with server() as (_, port):
        source = SocketSource("127.0.0.1", port)
        reader = reader_of(source)
        for _ in range(5):
            batch = reader.read(10)
            assert (len(batch.block), batch.end) == (0, False)
            assert batch.wait > 0
        assert reader.position() is None
        reader.close()


def test_a_reader_reconnects_and_drops_and_counts_the_line_that_was_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    with server() as (listening, port), collecting(MetricCells()) as cells, in_step("lines"):
        thread = serving(listening, b"one\ntw", b"three\n", b"four\n")
        source = SocketSource("127.0.0.1", port, reconnect=0.01)
        reader = reader_of(source)
        assert read_lines(reader, 3) == ["one", "three", "four"]
        reader.close()
        thread.join()
    counted = {key.name: n for key, n in cells.counters.items()}
    assert counted == {"partial_lines": 1, "reconnects": 2}
    assert f"socket 127.0.0.1:{port}: the server closed the connection; connecting again in 0.01 s" in caplog.messages


def test_a_reader_waits_for_a_server_that_is_not_there_yet(caplog: pytest.LogCaptureFixture) -> None:
    with server() as (_, port):
        pass
    source = SocketSource("127.0.0.1", port, reconnect=0.01)
    reader = reader_of(source)
    while not caplog.messages:
        reader.read(1)
    assert "could not connect: Connection refused" in caplog.messages[0]
    with closing(socket.create_server(("127.0.0.1", port))) as listening:
        thread = serving(listening, b"here\n")
        assert read_lines(reader, 1) == ["here"]
        thread.join()
    reader.close()


def test_without_reconnect_a_server_that_is_not_there_is_an_error() -> None:
    with server() as (_, port):
        pass
    source = SocketSource("127.0.0.1", port)
    reader = reader_of(source)
    with pytest.raises(
        tg.ReadError, match=rf"socket 127.0.0.1:{port}: could not connect: Connection refused. .*say reconnect=1"
    ):
        read_lines(reader)


def test_a_host_without_an_address_is_an_error() -> None:
    source = SocketSource("no-such-host.invalid", 80)
    reader = reader_of(source)
    with pytest.raises(tg.ReadError, match=r"socket no-such-host\.invalid:80: could not connect: "):
        reader.read(1)


def test_a_connection_that_breaks_is_an_error() -> None:
    with server() as (listening, port):
        source = SocketSource("127.0.0.1", port)
        reader = reader_of(source)
        reader.read(1)
        connection, _ = listening.accept()
        with closing(connection):
            connection.sendall(b"one\n")
            assert read_lines(reader, 1) == ["one"]
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing sends a reset
        with pytest.raises(tg.ReadError, match="the connection was lost: Connection reset by peer"):
            read_lines(reader)


def test_an_undecodable_or_overlong_line_is_an_error() -> None:
    with server() as (listening, port):
        thread = serving(listening, b"good\nb\xe4d\n", b"x" * 200)
        source = SocketSource("127.0.0.1", port)
        with pytest.raises(tg.ReadError, match=r"byte 6: 0xe4 is not valid utf-8"):
            read_lines(reader_of(source))
        short = SocketSource("127.0.0.1", port, max_line_bytes=100)
        with pytest.raises(tg.ReadError, match=r"the line at byte 0 has no end within 100 bytes"):
            read_lines(reader_of(short))
        thread.join()


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_socket_is_read_on_every_runner_that_supports_streams(runner: str) -> None:
    with server() as (listening, port):
        thread = serving(listening, b"".join(b"%d\n" % n for n in range(1000)))
        found = collect(lambda p: {"lines": p | tg.io.ReadFromSocket("127.0.0.1", port)}, runner)
        assert found.values("lines") == [str(n) for n in range(1000)]
        thread.join()


SCRIPT = """
import sys
import tidegate as tg

def pipeline():
    p = tg.Pipeline(name="lines")
    p | "lines" >> tg.io.ReadFromSocket("127.0.0.1", int(sys.argv[-1]) if sys.argv[-1].isdigit() else 9) | tg.Map(print)
    return p

if __name__ == "__main__":
    pipeline().run().wait_until_finish()
"""


def test_a_run_warns_at_its_start_that_lines_are_read_at_most_once(tmp_path: Path) -> None:
    script = tmp_path / "lines.py"
    script.write_text(SCRIPT)
    with server() as (listening, port):
        thread = serving(listening, b"one\n")
        done = subprocess.run([sys.executable, script, str(port)], capture_output=True, text=True, timeout=TIMEOUT)
        thread.join()
    assert (done.returncode, done.stdout) == (0, "one\n"), done.stderr
    assert (
        f"tidegate: warning: 'lines/Read' reads socket 127.0.0.1:{port} at most once: after a failure, what it had "
        "read but not processed is lost" in done.stderr
    )


def test_explain_says_that_lines_are_read_at_most_once() -> None:
    from tidegate.runners.direct import DirectRunner
    from tidegate.runners.planner.explain import explain

    pipeline = tg.Pipeline()
    _ = pipeline | "lines" >> tg.io.ReadFromSocket("127.0.0.1", 9) | tg.Map(print)
    options = tg.PipelineOptions()
    text = explain(DirectRunner().plan(pipeline.portable(), options))
    assert "socket 127.0.0.1:9, unbounded, at_most_once" in text
    assert "  - 'lines/Read' reads socket 127.0.0.1:9 at most once: after a failure, what it had read" in text


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("", 1), {}, "host is a name or an address, not ''"),
        (("localhost", 0), {}, "port is a number from 1 to 65535, not 0"),
        (("localhost", "80"), {}, "port is a number from 1 to 65535, not '80'"),
        (("localhost", 80), {"reconnect": 0}, "reconnect must be positive"),
        (("localhost", 80), {"connect_timeout": -1}, "connect_timeout must be positive"),
    ],
)
def test_an_invalid_address_or_delay_is_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        tg.io.ReadFromSocket(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "utf-16"}, "lines in utf-16 can't be split"),
        ({"encoding": "klingon"}, "Python has no text encoding 'klingon'"),
        ({"errors": "hope"}, "errors is one of 'strict'"),
        ({"max_line_bytes": 0}, "max_line_bytes must be a whole number of at least 1"),
    ],
)
def test_invalid_options_of_lines_are_refused_when_the_pipeline_is_built(options: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        _ = tg.Pipeline() | tg.io.ReadFromSocket("localhost", 80, **options)
