"""A web server of files in memory, in a thread of this process."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@contextmanager
def serving(files: Mapping[str, bytes], forbidden: str = "", ranges: bool = True) -> Iterator[str]:
    """Serve files; yield the server's URL, without a slash at its end.

    Args:
        files: content by path, which begins with a slash.
        forbidden: path of a file without permission to read.
        ranges: whether the server sends parts of files.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            # A client that has seen enough closes the connection.
            with suppress(ConnectionError):
                self.wfile.write(self._answer())

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self) -> bytes:
            content = files.get(self.path)
            if content is None or self.path == forbidden:
                self.send_error(404 if content is None else 403)
                return b""
            asked = _RANGE.fullmatch(self.headers.get("Range", "")) if ranges else None
            part = content
            if asked:
                start = int(asked[1])
                part = content[start : int(asked[2]) + 1 if asked[2] else None]
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(content)}")
            if ranges:
                self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            return part

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
