"""A web server of files, in this process, that understands requests for ranges."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextlib.contextmanager
def http_server(folder: Path) -> Iterator[str]:
    """Serve the files of a folder; the URL of the folder."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, *_: object) -> None: ...

        def _answer(self, *, with_body: bool) -> None:
            try:
                data = (folder / self.path.lstrip("/")).read_bytes()
            except OSError:
                self.send_error(404)
                return
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted is None:
                self.send_response(200)
                part = data
            else:
                first = int(wanted[1])
                part = data[first : int(wanted[2]) + 1] if wanted[2] else data[first:]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(part)))
            self.send_header("ETag", f'"{hash(data):x}"')
            self.end_headers()
            if with_body:
                self.wfile.write(part)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
