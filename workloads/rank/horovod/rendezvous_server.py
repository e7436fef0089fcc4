"""Run the rendezvous server at which ranks of a Horovod training on Gloo exchange their addresses.

Its arguments: address, port, hosts as Horovod writes them (h1:2,h2:1), number of ranks.
"""

from __future__ import annotations

import sys

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer


def main() -> None:
    address, port, hosts, world = sys.argv[1:]
    try:
        server = RendezvousHTTPServer((address, int(port)), RendezvousHandler, 0)
    except OSError as error:
        sys.exit(f"rendezvous server: {address}:{port}: {error.strerror}; the ranks need it to meet")
    server.daemon_threads = True
    server.init(get_host_assignments(parse_hosts(hosts), int(world), int(world)))
    server.serve_forever()
