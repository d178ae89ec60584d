"""URLs that refer to secrets: what they stand for is in no path that a source stores, and may change while it reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import fsspec
import pytest

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
