"""The read-only web server of the page that follows a run, on loopback.

Other web pages in the same browser can also send requests to a server on loopback. A request must name this server as
its host, which defeats host names that are made to point here (DNS rebinding); and only this page may read and show the
answers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .run_folder import RunFolder

_PATIENCE = 10.0
"""Seconds after which an idle connection is closed."""
_FOR_PICTURES = 2.0
"""Seconds for a page that knows of the end to fetch the last picture."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server(ThreadingHTTPServer):
    """The server; its socket opens when it is created, and it answers while `serve_forever` runs.

    Args:
        folder: The folder of the run.
        port: The port to listen on, at 127.0.0.1; 0 takes a free one.

    Raises:
        OSError: The port is taken, or may not be used.
    """

    daemon_threads = True
    allow_reuse_address = False  # another server on the port is an error, not a race

    def __init__(self, folder: RunFolder, port: int = 0) -> None:
        self.folder = folder
        self.page = files(__package__).joinpath("page.html").read_bytes()
        self.policy = _policy(self.page)
        self.ended = threading.Event()
        """Whether the training process is known to have ended."""
        self.told = threading.Event()
        """Whether any page has been told so."""
        super().__init__(("127.0.0.1", port), _Answers)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names that requests may use."""
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors in requests, which mean that a page was closed."""

    def state(self, place: str) -> dict[str, Any]:
        """The answer to a page's poll: the lines that are new to it, and the state of the run."""
        has_ended = self.ended.is_set()  # before reading, so that nothing is written after the read
        lines = self.folder.lines(place)
        return {
            **self.folder.settings(), "name": self.folder.path.resolve().name, "pictures": self.folder.pictures(),
            "lines": lines.text, "begins": lines.begins, "place": lines.place, "all": lines.is_all,
            "written": self.folder.seconds_since_written(), "ended": has_ended,
        }  # fmt: skip


class _Answers(BaseHTTPRequestHandler):
    server: Server
    timeout = _PATIENCE
    server_version = "nngrad"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # every other method
            return self._refuse_method
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Do not print requests."""

    def _refuse_method(self) -> None:
        self.close_connection = True
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n", more={"Allow": "GET, HEAD"})

    def _answer(self, with_content: bool) -> None:
        server = self.server
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in server.hosts:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"this server is known by other names\n", with_content)
            return
        asked = urlsplit(self.path)
        if asked.scheme or asked.netloc:
            self._send(HTTPStatus.NOT_FOUND, b"not found\n", with_content)
        elif asked.path == "/":
            self._send(HTTPStatus.OK, server.page, with_content, "text/html; charset=utf-8",
                       {"Content-Security-Policy": server.policy})  # fmt: skip
        elif asked.path == "/state":
            state = server.state(parse_qs(asked.query).get("place", [""])[0])
            self._send(HTTPStatus.OK, json.dumps(state).encode(), with_content, "application/json")
            if state["ended"] and state["all"]:
                server.told.set()
        else:
            folder, _, name = asked.path.removeprefix("/").partition("/")
            picture = server.folder.picture(name) if folder == "samples" else None
            if picture is None:
                self._send(HTTPStatus.NOT_FOUND, b"not found\n", with_content)
            else:
                self._send(HTTPStatus.OK, picture, with_content, "image/png")

    def _send(
        self, status: HTTPStatus, content: bytes, with_content: bool = True, kind: str = "text/plain; charset=utf-8",
        more: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.send_response(status)
        own = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Content-Type": kind}
        for name, value in {**_HEADERS, **own, **(more or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_content:
            self.wfile.write(content)


def _policy(page: bytes) -> str:
    """The page's content security policy: its own script and style, and requests to this server."""

    def digest(tag: bytes) -> str:
        text = page.partition(b"<" + tag + b">")[2].partition(b"</" + tag + b">")[0]
        return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"

    return (f"default-src 'none'; script-src {digest(b'script')}; style-src {digest(b'style')}; img-src 'self' data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")  # fmt: skip


def serve_to_the_end(server: Server, patience: float) -> None:
    """Let open pages read the end of a run: wait up to `patience` seconds for one, and then for its pictures."""
    server.ended.set()
    if server.told.wait(patience):
        time.sleep(_FOR_PICTURES)
