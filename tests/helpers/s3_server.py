"""An S3 on loopback (moto's server) that counts requests, and waits before it answers where that is wanted."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass
class Server:
    """Where it listens, the requests so far (method and path), and how long it waits before each answer."""

    url: str
    requests: list[str]
    wait_s: float = 0.0

    @property
    def environment(self) -> dict[str, str]:
        """What clients find it and are let in by."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's
        return


@contextmanager
def serving() -> Iterator[Server]:
    """Serve in threads of this process."""
    inner = DomainDispatcherApplication(create_backend_app)
    about = Server("", [])

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        about.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        time.sleep(about.wait_s)
        return inner(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    about.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="s3", daemon=True)
    thread.start()
    try:
        yield about
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    """Serve until standard input ends: tells the address, then the number of requests after each line that it reads.

    Such a line is for how many seconds to wait before each answer from then on.
    """
    with serving() as server:
        print(server.url, flush=True)
        for line in sys.stdin:
            server.wait_s = float(line)
            print(len(server.requests), flush=True)


if __name__ == "__main__":
    main()
