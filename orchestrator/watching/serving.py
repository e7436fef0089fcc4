"""Serve a page of what is watched to this machine alone, behind a token that nobody can guess."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from orchestrator.core.errors import ConfigError
from orchestrator.report import page
from orchestrator.watching.view import View

HERE = "127.0.0.1"
HELD_S = 10.0  # for which a question waits until there is something new
LAST_S = 3.0  # for which the last view is kept for pages that have not fetched it
_IDLE_S = 30.0  # for which a connection may say nothing


class Page:
    """The view that pages show, as JSON; a page that has it waits for the next one."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self.address = ""
        self._new = threading.Condition()
        self._number = 0
        self._state = b"{}"
        self._fetched = 0  # the number of the view that was fetched last

    @property
    def url(self) -> str:
        return f"http://{self.address}/{self.token}/"

    def show(self, shown: View) -> None:
        """Have pages show a view."""
        with self._new:
            self._number += 1
            self._state = json.dumps({"number": self._number, **asdict(shown)}).encode()
            self._new.notify_all()

    def after(self, seen: int) -> bytes:
        """Return the newest view, as soon as there is another than the one that was seen."""
        with self._new:
            self._new.wait_for(lambda: self._number != seen, HELD_S)
            self._fetched = self._number
            self._new.notify_all()
            return self._state

    def wait_until_fetched(self) -> None:
        """Wait a moment until the last view was fetched; there may be no page."""
        with self._new:
            self._new.wait_for(lambda: self._fetched == self._number, LAST_S)


@contextmanager
def served(port: int) -> Iterator[Page]:
    """Serve a page at a port of this machine (0: any that is free) while entered; ConfigError where that is taken."""
    shown = Page()

    class Handler(_Handler):
        of = shown

    try:
        server = ThreadingHTTPServer((HERE, port), Handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--port {port}: {error}; accepted: a port that is free") from None
    server.daemon_threads = True
    shown.address = f"{HERE}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, name="page", daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers `GET /TOKEN/` with the page and `GET /TOKEN/state?SEEN` with the view, and nothing else.

    A name other than that of the address is refused: a page of a stranger that has its own name lead here (DNS
    rebinding) is asked for by that name.
    """

    of: Page
    timeout = _IDLE_S

    def do_GET(self) -> None:
        path, _, seen = self.path.partition("?")
        _, token, *rest = path.split("/") if path.startswith("/") else ("", "")
        known = secrets.compare_digest(token.encode("utf-8", "replace"), self.of.token.encode())
        if not known or self.headers.get("Host") != self.of.address:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")
        elif rest == [""]:
            nonce = secrets.token_urlsafe(12)
            text = page.fill("watch_page.html", title="orch watch", nonce=nonce)
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", text.encode(), script=f"'nonce-{nonce}'")
        elif rest == ["state"]:
            number = int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 18 else 0
            self._answer(HTTPStatus.OK, "application/json", self.of.after(number))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")

    def _answer(self, status: HTTPStatus, kind: str, content: bytes, *, script: str = "'none'") -> None:
        self.send_response(status)
        policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {script}; connect-src 'self'"
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing: the terminal is for what is watched."""
