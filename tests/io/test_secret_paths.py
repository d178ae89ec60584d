"""URLs that refer to secrets: what they stand for is in no path that a source stores, and may change while it reads."""

from __future__ import annotations

import json
import pickle
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options

import tidegate as tg

TEXT = b"".join(b"line %d\n" % n for n in range(2000))


class Handler(BaseHTTPRequestHandler):
    """Serves one text to those who have the token."""

    token = "first-token"

    def do_GET(self) -> None:
        if parse_qs(urlsplit(self.path).query).get("sig") != [Handler.token]:
            self.send_error(403)
            return
        start, end = 0, len(TEXT)
        if asked := self.headers.get("Range"):
            start, _, last = asked.removeprefix("bytes=").partition("-")  # type: ignore[assignment]
            start, end = int(start), min(int(last) + 1, len(TEXT)) if last else len(TEXT)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(TEXT)}")
        self.end_headers()
        self.wfile.write(TEXT[start:end])

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def url() -> Iterator[str]:
    pytest.importorskip("aiohttp")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/a.txt"
        server.shutdown()


def test_a_token_in_a_url_is_in_no_split_and_may_change_before_it_is_read(url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first-token")
    Handler.token = "first-token"
    source = tg.io.ReadFromText(f"{url}?sig=${{file:{token}}}", min_split_size=1000).source
    splits = source.splits(2)
    assert len(splits) == 2
    assert "first-token" not in repr(splits)
    token.write_text("second-token")
    Handler.token = "second-token"
    lines: list[str] = []
    for split in splits:
        reader = source.reader(split)
        while not (batch := reader.read(500)).end:
            lines += batch.block.values
        assert "token" not in json.dumps(reader.position())
        reader.close()
    assert lines == TEXT.decode().splitlines()


def test_elements_have_the_reference_where_the_name_of_the_file_has_the_token(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Handler.token = "third-token"
    monkeypatch.setenv("TIDE_SIG", "third-token")
    p = tg.Pipeline(options=[])
    found = p | tg.io.MatchFiles(f"{url}?sig=${{TIDE_SIG}}")
    sizes = found | tg.io.ReadMatches() | tg.Map(lambda file: (file.path, len(file.read())))
    assert sizes.collect() == [(f"{url}?sig=${{TIDE_SIG}}", len(TEXT))]


def test_a_followed_folder_is_found_by_the_secret_of_the_moment(tmp_path: Path) -> None:
    token = tmp_path / "token"
    fs = fsspec.filesystem("memory")
    fs.pipe("/flood-1/in/a.txt", b"a\n")
    fs.pipe("/ebb-22/in/b.txt", b"b\n")
    token.write_text("flood-1")
    source = tg.io.ReadFromText(f"memory://${{file:{token}}}/in/*.txt", follow=True, min_age=0).source
    enumerator = source.enumerator()
    assert enumerator is not None

    def ids() -> list[str]:
        """The splits of files that two looks have found the same."""
        return [split.id for _ in range(2) for split in enumerator.discover(10).splits]

    (flood,) = ids()
    token.write_text("ebb-22")
    (ebb,) = ids()
    for id, name in ((flood, "a.txt"), (ebb, "b.txt")):
        assert id.startswith(f"memory:///${{file:{token}}}/in/{name}@")
    assert not {"flood-1", "ebb-22"} & set(json.dumps(enumerator.state()).split("/"))


PASSWORD = "quay-and-mooring"


class Harbour(MemoryFileSystem):
    """A file system of hosts that ask for a password, whose paths lack the host, as those of SFTP and FTP do."""

    protocol = "harbour"
    hosts: dict[str, dict[str, Any]] = {}  # noqa: RUF012

    def __init__(self, host: str = "", username: str = "", password: str = "", **options: Any) -> None:
        super().__init__(**options)
        if (username, password) != ("pilot", PASSWORD):
            raise PermissionError(f"{username} with {password} is not let in")
        self.store = self.hosts.setdefault(host, {})
        self.pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(infer_storage_options(path)["path"]))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {name: value for name, value in infer_storage_options(path).items() if name not in ("path", "protocol")}


@pytest.fixture
def harbour(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL with references, up to the host, of the hosts `east` and `west`."""
    monkeypatch.setenv("PILOT", "pilot")
    monkeypatch.setenv("QUAY", PASSWORD)
    fsspec.register_implementation("harbour", Harbour, clobber=True)
    for host in ("east", "west"):
        Harbour(host, "pilot", PASSWORD).pipe("/in/a.txt", f"{host}\n".encode())
    yield "harbour://${PILOT}:${QUAY}@"
    Harbour.hosts.clear()
    Harbour.clear_instance_cache()


def test_files_of_several_hosts_are_matched_and_read_by_urls_with_references(harbour: str) -> None:
    p = tg.Pipeline(options=[])
    found = p | tg.io.MatchFiles([f"{harbour}{host}/in/*.txt" for host in ("east", "west")])
    texts = found | tg.io.ReadMatches() | tg.Map(lambda file: (file.path, file.read_utf8()))
    assert PASSWORD.encode() not in pickle.dumps(p.sealed())
    assert sorted(texts.collect()) == [(f"{harbour}{host}/in/a.txt", f"{host}\n") for host in ("east", "west")]


@pytest.mark.parametrize("read", [tg.io.MatchFiles, tg.io.ReadFromText])
def test_splits_and_states_of_followed_files_of_a_host_have_references(harbour: str, read: Any) -> None:
    pattern = f"{harbour}east/in/*.txt"
    for follow in ({}, {"follow": True, "min_age": 0}):
        transform = read(pattern, **follow)
        source = getattr(transform, "source", None) or transform.read.source
        enumerator = source.enumerator()
        if enumerator is None:
            (split,) = source.splits(1)
        else:
            (split,) = (each for _ in range(2) for each in enumerator.discover(9).splits)
        stored = repr((split, None if enumerator is None else enumerator.state()))
        assert f"{harbour}east/in/a.txt" in stored
        assert PASSWORD not in stored
        assert len(source.reader(split).read(9).block.values) == 1


@pytest.mark.parametrize("read", [tg.io.MatchFiles, tg.io.ReadFromText])
def test_a_checkpoint_that_names_files_without_their_host_is_resumed(harbour: str, read: Any) -> None:
    for host in ("east", "west"):
        Harbour(host, "pilot", PASSWORD).pipe("/in/b.txt", f"{host}\n".encode())
    patterns = [f"{harbour}{host}/in/*.txt" for host in ("east", "west")]
    transform = read(patterns, follow=True, min_age=0)
    source = getattr(transform, "source", None) or transform.read.source

    def found(state: Any) -> list[str]:
        """The ids of the splits that an enumerator finds, without their versions."""
        enumerator = source.enumerator(state)
        splits = [split for _ in range(2) for split in enumerator.discover(9).splits]
        states.append(enumerator.state())
        return sorted(split.id.partition(".txt@")[0] for split in splits)

    states: list[Any] = []
    east, west = ([f"{harbour}{host}/in/{name}" for name in "ab"] for host in ("east", "west"))
    assert found(None) == [*east, *west]
    files = states[-1]["files"]
    older = {url.replace(f"{harbour}east/", "harbour:///"): known for url, known in files.items() if "east" in url}
    assert list(older) == ["harbour:///in/a.txt", "harbour:///in/b.txt"]
    assert found({"files": older, "partial": None}) == west
    assert states[-1]["files"].keys() == files.keys()
    changed = {"harbour:///in/a.txt": [patterns[0], "another version", True]}
    with pytest.raises(tg.io.PositionLost, match=r"harbour://\$\{PILOT\}:\$\{QUAY\}@east/in/a.txt was changed"):
        found({"files": changed, "partial": ["harbour:///in/a.txt", 1]})


@pytest.mark.parametrize(
    "apply",
    [
        lambda p, url: p | tg.io.ReadFromText(f"{url}/in/*"),
        lambda p, url: p | tg.io.MatchFiles(f"{url}/in/*"),
        lambda p, url: p | tg.Create(["a"]) | tg.io.WriteToText(f"{url}/out"),
        lambda p, url: p | tg.ReadFromDelta(f"{url}/table"),
        lambda p, url: p | tg.Create([tg.Row(n=1)]) | tg.WriteToDelta(f"{url}/table", {"n": int}),
    ],
)
def test_a_url_with_a_password_as_plain_text_is_refused(harbour: str, apply: Any) -> None:
    with pytest.raises(tg.BuildError, match=r"has a password as plain text.* as in \$\{PASSWORD\}") as caught:
        apply(tg.Pipeline(options=[]), f"harbour://pilot:{PASSWORD}@east")
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("read", [tg.io.MatchAll, tg.io.ReadMatches, tg.io.ReadAllFromText])
@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_an_element_with_a_password_fails_the_run_and_is_not_shown(
    harbour: str, read: Any, runner: str, capfd: pytest.CaptureFixture[str]
) -> None:
    p = tg.Pipeline(runner)
    _ = p | tg.Create([f"harbour://pilot:{PASSWORD}@east/in/*"]) | read() | tg.Map(print)
    with pytest.raises(Exception, match="has a password as plain text") as caught:
        p.run().wait_until_finish()
    assert PASSWORD not in "".join(traceback.format_exception(caught.value)) + "".join(capfd.readouterr())


def test_a_wrong_password_is_not_shown_by_the_error(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUAY", "wharf-and-anchor")
    with pytest.raises(tg.BuildError, match=r"\*\*\* is not let in: check the credentials") as caught:
        _ = tg.Pipeline(options=[]) | tg.io.MatchFiles(f"{harbour}east/in/*")
    assert "wharf-and-anchor" not in str(caught.value)


def test_the_name_of_a_file_is_no_reference_to_a_secret(harbour: str) -> None:
    Harbour("east", "pilot", PASSWORD).pipe("/in/${QUAY}.txt", b"none\n")
    p = tg.Pipeline(options=[])
    read = p | tg.io.MatchFiles(f"{harbour}east/in/$*") | tg.io.ReadMatches()
    texts = read | tg.Map(lambda file: (file.path, file.read_utf8()))
    assert texts.collect() == [(f"{harbour}east/in/$${{QUAY}}.txt", "none\n")]


READ_ELEMENTS: dict[str, Any] = {
    "lines": lambda paths: paths | tg.io.ReadAllFromText(),
    "rows": lambda paths: paths | tg.io.ReadAllFromJson() | tg.Map(str),
    "matched": lambda paths: paths | tg.io.MatchAll() | tg.io.ReadMatches() | tg.Map(lambda file: file.read_utf8()),
    "files": lambda paths: paths | tg.io.ReadMatches() | tg.Map(lambda file: file.read_utf8()),
}


@pytest.mark.parametrize("read", READ_ELEMENTS.values(), ids=READ_ELEMENTS)
@pytest.mark.parametrize("at", ["memory://", ""], ids=["remote", "local"])
def test_an_element_refers_to_no_secret(read: Any, at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "elsewhere")
    for folder, text in (("${HOME}", b'{"a": 1}'), ("$${HOME}", b'{"a": 2}'), ("elsewhere", b'{"a": 3}')):
        fsspec.filesystem("memory").pipe(f"/{folder}/x", text)
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_bytes(text)
    for folder, digit in (("${HOME}", "1"), ("$${HOME}", "2")):
        (found,) = read(tg.Pipeline(options=[]) | tg.Create([f"{at}{folder}/x"])).collect()
        assert digit in found
