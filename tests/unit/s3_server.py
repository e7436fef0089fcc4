"""An S3 on loopback (moto's server) that counts requests, and waits before it answers where that is wanted."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


class Server:
    """Where it listens, and the requests so far: method and path."""

    def __init__(self, url: str, requests: list[str]) -> None:
        self.url = url
        self.requests = requests

    @property
    def environment(self) -> dict[str, str]:
        """What clients find it and are let in by."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's
        return


@contextmanager
def serving(*, wait_s: float = 0.0, tell: Callable[[str], None] = lambda _: None) -> Iterator[Server]:
    """Serve in threads of this process."""
    inner, requests = DomainDispatcherApplication(create_backend_app), list[str]()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        tell(requests[-1])
        time.sleep(wait_s)
        return inner(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, name="s3", daemon=True)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    """Serve until standard input ends, for a benchmark: tells the address, then every request, one a line."""
    with serving(wait_s=float(sys.argv[1]), tell=lambda line: print(line, flush=True)) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
